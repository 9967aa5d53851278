//! What a volume lies on fails while it is mounted: that is told once, with what can be done.

use std::fs;
use std::io::Write;
use std::path::Path;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use tacita_testkit::strace::{Watched, cannot_trace};

use crate::bench::{Bench, Mounted, fail, kill, status_of, succeed, tacita};

/// The one message of a mount that has this in it.
pub(crate) fn told_once(dir: &str, what: &str) -> String {
    let status = status_of(dir);
    let messages = status["messages"].as_array().unwrap();
    assert!(messages.len() < 8, "every request is told: {messages:?}");
    let found: Vec<_> =
        messages.iter().filter(|m| m["text"].as_str().unwrap().contains(what)).collect();
    assert!(found.len() == 1 && found[0]["count"] == 1, "{what}: {messages:?}");
    assert_eq!(found[0]["level"], "error");
    found[0]["text"].as_str().unwrap().to_owned()
}

fn write(path: &Path) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(&vec![7; 100_000])?;
    file.sync_all()
}

/// A limit on the length of files stops all that is written, as a failing disk does.
#[test]
fn what_cannot_be_written_is_told_once() {
    let test = "what_cannot_be_written_is_told_once";
    let mounted = Bench::mounted(test, &[], &["--purge-every", "1"]);
    let Some(Mounted { bench: _bench, volume, guard, dir }) = mounted else { return };
    write(&guard.join("synced")).unwrap();
    let daemon = status_of(&dir)["pid"].as_i64().unwrap();
    let daemon = Pid::from_raw(daemon.try_into().unwrap());
    let none = Rlimit { current: Some(4096), maximum: None };
    prlimit(daemon, Resource::Fsize, none).unwrap();
    for number in 0..20 {
        write(&guard.join(format!("{number}"))).unwrap_err();
    }
    fs::remove_file(guard.join("synced")).unwrap_err();
    // The timers of syncs and purges fail, too.
    std::thread::sleep(std::time::Duration::from_secs(7));
    let said = told_once(&dir, "File too large");
    assert!(said.contains("stopped all writing") && said.contains("mount again"), "{said}");
    let shown = succeed(&["status", &dir]);
    assert!(!shown.contains("no messages") && shown.contains("File too large"), "{shown}");
    fail(4, &["umount", &dir]);
    succeed(&["dnefs", "mount", &volume, &dir]);
    assert!(fs::read(guard.join("synced")).unwrap() == vec![7; 100_000]);
    succeed(&["umount", &dir]);
    succeed(&["dnefs", "check", &volume]);
}

#[test]
fn what_cannot_be_read_is_told_once() {
    let test = "what_cannot_be_read_is_told_once";
    let mounted = Bench::mounted(test, &[], &[]);
    let Some(Mounted { bench: _bench, volume, guard, dir }) = mounted else { return };
    for number in 0..20 {
        write(&guard.join(format!("{number}"))).unwrap();
    }
    succeed(&["umount", &dir]);
    succeed(&["dnefs", "mount", &volume, &dir]);
    fs::File::options().write(true).open(&volume).unwrap().set_len(4096).unwrap();
    for number in 0..20 {
        fs::read(guard.join(format!("{number}"))).unwrap_err();
    }
    let said = told_once(&dir, "cannot be read");
    assert!(said.contains("tacita dnefs check"), "{said}");
    kill(&dir);
}

/// A mount on which a file is deleted and not purged yet, while no block can be erased; `None` where that
/// cannot be had, which is said.
fn unerasable(test: &str) -> Option<(Mounted, Watched)> {
    if cannot_trace(test) {
        return None;
    }
    let mounted = Bench::mounted(test, &[], &["--purge-every", "0"])?;
    write(&mounted.guard.join("file")).unwrap();
    fs::remove_file(mounted.guard.join("file")).unwrap();
    let daemon = status_of(&mounted.dir)["pid"].to_string();
    Some((mounted, Watched::attach(&daemon, "fallocate", "error=EIO")))
}

/// What is said of a block that could not be erased: what it is, what may be left, what to do.
fn is_told(said: &str) {
    let wanted = ["went bad while it was erased", "keys of deleted nodes", "`tacita dnefs audit`"];
    assert!(wanted.iter().all(|part| said.contains(part)), "{said}");
}

