//! The worked example of docs/spec/purge.md is what the code writes.

#![allow(clippy::unwrap_used, reason = "a failure is a finding")]

use tacita_purge::spool::folders::{handle_in, name_of};
use tacita_purge::spool::intent::{INTENT_LEN, Intent};
use tacita_purge::spool::record::{Header, Record};
use tacita_purge::spool::tags::{SECTOR_LEN, TAG_LEN, Tags};

/// The bytes of the hexadecimal lines after a caption; lines that are zero throughout are left out.
fn example<const LEN: usize>(caption: &str) -> [u8; LEN] {
    let text = include_str!("../../../docs/spec/purge.md");
    let (_, after) = text.split_once(caption).unwrap();
    let (_, block) = after.split_once("```\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let mut bytes = [0; LEN];
    for line in block.lines() {
        let (at, row) = line.split_once(':').unwrap();
        let at = usize::from_str_radix(at, 16).unwrap();
        for (index, byte) in row.split_whitespace().enumerate() {
            bytes[at + index] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    bytes
}

fn dump(bytes: &[u8]) -> String {
    let rows = bytes.chunks(16).enumerate().filter(|(_, row)| row.iter().any(|b| *b != 0));
    let line = |(number, row): (usize, &[u8])| {
        let row: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:02x}: {}", number * 16, row.join(" "))
    };
    rows.map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_worked_example_is_what_is_written() {
    let header = Header { in_use: true };
    assert_eq!(example("A header"), header.encode(), "\n{}", dump(&header.encode()));
    let record = Record {
        seq: 7,
        inode: 12,
        size: 4096,
        hold_until: 0,
        passes_done: 1,
        method: "custom:55,R,V".parse().unwrap(),
    };
    assert_eq!(example("A record"), record.encode(), "\n{}", dump(&record.encode()));
    assert_eq!(Record::decode(&example("A record")), Ok(Some(record)));
}

#[test]
fn the_worked_example_of_an_intent_is_what_is_written() {
    let handle = |inode, generation| [1, 0, 0, 0, inode, 0, 0, 0, generation, 0, 0, 0];
    let intent = Intent::new([7; 32]).with(&handle(12, 42)).unwrap();
    let bytes = intent.encode();
    assert_eq!(example::<INTENT_LEN>("An intent with"), bytes, "\n{}", dump(&bytes));
    assert_eq!(Intent::decode(&bytes), Ok(Some(intent)));
    let mut sectors = [0; 2 * SECTOR_LEN];
    Tags::new(&[7; 32], &handle(13, 43)).put(0, &mut sectors);
    let tags = [&sectors[..TAG_LEN], &sectors[SECTOR_LEN..SECTOR_LEN + TAG_LEN]].concat();
    assert_eq!(example::<{ 2 * TAG_LEN }>("Tags of sectors")[..], tags[..], "\n{}", dump(&tags));
}

#[test]
fn the_worked_example_of_a_folder_is_what_is_written() {
    let text = include_str!("../../../docs/spec/purge.md");
    let (_, after) = text.split_once("Worked example: a folder with").unwrap();
    let (_, block) = after.split_once("```\n").unwrap();
    let (name, _) = block.split_once("\n```").unwrap();
    let handle = [1, 0, 0, 0, 12, 0, 0, 0, 42, 0, 0, 0];
    assert_eq!(name_of(&handle).unwrap(), name);
    assert_eq!(handle_in(name.as_bytes()).unwrap(), handle);
}
