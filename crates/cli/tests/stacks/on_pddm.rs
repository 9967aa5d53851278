//! On a hidden volume of PD-DM: HIFS, whose image is canonical in the volume, and ext4 under purge, whose
//! deleted files are not in the volume. Below both is a log, which has a past of its own.

use std::fs;
use std::path::Path;

use tacita_testkit::kill_daemon;
use tacita_testkit::loop_disk::LoopDisk;

use crate::bench::{
    Bench, SEED, count, ends, facts, fill_database, look_at_database, sync, tacita, text,
};

const KEPT: &str = "Ada Byron, room 3: a broken arm.\n";
const GONE: &str = "Jane Roe, room 7: what nobody may know.\n";
const REPEATS: usize = 4000;
const BLOCK: usize = 4096;

fn admit(folder: &Path, name: &str, line: &str) {
    fs::write(folder.join(name), line.repeat(REPEATS)).unwrap();
    sync(&folder.join(name));
}

/// Plays one of two stories with the same end on HIFS on a hidden volume; the volume's bytes then.
fn tell(bench: &Bench, device: &str, has_a_past: bool) -> Vec<u8> {
    bench.init(device, &["--size", "48M"]);
    let volume = bench.open(device);
    ends(0, &["hifs", "format", volume.device(), "--seed", SEED]);
    bench.mount(volume.device());
    let folder = bench.upper.path();
    if has_a_past {
        admit(folder, "jane", GONE);
        fill_database(folder);
        admit(folder, "ada", GONE);
        fs::remove_file(folder.join("jane")).unwrap();
        admit(folder, "ada", KEPT);
    } else {
        admit(folder, "ada", KEPT);
        fill_database(folder);
    }
    bench.umount();
    bench.close(volume);
    // As the device has it, by those who open it the next time.
    let volume = bench.open(device);
    ends(0, &["hifs", "check", volume.device()]);
    let image = volume.content();
    bench.mount(volume.device());
    look_at_database(folder);
    bench.umount();
    assert!(volume.content() == image, "looking at it has changed it");
    bench.close(volume);
    image
}

#[test]
fn hifs_on_a_hidden_volume() {
    let Some(bench) = Bench::new("hifs_on_a_hidden_volume", &["sqlite3"]) else { return };
    let (one, other) = (bench.text("one"), bench.text("other"));
    let (image_one, image_other) = (tell(&bench, &one, true), tell(&bench, &other, false));
    assert!(image_one == image_other, "the volumes differ");
    // One that lies across two buckets is in two places.
    assert!(count(&image_one, KEPT) > REPEATS * 9 / 10);
    assert_eq!(count(&image_one, GONE), 0);
    for device in [&one, &other] {
        let raw = fs::read(device).unwrap();
        assert_eq!((count(&raw, KEPT), count(&raw, GONE)), (0, 0), "the device is ciphertext");
    }
    // What the stack does not promise: below HIFS is a log with a past of its own.
    assert!(fs::read(&one).unwrap() != fs::read(&other).unwrap());
}

/// The daemon of the device ends in the middle. A flush of a hidden volume is a barrier, so HIFS finds the
/// image as it was at one of its flushes, and finishes or erases what was interrupted.
#[test]
fn hifs_on_a_hidden_volume_whose_daemon_was_killed() {
    let test = "hifs_on_a_hidden_volume_whose_daemon_was_killed";
    let Some(bench) = Bench::new(test, &[]) else { return };
    let device = bench.text("device");
    bench.init(&device, &["--size", "48M"]);
    let volume = bench.open(&device);
    ends(0, &["hifs", "format", volume.device(), "--seed", SEED]);
    bench.mount(volume.device());
    admit(bench.upper.path(), "ada", KEPT);
    bench.umount();
    bench.close(volume);
    for round in 0..2 {
        let volume = bench.open(&device);
        bench.mount(volume.device());
        let folder = bench.upper.path();
        for n in 0..=round {
            admit(folder, "jane", &GONE.repeat(n + 1));
            fs::remove_file(folder.join("jane")).unwrap();
        }
        admit(folder, &format!("guest {round}"), GONE);
        kill_daemon(&tacita(&["status", text(bench.lower.path()), "--json"]).stdout);
        // HIFS hears of it at its next commit, if it has anything to write.
        let _ = fs::write(folder.join("late"), "too late");
        tacita(&["umount", text(folder)]);
        ends(4, &["umount", text(bench.lower.path())]);
        drop(volume);
        let volume = bench.open(&device);
        bench.mount(volume.device());
        let ada = fs::read_to_string(folder.join("ada")).unwrap();
        assert!(ada == KEPT.repeat(REPEATS), "round {round}: what was swept was lost");
        let _ = fs::remove_file(folder.join("late"));
        bench.umount();
        ends(0, &["hifs", "check", volume.device()]);
        bench.close(volume);
    }
}

