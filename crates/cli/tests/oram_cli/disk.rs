//! File systems and databases on an oblivious store: ext4 on the exported device, fsx and `SQLite` on it, and
//! the server killed in the middle.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tacita_clock::{Clock, System};
use tacita_testkit::loop_disk::LoopDisk;
use tacita_testkit::system;
use tacita_testkit::{Watchdog, skip_without, skip_without_fuse};

use crate::Bench;

const TIME_MAX: Duration = Duration::from_mins(20);

/// A file that is the exported device, for loop devices; gone with its folder when dropped.
struct AsFile {
    process: Child,
    file: PathBuf,
}

impl AsFile {
    fn new(bench: &Bench, test: &str) -> Option<Self> {
        let file = bench.folder.path().join("as-file");
        std::fs::write(&file, []).unwrap();
        let mut process = Command::new("nbdfuse")
            .arg(&file)
            .arg(bench.uri())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        while std::fs::metadata(&file).is_ok_and(|metadata| metadata.len() == 0) {
            if let Some(status) = process.try_wait().unwrap() {
                eprintln!("SKIPPED: {test}: nbdfuse does not mount here: {status}");
                return None;
            }
            System.wait(Duration::from_millis(20));
        }
        Some(Self { process, file })
    }
}

impl Drop for AsFile {
    fn drop(&mut self) {
        let _ = system("fusermount3", &["-u", self.file.to_str().unwrap()]);
        let _ = self.process.wait();
    }
}

fn sqlite(database: &Path, sql: &str) -> String {
    let output = Command::new("sqlite3").arg("-bail").arg(database).arg(sql).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{sql}: {said}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

const FILL: &str = "with recursive n(i) as (values(1) union all select i + 1 from n where i < 2000)
    insert into rows select i, hex(randomblob(40)) from n;";

#[test]
fn ext4_with_fsx_and_sqlite_on_an_oblivious_disk() {
    let test = "ext4_with_fsx_and_sqlite_on_an_oblivious_disk";
    if skip_without_fuse(test) || skip_without(test, &["nbdfuse", "mkfs.ext4", "sqlite3"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: not root");
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let bench = Bench::of(8192, 256);
    bench.serve();
    bench.ends("export SERVER --key KEY --nbd DISK", 0);
    let Some(file) = AsFile::new(&bench, test) else { return };
    let make = ["-b", "4096", "-E", "nodiscard,lazy_itable_init=1", "-J", "size=4"];
    let disk = LoopDisk::new(&file.file, bench.folder.path().join("mounted"), &make, "noatime");
    let disk = match disk {
        Ok(disk) => disk,
        Err(why) => {
            eprintln!("SKIPPED: {test}: no ext4 on a loop device here: {why}");
            return;
        }
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/conformance/fsx.sh");
    if Path::new(&std::env::var("HOME").unwrap_or_default()).join(".cargo/bin/fsx").exists() {
        let output = Command::new(script).arg(disk.at()).args(["1000", "17"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    } else {
        eprintln!("SKIPPED: {test}: fsx is not installed");
    }
    let database = disk.at().join("db");
    sqlite(
        &database,
        "create table rows(id integer, what text); create index whats on rows(what);",
    );
    // The server is killed in the middle of a transaction, and comes back.
    let filling = {
        let database = database.clone();
        std::thread::spawn(move || (0..3).for_each(|_| drop(sqlite(&database, FILL))))
    };
    System.wait(Duration::from_millis(300));
    bench.kill("server");
    bench.serve();
    filling.join().unwrap();
    let facts = "pragma integrity_check; select count(*), sum(id) from rows;";
    assert_eq!(sqlite(&database, facts), "ok\n6000|6003000");
    disk.unmount();
    // The whole way down and up again.
    system("e2fsck", &["-fn", disk.device()]).unwrap();
    disk.mount("noatime").unwrap();
    assert_eq!(sqlite(&database, facts), "ok\n6000|6003000");
    drop(disk);
    drop(file);
    bench.ends("close DISK", 0);
    bench.ends("check SERVER --key KEY", 0);
}
