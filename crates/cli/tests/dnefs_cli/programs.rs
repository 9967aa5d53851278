//! Programs at work while everything is purged every second: git, a data base, a compiler.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tacita_testkit::{env_number, skip_without};

use crate::bench::{Bench, Mounted, succeed};

/// Commits, transactions and sources.
const COMMITS: u64 = 12;
const TRANSACTIONS: u64 = 40;
const SOURCES: u64 = 12;

/// Runs what must succeed; what it prints.
fn run(dir: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{program} {arguments:?}: {printed}{said}");
    printed.into_owned()
}

fn git(dir: &Path, arguments: &[&str]) -> String {
    let who = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
    run(dir, "git", &[&who, arguments].concat())
}

/// Files that change, come and go; all of it is in a clone.
fn keep_history(dir: &Path) {
    git(dir, &["init", "-q", "-b", "main", "one"]);
    let one = dir.join("one");
    for number in 0..COMMITS {
        for file in 0..8 {
            let text = format!("{file}: {number}\n").repeat(400);
            fs::write(one.join(format!("file-{file}")), text).unwrap();
        }
        fs::write(one.join(format!("only-in-{number}")), "for a while").unwrap();
        if number > 0 {
            fs::remove_file(one.join(format!("only-in-{}", number - 1))).unwrap();
        }
        git(&one, &["add", "-A"]);
        git(&one, &["commit", "-q", "-m", &format!("change {number}")]);
    }
    git(&one, &["gc", "-q", "--prune=now"]);
    git(dir, &["clone", "-q", "one", "two"]);
    for name in ["one", "two"] {
        git(&dir.join(name), &["fsck", "--full", "--strict"]);
        assert_eq!(git(&dir.join(name), &["rev-list", "--count", "HEAD"]).trim(), "12");
    }
}

fn keep_books(dir: &Path) {
    for journal in ["delete", "wal"] {
        let db = format!("{journal}.db");
        let sql = |sql: &str| run(dir, "sqlite3", &["-bail", &db, sql]);
        sql(&format!("pragma journal_mode={journal}; create table t(n integer primary key, pad)"));
        for n in 0..TRANSACTIONS {
            sql(&format!(
                "pragma synchronous=full; begin; \
                 insert into t values({n}, hex(randomblob(2000))); \
                 update t set pad=hex(randomblob(1000)) where n={n}/2; \
                 delete from t where n={n}-10; commit"
            ));
        }
        sql("vacuum");
        assert_eq!(sql("pragma integrity_check").trim(), "ok", "{journal}");
        assert_eq!(sql("select count(*), min(n), max(n) from t").trim(), "10|30|39", "{journal}");
    }
}

fn build(dir: &Path) {
    let source = dir.join("source");
    fs::create_dir(&source).unwrap();
    let names: Vec<_> = (0..SOURCES).map(|n| format!("part{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        fs::write(
            source.join(format!("{name}.c")),
            format!("int {name}(void) {{ return {n}; }}\n"),
        )
        .unwrap();
    }
    let every = |before: &str, after: &str| -> String {
        names.iter().flat_map(|name| [before, name, after]).collect()
    };
    let (declared, sum) = (every("int ", "(void);\n"), every(" + ", "()"));
    let main =
        format!("#include <stdio.h>\n{declared}int main(void) {{ printf(\"%d\\n\", 0{sum}); }}\n");
    fs::write(source.join("main.c"), main).unwrap();
    let objects = every(" ", ".o");
    let makefile = format!("sum: main.o{objects}\n\tcc -o $@ $^\nclean:\n\trm -f sum *.o\n");
    fs::write(source.join("Makefile"), makefile).unwrap();
    for _ in 0..2 {
        run(&source, "make", &["-s", "clean"]);
        run(&source, "make", &["-s", "-j2", "CC=cc"]);
        let sum = SOURCES * (SOURCES - 1) / 2;
        assert_eq!(run(&source, "./sum", &[]).trim(), sum.to_string());
    }
}

/// Everything beneath a folder: kind and permissions, and content.
fn all_of(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            all.insert(path, (metadata.permissions().mode(), content));
        }
    }
    all
}

fn epoch(dir: &str) -> u64 {
    let status = succeed(&["status", dir, "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["facts"]["epoch"].as_u64().unwrap()
}

#[test]
fn programs_work_while_all_is_purged_every_second() {
    let test = "programs_work_while_all_is_purged_every_second";
    if skip_without(test, &["git", "sqlite3", "cc", "make"]) {
        return;
    }
    let options = ["--purge-every", "1", "--purge-scope", "all"];
    let mounted = Bench::mounted(test, &["--size", "128M"], &options);
    let Some(Mounted { bench: _bench, volume, guard, dir }) = mounted else { return };
    let dir = dir.as_str();
    let (before, purges) = (epoch(dir), env_number("TACITA_PURGES", 5));
    let mut rounds = Vec::new();
    while epoch(dir) < before + purges {
        assert!(rounds.len() < 10, "too few purges in ten rounds");
        let folder = guard.join(format!("round-{}", rounds.len()));
        fs::create_dir(&folder).unwrap();
        std::thread::scope(|scope| {
            for work in [keep_history, keep_books, build] {
                let folder = &folder;
                scope.spawn(move || work(folder));
            }
        });
        rounds.push(folder);
    }
    let left = all_of(guard.path());
    assert!(left.len() > 60, "{} files are left", left.len());
    succeed(&["umount", dir]);
    succeed(&["dnefs", "check", &volume]);
    assert!(all_of(guard.path()).is_empty());
    succeed(&["dnefs", "mount", &volume, dir]);
    assert!(all_of(guard.path()) == left, "after an unmount and a mount");
    for folder in rounds {
        git(&folder.join("two"), &["fsck", "--full", "--strict"]);
        for journal in ["delete", "wal"] {
            let check = [&format!("{journal}.db"), "pragma integrity_check"];
            assert_eq!(run(&folder, "sqlite3", &check).trim(), "ok");
        }
    }
    succeed(&["umount", dir]);
    succeed(&["dnefs", "check", &volume]);
}
