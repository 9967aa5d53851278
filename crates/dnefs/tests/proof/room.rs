//! How much room a volume says it has left, and what can be written then.

use std::sync::Arc;

use tacita_dnefs::{Compression, FormatOptions, format};
use tacita_flash::{Emulator, EmulatorOptions};
use tacita_testkit::history::Rng;
use tacita_vfs::{Change, FileSystem, Kind, Stamps};

use crate::deletion::{make, remove};
use crate::volumes::{chip, fresh, open, options, volume};

const NODE_LEN: usize = 4096;

/// On chips whose erase blocks hold few nodes, too, with content that cannot be compressed.
#[test]
fn what_is_said_to_be_free_can_be_written_and_little_else() {
    for (blocks, nodes_of_write) in [(80, 1), (80, 50), (300, 1), (300, 25)] {
        let what = format!("{blocks} blocks, {nodes_of_write} nodes at once");
        let chip = fresh(blocks, 0);
        let plain = FormatOptions { compression: Compression::None, ..options(0) };
        format(&volume(&chip), &plain, None).unwrap();
        let fs = open(&chip);
        let file = make(&fs, "file", &[]);
        let noise = Rng::new(1).bytes(NODE_LEN * nodes_of_write);
        let free = || fs.stats().unwrap().blocks_free;
        let begin = free();
        let mut written = 0;
        let full = loop {
            match fs.write(file, written, &noise, Stamps::NONE) {
                Ok(()) => written += noise.len() as u64,
                Err(e) => break e,
            }
        };
        assert_eq!(full.kind(), Kind::NoSpace, "{what}");
        let size = fs.attr(file).unwrap().size / NODE_LEN as u64;
        // The last request may lack room for its last node alone.
        let least = (begin * 9 / 10).min(begin + 1 - nodes_of_write as u64);
        assert!((least..=begin * 11 / 10).contains(&size), "{what}: {size} of {begin}");
        assert!(free() <= 2 + nodes_of_write as u64, "{what}: {} are left", free());
    }
}

/// What is free lies between nodes that are needed, on a chip of erase blocks as long as most have. A large
/// request needs more of them at once than small ones do.
#[test]
fn what_is_free_between_other_files_takes_large_requests() {
    let chip = EmulatorOptions { page_len_bytes: 2048, pages_per_block: 64, ..chip(200) };
    let chip = Arc::new(Emulator::in_memory(&chip).unwrap());
    format(&volume(&chip), &FormatOptions::default(), None).unwrap();
    let fs = open(&chip);
    let mut noise = Rng::new(2);
    let (small, large) = (noise.bytes(5 * NODE_LEN), noise.bytes(64 * NODE_LEN));
    let mut files = 0;
    while fs.stats().unwrap().blocks_free > 10 {
        make(&fs, &format!("{files}"), &small);
        files += 1;
    }
    for file in (0..files).step_by(2) {
        remove(&fs, &format!("{file}"));
    }
    fs.sync().unwrap();
    let begin = fs.stats().unwrap().blocks_free;
    let file = make(&fs, "large", &[]);
    let mut written = 0;
    while fs.write(file, written, &large, Stamps::NONE).is_ok() {
        written += large.len() as u64;
    }
    let took = written / NODE_LEN as u64;
    assert!(took >= begin * 9 / 10, "{took} of {begin} that were said to be free");
}

/// A request that fails has not made the file longer, and nothing of it is seen when the file grows, after
/// a power cut neither: where it began within a block, at the end of one, and in a file that nobody has synced.
#[test]
fn a_write_that_fails_leaves_the_end_where_it_was() {
    for (begin, is_synced, is_cut) in [
        (5, false, false),
        (5, true, true),
        (5, false, true),
        (NODE_LEN, true, true),
        (NODE_LEN, false, true),
    ] {
        let what = format!("{begin} bytes, synced: {is_synced}, cut: {is_cut}");
        let chip = fresh(80, 0);
        let plain = FormatOptions { compression: Compression::None, ..options(0) };
        format(&volume(&chip), &plain, None).unwrap();
        let mut fs = open(&chip);
        let file = make(&fs, "file", &vec![9; begin]);
        if is_synced {
            fs.sync().unwrap();
        }
        let free = usize::try_from(fs.stats().unwrap().blocks_free).unwrap();
        let full = fs.write(file, begin as u64, &vec![7; NODE_LEN * free * 2], Stamps::NONE);
        assert_eq!(full.unwrap_err().kind(), Kind::NoSpace, "{what}");
        if is_cut {
            fs.sync().unwrap();
            drop(fs);
            fs = open(&Arc::new(chip.power_on().unwrap()));
        }
        assert_eq!(fs.attr(file).unwrap().size, begin as u64, "{what}");
        let len = 40 * NODE_LEN;
        let longer = Change { size: Some(len as u64), ..Change::default() };
        fs.change(file, &longer).unwrap();
        let mut content = vec![1; len];
        assert_eq!(fs.read(file, 0, &mut content).unwrap(), len, "{what}");
        assert!(content[..begin].iter().all(|byte| *byte == 9), "{what}");
        let seen = content[begin..].iter().filter(|byte| **byte != 0).count();
        assert_eq!(seen, 0, "{what}: bytes that were not written are there");
    }
}