/// How many blocks of a device that were written are the same in a copy of it.
fn blocks_that_stayed(device: &str, copy: &[u8]) -> usize {
    let now = fs::read(device).unwrap();
    let blocks = now.chunks(BLOCK).zip(copy.chunks(BLOCK));
    blocks.filter(|(now, then)| now == then && now.iter().any(|byte| *byte != 0)).count()
}

#[test]
fn purge_over_ext4_on_a_hidden_volume() {
    let test = "purge_over_ext4_on_a_hidden_volume";
    let Some(bench) = Bench::new(test, &["mkfs.ext4", "sqlite3"]) else { return };
    let device = bench.text("device");
    bench.init(&device, &["--size", "96M"]);
    let volume = bench.open(&device);
    let file = bench.lower.join("hidden");
    let disk = match LoopDisk::new(&file, bench.path("disk"), &[], "noatime") {
        Ok(disk) => disk,
        Err(why) => {
            eprintln!("SKIPPED: {test}: no ext4 on a loop device here: {why}");
            return bench.close(volume);
        }
    };
    let (below, dir) = (text(disk.at()), text(bench.upper.path()));
    // It is told that this is not all: by the probe, at the mount, in the status and in every verdict.
    let told = ends(7, &["purge", "probe", below]);
    assert!(told.contains("a file on fuse.tacita-pddm"), "{told}");
    let told = ends(0, &["purge", "mount", below, dir]);
    assert!(told.contains("a file on fuse.tacita-pddm"), "{told}");

    admit(bench.upper.path(), "ada", KEPT);
    admit(bench.upper.path(), "jane", GONE);
    fill_database(bench.upper.path());
    let stood = count(&volume.content(), GONE);
    assert!(stood > REPEATS * 9 / 10, "the control: it stood in the volume {stood} times");
    fs::remove_file(bench.upper.join("jane")).unwrap();
    ends(0, &["purge", "status", dir, "--finish"]);
    let status = facts(&["purge", "status", dir]);
    let verdict = status["last"].as_array().unwrap().last().unwrap();
    assert_eq!(verdict["content"], "verified in place", "{status}");
    assert_eq!(verdict["holds"], true, "{status}");
    assert!(verdict["risks"][0].as_str().unwrap().contains("fuse.tacita-pddm"), "{verdict}");
    assert!(ends(0, &["purge", "status", dir]).contains("a file on fuse.tacita-pddm"));
    bench.umount();
    disk.unmount();
    let now = volume.content();
    assert!(count(&now, KEPT) > REPEATS * 9 / 10);
    assert_eq!((count(&now, GONE), count(&now, "jane")), (0, 0), "content and name");
    disk.mount("noatime").unwrap();
    look_at_database(disk.at());
    drop(disk);
    bench.close(volume);

    // What the stack does not promise: the log below has old units until it comes to them again. A whole
    // round replaces every one; what stays are the two superblocks.
    let before = fs::read(&device).unwrap();
    let hidden = bench.text("hidden");
    let volume = bench.open(&device);
    drop(volume);
    ends(0, &["pddm", "close", text(bench.lower.path()), "--drop"]);
    assert!(blocks_that_stayed(&device, &before) > 1000, "the control: most of it stays");
    ends(0, &["pddm", "sweep", &device, "--password-file", &hidden]);
    assert_eq!(blocks_that_stayed(&device, &before), 2);
}