/// The last receipt, of a mount or a volume, says that the purge was not complete.
fn is_not_complete(place: &str) {
    let receipt = succeed(&["dnefs", "receipt", place, "--json"]);
    let receipt: serde_json::Value = serde_json::from_str(&receipt).unwrap();
    assert_eq!(receipt["complete"], false, "{receipt}");
}

/// A block that cannot be erased is bad from then on, and whoever purges is told what may be left.
#[test]
fn a_block_that_cannot_be_erased_is_told() {
    let made = unerasable("a_block_that_cannot_be_erased_is_told");
    let Some((Mounted { bench: _bench, volume, guard: _guard, dir }, failing)) = made else {
        return;
    };
    is_told(&fail(1, &["dnefs", "purge", &dir]));
    drop(failing);
    is_not_complete(&dir);
    is_told(&fail(1, &["umount", &dir]));
    succeed(&["dnefs", "check", &volume]);
}

/// The last purge is done by nobody's command but the unmount's, who hears of it.
#[test]
fn a_block_that_cannot_be_erased_at_the_end_is_told_who_unmounts() {
    let made = unerasable("a_block_that_cannot_be_erased_at_the_end_is_told_who_unmounts");
    let Some((Mounted { bench: _bench, volume, guard: _guard, dir }, failing)) = made else {
        return;
    };
    is_told(&fail(1, &["umount", &dir]));
    drop(failing);
    is_not_complete(&volume);
    assert!(fail(2, &["umount", &dir]).contains("nothing is mounted here"), "it is told once");
    succeed(&["dnefs", "mount", &volume, &dir]);
    succeed(&["umount", &dir]);
}

/// Each sync of an unmount fails, the last one's before the purge, and those of the purge: whoever unmounts is
/// told what that means and what to do, which helps.
#[test]
fn an_unmount_that_fails_says_what_is_left_and_what_to_do() {
    let test = "an_unmount_that_fails_says_what_is_left_and_what_to_do";
    if cannot_trace(test) {
        return;
    }
    let mut at_the_purge = 0;
    for time in 1.. {
        let mounted = Bench::mounted(test, &["--size", "8M"], &["--purge-every", "0"]);
        let Some(Mounted { bench: _bench, volume, guard, dir }) = mounted else { return };
        write(&guard.join("file")).unwrap();
        fs::remove_file(guard.join("file")).unwrap();
        let daemon = status_of(&dir)["pid"].to_string();
        let failing = Watched::attach(&daemon, "fdatasync", &format!("error=EIO:when={time}+"));
        let unmount = tacita(&["umount", &dir]);
        drop(failing);
        if unmount.status.success() {
            break;
        }
        let said = String::from_utf8_lossy(&unmount.stderr).into_owned();
        assert_eq!(unmount.status.code(), Some(4), "{time}: {said}");
        let is_purge = said.contains("what was deleted may still be decrypted");
        assert!(is_purge || said.contains("the final sync failed"), "{time}: {said}");
        let remedy = if is_purge { "and mount it again" } else { "and mount again" };
        assert!(said.contains(remedy), "{time}: {said}");
        at_the_purge += u32::from(is_purge);
        succeed(&["dnefs", "mount", &volume, &dir]);
        succeed(&["umount", &dir]);
        succeed(&["dnefs", "check", &volume]);
    }
    assert!(at_the_purge > 0, "no sync of the last purge has failed");
}

