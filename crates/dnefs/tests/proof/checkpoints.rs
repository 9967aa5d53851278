//! Checkpoints where few keys are left: they gather what lies sparse only if there are keys for that.

use std::ffi::OsString;
use std::sync::Arc;

use tacita_dnefs::{Compression, FormatOptions, PurgeScope, check, format};
use tacita_flash::{Emulator, EmulatorOptions};
use tacita_vfs::{
    Change, FileSystem, FileType, NewNode, NodeId, Reserve, Stamps, Timestamp, XattrMode,
};

use crate::volumes::{chip, open, options, volume};

/// Erase blocks of the fewest pages that give a volume, of 512 bytes each: shorter than an index is long.
#[test]
fn what_a_checkpoint_holds_fits_into_short_erase_blocks() {
    for pages_per_block in [6, 8, 16] {
        let shape = EmulatorOptions { pages_per_block, ..chip(1600) };
        let chip = Arc::new(Emulator::in_memory(&shape).unwrap());
        let node_len_bytes = 512;
        let made = FormatOptions { node_len_bytes, compression: Compression::None, ..options(0) };
        format(&volume(&chip), &made, None).unwrap();
        let fs = open(&chip);
        let content = [7; 2000];
        let files: Vec<NodeId> = (0..120)
            .map(|number: usize| {
                let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
                let name = OsString::from(number.to_string());
                let (node, _) = fs.create(fs.root(), &name, &new).unwrap();
                fs.write(node, 0, &content, Stamps::NONE).unwrap();
                node
            })
            .collect();
        fs.purge(PurgeScope::Deleted).unwrap();
        // Every other node goes, so that none of the index lies in a row, and then all of a file.
        for node in &files {
            for block in [0, 2] {
                fs.reserve(*node, block * 512..(block + 1) * 512, Reserve::Punch).unwrap();
            }
        }
        fs.purge(PurgeScope::All).unwrap();
        let long = vec![7; 512 * 300];
        fs.write(files[0], 0, &long, Stamps::NONE).unwrap();
        fs.reserve(files[0], 0..long.len() as u64, Reserve::Punch).unwrap();
        fs.close().unwrap();
        drop(fs);
        let found = check(&volume(&chip), None, &mut |_, _| {}).unwrap();
        assert_eq!(found.wrong, [""; 0], "{pages_per_block} pages");
        let fs = open(&chip);
        let mut kept = [0; 512];
        assert_eq!(fs.read(files[1], 512, &mut kept).unwrap(), 512);
        assert_eq!(kept, [7; 512], "{pages_per_block} pages");
    }
}

/// Physical blocks, more than all that needs, and erase blocks of keys, little more than it needs.
const BLOCKS: u32 = 1900;
const KEY_LEBS: u32 = 248;
/// Files, and attributes of each, so that the index is long.
const FILES: usize = 22_000;
const ATTRIBUTES: u32 = 7;
/// About as many files as an erase block of the index knows of.
const FILES_OF_BLOCK: usize = 185;

/// Many erase blocks of checkpoints are sparse, and an inode that is written again and again takes all
/// keys but those that the next checkpoint needs for what has changed.
#[test]
fn a_checkpoint_does_with_keys_that_are_too_few_for_all_of_the_index() {
    let shape = EmulatorOptions { pages_per_block: 64, ..chip(BLOCKS) };
    let chip = Arc::new(Emulator::in_memory(&shape).unwrap());
    let limited =
        FormatOptions { key_lebs: Some(KEY_LEBS), compression: Compression::None, ..options(0) };
    format(&volume(&chip), &limited, None).unwrap();
    let fs = open(&chip);
    let make = |number: usize| {
        let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
        let (node, _) = fs.create(fs.root(), &OsString::from(number.to_string()), &new).unwrap();
        for attribute in 0..ATTRIBUTES {
            let name = OsString::from(format!("user.{attribute}"));
            fs.set_xattr(node, &name, b"", XattrMode::Any).unwrap();
        }
        node
    };
    let files: Vec<NodeId> = (0..FILES).map(make).collect();
    let rewrite = |node: NodeId, perm: u16| {
        fs.change(node, &Change { perm: Some(perm), ..Change::default() }).unwrap();
        fs.evict(node);
    };
    fs.purge(PurgeScope::Deleted).unwrap();
    for block in files.chunks(FILES_OF_BLOCK) {
        let most = block.iter().take(FILES_OF_BLOCK * 3 / 5);
        most.step_by(10).for_each(|node| rewrite(*node, 0o640));
    }
    fs.purge(PurgeScope::Deleted).unwrap();
    let before = fs.usage();
    let mut rewrites = 0..10_000u16;
    while fs.usage().epoch == before.epoch {
        rewrite(files[0], rewrites.next().expect("keys are used up some time"));
    }
    assert_eq!(fs.usage().collected, before.collected, "it was not for want of room");
    fs.sync().unwrap();
    fs.close().unwrap();
    assert_eq!(check(&volume(&chip), None, &mut |_, _| {}).unwrap().wrong, [""; 0]);
}
