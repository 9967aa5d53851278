//! What people expect of any tool: fstab, files that are recognised, JSON, a tour that talks.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod doctor;
mod fstab;
mod tours;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

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
    let unit = include_str!("../../../../packaging/systemd/tacita-pddm@.service");
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
