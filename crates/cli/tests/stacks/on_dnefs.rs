//! HIFS in a file of DNEFS: the image is canonical, and what HIFS has overwritten in it cannot be read from
//! the raw flash after a purge, where it otherwise stays.

use std::fs;

use crate::bench::{
    Bench, Loop, SEED, count, ends, facts, fill_database, look_at_database, sync, text,
};

const GONE: &str = "Jane Roe, room 7: what nobody may know.\n";
const REPEATS: usize = 20_000;
/// Most bytes of a file in a node.
const NODE_LEN: usize = 4096;

/// A dump of a volume that is mounted.
fn dump(bench: &Bench, volume: &str, name: &str) -> String {
    let (copy, out) = (bench.text(&format!("{name}-copy")), bench.text(name));
    fs::copy(volume, &copy).unwrap();
    ends(0, &["dnefs", "dump", &copy, &out]);
    out
}

/// HIFS on a file of a mount of DNEFS; on it through a loop device, or as it is.
fn play(test: &str, is_looped: bool) {
    let Some(bench) = Bench::new(test, &["sqlite3"]) else { return };
    let (volume, lower) = (bench.text("volume"), text(bench.lower.path()));
    ends(0, &["dnefs", "format", &volume, "--size", "128M", "--compression", "none"]);
    ends(0, &["dnefs", "mount", &volume, lower, "--purge-every", "0"]);
    let file = bench.lower.join("ward.img");
    ends(0, &["hifs", "format", text(&file), "--size", "16M", "--seed", SEED]);
    let looped = is_looped.then(|| Loop::on(&file).unwrap());
    let image = looped.as_ref().map_or(text(&file), Loop::device);
    bench.mount(image);
    fill_database(bench.upper.path());
    fs::write(bench.upper.join("jane"), GONE.repeat(REPEATS)).unwrap();
    sync(&bench.upper.join("jane"));
    ends(0, &["sync", lower]);
    let before = dump(&bench, &volume, "before");
    let read = || count(&fs::read(&file).unwrap(), GONE);
    assert!(read() > REPEATS / 2, "the control: the image holds it");

    // HIFS overwrites it in the image, which on flash means: elsewhere.
    fs::remove_file(bench.upper.join("jane")).unwrap();
    bench.umount();
    ends(0, &["hifs", "check", image]);
    drop(looped);
    sync(&file);
    assert_eq!(read(), 0);
    let deleted = dump(&bench, &volume, "deleted");
    ends(0, &["dnefs", "purge", lower]);
    let after = dump(&bench, &volume, "after");
    let nodes = (GONE.len() * REPEATS / NODE_LEN / 2) as u64;
    let found = facts(&["dnefs", "audit", "--before", &before, "--after", &after]);
    assert!(found["holds"] == true && found["deleted"].as_u64() >= Some(nodes), "{found}");
    // The control: HIFS alone does not do that. What is in use is known by the later dump.
    let both = bench.text("both");
    fs::write(&both, [fs::read(&deleted).unwrap(), fs::read(&after).unwrap()].concat()).unwrap();
    let found = facts(&["dnefs", "audit", "--before", &before, "--after", &both]);
    assert!(found["recoverable_count"].as_u64() >= Some(nodes), "{found}");

    // The whole way down and up again.
    ends(0, &["umount", lower]);
    ends(0, &["dnefs", "check", &volume]);
    ends(0, &["dnefs", "mount", &volume, lower]);
    ends(0, &["hifs", "check", text(&file)]);
    bench.mount(text(&file));
    look_at_database(bench.upper.path());
    bench.umount();
    ends(0, &["umount", lower]);
}

#[test]
fn hifs_in_a_file_of_dnefs() {
    play("hifs_in_a_file_of_dnefs", false);
}

#[test]
fn hifs_on_a_loop_device_on_a_file_of_dnefs() {
    play("hifs_on_a_loop_device_on_a_file_of_dnefs", true);
}
