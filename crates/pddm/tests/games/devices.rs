//! Small devices in memory for the games.

use std::ops::Range;
use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, Geometry as Shape, MemoryDevice};
use tacita_pddm::{
    Entropy, Kind, Level, Options, Parameters, Session, Source, Unlock, Volume, init,
};
use tacita_secret::{Key, digest};

pub(crate) const BLOCK: usize = 4096;

/// Units of 8 blocks: 4 public slots and 3 hidden ones.
pub(crate) fn parameters(classes: u32) -> Parameters {
    Parameters {
        public_slots: 4,
        hidden_slots: 3,
        classes,
        heartbeat_ms: 0,
        ..Parameters::default()
    }
}

/// Blocks of a device with so many units.
pub(crate) const fn blocks(units: u64) -> u64 {
    (units + 1) * 8 + 1
}

pub(crate) fn shape(blocks: u64) -> Shape {
    Shape { block_len_bytes: 4096, blocks }
}

pub(crate) fn memory(blocks: u64) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(shape(blocks)))
}

/// Keys as passwords would give: 0 is the public one.
pub(crate) fn wrap(level: u8) -> Key {
    Key::take(&mut [level + 100; 32])
}

/// A source that can be replayed.
pub(crate) fn source(seed: u64, domain: u8) -> Source {
    let mut count = 0u64;
    Box::new(move || {
        count += 1;
        let mut input = [domain; 17];
        input[..8].copy_from_slice(&seed.to_le_bytes());
        input[8..16].copy_from_slice(&count.to_le_bytes());
        Ok(digest(&input))
    })
}

/// Public and hidden randomness from seeds of their own.
pub(crate) fn entropy(public: u64, hidden: u64) -> Entropy {
    Entropy { public: source(public, 0), hidden: source(hidden, 1) }
}

/// Makes a device with `hidden` hidden volumes.
pub(crate) fn make(
    device: &Arc<dyn BlockDevice>,
    parameters: &Parameters,
    hidden: u8,
    entropy: Entropy,
) {
    let wraps: Vec<Key> = (0..=hidden).map(wrap).collect();
    let unlocks: Vec<Unlock<'_>> = wraps.iter().map(Unlock::Wrap).collect();
    init(device, parameters, unlocks[0], &unlocks[1..], entropy).unwrap();
}

/// Opens with the password of a level.
pub(crate) fn open(device: &Arc<dyn BlockDevice>, level: u8, entropy: Entropy) -> Session {
    let options = Options { entropy, ..Options::default() };
    Session::open(device, Unlock::Wrap(&wrap(level)), options).unwrap()
}

/// Opens with the password of the hidden volume, or, if public-only use has destroyed that, with the
/// public one. Returns what level is open.
pub(crate) fn open_if_there(
    device: &Arc<dyn BlockDevice>,
    level: u8,
    entropy: impl Fn() -> Entropy,
) -> (Session, u8) {
    let options = Options { entropy: entropy(), ..Options::default() };
    match Session::open(device, Unlock::Wrap(&wrap(level)), options) {
        Ok(session) => (session, level),
        Err(error) if error.kind() == Kind::NoVolume => (open(device, 0, entropy()), 0),
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn volume(session: &Session, level: u8) -> Volume {
    let level = if level == 0 { Level::PUBLIC } else { Level::hidden(level.into()) };
    session.volume(level).unwrap()
}

/// Whether a hidden volume has room for so many blocks, and would not make its writer wait for public
/// traffic that never comes.
pub(crate) fn has_room(volume: &Volume, blocks: u64) -> bool {
    volume.room_blocks() > usize::try_from(blocks).unwrap()
}

/// Writes units until a volume has room, where nothing else is to be compared.
pub(crate) fn make_room(session: &Session, volume: &Volume) {
    while volume.level() != Level::PUBLIC && !has_room(volume, 8) {
        session.beat().unwrap();
    }
}

/// A block that says what it is.
pub(crate) fn content(id: u64, version: u64) -> Vec<u8> {
    let text = format!("block {id} version {version} ");
    let mut bytes = text.as_bytes().repeat(BLOCK / text.len() + 1);
    bytes.truncate(BLOCK);
    bytes
}

pub(crate) fn contents(ids: Range<u64>, version: u64) -> Vec<u8> {
    ids.map(|id| content(id, version)).collect::<Vec<_>>().concat()
}

pub(crate) fn read(device: &dyn BlockDevice, at: u64) -> Vec<u8> {
    let mut buf = vec![0; BLOCK];
    device.read(BlockNo(at), &mut buf).unwrap();
    buf
}
