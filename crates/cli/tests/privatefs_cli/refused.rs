//! What is refused, by which exit code or error, and what is left as it was.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tacita_clock::{Clock, System};
use tacita_oram::key_file::KeyFile;
use tacita_oram::link::Address;
use tacita_oram::{AnchorAt, Options, Store, Way};
use tacita_privatefs::ids::Ids;

use crate::bench::{Bench, content, run};

#[track_caller]
fn said(bench: &Bench, line: &str, code: i32) -> String {
    String::from_utf8(bench.ends(line, code).stderr).unwrap()
}

/// Lines that open a file system in each way.
fn ways(bench: &Bench) -> [String; 3] {
    let dir = bench.path("dir");
    let _ = fs::create_dir(&dir);
    [
        "privatefs info SERVER --key KEY".to_owned(),
        "privatefs check SERVER --key KEY".to_owned(),
        format!("privatefs mount SERVER {dir} --key KEY"),
    ]
}

#[test]
fn a_store_that_was_set_back_to_a_backup_is_refused() {
    let test = "a_store_that_was_set_back_to_a_backup_is_refused";
    let Some(mut bench) = Bench::at(test, None, &[]) else { return };
    bench.make(4096, 64);
    let (store, backup, newest) = (bench.path("store"), bench.path("backup"), bench.path("newest"));
    let close = format!("oram close {}", bench.path("server"));
    let put = |from: &str| {
        fs::remove_dir_all(&store).unwrap();
        run("cp", &["-a", from, &store]);
    };
    bench.ends(&close, 0);
    run("cp", &["-a", &store, &backup]);
    bench.serve();
    let dir = bench.mount("SERVER", "");
    fs::write(dir.join("file"), content(30_000, 1)).unwrap();
    bench.umount(&dir);
    bench.ends(&close, 0);
    run("cp", &["-a", &store, &newest]);
    put(&backup);
    bench.serve();
    for line in ways(&bench) {
        let said = said(&bench, &line, 1);
        assert!(said.contains("restore the store's newest state"), "{line}: {said}");
    }
    bench.ends(&close, 0);
    put(&newest);
    bench.serve();
    bench.mount_at(&dir, "SERVER", "");
    assert!(fs::read(dir.join("file")).unwrap() == content(30_000, 1));
    bench.umount(&dir);
}

/// Whatever programs hear of it.
#[test]
fn a_mount_says_that_the_server_was_caught() {
    let test = "a_mount_says_that_the_server_was_caught";
    let Some(mut bench) = Bench::at(test, None, &[]) else { return };
    bench.make(256, 16);
    let dir = bench.mount("SERVER", "--sync-every 0");
    fs::write(dir.join("file"), content(100_000, 1)).unwrap();
    let status = format!("status {}", dir.display());
    bench.ends(&format!("sync {}", dir.display()), 0);
    assert!(bench.facts(&status)["facts"]["failure"].is_null());
    for generation in fs::read_dir(bench.path("store/generation")).unwrap() {
        let filter = generation.unwrap().path().join("filter-00000000");
        // Of one that is being built there may be none yet.
        let Ok(before) = fs::read(&filter) else { continue };
        fs::write(&filter, before.iter().map(|byte| !byte).collect::<Vec<_>>()).unwrap();
    }
    fs::write(dir.join("other"), b"content").unwrap();
    bench.ends(&format!("sync {}", dir.display()), 4);
    let failure = bench.facts(&status)["facts"]["failure"].to_string();
    assert!(failure.contains("not what was sealed"), "{failure}");
    bench.ends(&format!("umount {}", dir.display()), 4);
}

#[test]
fn a_newer_format_is_refused_by_its_number() {
    let test = "a_newer_format_is_refused_by_its_number";
    let Some(mut bench) = Bench::at(test, None, &[]) else { return };
    bench.make(4096, 64);
    let key = bench.path("key");
    let own = KeyFile::read(Path::new(&key)).unwrap().open(None).unwrap();
    let id = Ids::new(&own).register();
    // The place of the version: docs/spec/privatefs.md, section 2.
    let set_version = |version: u8| {
        let way = Way::Server(Address::Unix(bench.path("server").into()));
        let anchor = AnchorAt::File(format!("{key}.anchor").into());
        let store = Store::open(way, &own, &anchor, &Options::default()).unwrap();
        let mut register = store.read(id).unwrap().unwrap().to_vec();
        register[8] = version;
        store.write(id, register.into()).unwrap();
    };
    set_version(2);
    for line in ways(&bench) {
        let said = said(&bench, &line, 4);
        assert!(said.contains("has format 2") && said.contains("version of tacita"), "{said}");
    }
    assert!(said(&bench, "privatefs format SERVER --key KEY", 2).contains("nothing was changed"));
    set_version(1);
    let dir = bench.mount("SERVER", "");
    fs::write(dir.join("file"), b"as before").unwrap();
    bench.umount(&dir);
    bench.check("SERVER");
}