/// Each sync of a purge fails: whoever has asked is told what that means and what to do, and so is the log,
/// once, whether it is at the keys, at what they have replaced, or at the receipt.
#[test]
fn a_purge_that_fails_says_what_is_left_and_what_to_do() {
    let test = "a_purge_that_fails_says_what_is_left_and_what_to_do";
    if cannot_trace(test) {
        return;
    }
    let mut at_the_erase = 0;
    for time in 1.. {
        let mounted = Bench::mounted(test, &["--size", "8M"], &["--purge-every", "0"]);
        let Some(Mounted { bench: _bench, guard, dir, .. }) = mounted else { return };
        write(&guard.join("file")).unwrap();
        fs::remove_file(guard.join("file")).unwrap();
        succeed(&["sync", &dir]);
        let daemon = status_of(&dir)["pid"].to_string();
        write(&guard.join("other")).unwrap();
        fs::remove_file(guard.join("other")).unwrap();
        let failing = Watched::attach(&daemon, "fdatasync", &format!("error=EIO:when={time}+"));
        let purge = tacita(&["dnefs", "purge", &dir]);
        if purge.status.success() {
            drop(failing);
            succeed(&["umount", &dir]);
            break;
        }
        assert_eq!(purge.status.code(), Some(4), "{purge:?}");
        let said = String::from_utf8_lossy(&purge.stderr).into_owned();
        assert!(said.contains("Input/output error"), "{said}");
        let told = told_once(&dir, "Input/output error");
        let remedy = "what was deleted may still be decrypted: see to what the volume lies on, and \
                      purge again";
        let is_erase = told.contains(remedy);
        assert!(is_erase || told.contains("unmount, and mount again"), "{told}");
        assert!(!is_erase || said.contains(remedy), "{time}: {said}");
        assert!(is_erase || !said.contains("purge again"), "{time}: {said}");
        // Told to do it again it does, and says nothing more until then.
        fail(4, &["dnefs", "purge", &dir]);
        assert_eq!(told_once(&dir, "Input/output error"), told);
        drop(failing);
        if is_erase {
            at_the_erase += 1;
            succeed(&["dnefs", "purge", &dir]);
            succeed(&["umount", &dir]);
        } else {
            kill(&dir);
        }
    }
    assert!(at_the_erase > 0, "no sync of an erase has failed");
}

/// A full disk below keeps keys from being replaced, and stops all writing.
#[test]
fn a_purge_that_has_no_room_says_what_is_left_and_what_to_do() {
    let test = "a_purge_that_has_no_room_says_what_is_left_and_what_to_do";
    if cannot_trace(test) {
        return;
    }
    let mounted = Bench::mounted(test, &["--size", "8M"], &["--purge-every", "0"]);
    let Some(Mounted { bench: _bench, volume, guard, dir }) = mounted else { return };
    write(&guard.join("file")).unwrap();
    fs::remove_file(guard.join("file")).unwrap();
    fs::File::open(guard.path()).unwrap().sync_all().unwrap();
    let daemon = status_of(&dir)["pid"].to_string();
    let full = Watched::attach(&daemon, "pwrite64", "error=ENOSPC");
    let said = fail(6, &["dnefs", "purge", &dir]);
    let remedy = "what was deleted may still be decrypted: make room in the file system of the volume's \
                  file, and mount it again";
    assert!(said.contains("No space left on device") && said.contains(remedy), "{said}");
    drop(full);
    fail(6, &["umount", &dir]);
    succeed(&["dnefs", "mount", &volume, &dir]);
    succeed(&["umount", &dir]);
    succeed(&["dnefs", "check", &volume]);
}

/// Which password opens a volume is told where a change of it fails.
#[test]
fn a_change_of_password_that_fails_half_way_says_which_one_opens() {
    let test = "a_change_of_password_that_fails_half_way_says_which_one_opens";
    if cannot_trace(test) {
        return;
    }
    let bench = Bench::new(test);
    let (one, two) = (bench.file("one", "one\n"), bench.file("two", "two\n"));
    let volume = bench.format(&["--password-file", &one]);
    let change = ["dnefs", "passwd", &volume, "--password-file", &one, "--new-password-file", &two];
    // The disk is full from the so-manieth write on.
    let full_from = |number: u32| {
        let inject = format!("inject=pwrite64:error=ENOSPC:when={number}+");
        let strace = ["-f", "-qq", "-o", "/dev/null", "-e", "trace=pwrite64", "-e", &inject];
        let mut command = std::process::Command::new("strace");
        command.args(strace).arg(env!("CARGO_BIN_EXE_tacita")).args(change);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(6), "{said}");
        said
    };
    let said = full_from(1);
    assert!(!said.contains("has begun"), "{said}");
    succeed(&["dnefs", "check", &volume, "--password-file", &one]);
    let said = (2..40).map(full_from).find(|said| said.contains("has begun")).unwrap();
    assert!(said.contains("make room there, and finish it"), "{said}");
    fail(3, &["dnefs", "check", &volume, "--password-file", &one]);
    let said = fail(1, &["dnefs", "check", &volume, "--password-file", &two]);
    assert!(said.contains("mount it for writing, which puts that right"), "{said}");
    succeed(&[&change[..3], &["--password-file", &two, "--new-password-file", &two]].concat());
    succeed(&["dnefs", "check", &volume, "--password-file", &two]);
}

