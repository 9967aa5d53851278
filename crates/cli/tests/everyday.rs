//! What people expect of any tool: fstab, files that are recognised, JSON, a tour that talks.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tacita_clock::{Clock, System};
use tacita_testkit::{MountGuard, Terminal, Watchdog, skip_without, skip_without_fuse};

const TIME_MAX: Duration = Duration::from_mins(20);
const TACITA: &str = env!("CARGO_BIN_EXE_tacita");

fn tacita<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    Command::new(TACITA).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn expect<S: AsRef<OsStr>>(code: i32, arguments: &[S]) -> (String, String) {
    let output = tacita(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    let words: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    (String::from_utf8(output.stdout).unwrap(), said)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A folder with an image of each kind in it.
fn made() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name)).to_owned();
    fs::write(at("password"), "open\n").unwrap();
    expect(0, &["hifs", "format", &at("hifs"), "--size", "4M"]);
    expect(0, &["dnefs", "format", &at("dnefs"), "--size", "16M"]);
    let password = at("password");
    expect(0, &["pddm", "init", &at("pddm"), "--size", "12M", "--password-file", &password]);
    expect(0, &["oram", "init", &at("store"), "--key", &at("key"), "--blocks", "64"]);
    folder
}

#[test]
fn an_image_is_recognised_by_its_last_block() {
    let _watchdog = Watchdog::start("an_image_is_recognised_by_its_last_block", TIME_MAX);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    expect(0, &["hifs", "format", text(&image), "--size", "4M"]);
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    let (found, said) = expect(1, &["check", text(&image)]);
    assert!(found.contains("the superblock differs"), "{found}{said}");
    assert!(expect(0, &["info", text(&image)]).0.contains("layout"));
    // What is put out does not take its place, either.
    expect(0, &["hifs", "format", text(&folder.path().join("other")), "--size", "4M"]);
    let other = folder.path().join("other");
    let said = expect(2, &["hifs", "map", text(&other), "--svg", text(&image)]).1;
    assert!(said.contains("an image of HIFS"), "{said}");
    // A copy of another length is none.
    file.set_len(8 << 20).unwrap();
    expect(4, &["check", text(&image)]);
}

#[test]
fn whatever_was_made_is_recognised() {
    let _watchdog = Watchdog::start("whatever_was_made_is_recognised", TIME_MAX);
    let folder = made();
    let at = |name: &str| text(&folder.path().join(name)).to_owned();
    let (checked, _) = expect(0, &["check", &at("hifs")]);
    assert!(checked.contains("canonical"), "{checked}");
    let facts = json(&expect(0, &["check", &at("dnefs"), "--json"]).0);
    assert_eq!(facts["whole"], true);
    let password = at("password");
    let (checked, _) = expect(0, &["check", &at("pddm"), "--password-file", &password]);
    assert!(checked.contains("intact"), "{checked}");
    for (name, field) in
        [("hifs", "layout"), ("dnefs", "erase_blocks"), ("pddm", "units"), ("store", "what")]
    {
        let facts = json(&expect(0, &["info", &at(name), "--json"]).0);
        assert!(!facts[field].is_null() && facts["schema"] == 1, "{name}: {facts}");
    }
    // Nothing is said of a device that its superblock does not say to everybody.
    let facts = json(&expect(0, &["info", &at("pddm"), "--json"]).0);
    let fields: Vec<&String> = facts.as_object().unwrap().keys().collect();
    let public = [
        "classes",
        "device_bytes",
        "heartbeat_seconds",
        "public_bytes",
        "schema",
        "unit_bytes",
        "units",
    ];
    assert_eq!(fields, public);
    assert!(expect(0, &["info", &at("key")]).0.contains("key of an oblivious store"));
    assert!(expect(2, &["check", &at("key")]).1.contains("tacita oram check"));
    // Its first block is gone, and the copy tells.
    let device = fs::OpenOptions::new().write(true).open(at("pddm")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&device, &[0; 4096], 0).unwrap();
    drop(device);
    assert_eq!(json(&expect(0, &["info", &at("pddm"), "--json"]).0), facts);
    for what in [at("password"), at(""), at("none")] {
        expect(4, &["info", &what]);
        expect(4, &["check", &what]);
    }
}

/// What a command puts out never takes the place of what is to be kept, whether it is what the command has
/// read or something else, and not that of a device.
#[test]
fn nothing_that_was_made_is_replaced_by_what_is_put_out() {
    let _watchdog =
        Watchdog::start("nothing_that_was_made_is_replaced_by_what_is_put_out", TIME_MAX);
    let folder = made();
    let at = |name: &str| text(&folder.path().join(name)).to_owned();
    expect(0, &["dnefs", "dump", &at("dnefs"), &at("dump")]);
    fs::write(at("drawing"), "of before").unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), fifo, 0o600.into(), 0).unwrap();
    for target in ["dnefs", "hifs", "pddm", "key", "pipe", "store"].map(at) {
        let before = fs::symlink_metadata(&target).unwrap();
        let bytes = before.is_file().then(|| fs::read(&target).unwrap());
        for command in [
            &["dnefs", "dump", &at("dnefs"), &target][..],
            &["dnefs", "map", &at("dnefs"), "--svg", &target],
            &["hifs", "map", &at("hifs"), "--svg", &target],
            &["tour", "hifs", "--html", &target],
            &["oram", "trace", "unix:none", "--listen", "unix:none", "--out", &target],
        ] {
            let (_, said) = expect(2, command);
            assert!(said.contains(&target), "{said}");
        }
        assert_eq!(fs::symlink_metadata(&target).unwrap().file_type(), before.file_type());
        assert_eq!(bytes, before.is_file().then(|| fs::read(&target).unwrap()));
    }
    expect(2, &["dnefs", "format", &at("pipe"), "--size", "16M", "--force"]);
    // Whose command they are of replaces them.
    expect(0, &["dnefs", "dump", &at("dnefs"), &at("dump")]);
    expect(0, &["hifs", "map", &at("hifs"), "--svg", &at("drawing")]);
    expect(2, &["hifs", "map", &at("hifs"), "--svg", &at("dump")]);
    for command in [["check", &at("pipe")], ["info", &at("pipe")]] {
        expect(4, &command);
    }
}

