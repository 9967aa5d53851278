//! The worked example of docs/spec/purge.md is what the code writes.

#![allow(clippy::unwrap_used, reason = "a failure is a finding")]

use tacita_purge::spool::record::{Header, RECORD_LEN, Record};

/// The bytes of the hexadecimal lines after a caption; lines that are zero throughout are left out.
fn example(caption: &str) -> [u8; RECORD_LEN] {
    let text = include_str!("../../../docs/spec/purge.md");
    let (_, after) = text.split_once(caption).unwrap();
    let (_, block) = after.split_once("```\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let mut bytes = [0; RECORD_LEN];
    for line in block.lines() {
        let (at, row) = line.split_once(':').unwrap();
        let at = usize::from_str_radix(at, 16).unwrap();
        for (index, byte) in row.split_whitespace().enumerate() {
            bytes[at + index] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    bytes
}

fn dump(bytes: &[u8; RECORD_LEN]) -> String {
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