/// A chip whose headers, volume table, superblock or roots cannot be read is not said to have none.
#[test]
fn a_volume_that_cannot_be_read_is_not_told_to_be_none() {
    let test = "a_volume_that_cannot_be_read_is_not_told_to_be_none";
    if cannot_trace(test) {
        return;
    }
    let bench = Bench::new(test);
    let volume = bench.format(&[]);
    let mut told = 0;
    // From the so-manieth read on, and for so long.
    for (from, to) in
        (1..30).flat_map(|from| [(from, "+".to_owned()), (from, format!("..{}", from + 8))])
    {
        let inject = format!("inject=pread64:error=EIO:when={from}{to}");
        let strace =
            ["-f", "-qq", "-o", "/dev/null", "-P", &volume, "-e", "trace=pread64", "-e", &inject];
        let mut command = std::process::Command::new("strace");
        command.args(strace).arg(env!("CARGO_BIN_EXE_tacita")).args(["dnefs", "check", &volume]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let nothing = ["header of UBI", "volume table", "holds no DNEFS volume", "no root opens"];
        let is_none = nothing.iter().any(|none| said.contains(none));
        assert!(!is_none && !said.contains("panicked"), "{from}{to}: {said}");
        told += u32::from(said.contains("Input/output error"));
    }
    assert!(told > 4, "{told}");
}

/// How often what is asked may come too early or too late.
const TRIES: u32 = 20;

/// Asks again and again while an unmount takes its time, until that is refused; the exit codes, and what was
/// said.
fn while_unmounting(test: &str, words: &[&str]) -> Option<Vec<(Option<i32>, String)>> {
    if cannot_trace(test) {
        return None;
    }
    let mounted = Bench::mounted(test, &["--size", "8M"], &["--purge-every", "0"]);
    let Mounted { bench: _bench, volume, guard, dir } = mounted?;
    write(&guard.join("file")).unwrap();
    fs::remove_file(guard.join("file")).unwrap();
    let daemon = status_of(&dir)["pid"].to_string();
    let slow = Watched::attach(&daemon, "fdatasync", "delay_enter=500000");
    let mut said = Vec::new();
    std::thread::scope(|scope| {
        let unmount = scope.spawn(|| tacita(&["umount", &dir]));
        while !unmount.is_finished() && said.last().is_none_or(|(code, _)| *code == Some(0)) {
            let output = tacita(&[words, &[dir.as_str()]].concat());
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            // By who delays it.
            if !message.contains("has been stopped") {
                said.push((output.status.code(), message));
            }
        }
        assert!(unmount.join().unwrap().status.success());
    });
    drop(slow);
    succeed(&["dnefs", "check", &volume]);
    Some(said)
}

/// The last purge is under way: nothing has failed.
#[test]
fn a_purge_that_comes_when_it_is_being_unmounted_is_told_so() {
    let test = "a_purge_that_comes_when_it_is_being_unmounted_is_told_so";
    for _ in 0..TRIES {
        let Some(mut said) = while_unmounting(test, &["dnefs", "purge"]) else { return };
        match said.pop() {
            Some((Some(5), message)) => {
                assert!(message.contains("it is being unmounted, which purges"), "{message}");
                return;
            }
            // Who comes at the very end may find nothing any more.
            Some((Some(2), message)) => assert!(message.contains("not served"), "{message}"),
            None | Some((Some(0), _)) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("no purge came while it was being unmounted");
}

#[test]
fn a_sync_that_comes_when_it_is_being_unmounted_hears_how_that_ends() {
    let test = "a_sync_that_comes_when_it_is_being_unmounted_hears_how_that_ends";
    let Some(said) = while_unmounting(test, &["sync"]) else { return };
    assert!(said.iter().any(|(code, _)| *code == Some(0)), "{said:?}");
    // Who comes at the very end may find nothing any more.
    assert!(!said.iter().any(|(_, message)| message.contains("not everything")), "{said:?}");
}