/// `ulimit -f` is a disk that is full at some point, and ends no program that serves others.
#[test]
fn a_limit_of_the_length_of_files_is_an_error() {
    let _watchdog = Watchdog::start("a_limit_of_the_length_of_files_is_an_error", TIME_MAX);
    let folder = tempfile::tempdir().unwrap();
    for system in ["hifs", "dnefs"] {
        let image = folder.path().join(system);
        let line =
            format!("ulimit -f 100; exec {TACITA} {system} format {} --size 16M", text(&image));
        let done = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(4), "{said}");
        assert!(said.contains("File too large"), "{said}");
        assert!(!image.exists());
    }
    // Of what is there already.
    let volume = folder.path().join("volume");
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    fs::write(&old, "one\n").unwrap();
    fs::write(&new, "two\n").unwrap();
    let password = ["--password-file", text(&old)];
    expect(0, &[&["dnefs", "format", text(&volume), "--size", "8M"][..], &password].concat());
    let line = format!(
        "ulimit -f 1; exec {TACITA} dnefs passwd {} --password-file {} --new-password-file {}",
        text(&volume),
        text(&old),
        text(&new)
    );
    let done = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(4), "{said}");
    assert!(said.contains("`ulimit -f`"), "{said}");
    expect(0, &[&["dnefs", "check", text(&volume)][..], &password].concat());
}

/// A link that another user has put where anybody may leads nowhere, and what is said tells what to do.
#[test]
fn a_link_that_others_have_put_there_is_told() {
    use std::os::unix::fs::lchown;
    let test = "a_link_that_others_have_put_there_is_told";
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: {test}: not root");
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let folder = made();
    let at = |name: &str| text(&folder.path().join(name)).to_owned();
    for dir in ["anybody's", "files"] {
        fs::create_dir(at(dir)).unwrap();
    }
    fs::set_permissions(at("anybody's"), fs::Permissions::from_mode(0o1777)).unwrap();
    let link = at("anybody's/link");
    symlink(at("aim"), &link).unwrap();
    lchown(&link, Some(65534), None).unwrap();
    for command in [
        &["hifs", "format", &link, "--size", "8M"][..],
        &["hifs", "pack", &at("files"), &link],
        &["hifs", "map", &at("hifs"), "--svg", &link],
        &["dnefs", "format", &link, "--size", "16M"],
        &["dnefs", "dump", &at("dnefs"), &link],
        &["tour", "hifs", "--html", &link],
    ] {
        let (_, said) = expect(4, command);
        assert!(said.contains("a link that another user has put there"), "{command:?}: {said}");
        assert!(said.contains("remove what is there, or name another file"), "{said}");
    }
    fs::symlink_metadata(at("aim")).unwrap_err();
}

/// What is said names what was to be written, and why it was not.
#[test]
fn what_cannot_be_written_is_named() {
    let _watchdog = Watchdog::start("what_cannot_be_written_is_named", TIME_MAX);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(at("files")).unwrap();
    fs::write(at("files/long"), vec![1; 1 << 20]).unwrap();
    expect(0, &["hifs", "pack", &at("files"), &at("image"), "--size", "8M"]);
    expect(0, &["dnefs", "format", &at("volume"), "--size", "4M"]);
    let limited = |arguments: &str| {
        let line = format!("ulimit -f 100; exec {TACITA} {arguments}");
        let done = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(4), "{said}");
        assert!(said.contains("File too large") && said.contains("`ulimit -f`"), "{said}");
        said
    };
    let said = limited(&format!("hifs unpack {} {}", at("image"), at("unpacked")));
    assert!(said.starts_with(&format!("tacita: {}: ", at("unpacked/long"))), "{said}");
    let said = limited(&format!("dnefs dump {} {}", at("volume"), at("dump")));
    assert!(said.starts_with(&format!("tacita: {}: ", at("dump"))), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn json_has_a_version_also_where_it_fails() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("i");
    for (code, arguments) in [
        (4, vec!["hifs", "info", text(&image), "--json"]),
        (2, vec!["hifs", "format", text(&image), "--size", "1", "--json"]),
        (2, vec!["hifs", "check", "--json"]),
        (2, vec!["nonsense", "--json"]),
        (7, vec!["purge", "probe", "/dev/shm", "--json"]),
        (2, vec!["pddm", "status", text(&image), "--json"]),
    ] {
        let output = tacita(&arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let error = json(&said);
        assert_eq!((&error["schema"], &error["error"]["code"]), (&1.into(), &code.into()));
        assert!(!error["error"]["cause"].as_str().unwrap().is_empty(), "{said}");
    }
    // A warning comes before it.
    expect(0, &["hifs", "format", text(&image), "--size", "4M"]);
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    let (_, said) = expect(2, &["hifs", "unpack", text(&image), text(folder.path()), "--json"]);
    let (warning, failure) = said.split_once("\n{\n").expect("both");
    assert!(warning.starts_with("tacita: ") && warning.contains("damaged"), "{said}");
    assert_eq!(json(&format!("{{{failure}"))["error"]["code"], 2, "{said}");
    // Behind "--" it is a name.
    let (_, said) = expect(4, &["hifs", "info", "--", "--json"]);
    assert!(said.starts_with("tacita: "), "{said}");
}

#[test]
fn what_the_system_refuses_is_told_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none");
    let none = text(&none);
    for words in [
        &["check", none][..],
        &["hifs", "check", none],
        &["dnefs", "info", none],
        &["pddm", "check", none],
        &["dnefs", "audit", "--before", none, "--after", none],
        &["hifs", "format", "/proc/none", "--size", "4M"],
    ] {
        let said = expect(4, words).1;
        assert!(said.contains("check the path"), "{words:?}: {said}");
        assert!(said.matches(words[words.len() - 1]).count() < 2, "named once: {said}");
    }
}

