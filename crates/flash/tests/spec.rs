//! The worked example of docs/spec/flash.md is what is written, to the byte.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use tacita_flash::{Emulator, EmulatorOptions, Leb, Volume};

const SPEC: &str = include_str!("../../../docs/spec/flash.md");

/// The image of the example.
fn image() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let options = EmulatorOptions {
        page_len_bytes: 512,
        pages_per_block: 4,
        blocks: 8,
        ..EmulatorOptions::default()
    };
    let flash = Emulator::create(&path, &options).unwrap();
    let mut page = b"Tacita keeps silent.\n".to_vec();
    page.resize(512, 0);
    flash.append(Leb(0), 0, &page).unwrap();
    page[7..12].copy_from_slice(b"stays");
    flash.change(Leb(0), &page).unwrap();
    drop(flash);
    std::fs::read(&path).unwrap()
}

#[test]
fn the_specification_shows_what_is_written() {
    let image = image();
    let mut shown = vec![false; image.len()];
    for line in SPEC.lines().filter(|line| line.starts_with("    0x")) {
        let mut words = line.split_whitespace();
        let at = words.next().and_then(|at| usize::from_str_radix(&at[2..], 16).ok()).unwrap();
        let bytes: Vec<u8> = words.map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
        assert_eq!(image[at..at + bytes.len()], bytes, "at {at:#x}");
        shown[at..at + bytes.len()].fill(true);
    }
    assert!(shown.iter().filter(|shown| **shown).count() > 500, "all of the example");
    // The rest of the two tables is not shown, and all other bytes are zero.
    for at in (0..image.len()).filter(|at| !shown[*at]) {
        let is_table = [0x1200..0x1800, 0x1a00..0x2000].iter().any(|table| table.contains(&at));
        assert!(is_table || image[at] == 0, "{at:#x} is not shown");
    }
}
