//! How much room a volume says it has left, and what can be written then.

use tacita_dnefs::{Compression, FormatOptions, format};
use tacita_testkit::history::Rng;
use tacita_vfs::{FileSystem, Kind, Stamps};

use crate::deletion::make;
use crate::volumes::{fresh, open, options, volume};

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
        assert!(size >= begin * 9 / 10 && size <= begin * 11 / 10, "{what}: {size} of {begin}");
        assert!(free() <= 2 + nodes_of_write.min(14) as u64, "{what}: {} are left", free());
    }
}