#[test]
fn names_that_are_no_text_are_kept() {
    let test = "names_that_are_no_text_are_kept";
    if skip_without_fuse(test) {
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let (guard, folder) = (MountGuard::new().unwrap(), tempfile::tempdir().unwrap());
    let image = folder.path().join(OsString::from_vec(b"im\xffage".to_vec()));
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let with = |before: &[&str], after: &[&str]| {
        [words(before), vec![image.clone().into_os_string()], words(after)].concat()
    };
    expect(0, &with(&["hifs", "format"], &["--size", "4M"]));
    let facts = json(&expect(0, &with(&["info"], &["--json"])).0);
    assert!(facts["image"]["bytes"].as_str().unwrap().ends_with("696dff616765"), "{facts}");
    expect(0, &with(&["hifs", "mount"], &[text(guard.path())]));
    // Its daemon is found by it.
    let status = json(&expect(0, &with(&["status"], &["--json"])).0);
    assert_eq!(status["source"], facts["image"]);
    expect(0, &["umount", text(guard.path())]);
}

/// Also where it is an error from beneath that names them, or they are refused before anything is looked at.
#[test]
fn bytes_of_names_that_are_no_text_are_told() {
    for (code, before, name) in [
        (2, &["umount"][..], &b"no\xffne"[..]),
        (2, &["purge", "probe"], b"no\xffne"),
        (4, &["fist", "vectors"], b"no\xffne"),
        (4, &["oram", "check", "unix:none", "--key"], b"no\xffne"),
        (2, &["oram", "check", "unix:none"], b"no\xffne"),
        (2, &["check", "none"], b"no\x1bne"),
        (2, &["check", "none"], b"no\nne"),
    ] {
        let mut words: Vec<OsString> = before.iter().map(OsString::from).collect();
        words.push(OsString::from_vec(name.to_vec()));
        let (_, said) = expect(code, &words);
        let shown = ["no\\xffne", "no\\u{1b}ne", "no\\u{a}ne"];
        let is_told = shown.iter().any(|shown| said.contains(shown));
        assert!(is_told, "{words:?}: {said}");
        assert!(!said.contains(['\u{fffd}', '\u{1b}']), "{words:?}: {said}");
    }
}

/// A line that a name makes would be taken for the program's own.
#[test]
fn a_name_stays_in_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name)).to_owned();
    let (line, shown) = ("a\n/etc/shadow: overwritten in place\u{1b}[A", "a\\u{a}/etc/shadow: ");
    fs::create_dir_all(Path::new(&at(line)).parent().unwrap()).unwrap();
    fs::write(at("password"), "open\n").unwrap();
    let (name, password) = (at(line), at("password"));
    let (store, key) = (format!("{name} store"), format!("{name} key"));
    let init = ["oram", "init", &store, "--key", &key, "--blocks", "64"];
    for (code, words) in [
        (Some(0), &["hifs", "format", &name, "--size", "4M"][..]),
        (Some(0), &["info", &name]),
        (Some(0), &["check", &name]),
        (Some(2), &["hifs", "format", &name, "--size", "4M"]),
        (Some(2), &["status", &name]),
        (Some(2), &["purge", "status", &name]),
        (Some(4), &["dnefs", "check", &name]),
        (Some(4), &["oram", "trace", "--from", &name]),
        (None, &["purge", "file", "--anyway", &name]),
        (Some(4), &["hifs", "info", &name]),
        (Some(4), &["dnefs", "info", &name]),
        (Some(4), &["pddm", "check", &name, "--password-file", &password]),
        (Some(2), &["pddm", "check", &password, "--password-file", &name]),
        (Some(4), &["fist", "vectors", &format!("{name} missing")]),
        (Some(0), &init),
        (Some(5), &init),
    ] {
        let output = tacita(words);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        // What a purge reaches depends on the file system.
        assert!(code.is_none() || code == output.status.code(), "{words:?}: {said}");
        assert!(said.contains(shown), "{words:?}: {said}");
        assert!(!said.contains("\n/etc/shadow"), "{words:?}: {said}");
    }
}

#[test]
fn the_pages_of_mounts_tell_of_fstab() {
    let folder = tempfile::tempdir().unwrap();
    expect(0, &["manual", text(folder.path())]);
    for system in ["hifs", "purge", "dnefs", "privatefs"] {
        let page = folder.path().join(format!("tacita-{system}-mount.1"));
        let page = fs::read_to_string(page).unwrap().replace('\\', "");
        assert!(page.contains("fuse.tacita-hifs noauto,user"), "{page}");
        assert!(page.contains("tacita.NAME=VALUE"), "{page}");
    }
}

