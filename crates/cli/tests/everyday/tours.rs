//! `tacita tour`: what it prints, writes and leaves.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tacita_clock::{Clock, System};
use tacita_testkit::{Watchdog, skip_without, skip_without_fuse};

use super::{TACITA, TIME_MAX, expect, json, tacita, text};

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
