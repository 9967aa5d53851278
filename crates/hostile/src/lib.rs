//! Hostile HIFS images from bytes that a fuzzer chooses; what opens must serve every request. And
//! hostile NBD clients ([`nbd`]), PD-DM devices ([`pddm`]) images of flash memory ([`flash`]),
//! what is in a DNEFS volume ([`dnefs`]), both sides of the oblivious store ([`oram`]), the file
//! system in it ([`privatefs`]), and what the instrumenter reads ([`fist`]).
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer=none TARGET` with stable Rust.

#![allow(clippy::unwrap_used, reason = "a failure is a finding")]
#![allow(dead_code, unused_imports, reason = "the proofs use more of these modules")]

use std::sync::LazyLock;

use tacita_hifs::geometry::{BLOCK_LEN, Geometry, Layout, Parameters, Table};
use tacita_hifs::placement::Cell;
use tacita_testkit::history::{Limits, Rng, step};
use tacita_vfs::FileSystem;

pub mod dnefs;
pub mod fist;
pub mod flash;
pub mod nbd;
pub mod oram;
pub mod pddm;
pub mod privatefs;

#[path = "../../hifs/tests/proof/hostile.rs"]
mod hostile;
#[path = "../../hifs/tests/proof/images.rs"]
mod images;

/// A valid image of 1 MiB with something in every table.
static BASE: LazyLock<(Vec<u8>, Geometry)> = LazyLock::new(|| {
    let small = images::parameters(Layout::D);
    let parameters = Parameters { len_bytes: 1 << 20, groups: Some(2), ..small };
    let device = images::fresh(&parameters);
    let hifs = images::open(device.clone());
    let mut rng = Rng::new(3);
    for _ in 0..120 {
        step(&hifs, &mut rng, &Limits { names: 12, size_max: 40_000, write_max: 20_000 });
    }
    hifs.sync().unwrap();
    (device.snapshot(), hifs.superblock().geometry)
});

/// The bytes as they are; and as patches of a valid image: a block (its high bit asks for the
/// checksum to be put right), an offset, a length, and so many bytes.
pub fn image_open(bytes: &[u8]) {
    hostile::exercise(bytes);
    let mut image = BASE.0.clone();
    let mut rest = bytes;
    while let [block, mend, low, high, len, after @ ..] = rest {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % BLOCK_LEN;
        let len = usize::from(*len).min(after.len()).min(BLOCK_LEN - at);
        let start = usize::from(*block) * BLOCK_LEN;
        image[start + at..start + at + len].copy_from_slice(&after[..len]);
        if mend & 1 == 1 {
            hostile::mend(&mut image[start..start + BLOCK_LEN]);
        }
        rest = &after[len..];
    }
    hostile::exercise(&image);
}

/// The bytes as records of a journal that is whole by its hash: two counts, then records and data.
pub fn journal(bytes: &[u8]) {
    let (image, geometry) = &*BASE;
    let [records, data, rest @ ..] = bytes else { return };
    let area = usize::try_from(geometry.journal_blocks).unwrap() * BLOCK_LEN;
    let records = usize::from(*records);
    let head = BLOCK_LEN + (records * 32).next_multiple_of(BLOCK_LEN);
    let data = usize::from(*data).min((area - head) / BLOCK_LEN);
    let mut whole = vec![0; head + data * BLOCK_LEN];
    let len = rest.len().min(whole.len() - BLOCK_LEN);
    whole[BLOCK_LEN..BLOCK_LEN + len].copy_from_slice(&rest[..len]);
    whole[..8].copy_from_slice(b"TACITAJL");
    whole[8..12].copy_from_slice(&u32::try_from(records).unwrap().to_le_bytes());
    whole[12..16].copy_from_slice(&u32::try_from(data).unwrap().to_le_bytes());
    let hash = tacita_secret::digest(&whole);
    whole[32..64].copy_from_slice(&hash);
    let mut image = image.clone();
    image[BLOCK_LEN..BLOCK_LEN + whole.len()].copy_from_slice(&whole);
    hostile::exercise(&image);
}

/// The bytes as the payload of one page of a valid image: which page, number of entries, entries.
pub fn directory_page(bytes: &[u8]) {
    let (image, geometry) = &*BASE;
    let [which, low, high, payload @ ..] = bytes else { return };
    let pages: Vec<usize> = (0..geometry.pages.cells())
        .map(|cell| geometry.cell_start(Table::Pages, Cell(cell)).0)
        .map(|block| usize::try_from(block).unwrap() * BLOCK_LEN)
        .filter(|at| !tacita_block::is_zero(&image[*at..at + BLOCK_LEN]))
        .collect();
    let at = pages[usize::from(*which) % pages.len()];
    let mut image = image.clone();
    let page = &mut image[at..at + BLOCK_LEN];
    let len = payload.len().min(BLOCK_LEN - 48);
    page[26..28].copy_from_slice(&[*low, *high]);
    page[28..30].copy_from_slice(&u16::try_from(len).unwrap().to_le_bytes());
    page[48..].fill(0);
    page[48..48 + len].copy_from_slice(&payload[..len]);
    page[32..48].fill(0);
    let sum = tacita_secret::digest(page);
    page[32..48].copy_from_slice(&sum[..16]);
    hostile::exercise(&image);
}

/// Pages of the valid image in the form that [`directory_page`] takes: a corpus to begin with.
pub fn pages() -> Vec<Vec<u8>> {
    let (image, geometry) = &*BASE;
    let blocks = (0..geometry.pages.cells()).map(|c| geometry.cell_start(Table::Pages, Cell(c)).0);
    let pages = blocks.map(|b| &image[usize::try_from(b).unwrap() * BLOCK_LEN..][..BLOCK_LEN]);
    let used = pages.filter(|page| !tacita_block::is_zero(page));
    (0..)
        .zip(used)
        .map(|(which, page)| {
            let len = usize::from(u16::from_le_bytes([page[28], page[29]]));
            [&[which, page[26], page[27]], &page[48..48 + len]].concat()
        })
        .collect()
}

/// The bytes as a line that a daemon is sent: it is refused with words, or says what is asked for.
pub fn control_request(bytes: &[u8]) {
    match tacita_daemon::control::Request::parse(bytes) {
        Err(failure) => assert!(!failure.cause.is_empty()),
        Ok(request) => {
            let _ = (request.text("level"), request.number("rate"), request.is_set("public_only"));
        }
    }
}

/// The bytes as a slot of the spool of purge, as they are and under a right checksum.
pub fn spool_record(bytes: &[u8]) {
    use tacita_purge::spool::record::{Header, RECORD_LEN, Record};
    let mut slot = [0; RECORD_LEN];
    let len = bytes.len().min(RECORD_LEN);
    slot[..len].copy_from_slice(&bytes[..len]);
    let _ = Header::decode(&slot);
    let _ = Record::decode(&slot);
    let digest = tacita_secret::digest(&slot[..240]);
    slot[240..].copy_from_slice(&digest[..16]);
    let _ = Header::decode(&slot);
    if let Ok(Some(record)) = Record::decode(&slot) {
        assert_eq!(record.encode(), slot, "what is read is what was written");
    }
}

/// The bytes as a file of rules, and as the name of a method, which an attribute of any file may be.
pub fn purge_rules(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(rules) = tacita_purge::parse_rules(&text) {
        assert!(rules.len() <= text.lines().count(), "a line is one rule at most");
    }
    if let Ok(method) = text.parse::<tacita_purge::Method>() {
        assert_eq!(method.to_string().parse().ok(), Some(method), "spools name it by its text");
    }
}

/// The bytes as a slot of the log of intents, as they are and under a right checksum.
pub fn spool_intent(bytes: &[u8]) {
    use tacita_purge::spool::intent::{INTENT_LEN, Intent};
    let mut slot = [0; INTENT_LEN];
    let len = bytes.len().min(INTENT_LEN);
    slot[..len].copy_from_slice(&bytes[..len]);
    let _ = Intent::decode(&slot);
    slot[..4].copy_from_slice(b"PINT");
    let digest = tacita_secret::digest(&slot[..4080]);
    slot[4080..].copy_from_slice(&digest[..16]);
    if let Ok(Some(intent)) = Intent::decode(&slot) {
        assert_eq!(intent.encode(), slot, "what is read is what was written");
    }
}

/// The bytes as the name of an entry of the spool.
pub fn spool_folder(bytes: &[u8]) {
    use tacita_purge::spool::folders::{handle_in, name_of};
    if let Some(handle) = handle_in(bytes) {
        let name = name_of(&handle).unwrap_or_default();
        assert_eq!(name.as_bytes(), bytes, "what is read is what was written");
    }
    if let Some(name) = name_of(bytes) {
        assert_eq!(handle_in(name.as_bytes()).as_deref(), Some(bytes));
    }
}
