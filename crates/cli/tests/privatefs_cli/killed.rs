//! The server or a mount is killed in the middle.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tacita_clock::{Clock, System};
use tacita_testkit::{MountGuard, env_number};

use crate::bench::{Bench, content};

/// What the kernel asks of the mount before the daemon is asked waits for the server.
#[test]
fn a_sync_waits_for_a_server_that_stands_still() {
    let test = "a_sync_waits_for_a_server_that_stands_still";
    let Some(mut bench) = Bench::new(test) else { return };
    let dir = bench.mount("SERVER", "--sync-every 0");
    let server = &bench.facts(&format!("status {}", bench.path("server")))["pid"];
    let server = Pid::from_raw(i32::try_from(server.as_i64().unwrap()).unwrap()).unwrap();
    kill_process(server, Signal::STOP).unwrap();
    let mut sync = bench.command(&format!("sync {}", dir.display()));
    let sync = sync.stderr(Stdio::piped()).spawn().unwrap();
    // Longer than a daemon hears somebody who says nothing.
    System.wait(Duration::from_secs(4));
    kill_process(server, Signal::CONT).unwrap();
    let output = sync.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    bench.umount(&dir);
}

/// Who waits for the end of a mount hears what that waits for.
#[test]
fn an_unmount_that_waits_says_what_for() {
    let test = "an_unmount_that_waits_says_what_for";
    let Some(mut bench) = Bench::new(test) else { return };
    let dir = bench.mount("SERVER", "--timeout 8 --sync-every 1");
    fs::write(dir.join("late"), b"before").unwrap();
    let server = &bench.facts(&format!("status {}", bench.path("server")))["pid"];
    let server = Pid::from_raw(i32::try_from(server.as_i64().unwrap()).unwrap()).unwrap();
    kill_process(server, Signal::STOP).unwrap();
    fs::write(dir.join("late"), b"late").unwrap();
    let status = format!("status {}", dir.display());
    while bench.facts(&status)["messages"].as_array().unwrap().is_empty() {
        System.wait(Duration::from_millis(100));
    }
    let mut umount = bench.command(&format!("umount {}", dir.display()));
    let mut umount = umount.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(umount.stderr.take().unwrap()).lines().map(Result::unwrap);
    let says_why =
        |line: &str| line.contains("being finished") && line.contains("; not everything is on");
    let mut said = Vec::new();
    let is_said = lines.inspect(|line| said.push(line.clone())).any(|line| says_why(&line));
    kill_process(server, Signal::CONT).unwrap();
    umount.wait().unwrap();
    assert!(is_said, "{said:?}");
    bench.check("SERVER");
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_writes_loses_nothing() {
    let test = "a_server_that_is_killed_in_the_middle_of_writes_loses_nothing";
    let Some(mut bench) = Bench::new(test) else { return };
    let dir = bench.mount("SERVER", "");
    let writing = {
        let dir = dir.clone();
        std::thread::spawn(move || {
            for n in 0..20 {
                let file = dir.join(format!("file-{n}"));
                fs::write(&file, content(100_000, n)).unwrap();
                fs::File::open(&file).unwrap().sync_all().unwrap();
            }
        })
    };
    for wait in [150, 300] {
        System.wait(Duration::from_millis(wait));
        bench.kill(&bench.path("server"));
        bench.serve();
    }
    writing.join().unwrap();
    bench.umount(&dir);
    bench.mount_at(&dir, "SERVER", "");
    for n in 0..20 {
        assert!(fs::read(dir.join(format!("file-{n}"))).unwrap() == content(100_000, n));
    }
    bench.umount(&dir);
    bench.check("SERVER");
}

/// Programs hear of it in the time that was asked for, the mount can be taken away, and what was written
/// meanwhile is not lost when the server comes back.
#[test]
fn a_server_that_is_away_is_waited_for_so_long() {
    let test = "a_server_that_is_away_is_waited_for_so_long";
    let Some(mut bench) = Bench::new(test) else { return };
    let dir = bench.mount("SERVER", "--timeout 20 --sync-every 0");
    fs::write(dir.join("before"), b"before").unwrap();
    bench.kill(&bench.path("server"));
    // Nothing has to be asked for that.
    fs::write(dir.join("before"), b"while it is away").unwrap();
    let file = fs::File::open(dir.join("before")).unwrap();
    let error = file.sync_all().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(110), "ETIMEDOUT, not {error}");
    bench.serve();
    file.sync_all().unwrap();
    drop(file);
    bench.kill(&bench.path("server"));
    fs::write(dir.join("lost"), b"never synced").unwrap();
    // It says that something was lost, and is gone all the same.
    let unmounted = bench.tacita(&format!("umount {}", dir.display()));
    assert_ne!(unmounted.status.code(), None, "{unmounted:?}");
    assert!(fs::read_dir(&dir).unwrap().next().is_none(), "it is still mounted");
    bench.serve();
    // Its last try to make that durable may not have ended.
    let again = format!("privatefs mount SERVER {} --key KEY", dir.display());
    while bench.tacita(&again).status.code() == Some(5) {
        System.wait(Duration::from_millis(100));
    }
    assert_eq!(fs::read(dir.join("before")).unwrap(), b"while it is away");
    bench.umount(&dir);
    bench.check("SERVER");
}

