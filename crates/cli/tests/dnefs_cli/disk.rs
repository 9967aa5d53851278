//! A disk for other file systems: a loop device on a file of a mount. What ext4 discards there has its
//! keys deleted, and is gone after the next purge.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tacita_testkit::loop_disk::LoopDisk;
use tacita_testkit::search;
use tacita_testkit::system;

use crate::bench::{Bench, Mounted, audit, succeed};

const MARKER: &str = "what stood on the disk; ";
const MARKED_LEN: usize = 1 << 20;
/// Most bytes of a file in a node.
const NODE_LEN: u64 = 4096;
const DISCARD_MAX: Duration = Duration::from_mins(2);

fn holds_marker(file: &Path) -> bool {
    search::holds(&fs::read(file).unwrap(), MARKER)
}

fn sync(path: &Path) {
    fs::File::open(path).unwrap().sync_all().unwrap();
}

/// A dump of a volume that is mounted and has just been purged.
fn dump_of_copy(bench: &Bench, volume: &str, name: &str) -> String {
    bench.dump(&bench.copy_at_rest(volume, &format!("{name}-copy")), name)
}

/// A file is deleted on a disk mounted with `options`; `discard` sees to it that ext4 discards its blocks.
fn play(test: &str, options: &str, discard: fn(&Path)) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: needs root");
        return;
    }
    let format = ["--size", "128M", "--compression", "none"];
    let mounted = Bench::mounted(test, &format, &["--purge-every", "0"]);
    let Some(Mounted { bench, volume, guard, dir }) = mounted else { return };
    let dir = dir.as_str();
    let file = guard.join("disk");
    fs::File::create(&file).unwrap().set_len(48 << 20).unwrap();
    let disk = match LoopDisk::new(&file, bench.path("disk"), &["-E", "discard"], options) {
        Ok(disk) => disk,
        Err(why) => {
            eprintln!("SKIPPED: {test}: no ext4 on a loop device here: {why}");
            succeed(&["umount", dir]);
            return;
        }
    };
    let (marked, kept) = (disk.at().join("marked"), disk.at().join("kept"));
    fs::write(&kept, "kept; ".repeat(10_000)).unwrap();
    fs::write(&marked, MARKER.repeat(MARKED_LEN / MARKER.len())).unwrap();
    sync(&marked);
    sync(&kept);
    succeed(&["sync", dir]);
    assert!(holds_marker(&file), "the file of the disk holds what is on it");
    let before = dump_of_copy(&bench, &volume, "before");

    fs::remove_file(&marked).unwrap();
    sync(disk.at());
    discard(disk.at());
    let begin = Instant::now();
    while holds_marker(&file) {
        assert!(begin.elapsed() < DISCARD_MAX, "ext4 has not discarded what was deleted");
        std::thread::sleep(Duration::from_millis(100));
    }
    let deleted = dump_of_copy(&bench, &volume, "deleted");
    succeed(&["dnefs", "purge", dir]);
    let after = dump_of_copy(&bench, &volume, "after");
    let nodes = MARKED_LEN as u64 / NODE_LEN - 1;
    let found = audit(0, &before, &after);
    assert!(found["holds"] == true && found["deleted"].as_u64() >= Some(nodes), "{found}");
    // Before the purge the same keys are there; what is in use is known by the later dump.
    let both = bench.text("both");
    fs::write(&both, [fs::read(&deleted).unwrap(), fs::read(&after).unwrap()].concat()).unwrap();
    let found = audit(1, &before, &both);
    assert!(found["recoverable_count"].as_u64() >= Some(nodes), "{found}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "kept; ".repeat(10_000));
    drop(disk);
    succeed(&["umount", dir]);
    succeed(&["dnefs", "check", &volume]);
}

#[test]
fn what_ext4_discards_is_gone_after_a_purge() {
    play("what_ext4_discards_is_gone_after_a_purge", "discard", |_| ());
}

#[test]
fn what_is_trimmed_is_gone_after_a_purge() {
    play("what_is_trimmed_is_gone_after_a_purge", "nodiscard", |at| {
        system("fstrim", &[at.to_str().unwrap()]).unwrap();
    });
}