/// No room for an anchor is no failure of the store, and what answers at an address may be no store.
#[test]
fn a_full_disk_and_a_strange_server_are_told() {
    let test = "a_full_disk_and_a_strange_server_are_told";
    let Some(bench) = Bench::at(test, None, &[]) else { return };
    bench.make(1024, 64);
    let strange = bench.path("strange");
    let listener = UnixListener::bind(&strange).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(&b"HTTP/1.1 400 Bad Request\r\n".repeat(9));
        }
    });
    for line in ways(&bench) {
        let line = line.replace("SERVER", &format!("unix:{strange}"));
        let said = said(&bench, &line, 4);
        assert!(said.contains("a server of stores that answers at this address"), "{line}: {said}");
    }
    let full = tempfile::tempdir().unwrap();
    let at = full.path().to_str().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1M", "none", at]).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: {test}: no tmpfs can be mounted here");
        return;
    }
    let filled = fs::write(full.path().join("filler"), vec![7; 2 << 20]);
    let refused = ways(&bench).map(|line| {
        let output = bench.tacita(&format!("{line} --anchor {at}/anchor"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said.contains("No space left") && said.contains("make room there"))
    });
    run("umount", &[at]);
    assert!(filled.is_err(), "it is not full");
    assert_eq!(refused, [(Some(6), true); 3]);
}

/// ENAMETOOLONG and EFBIG.
const TOO_LONG: Option<i32> = Some(36);
const TOO_BIG: Option<i32> = Some(27);

/// What programs are told at the ends of what there is room for.
#[test]
fn limits_have_their_errors() {
    let Some(mut bench) = Bench::at("limits_have_their_errors", None, &[]) else { return };
    bench.make(1024, 256);
    let dir = bench.mount("SERVER", "");
    let code = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    fs::write(dir.join("n".repeat(255)), b"x").unwrap();
    assert_eq!(code(fs::write(dir.join("n".repeat(256)), b"x")), TOO_LONG);
    symlink("t".repeat(4095), dir.join("link")).unwrap();
    assert_eq!(code(symlink("t".repeat(4096), dir.join("other"))), TOO_LONG);
    let file = File::create(dir.join("long")).unwrap();
    file.set_len(1 << 60).unwrap();
    assert_eq!(code(file.set_len((1 << 60) + 1)), TOO_BIG);
    drop(file);
    fs::remove_file(dir.join("long")).unwrap();

    // A full store says so to whoever writes or syncs, and is of use again.
    for round in 0..2 {
        let mut file = File::create(dir.join("large")).unwrap();
        let filled = (0..1024).try_for_each(|_| file.write_all(&[7; 8192]));
        let error = filled.and_then(|()| file.sync_all()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "round {round}: {error}");
        drop(file);
        assert_eq!(fs::read(dir.join("n".repeat(255))).unwrap(), b"x");
        fs::remove_file(dir.join("large")).unwrap();
        // The kernel may not have forgotten it yet, and until it has somebody could read it.
        while rustix::fs::statvfs(&dir).unwrap().f_bavail < 500 {
            bench.ends(&format!("sync {}", dir.display()), 0);
            System.wait(Duration::from_millis(20));
        }
    }
    fs::write(dir.join("again"), content(100_000, 1)).unwrap();
    bench.umount(&dir);
    bench.check("SERVER");
}

/// Blocks of a mount's journal, of commits as long as they get in a small store.
const JOURNAL: u64 = 128;

/// What was deleted gives its room back with the next commit, however few queries there are: a store counts
/// its blocks for itself only when two periods are over.
#[test]
fn a_small_store_that_was_full_is_empty_after_a_commit() {
    let test = "a_small_store_that_was_full_is_empty_after_a_commit";
    let Some(mut bench) = Bench::at(test, None, &[]) else { return };
    bench.make(400, 256);
    let dir = bench.mount("SERVER", "--sync-every 2");
    let room = || rustix::fs::statvfs(&dir).unwrap().f_bavail;
    let before = room();
    for round in 0..4 {
        let filled = (0..400).try_for_each(|n| fs::write(dir.join(n.to_string()), [7; 4096]));
        let error = filled.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "round {round}: {error}");
        bench.ends(&format!("sync {}", dir.display()), 0);
        assert!(room() < 40, "round {round}: {}", room());
        for entry in fs::read_dir(&dir).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        // With what commits by itself alone; then asked for. The kernel tells late that it has forgotten.
        let is_asked = round % 2 == 1;
        let begin = System.monotonic();
        while room() + JOURNAL < before {
            if is_asked {
                bench.ends(&format!("sync {}", dir.display()), 0);
            }
            assert!(System.elapsed(begin) < Duration::from_mins(3), "round {round}: {}", room());
            System.wait(Duration::from_millis(100));
        }
    }
    bench.umount(&dir);
    bench.check("SERVER");
}