/// Headings are wrapped, and what moves while a chapter is at work fits the terminal, from the first line on that is
/// drawn.
#[test]
fn a_tour_fits_a_narrow_terminal() {
    let test = "a_tour_fits_a_narrow_terminal";
    if skip_without(test, &["script", "stty"]) {
        return;
    }
    let words = format!("stty rows 24 cols 60; exec '{TACITA}' tour fist");
    let mut script = Command::new("script");
    let output = script.args(["-qec", &words, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
    let drawn = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && drawn.contains("fist at work"), "{drawn}");
    // The style of those that have none is a bar over the whole line.
    assert!(!drawn.contains("0/0"), "{drawn}");
    let heading = drawn.lines().skip_while(|line| !line.starts_with("1. ")).take(2);
    let heading: Vec<&str> = heading.map(str::trim_end).collect();
    assert!(heading.iter().all(|line| !line.is_empty() && line.len() <= 60), "{heading:?}");
}

/// A tour that a signal ends in the middle leaves nothing: no mount whose server is gone, no daemon, no files.
#[test]
fn an_interrupted_tour_leaves_nothing() {
    let test = "an_interrupted_tour_leaves_nothing";
    if skip_without_fuse(test) {
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let root = tempfile::tempdir().unwrap();
    let here = root.path().canonicalize().unwrap();
    let mounted = || {
        let table = fs::read("/proc/self/mountinfo").unwrap();
        tacita_daemon::mounts(&table).any(|mount| mount.place.starts_with(&here))
    };
    let begun = || fs::read_dir(&here).unwrap().next().is_some();
    // Also those that do not serve yet, or no longer.
    let running = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let words = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let words = words.map(|words| String::from_utf8_lossy(&words).replace('\0', " "));
        words.filter(|words| words.contains(text(&here))).collect::<Vec<_>>()
    };
    // A folder of sockets: the store is made, and its server begins.
    let serving = || {
        let scratch = fs::read_dir(&here).unwrap().flatten().map(|entry| entry.path());
        scratch.flat_map(fs::read_dir).any(|entries| entries.count() > 1)
    };
    let mounting = || running().iter().any(|words| words.contains("privatefs mount"));
    let moments: [(&str, &dyn Fn() -> bool); 4] =
        [("begun", &begun), ("served", &serving), ("mounting", &mounting), ("mounted", &mounted)];
    let signals = [Signal::TERM, Signal::TERM, Signal::TERM, Signal::TERM, Signal::INT];
    for ((moment, is_there), signal) in
        moments.into_iter().cycle().zip(signals.into_iter().cycle()).take(20)
    {
        let mut tour = Command::new(TACITA)
            .args(["tour", "privatefs"])
            .env("TMPDIR", &here)
            .process_group(0)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while !is_there() {
            assert!(tour.try_wait().unwrap().is_none(), "it has {moment} something");
            System.wait(Duration::from_micros(100));
        }
        let process = Pid::from_child(&tour);
        // A terminal sends its signals to all that are at work there.
        let send = if signal == Signal::INT { kill_process_group } else { kill_process };
        send(process, signal).unwrap();
        let then = System.monotonic();
        let ended = tour.wait().unwrap();
        assert_eq!(ended.signal(), Some(signal.as_raw()), "{moment}: {ended}");
        let passed = System.elapsed(then);
        assert!(passed < Duration::from_secs(4), "{moment}: it has taken {passed:?}");
        assert!(!mounted(), "{moment}");
        let left: Vec<_> = fs::read_dir(&here).unwrap().collect();
        assert!(left.is_empty(), "{moment}: {left:?}");
        // What was killed is gone a moment later.
        for _ in 0..50 {
            if !running().is_empty() {
                System.wait(Duration::from_millis(20));
            }
        }
        assert_eq!(running(), Vec::<String>::new(), "{moment}");
    }
}

/// The folder that is kept may be a mount, or lie above one: it is somebody else's.
#[test]
fn a_tour_leaves_the_mounts_of_others() {
    let test = "a_tour_leaves_the_mounts_of_others";
    if !rustix::process::geteuid().is_root() || skip_without(test, &["unshare"]) {
        eprintln!("SKIPPED: {test}: it needs root and unshare");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script =
        "set -e; mount -t tmpfs none \"$1\"; mkdir \"$1/in\"; mount -t tmpfs none \"$1/in\"
        \"$0\" tour fist --keep \"$1\" > /dev/null; mountpoint -q \"$1\"; mountpoint -q \"$1/in\"";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--propagation", "private", "sh", "-c", script, TACITA]);
    let output = shell.arg(folder.path()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Who interrupts the program while it asks for a password gets the terminal back as it was; afterwards it ends
/// as any other does.
#[test]
fn an_interrupted_question_leaves_the_terminal_as_it_was() {
    let test = "an_interrupted_question_leaves_the_terminal_as_it_was";
    if skip_without(test, &["script", "stty", "timeout"]) {
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name)).to_owned();
    fs::write(at("device"), vec![0; 1 << 20]).unwrap();
    let check = format!("'{TACITA}' pddm check '{}'", at("device"));
    let after_a_second = |signal, code| {
        let timeout = format!("timeout --foreground --preserve-status -s {signal} 1 {check}");
        (timeout, "half", code)
    };
    for (ask, keys, code) in [
        (check.clone(), "half\x03", 130),
        after_a_second("TERM", 143),
        after_a_second("HUP", 129),
        after_a_second("ALRM", 142),
        after_a_second("USR1", 138),
    ] {
        let mut terminal = Terminal::run(&format!("trap : INT; {ask}; echo code $?; stty -a"));
        terminal.until("Password: ");
        assert!(terminal.type_in(keys));
        let (_, said) = terminal.end();
        let has = |mode: &str| said.split([' ', ';', '\r', '\n']).any(|word| word == mode);
        assert!(has("echo") && has("isig") && has("icanon"), "{ask}: {said}");
        assert!(said.contains(&format!("code {code}")), "{ask}: {said}");
    }
    // A signal that comes when the password is known: the new one is waited for.
    let (fifo, pw) = (at("fifo"), at("pw"));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    fs::write(&pw, "one\n").unwrap();
    expect(0, &["dnefs", "format", &at("volume"), "--size", "8M", "--password-file", &pw]);
    let change = format!("'{TACITA}' dnefs passwd '{}' --new-password-file '{fifo}'", at("volume"));
    let mut terminal = Terminal::run(&format!("exec {change}"));
    terminal.until(": ");
    assert!(terminal.type_in("one\n"));
    while terminal.type_in("\x03") {
        System.wait(Duration::from_millis(20));
    }
    let (ended, said) = terminal.end();
    assert_eq!(ended.code(), Some(130), "{said}");
}

/// What mount(8) does with a line of /etc/fstab, its helper being there.
const BY_FSTAB: &str = r#"
    mount --bind "$1" "$(readlink -f /sbin)"
    mount -T "$2" "$3"
    echo kept > "$3/file"
    findmnt -n -o SOURCE,FSTYPE "$3"
    stat -c "%u %g %a" "$3/file"
    mount -a -T "$2"
    sed "s|^[^ ]* [^ ]*|$3.none $3|" "$2" > "$2.absent"
    mount -a -T "$2.absent"
    mount -T "$2.absent" "$3"
    sed s/nofail,// "$2.absent" > "$2.fails"
    if mount -T "$2.fails" "$3"; then echo "absent, and no failure"; fi
    exec 3> "$3/open"
    if mount -T "$2" "$3" -o remount,ro; then echo "read-only, and open for writing"; fi
    exec 3>&-
    mount -T "$2" "$3" -o remount,ro
    if touch "$3/file"; then echo "read-only, and written"; fi
    mount -T "$2" "$3" -o remount,rw
    rm "$3/open"
    umount "$3"
    "$4" hifs check "$5" > /dev/null
    mount -T "$2" "$3" -o ro
    cat "$3/file"
    if touch "$3/file"; then echo "mounted read-only, and written"; fi
    if mount -T "$2" "$3" -o remount,rw; then echo "opened for reading, and made writable"; fi
    if mount -T "$2" "$3" -o remount,ro,nonsense; then echo "nonsense, and taken"; fi
    umount "$3"
    mount -T "$2" "$3" -o nosymfollow,iversion,exec
    ln -s file "$3/link"
    if cat "$3/link"; then echo "no link is followed, and one was"; fi
    rm "$3/link"
    grep " $3 rw,nosuid,nodev,noatime,nosymfollow " /proc/self/mountinfo > /dev/null
    umount "$3"
    mount -T "$2" "$3"
    exec 3< "$3/file"
    umount -l "$3"
    if findmnt "$3"; then echo "taken out of sight, and seen"; fi
    if "$4" hifs check "$5"; then echo "in use, and at its end"; fi
    cat <&3 > /dev/null
    exec 3<&-
    while "$4" status "$5" > /dev/null; do sleep 0.1; done
    "$4" hifs check "$5" > /dev/null
    sed s/user,// "$2" > "$2.of-root"
    mount -T "$2.of-root" "$3"
    for again in ro rw; do mount -T "$2.of-root" "$3" -o remount,$again; done
    grep " $3 rw,nosuid,nodev,noatime " /proc/self/mountinfo > /dev/null
    "$4" remount -o suid,nodev "$3"
    grep " $3 rw,nodev,noatime " /proc/self/mountinfo > /dev/null
    umount "$3"
    for asked in user user,exec user,suid,dev,exec owner user=joe; do
        mount -t fuse.tacita-hifs "$5" "$3" -o "$asked"
        echo "$asked: $(grep " $3 " /proc/self/mountinfo | cut -d " " -f 6)"
        # umount(8) may call no helper that waits: it does where it has kept an option, and keeps no "owner".
        "$4" umount "$3"
    done
    for wrong in umask=77777 uid=4294967295 gid=99999999999 nonsense; do
        if mount -t fuse.tacita-hifs "$5" "$3" -o "$wrong"; then echo "$wrong, and mounted"; fi
    done
"#;

/// What mount(8) makes of these options, for file systems of the kernel, too: `user=NAME` is its own note of
/// who has mounted something, and restricts nothing.
const AS_ASKED: &str = "user: rw,nosuid,nodev,noexec,noatime
user,exec: rw,nosuid,nodev,noatime
user,suid,dev,exec: rw,noatime
owner: rw,nosuid,nodev,noatime
user=joe: rw,noatime
";

#[test]
fn a_line_of_fstab() {
    let test = "a_line_of_fstab";
    if skip_without_fuse(test) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: only root can make a mount namespace");
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name)).to_owned();
    let (image, dir, table) = (at("my image"), at("mnt"), at("fstab"));
    expect(0, &["hifs", "format", &image, "--size", "4M"]);
    fs::create_dir(&dir).unwrap();
    fs::create_dir(at("sbin")).unwrap();
    for helper in ["mount", "umount"] {
        symlink(TACITA, at(&format!("sbin/{helper}.fuse.tacita-hifs"))).unwrap();
    }
    let options = "nofail,user,x-systemd.automount,_netdev,uid=1234,gid=77,umask=027,\
                   tacita.sync=durable,tacita.commit-every=0";
    let line = format!("{} {dir} fuse.tacita-hifs {options} 0 0\n", image.replace(' ', "\\040"));
    fs::write(&table, line).unwrap();
    let sbin = at("sbin");
    let words = ["-m", "sh", "-ec", BY_FSTAB, "sh", &sbin, &table, &dir, TACITA, &image];
    let output = Command::new("unshare").args(words).stdin(Stdio::null()).output().unwrap();
    let (out, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{said}");
    let wanted = format!("{image} fuse.tacita-hifs\n1234 77 750\nkept\n{AS_ASKED}");
    assert_eq!(out, wanted, "{said}");
    for refused in ["an octal number from 0 to 777", "`id -u NAME`", "`getent group NAME`"] {
        assert!(said.contains(refused), "{refused}: {said}");
    }
}

#[test]
fn who_is_shown_as_the_owner_may_do_what_owners_may() {
    let test = "who_is_shown_as_the_owner_may_do_what_owners_may";
    if skip_without_fuse(test) || skip_without(test, &["setpriv"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: only root can become somebody else");
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let (guard, folder) = (MountGuard::new().unwrap(), tempfile::tempdir().unwrap());
    let (image, dir) = (folder.path().join("image"), guard.path());
    expect(0, &["hifs", "format", text(&image), "--size", "4M"]);
    let options = ["-o", "allow_other,uid=1234"];
    expect(0, &[&["hifs", "mount", text(&image), text(dir)][..], &options].concat());
    let file = dir.join("file");
    fs::write(&file, "content").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
    let user = ["--reuid=1234", "--regid=1234", "--clear-groups"];
    // A chown to nobody.
    let done = Command::new("setpriv").args(user).args(["chown", ":", text(&file)]).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o777);
    expect(0, &["umount", text(dir)]);
}

/// What has been done when its daemon is killed, right behind the last of it.
fn killed_after(mounting: &[&str], dir: &Path) -> Vec<String> {
    expect(0, mounting);
    fs::create_dir(dir.join("folder")).unwrap();
    fs::write(dir.join("removed"), "").unwrap();
    fs::write(dir.join("first"), "").unwrap();
    std::os::unix::fs::symlink("first", dir.join("link")).unwrap();
    fs::rename(dir.join("first"), dir.join("folder/moved")).unwrap();
    fs::remove_file(dir.join("removed")).unwrap();
    fs::hard_link(dir.join("folder/moved"), dir.join("another")).unwrap();
    fs::set_permissions(dir.join("another"), fs::Permissions::from_mode(0o600)).unwrap();
    let pid = json(&expect(0, &["status", text(dir), "--json"]).0)["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    expect(4, &["umount", text(dir)]);
    expect(0, mounting);
    let mut names: Vec<_> = [dir.to_owned(), dir.join("folder")]
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mode = fs::metadata(dir.join("another")).map_or(0, |meta| meta.permissions().mode());
    names.push(format!("{:o}", mode & 0o777));
    expect(0, &["umount", text(dir)]);
    names.sort();
    names
}

#[test]
fn what_is_mounted_to_do_so_puts_names_on_the_medium_at_once() {
    let test = "what_is_mounted_to_do_so_puts_names_on_the_medium_at_once";
    if skip_without_fuse(test) {
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let (guard, folder) = (MountGuard::new().unwrap(), tempfile::tempdir().unwrap());
    let (dir, image) = (guard.path(), folder.path().join("image"));
    let names = ["another", "folder", "link", "moved"];
    for system in ["hifs", "dnefs"] {
        for options in ["dirsync", "sync"] {
            expect(0, &[system, "format", text(&image), "--size", "16M", "--force"]);
            let every = if system == "hifs" { "--commit-every=0" } else { "--purge-every=0" };
            let mounting = [system, "mount", text(&image), text(dir), "-o", options, every];
            let found = killed_after(&mounting, dir);
            assert_eq!(found[1..], names, "{system} {options}");
            assert!(options == "dirsync" || found[0] == "600", "{system}: {found:?}");
        }
    }
}

#[test]
fn what_cannot_be_synced_by_itself_changes_where_all_is_put_on_the_medium() {
    let test = "what_cannot_be_synced_by_itself_changes_where_all_is_put_on_the_medium";
    if skip_without_fuse(test) || !rustix::process::geteuid().is_root() {
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let (guard, folder) = (MountGuard::new().unwrap(), tempfile::tempdir().unwrap());
    let dir = guard.path();
    let mounting = ["purge", "mount", text(folder.path()), text(dir), "--anyway", "-o", "sync"];
    if tacita(&mounting).status.code() != Some(0) {
        eprintln!("SKIPPED: {test}: nothing is purged in the folder for temporary files");
        return;
    }
    let (pipe, link) = (dir.join("pipe"), dir.join("link"));
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    std::os::unix::fs::symlink("pipe", &link).unwrap();
    fs::set_permissions(&pipe, fs::Permissions::from_mode(0o640)).unwrap();
    for path in [&pipe, &link] {
        std::os::unix::fs::lchown(path, Some(1234), None).unwrap();
    }
    expect(0, &["umount", text(dir)]);
}

/// A browser with a narrow window opens a page: all its pictures are drawn, so many, as large as their
/// letters need, and nothing else is wider than the window.
fn opened(page: &str, pictures: usize) {
    let test = "a_tour_of_one_system_and_its_page, in a browser";
    if skip_without(test, &["chromium"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let told = "<script>onload = () => document.title = 'drawn: ' + \
                [...document.images].filter(image => image.naturalWidth > 100 \
                && image.clientWidth > 600 && image.clientHeight > 100).length \
                + (document.documentElement.scrollWidth > innerWidth ? ', too wide' : '')\
                </script></body>";
    let file = folder.path().join("page.html");
    fs::write(&file, page.replace("</body>", told)).unwrap();
    let profile = format!("--user-data-dir={}", text(&folder.path().join("profile")));
    let words = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=500,900",
        &profile,
        "--dump-dom",
        text(&file),
    ];
    let output = Command::new("chromium").args(words).stdin(Stdio::null()).output().unwrap();
    let drawn = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(drawn.contains(&format!("<title>drawn: {pictures}</title>")), "{drawn}");
}

#[test]
fn a_tour_of_one_system_and_its_page() {
    let _watchdog = Watchdog::start("a_tour_of_one_system_and_its_page", TIME_MAX);
    let folder = tempfile::tempdir().unwrap();
    let (page, kept) = (folder.path().join("page.html"), folder.path().join("kept"));
    let words = ["tour", "dnefs", "--html", text(&page), "--keep", text(&kept)];
    let (out, _) = expect(0, &words);
    assert!(out.contains("1. DNEFS") && out.contains("Verdict: holds.") && !out.contains("2. "));
    assert!(out.lines().all(|line| line.len() <= 100), "{out}");
    let page = fs::read_to_string(page).unwrap();
    opened(&page, 1);
    let picture = fs::read_to_string(kept.join("dnefs/dumps.svg")).unwrap();
    assert!(page.contains("<h2 id=\"dnefs\">") && page.contains("data:image/svg+xml,%3Csvg"));
    assert!(picture.contains("after the purge") && picture.contains("erased"));
    let facts = json(&expect(0, &["tour", "fist", "--json"]).0);
    let chapters = facts["chapters"].as_array().unwrap();
    assert_eq!((chapters.len(), &chapters[0]["system"]), (1, &"fist".into()));
    expect(2, &["tour", "nonsense"]);
    // What one tour has kept is in no other's way, and is told before anything is done.
    let again = |system: &str| tacita(&["tour", system, "--keep", text(&kept)]);
    assert_eq!(again("fist").status.code(), Some(0));
    let output = again("dnefs");
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("kept/dnefs: it exists already"));
    let file = text(&folder.path().join("page.html")).to_owned();
    let (_, said) = expect(2, &["tour", "fist", "--keep", &file]);
    assert!(said.contains("page.html: not a folder"), "{said}");
}

#[test]
fn the_doctor_looks_around() {
    let test = "the_doctor_looks_around";
    if skip_without_fuse(test) {
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let (guard, folder) = (MountGuard::new().unwrap(), tempfile::tempdir().unwrap());
    let image = folder.path().join("i").canonicalize().unwrap_or(folder.path().join("i"));
    expect(0, &["hifs", "format", text(&image), "--size", "4M"]);
    expect(0, &["hifs", "mount", text(&image), text(guard.path())]);
    fs::create_dir_all(guard.path().join(".Trash-1000/files/letter")).unwrap();
    let output = tacita(&["doctor", text(guard.path()), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let facts = json(std::str::from_utf8(&output.stdout).unwrap());
    // It is the image that lies somewhere, and what is mounted in which trash is.
    assert_eq!(facts["medium"], text(&image.canonicalize().unwrap()));
    let findings = facts["findings"].as_array().unwrap();
    let trash = findings.iter().find(|finding| finding["what"] == "trash").unwrap();
    assert_eq!(trash["leaks"], true, "{trash}");
    assert!(trash["seen"].as_str().unwrap().contains(".Trash-1000"), "{trash}");
    assert!(
        findings.iter().all(|finding| (finding["leaks"] == true) == finding["remedy"].is_string())
    );
    expect(0, &["umount", text(guard.path())]);
    expect(2, &["doctor", text(&folder.path().join("none"))]);
    let told = String::from_utf8(tacita(&["doctor", text(&image)]).stdout).unwrap();
    assert!(told.contains("swap: ") && told.contains(" that could not be looked at"), "{told}");
    assert!(told.contains("[ok  ] holes: "), "{told}");
    // A copy with holes gets its room as it is written, so that the file system around it tells of the past.
    let copy = folder.path().join("c");
    let copied = Command::new("cp").arg("--sparse=always").args([&image, &copy]).status().unwrap();
    assert!(copied.success());
    let told = String::from_utf8(tacita(&["doctor", text(&copy)]).stdout).unwrap();
    assert!(told.contains("[LEAK] holes: "), "{told}");
}

/// Whoever has one of them has data in it: to make a new volume or store is the last thing to be told.
#[test]
fn what_is_cut_short_or_newer_is_not_to_be_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let volume = path("volume");
    expect(0, &["dnefs", "format", &volume, "--size", "16M"]);
    let file = fs::File::options().write(true).open(&volume).unwrap();
    let told = || expect(4, &["dnefs", "check", &volume]).1;
    file.set_len(8 << 20).unwrap();
    let short = told();
    // The number of its format.
    file.write_all_at(&[9], 8).unwrap();
    for said in [short, told()] {
        assert!(!said.contains("tacita dnefs format"), "{said}");
        assert!(said.contains("whole length, and that tacita is as new"), "{said}");
    }
    let (device, password) = (path("device"), path("password"));
    fs::write(&password, "a password\n").unwrap();
    expect(0, &["pddm", "init", &device, "--size", "16M", "--password-file", &password]);
    let file = fs::File::options().write(true).open(&device).unwrap();
    // The number of its format, in the superblock and its copy.
    let copy = file.metadata().unwrap().len() - 4096;
    file.write_all_at(&[9], 8).unwrap();
    file.write_all_at(&[9], copy + 8).unwrap();
    for words in [&["info", &device][..], &["pddm", "check", &device, "--password-file", &password]]
    {
        let (_, said) = expect(4, words);
        assert!(said.contains("use the version of tacita that made it"), "{said}");
    }
    expect(2, &["pddm", "init", &device, "--size", "16M", "--password-file", &password]);
    let (store, key) = (path("store"), path("key"));
    expect(0, &["oram", "init", &store, "--key", &key, "--blocks", "16"]);
    let root = fs::File::options().write(true).open(path("store/root")).unwrap();
    root.write_all_at(&[9], 8).unwrap();
    let socket = format!("unix:{}", path("socket"));
    let (_, said) = expect(4, &["oram", "serve", &store, "--listen", &socket]);
    assert!(said.contains("tacita is as new as the store"), "{said}");
}

#[test]
fn the_doctor_looks_below_a_loop_device() {
    let test = "the_doctor_looks_below_a_loop_device";
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: only root can make a loop device");
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("i");
    expect(0, &["hifs", "format", text(&image), "--size", "4M"]);
    let said = |args: &[&str]| {
        let output = Command::new("losetup").args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let device = said(&["--find", "--show", text(&image)]);
    let told = tacita(&["doctor", &device]);
    said(&["--detach", &device]);
    let told = String::from_utf8(told.stdout).unwrap();
    for what in ["file system", "discards", "journal", "access times", "holes"] {
        let below = format!("] {what}: below {device}: ");
        let is_told = told.contains(&below) || what == "holes" && told.contains("] holes: ");
        assert!(is_told, "{what}: {told}");
    }
}

#[test]
fn the_server_runs_with_nothing_that_it_does_not_need() {
    let test = "the_server_runs_with_nothing_that_it_does_not_need";
    if skip_without(test, &["systemd-analyze"]) {
        return;
    }
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/tacita-oram.service");
    // Exposure as systemd counts it, in tenths: 2.0 at most.
    for (threshold, is_met) in [("20", true), ("0", false)] {
        let threshold = format!("--threshold={threshold}");
        let words = ["security", "--offline=true", "--no-pager", &threshold, unit];
        let output = Command::new("systemd-analyze").args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.success(), is_met, "{said}");
    }
}

/// What the unit of a device starts, as systemd puts its names in; the words of the programs it calls are told alone.
#[test]
fn a_device_with_an_escaped_name_is_opened() {
    let unit = include_str!("../../../packaging/systemd/tacita-pddm@.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let (shell, rest) = start.split_once(" '").unwrap();
    let (script, names) = rest.split_once("' ").unwrap();
    assert_eq!((shell, names), ("/bin/sh -ec", "%i %f"));
    let script = script.replace("$$", "$").replace("systemd-ask-password ", "tell ");
    let script = script.replace("| exec /usr/bin/tacita ", "; tell ");
    let script = format!("tell() {{ printf '<%s>' \"$@\"; }}; {script}");
    // Of `systemd-escape --path`.
    let (name, device) = ("dev-a\\x2db\\x20c", "/dev/a-b c");
    let mut command = Command::new("/bin/sh");
    let output = command.args(["-ec", &script, name, device]).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let asked = format!("<--id=tacita:{name}><Password of {device}:>");
    let socket = format!("<--nbd></run/tacita-pddm/{name}/socket>");
    let opened = format!("<pddm><open>{socket}<--password-fd><0><--><{device}>");
    assert_eq!(told, asked + &opened, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn long_work_shows_how_far_it_is() {
    let test = "long_work_shows_how_far_it_is";
    if skip_without(test, &["script"]) {
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let folder = made();
    let at = |name: &str| text(&folder.path().join(name)).to_owned();
    fs::write(at("large"), vec![1; 64 << 20]).unwrap();
    // What never was on the medium is not overwritten there.
    fs::File::open(at("large")).unwrap().sync_all().unwrap();
    expect(0, &["dnefs", "dump", &at("dnefs"), &at("dump")]);
    let dump = at("dump");
    for (words, shown) in [
        (vec!["hifs", "check", &at("hifs")], "checking"),
        (vec!["dnefs", "check", &at("dnefs")], "nodes"),
        (vec!["dnefs", "dump", &at("dnefs"), &at("again")], "dumping"),
        (vec!["dnefs", "audit", "--before", &dump, "--after", &dump], "searching"),
        (vec!["purge", "file", "--anyway", &at("large")], "overwriting"),
    ] {
        // On a terminal, and on none.
        let command = [&[TACITA], &words[..]].concat().join(" ");
        let said = on_terminal(&command, "C.UTF-8");
        let is_drawn = said.contains(['\u{2588}', '\u{2591}']);
        assert!(said.contains(shown) && is_drawn, "{command}: {said:?}");
        if words[0] != "purge" {
            let quiet = tacita(&words);
            assert_eq!(String::from_utf8_lossy(&quiet.stderr), "", "{command}");
        }
    }
    // A terminal that is said to show ASCII alone gets nothing else.
    for words in [&["hifs", "check", &at("hifs")][..], &["tour", "hifs"]] {
        let said = on_terminal(&[&[TACITA], words].concat().join(" "), "C");
        assert!(said.is_ascii() && said.contains('\r'), "{said:?}");
    }
}

/// What a terminal of this locale is sent.
fn on_terminal(command: &str, locale: &str) -> String {
    let mut script = Command::new("script");
    script.args(["-qefc", command, "/dev/null"]).env("LC_ALL", locale).stdin(Stdio::null());
    String::from_utf8_lossy(&script.output().unwrap().stdout).into_owned()
}
