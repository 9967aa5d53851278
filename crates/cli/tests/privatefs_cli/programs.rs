//! Programs in a mount: the paper's ten files, git, `SQLite`, the suites; and what is refused.

use std::fs;
use std::path::Path;

use tacita_testkit::skip_without;

use crate::bench::{Bench, content, run};

/// Paper: ten files of 512 KB are written in parallel, and verified.
pub(crate) fn ten_files(dir: &Path, len: usize) {
    let write = |n: u64| fs::write(dir.join(format!("ten-{n}")), content(len, n)).unwrap();
    std::thread::scope(|scope| (0..10).for_each(|n| drop(scope.spawn(move || write(n)))));
}

pub(crate) fn ten_files_are_there(dir: &Path, len: usize) {
    let is_there = |n: u64| {
        assert!(fs::read(dir.join(format!("ten-{n}"))).unwrap() == content(len, n), "{n}");
    };
    std::thread::scope(|scope| (0..10).for_each(|n| drop(scope.spawn(move || is_there(n)))));
}

#[test]
fn programs_find_what_they_have_written() {
    let test = "programs_find_what_they_have_written";
    let Some(mut bench) = Bench::new(test) else { return };
    let dir = bench.mount("SERVER", "");
    ten_files(&dir, 512 << 10);
    if !skip_without(test, &["git", "sqlite3"]) {
        let repository = dir.join("repository");
        let at = repository.to_str().unwrap();
        let git = |line: &str| {
            let head = ["-C", at, "-c", "user.name=n", "-c", "user.email=e@example.org"];
            run("git", &[&head[..], &line.split(' ').collect::<Vec<_>>()].concat())
        };
        fs::create_dir(&repository).unwrap();
        git("init -q");
        for n in 0..30 {
            fs::write(repository.join(format!("file-{n}")), content(n * 700, 3)).unwrap();
        }
        git("add .");
        git("commit -q -m first");
        fs::write(repository.join("file-1"), b"other").unwrap();
        git("commit -q -a -m second");
        git("gc -q");
        git("fsck --strict");
        let database = dir.join("db");
        let sql = "create table t(a); begin; insert into t values(1),(2); commit; \
                   pragma integrity_check; select sum(a) from t;";
        assert_eq!(run("sqlite3", &[database.to_str().unwrap(), sql]), "ok\n3\n");
    }
    bench.umount(&dir);
    bench.mount_at(&dir, "SERVER", "");
    ten_files_are_there(&dir, 512 << 10);
    let status = bench.facts(&format!("status {}", dir.display()));
    assert_eq!(status["facts"]["has_turn"], true, "{status}");
    bench.umount(&dir);
    assert!(bench.check("SERVER")["files"].as_u64().unwrap() >= 10);
    let info = bench.facts("privatefs info SERVER --key KEY");
    assert_eq!((&info["mounts"], &info["commit_to_finish"]), (&0.into(), &false.into()), "{info}");
}

#[test]
fn the_suites_pass() {
    let test = "the_suites_pass";
    let Some(mut bench) = Bench::new(test) else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: not root");
        return;
    }
    let dir = bench.mount("SERVER", "-o allow_other,dev,suid");
    let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/conformance");
    let tools = Path::new(&std::env::var("HOME").unwrap_or_default()).join(".cargo/bin");
    let at = dir.to_str().unwrap();
    for (tool, arguments) in [("fsx", vec![at, "700", "11"]), ("pjdfstest", vec![at])] {
        if tools.join(tool).exists() {
            run(suites.join(format!("{tool}.sh")).to_str().unwrap(), &arguments);
        } else {
            eprintln!("SKIPPED: {test}: {tool} is not installed");
        }
    }
    bench.umount(&dir);
    bench.check("SERVER");
}

#[test]
fn what_cannot_be_is_named() {
    let test = "what_cannot_be_is_named";
    let Some(mut bench) = Bench::at(test, None, &[]) else { return };
    bench.ends("oram init STORE --key KEY --blocks 4096 --period 16", 0);
    bench.ends("privatefs info SERVER --key KEY --timeout 1", 4);
    bench.serve();
    let dir = bench.path("nowhere");
    let said = |line: &str, code| String::from_utf8(bench.ends(line, code).stderr).unwrap();
    for line in ["info SERVER --key KEY", "check SERVER --key KEY"] {
        assert!(said(&format!("privatefs {line}"), 4).contains("privatefs format"));
    }
    bench.ends("privatefs format SERVER --key KEY", 0);
    assert!(said("privatefs format SERVER --key KEY", 2).contains("nothing was changed"));
    bench.ends(&format!("privatefs mount SERVER {dir} --key KEY"), 2);
    bench.ends(&format!("privatefs mount SERVER {dir} --key {dir}"), 4);
    let other = bench.path("other");
    fs::write(&other, format!("tacita-oram-key-1 {}\n", "ab".repeat(32))).unwrap();
    bench.ends(&format!("privatefs info SERVER --key {other}"), 3);
    // Nothing is changed through a mount that may not.
    let read_only = bench.mount("SERVER", "-o ro");
    let refused = fs::write(read_only.join("file"), b"x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let busy = bench.tacita("privatefs info SERVER --key KEY --timeout 20");
    assert_eq!(busy.status.code(), Some(5), "{busy:?}");
}

#[test]
fn blocks_of_another_length_are_refused() {
    let test = "blocks_of_another_length_are_refused";
    let Some(bench) = Bench::at(test, None, &[]) else { return };
    bench.ends("oram init STORE --key KEY --blocks 600 --block-size 8K", 0);
    bench.serve();
    bench.ends("privatefs format SERVER --key KEY", 2);
}

/// A mount may cover the very folder that its server keeps the store in.
#[test]
fn a_mount_over_its_own_store_is_of_use() {
    let Some(bench) = Bench::at("a_mount_over_its_own_store_is_of_use", None, &[]) else { return };
    bench.make(1024, 64);
    let store = bench.path("store");
    bench.ends(&format!("privatefs mount SERVER {store} --key KEY"), 0);
    let file = Path::new(&store).join("file");
    fs::write(&file, content(100_000, 1)).unwrap();
    bench.ends(&format!("sync {store}"), 0);
    assert_eq!(fs::read(&file).unwrap(), content(100_000, 1));
    bench.ends(&format!("umount {store}"), 0);
    assert!(!file.exists());
    bench.check("SERVER");
}