/// An unmount has nothing to tell of a server that is away when all is durable.
#[test]
fn who_unmounts_when_all_is_durable_needs_no_server() {
    let test = "who_unmounts_when_all_is_durable_needs_no_server";
    let Some(mut bench) = Bench::new(test) else { return };
    let dir = bench.mount("SERVER", "--timeout 20 --sync-every 0");
    fs::write(dir.join("file"), b"durable").unwrap();
    bench.ends(&format!("sync {}", dir.display()), 0);
    bench.kill(&bench.path("server"));
    bench.umount(&dir);
    bench.serve();
    bench.mount_at(&dir, "SERVER", "");
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"durable");
    bench.umount(&dir);
    bench.check("SERVER");
}

/// While requests of it still wait for the server, another mount may have its number: what is asked of that is not
/// answered here.
#[test]
fn a_mount_that_was_forced_away_does_not_answer_for_the_next_one() {
    let test = "a_mount_that_was_forced_away_does_not_answer_for_the_next_one";
    let Some(mut bench) = Bench::new(test) else { return };
    let dir = bench.mount("SERVER", "");
    let files = [1, 2, 3, 4].map(|n| dir.join(format!("file-{n}")));
    for file in &files {
        fs::write(file, content(9000, 1)).unwrap();
    }
    bench.umount(&dir);
    bench.mount_at(&dir, "SERVER", "--timeout 600 --sync-every 0");
    let number = fs::metadata(&dir).unwrap().dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    // Where the kernel tells how many requests wait.
    let connections = MountGuard::new().unwrap();
    let flags = rustix::mount::MountFlags::empty();
    if let Err(e) = rustix::mount::mount("fusectl", connections.path(), "fusectl", flags, None) {
        eprintln!("SKIPPED: {test}: cannot mount fusectl: {e}");
        return;
    }
    let waiting = connections.path().join(format!("{minor}/waiting"));
    let status = format!("status {}", dir.display());
    assert_eq!(bench.facts(&status)["device"], format!("{major}:{minor}"));
    bench.kill(&bench.path("server"));
    let readers = files.map(|file| std::thread::spawn(move || fs::read(file).is_err()));
    let wait = || fs::read_to_string(&waiting).unwrap().trim().parse::<usize>().unwrap();
    while wait() < readers.len() {
        System.wait(Duration::from_millis(10));
    }
    let by_force = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
    rustix::mount::unmount(&dir, by_force).unwrap();
    assert!(readers.into_iter().all(|reader| reader.join().unwrap()));
    let told = bench.facts(&status)["device"].clone();
    bench.serve();
    assert_eq!(told, Value::Null);
    let again = format!("privatefs mount SERVER {} --key KEY", dir.display());
    while bench.tacita(&again).status.code() == Some(5) {
        System.wait(Duration::from_millis(100));
    }
    bench.umount(&dir);
    bench.check("SERVER");
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn a_mount_that_is_killed_in_the_middle_of_renames_leaves_each_file_once() {
    let test = "a_mount_that_is_killed_in_the_middle_of_renames_leaves_each_file_once";
    let Some(mut bench) = Bench::new(test) else { return };
    renames(&mut bench, env_number("TACITA_KILLS", 4));
}

/// A mount is killed while a file goes from folder to folder, and another one goes over it: it is in one of
/// them, and whole. The games stop at every query; this is the program.
pub(crate) fn renames(bench: &mut Bench, rounds: u64) {
    let dir = bench.mount("SERVER", "--sync-every 1");
    for folder in ["one", "two"] {
        fs::create_dir(dir.join(folder)).unwrap();
    }
    fs::write(dir.join("one/file"), content(9000, 1)).unwrap();
    bench.ends(&format!("sync {}", dir.display()), 0);
    for round in 0..rounds {
        let moving = {
            let dir = dir.clone();
            std::thread::spawn(move || {
                let file = fs::File::open(dir.join("one")).unwrap();
                // Until the mount is gone.
                for _ in 0..100_000 {
                    for (from, to) in [("one", "two"), ("two", "one")] {
                        let (from, to) = (dir.join(from).join("file"), dir.join(to).join("file"));
                        if fs::rename(from, to).is_err() || file.sync_all().is_err() {
                            return;
                        }
                    }
                }
            })
        };
        System.wait(Duration::from_millis(170 + 53 * round % 1000));
        bench.kill(dir.to_str().unwrap());
        moving.join().unwrap();
        rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::DETACH).unwrap();
        bench.mount_at(&dir, "SERVER", "--sync-every 1");
        let found = [names(&dir.join("one")), names(&dir.join("two"))].concat();
        assert_eq!(found, ["file"], "round {round}");
        // It begins in the first folder again.
        let _ = fs::rename(dir.join("two/file"), dir.join("one/file"));
        assert!(fs::read(dir.join("one/file")).unwrap() == content(9000, 1), "round {round}");
        bench.ends(&format!("sync {}", dir.display()), 0);
    }
    bench.umount(&dir);
    bench.check("SERVER");
}
