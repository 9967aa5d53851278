//! Hostile images of flash memory: what opens must serve every request, and open again.

use std::io::{Read, Seek, Write};
use std::sync::LazyLock;

use tacita_flash::emulator::hostile;
use tacita_flash::{Behaviour, Emulator, EmulatorOptions, Kind, Leb, Volume};

const PAGE_LEN: usize = 512;
const BLOCK_LEN: usize = 4 * PAGE_LEN;
const BLOCKS: usize = 16;
/// Where the first block begins, and where the states of all do.
const BLOCKS_AT: usize = 4096;
const STATES_AT: usize = BLOCKS_AT + BLOCKS * BLOCK_LEN;
/// Where the VID header of a block begins, at this length of pages.
const VID_AT: usize = 256;

/// A valid image with blocks that were appended to, changed, and are stale.
static BASE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let options = EmulatorOptions {
        page_len_bytes: 512,
        pages_per_block: 4,
        blocks: 16,
        ..EmulatorOptions::default()
    };
    let mut file = tempfile::tempfile().unwrap();
    let flash = Emulator::create_in(file.try_clone().unwrap(), &options).unwrap();
    flash.append(Leb(0), 0, &[1; 2 * PAGE_LEN]).unwrap();
    flash.change(Leb(0), &[2; PAGE_LEN]).unwrap();
    flash.append(Leb(1), 512, &[3; PAGE_LEN]).unwrap();
    flash.unmap(Leb(1)).unwrap();
    flash.flush_erases().unwrap();
    flash.change(Leb(0), &[4; 2 * PAGE_LEN]).unwrap();
    flash.append(Leb(2), 0, &[5; PAGE_LEN]).unwrap();
    flash.unmap(Leb(2)).unwrap();
    drop(flash);
    let mut image = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut image).unwrap();
    image
});

/// The bytes as they are; and as patches of a valid image: first whether checksums are put right,
/// then an offset, a length, and so many bytes, again and again.
pub fn image(bytes: &[u8]) {
    exercise(bytes);
    let [mend, rest @ ..] = bytes else { return };
    let mut image = BASE.clone();
    let mut rest = rest;
    while let [low, high, len, after @ ..] = rest {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % image.len();
        let len = usize::from(*len).min(after.len()).min(image.len() - at);
        image[at..at + len].copy_from_slice(&after[..len]);
        rest = &after[len..];
    }
    if mend & 1 == 1 {
        hostile::mend(&mut image);
    }
    exercise(&image);
}

/// Opens an image, asks it for everything, and opens it again.
fn exercise(image: &[u8]) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(image).unwrap();
    let flash = match Emulator::open_in(file, Behaviour::default()) {
        Ok(flash) => flash,
        Err(e) => {
            assert_eq!(e.kind(), Kind::Corrupt, "{e}");
            return;
        }
    };
    let geometry = flash.geometry();
    let mut buf = vec![0; geometry.leb_len_bytes as usize];
    let page = vec![7; geometry.page_len_bytes as usize];
    for leb in (0..geometry.lebs.min(64)).map(Leb) {
        flash.is_mapped(leb).unwrap();
        flash.read(leb, 0, &mut buf).unwrap();
        let appended = flash.append(leb, 0, &page).map_err(|e| e.kind());
        assert!(matches!(appended, Ok(()) | Err(Kind::Programmed | Kind::WornOut)), "{appended:?}");
        let changed = flash.change(leb, &page).map_err(|e| e.kind());
        assert!(matches!(changed, Ok(()) | Err(Kind::WornOut)), "{changed:?}");
        if changed.is_ok() {
            flash.read(leb, 0, &mut buf).unwrap();
            assert!(buf.starts_with(&page));
        }
        flash.unmap(leb).unwrap();
    }
    flash.flush_erases().unwrap();
    flash.dump(&mut std::io::sink()).unwrap();
    let again = flash.power_on().unwrap();
    assert_eq!(again.geometry(), geometry);
    assert_eq!(again.wear().iter().filter(|block| block.leb.is_some()).count(), 0);
}

/// A patch of so many bytes.
fn patch(at: usize, bytes: &[u8]) -> Vec<u8> {
    let at = u16::try_from(at).unwrap().to_le_bytes();
    [&at[..], &[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

/// Inputs to begin with, called by what is wrong with them.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let block_at = |n: usize| BLOCKS_AT + n * BLOCK_LEN;
    let vid_of = |n: usize| &BASE[block_at(n) + VID_AT..][..64];
    let holds = |leb: u8| {
        move |n: &usize| {
            vid_of(*n).starts_with(b"UBI!") && vid_of(*n)[8..16] == [0, 0, 0, 0, 0, 0, 0, leb]
        }
    };
    let stale = (0..BLOCKS).find(holds(2)).unwrap();
    let copies: Vec<usize> = (0..BLOCKS).filter(holds(0)).collect();
    let sqnum_at = |n: usize| block_at(n) + VID_AT + 40;
    let mended = |patches: Vec<u8>| [&[1], &patches[..]].concat();
    let twin = patch(sqnum_at(copies[0]), &BASE[sqnum_at(copies[1])..][..8]);
    let oldest = patch(block_at(stale) + 12, &[0x7f, 255, 255, 255]);
    let beyond = patch(block_at(stale) + VID_AT + 12, &[0, 1, 0, 0]);
    let all_bad = (0..BLOCKS).flat_map(|n| patch(STATES_AT + 8 * n + 4, &[2])).collect();
    let in_pieces = patch(block_at(stale) + VID_AT + 60, &[0; 4]);
    vec![
        ("untouched", vec![1]),
        ("magic-alone", b"TACITAFL".to_vec()),
        ("more-blocks-than-there-are", mended(patch(20, &[17]))),
        ("sequence-number-without-successor", mended(patch(sqnum_at(stale), &[0xff; 8]))),
        ("two-blocks-mapped-at-once", mended(twin)),
        ("block-beyond-the-volume", mended(beyond)),
        ("erase-counter-without-successor", mended(oldest)),
        ("content-that-is-not-its-checksum", mended(patch(block_at(copies[1]) + PAGE_LEN, &[9]))),
        ("programmed-up-to-the-header", mended(patch(STATES_AT + 8 * stale, &[0, 2, 0, 0]))),
        ("all-blocks-bad", mended(all_bad)),
        ("header-in-pieces", [&[0], &in_pieces[..]].concat()),
    ]
}
