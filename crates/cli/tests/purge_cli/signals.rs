//! Signals and readers that go while files are purged by their path.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::image::{Image, code, said, tacita};

/// As many passes as a method may have.
const PASSES: &str = "custom:R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R";

/// So much has been written when the signal comes: of some hundred times as much.
const BEGUN_LEN_BYTES: u64 = 4 << 20;

/// Begins to purge files slowly, where no signal is ignored but those of `ignored`.
fn begin(ignored: &str, paths: &[&Path]) -> Child {
    let trap = if ignored.is_empty() { String::new() } else { format!("trap '' {ignored}; ") };
    let script = format!("{trap}exec \"$@\"");
    Command::new("env")
        .args(["--default-signal=INT,TERM,HUP", "sh", "-c", &script, "sh"])
        .args([env!("CARGO_BIN_EXE_tacita"), "purge", "file", "--json", "--method", PASSES])
        .args(paths)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until the file has lost its name, and something has been written over it.
fn await_overwriting(child: &mut Child, path: &Path) {
    let io = format!("/proc/{}/io", child.id());
    let written = || {
        let io = fs::read_to_string(&io).unwrap_or_default();
        let line = io.lines().find_map(|line| line.strip_prefix("wchar: "));
        line.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
    };
    while path.exists() || written() < BEGUN_LEN_BYTES {
        assert!(child.try_wait().unwrap().is_none(), "it has ended before it was seen at work");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// What has been printed when it has ended, and its exit code.
fn end(child: Child) -> (Vec<Value>, i32, String) {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdicts = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (verdicts, code(&output), said(&output))
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name != "lost+found").collect();
    names.sort();
    names
}

fn write(path: &Path, text: &str, len: usize) {
    fs::write(path, text.repeat(len / text.len())).unwrap();
    fs::File::open(path).unwrap().sync_all().unwrap();
}

#[test]
fn a_signal_ends_a_run_and_what_is_kept_has_its_name() {
    let test = "a_signal_ends_a_run_and_what_is_kept_has_its_name";
    let Some(image) = Image::of(test, "mkfs.ext4", &["-q", "-F"], 160) else { return };
    let lower = image.lower();
    let [first, long, later] = ["first-name", "long-name", "later-name"].map(|n| lower.join(n));
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1)] {
        write(&first, "the first is gone; ", 20_000);
        write(&long, "the long one is kept; ", 96 << 20);
        write(&later, "the last is whole; ", 20_000);
        let inode = fs::metadata(&long).unwrap().ino();
        let mut child = begin("", &[&first, &long, &later]);
        await_overwriting(&mut child, &long);
        send(&child, signal);
        let (verdicts, ended, printed) = end(child);
        assert_eq!(ended, 128 + number, "{printed}");
        assert_eq!(verdicts.len(), 3, "{printed}");
        assert!(printed.contains("interrupted; 3 of 3"), "{printed}");
        // Its content and its name are gone, and the journal is not erased, which is said.
        let verdict = &verdicts[0];
        let parts = (&verdict["removed"], &verdict["name"], &verdict["holds"]);
        assert_eq!(parts, (&true.into(), &"done".into(), &false.into()), "{verdict:#}");
        let left = verdict["journal"]["left"].as_str().unwrap();
        assert!(left.contains("interrupted"), "{verdict:#}");
        let (verdict, size) = (&verdicts[1], fs::metadata(&long).unwrap().len());
        assert_eq!((&verdict["content"], &verdict["removed"]), (&"kept".into(), &false.into()));
        assert_eq!((&verdict["inode"], &verdict["size"]), (&inode.into(), &size.into()));
        let overwritten = verdict["overwritten"].as_u64().unwrap();
        assert!((1..35 * size).contains(&overwritten), "{verdict:#}");
        let why = verdict["why"].as_str().unwrap();
        assert!(why.contains("interrupted") && why.contains(&overwritten.to_string()), "{why}");
        assert_eq!(fs::metadata(&long).unwrap().ino(), inode, "the same file has the name");
        let verdict = &verdicts[2];
        assert!(verdict["why"].as_str().unwrap().contains("nothing was"), "{verdict:#}");
        assert_eq!(names(&lower), ["later-name", "long-name"], "and no other names");
        let whole = "the last is whole; ";
        assert_eq!(fs::read_to_string(&later).unwrap(), whole.repeat(20_000 / whole.len()));
        // The same command again goes on, and erases what was left in the journal.
        let purged = tacita(&["purge", "file", long.to_str().unwrap(), later.to_str().unwrap()]);
        assert_eq!(code(&purged), 0, "{}", said(&purged));
    }
    for text in ["the first is gone", "the long one is kept", "first-name", "long-name"] {
        assert_eq!(image.count(text), 0, "{text}");
    }
}

/// Somebody else has the name by then, and keeps it; the verdict says under which one the file is.
#[test]
fn a_name_that_is_taken_meanwhile_stays_taken() {
    let test = "a_name_that_is_taken_meanwhile_stays_taken";
    let Some(image) = Image::of(test, "mkfs.ext4", &["-q", "-F"], 160) else { return };
    let (lower, long) = (image.lower(), image.lower().join("long-name"));
    write(&long, "of the old file; ", 96 << 20);
    let mut child = begin("", &[&long]);
    await_overwriting(&mut child, &long);
    fs::write(&long, "of somebody else").unwrap();
    send(&child, Signal::INT);
    let (verdicts, code, printed) = end(child);
    assert_eq!(code, 130, "{printed}");
    assert_eq!(fs::read_to_string(&long).unwrap(), "of somebody else");
    let names = names(&lower);
    let aside = names.iter().find(|name| *name != "long-name").unwrap();
    let why = verdicts[0]["why"].as_str().unwrap();
    assert!(why.contains(&format!("it is called {aside} now")), "{why}");
    assert_eq!(names.len(), 2, "{names:?}");
}

/// As `nohup` does it.
#[test]
fn an_ignored_signal_ends_nothing() {
    let Some(image) = Image::of("an_ignored_signal_ends_nothing", "mkfs.ext4", &["-q", "-F"], 64)
    else {
        return;
    };
    let long = image.lower().join("long-name");
    write(&long, "nothing is interrupted; ", 8 << 20);
    let mut child = begin("HUP", &[&long]);
    // Again and again, as soon as it is seen at work.
    while child.try_wait().unwrap().is_none() {
        if !long.exists() {
            send(&child, Signal::HUP);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let (verdicts, code, printed) = end(child);
    assert_eq!((code, &verdicts[0]["holds"]), (0, &true.into()), "{printed}");
}

/// Nobody has to read the verdicts.
#[test]
fn a_reader_that_has_gone_changes_nothing() {
    let test = "a_reader_that_has_gone_changes_nothing";
    let Some(image) = Image::of(test, "mkfs.ext4", &["-q", "-F"], 64) else { return };
    let (long, short) = (image.lower().join("long-name"), image.lower().join("short-name"));
    write(&long, "nobody reads of it; ", 8 << 20);
    write(&short, "nobody reads of it; ", 8 << 10);
    let mut child = begin("", &[&long, &short]);
    drop(child.stdout.take());
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!((child.wait().unwrap().code(), told.as_str()), (Some(0), ""));
    write(&long, "nobody reads of it; ", 8 << 10);
    let script = "exec \"$0\" purge file \"$1\" >&-";
    let closed = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_tacita"), long.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(code(&closed), 0, "{}", said(&closed));
    assert_eq!(image.count("nobody reads of it"), 0);
}
