//! Making a device, opening it with a password, and what is then open.

use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo};
use tacita_secret::{Key, Password};

use crate::engine::Engine;
use crate::entropy::Entropy;
use crate::error::{Error, Kind, Result};
use crate::geometry::{BLOCK_LEN, Geometry, Level, Parameters, Seq};
use crate::keys::{Cell, HiddenKeys};
use crate::leak::{Leak, planted};
use crate::level::OpenLevel;
use crate::log::Log;
use crate::recovery::End;
use crate::sequencer::{LevelHead, Sequencer};
use crate::superblock::Superblock;
use crate::tail::Ahead;
use crate::unit::{Block, NO_ID};
use crate::volume::Volume;

/// What opens a volume.
#[derive(Debug, Clone, Copy)]
pub enum Unlock<'a> {
    /// Its password.
    Password(&'a Password),
    /// The key made from the password: spares tests the time that this takes.
    #[doc(hidden)]
    Wrap(&'a Key),
}

impl Unlock<'_> {
    fn wrap(&self, salt: &[u8; 32]) -> Key {
        match self {
            Self::Password(password) => password.stretch(salt),
            Self::Wrap(key) => (*key).clone(),
        }
    }
}

/// How a device is opened.
#[derive(Debug)]
pub struct Options {
    /// Nothing is written.
    pub read_only: bool,
    /// Hidden volumes stay closed whatever the password. What they hold is destroyed as the head
    /// goes over it.
    pub public_only: bool,
    /// Whether a flush of a hidden volume waits until everything is on the medium; else it returns
    /// at once, and a power cut can lose what waits.
    pub patient: bool,
    /// Where random bytes come from.
    pub entropy: Entropy,
}

impl Default for Options {
    fn default() -> Self {
        Self { read_only: false, public_only: false, patient: true, entropy: Entropy::default() }
    }
}

/// An open device.
#[derive(Debug)]
pub struct Session {
    engine: Arc<Engine>,
    patient: bool,
}

fn no_volume() -> Error {
    let text = "no volume opens with this password: it is wrong, there is no such volume, or the \
                superblock is damaged";
    Error::new(Kind::NoVolume, text)
}

fn shape(device: &dyn BlockDevice) -> Result<u64> {
    let shape = device.geometry();
    if shape.block_len_bytes as usize != BLOCK_LEN {
        let text = format!("the device must be opened in blocks of {BLOCK_LEN} bytes");
        return Err(Error::new(Kind::Geometry, text));
    }
    Ok(shape.blocks)
}

/// Makes a device. What is on it is lost, though not overwritten: that is what `wipe` is for.
///
/// `hidden` has one entry a class, from the first on; classes left out have no volume.
///
/// # Errors
/// [`Kind::Geometry`]; [`Kind::Device`].
pub fn init(
    device: &Arc<dyn BlockDevice>,
    parameters: &Parameters,
    public: Unlock<'_>,
    hidden: &[Unlock<'_>],
    mut entropy: Entropy,
) -> Result<()> {
    let mut parameters = *parameters;
    if planted(Leak::CountedVolumes) {
        parameters.heartbeat_ms += u32::try_from(hidden.len()).unwrap_or(0);
    }
    let geometry = Geometry::new(parameters, shape(&**device)?)?;
    if hidden.len() > parameters.classes as usize {
        let text = format!("more hidden passwords than classes: {}", parameters.classes);
        return Err(Error::new(Kind::Geometry, text));
    }
    let salt = (entropy.public)()?;
    let wrap_salt = (entropy.public)()?;
    let master = Key::take(&mut (entropy.public)()?);
    let wrap = public.wrap(&salt);
    let superblock = Superblock::new(geometry, salt, wrap_salt, &wrap, &master);
    let mut levels = vec![Some(OpenLevel::new(&geometry, Level::PUBLIC, master.clone(), None))];
    let mut below = master.clone();
    for level in geometry.levels().skip(1) {
        let Some(unlock) = hidden.get(level.index() - 1) else {
            levels.push(None);
            continue;
        };
        let keys = HiddenKeys { wrap: unlock.wrap(&salt), master: entropy.hidden_key()?, below };
        let master = keys.master.clone();
        below = keys.master.clone();
        levels.push(Some(OpenLevel::new(&geometry, level, master, Some(keys))));
    }
    let log = Log { device: Arc::clone(device), geometry, public: master };
    let heads = levels.iter().map(|open| Some(fresh_head(&geometry, open.as_ref()?)));
    let head = Sequencer {
        next: Seq(0),
        durable: Seq(0),
        unflushed: false,
        previous: [0; 32],
        levels: heads.collect(),
        entropy,
        ahead: Ahead::new(),
        cells: Vec::new(),
    };
    // Units are written in every world, so that there is a place for cells; two, so that one of them
    // may be damaged.
    let engine = Engine::new(log, levels, Some(head));
    engine.beat()?;
    engine.beat()?;
    write_superblock(&**device, &geometry, &superblock.encode())
}

fn write_superblock(device: &dyn BlockDevice, geometry: &Geometry, block: &Block) -> Result<()> {
    // One after the other: a power cut leaves one of them whole.
    for at in [geometry.second_superblock(), BlockNo(0)] {
        device.write(at, block)?;
        device.flush()?;
    }
    Ok(())
}

fn fresh_head(geometry: &Geometry, open: &OpenLevel) -> LevelHead {
    let ids_before = vec![NO_ID; geometry.slot_count(open.level)];
    LevelHead::new(ids_before, vec![Seq(0); open.map.pages() as usize])
}

/// The superblock, or its copy at the end.
fn read_superblock(device: &dyn BlockDevice) -> Result<Option<Superblock>> {
    let blocks = shape(device)?;
    for at in [0, blocks.saturating_sub(1)] {
        let mut block: Box<Block> = Box::new([0; BLOCK_LEN]);
        if blocks > 0 {
            device.read(BlockNo(at), &mut block[..])?;
        }
        if let Some(superblock) = Superblock::decode(&block) {
            return Ok(Some(superblock));
        }
    }
    Ok(None)
}

/// What a password opens.
struct Opened {
    log: Log,
    end: End,
    /// By level from the public one on.
    keys: Vec<Option<HiddenKeys>>,
}

fn unlock(device: &Arc<dyn BlockDevice>, with: Unlock<'_>, public_only: bool) -> Result<Opened> {
    let superblock = read_superblock(&**device)?;
    let salt = superblock.as_ref().map_or([0; 32], |superblock| superblock.salt);
    let wrap = with.wrap(&salt);
    let superblock = superblock.ok_or_else(no_volume)?;
    let geometry = superblock.geometry;
    let here = shape(&**device)?;
    let log = |public: Key| Log { device: Arc::clone(device), geometry, public };
    let (log, found) = match superblock.master(&wrap) {
        Some(master) => (log(master), None),
        None if here < geometry.device_blocks() => return Err(no_volume()),
        None => {
            let (level, keys, master) =
                find_cell(&log(Key::take(&mut [0; 32])), &wrap)?.ok_or_else(no_volume)?;
            (log(master), Some((level, keys)))
        }
    };
    if here < geometry.device_blocks() {
        let text = format!(
            "the device has {here} blocks, but had {} at init; nothing has been changed",
            geometry.device_blocks()
        );
        return Err(Error::new(Kind::TooShort, text));
    }
    let hidden = found.as_ref().map(|(level, keys)| (*level, &keys.master));
    let end = log.end(hidden)?;
    let mut keys: Vec<Option<HiddenKeys>> = geometry.levels().map(|_| None).collect();
    if let Some((level, found)) = found.filter(|_| !public_only) {
        let mut master = found.master;
        for level in geometry.levels().skip(1).take(level.index()).collect::<Vec<_>>().iter().rev()
        {
            let Some((_, cell)) = log.newest_cell(&end, *level, &master)? else { break };
            master = cell.keys.below.clone();
            keys[level.index()] = Some(cell.keys);
        }
    }
    Ok(Opened { log, end, keys })
}

/// Looks for a cell that the password opens, and goes down from there to the public master key. All
/// units are looked at before it is said that there is none.
fn find_cell(log: &Log, wrap: &Key) -> Result<Option<(Level, HiddenKeys, Key)>> {
    let geometry = &log.geometry;
    for unit in 0..geometry.units() {
        log.will_read_headers(Seq(unit.into()), Seq(geometry.units().into()));
        let mut block: Box<Block> = Box::new([0; BLOCK_LEN]);
        log.device.read(geometry.unit_start(unit), &mut block[..])?;
        let salt = block[..32].try_into().expect("a salt");
        let cells = crate::unit::cells(geometry, &block);
        for (level, bytes) in geometry.levels().skip(1).zip(cells.clone()) {
            let Ok(cell) = Cell::open_by_wrap(bytes, &salt, wrap) else { continue };
            let mut below = cell.keys.below.clone();
            let lower: Vec<_> = cells.take(level.index() - 1).collect();
            let mut whole = true;
            for bytes in lower.into_iter().rev() {
                match Cell::open_by_master(bytes, &salt, &below) {
                    Ok(lower) => below = lower.keys.below,
                    Err(_) => whole = false,
                }
            }
            if whole {
                return Ok(Some((level, cell.keys, below)));
            }
            break;
        }
    }
    Ok(None)
}

/// The log as a password shows it, the number of the unit to be written next, and keys by level.
pub(crate) fn open_log(
    device: &Arc<dyn BlockDevice>,
    with: Unlock<'_>,
) -> Result<(Log, u64, Vec<Option<HiddenKeys>>)> {
    let opened = unlock(device, with, false)?;
    Ok((opened.log, opened.end.next.0, opened.keys))
}

impl Session {
    /// Opens a device: the volume of the password and all below it.
    ///
    /// # Errors
    /// [`Kind::NoVolume`], [`Kind::TooShort`], [`Kind::Device`].
    pub fn open(device: &Arc<dyn BlockDevice>, with: Unlock<'_>, options: Options) -> Result<Self> {
        let Opened { log, end, keys } = unlock(device, with, options.public_only)?;
        Self::start(log, &end, keys, options)
    }

    fn start(log: Log, end: &End, keys: Vec<Option<HiddenKeys>>, options: Options) -> Result<Self> {
        let geometry = log.geometry;
        let public = OpenLevel::new(&geometry, Level::PUBLIC, log.public.clone(), None);
        let mut heads = vec![Some(log.replay(&public, end.last.head.replay_from, end.next)?)];
        let mut levels = vec![Some(public)];
        for (level, keys) in geometry.levels().zip(keys).skip(1) {
            let found = match &keys {
                Some(keys) => log.newest_cell(end, level, &keys.master)?,
                None => None,
            };
            let (Some(keys), Some((seq, cell))) = (keys, found) else {
                levels.push(None);
                heads.push(None);
                continue;
            };
            let open = OpenLevel::new(&geometry, level, keys.master.clone(), Some(keys));
            let mut head = log.replay(&open, cell.replay_from, Seq(seq.0 + 1))?;
            if seq.0 + 1 != end.next.0 {
                head.ids_before = vec![NO_ID; geometry.slot_count(level)];
            }
            heads.push(Some(head));
            levels.push(Some(open));
        }
        let head = (!options.read_only).then_some(Sequencer {
            next: end.next,
            durable: end.durable,
            unflushed: end.durable != end.next,
            previous: end.previous,
            levels: heads,
            entropy: options.entropy,
            ahead: Ahead::new(),
            cells: Vec::new(),
        });
        let engine = Arc::new(Engine::new(log, levels, head));
        Ok(Self { engine, patient: options.patient })
    }

    /// The geometry of the device.
    pub fn geometry(&self) -> &Geometry {
        self.engine.geometry()
    }

    /// The open volumes, the public one first.
    pub fn volumes(&self) -> Vec<Volume> {
        let open = self.engine.levels.iter().flatten();
        open.map(|open| Volume::new(Arc::clone(&self.engine), open.level, self.patient)).collect()
    }

    /// The open volume of a level.
    pub fn volume(&self, level: Level) -> Option<Volume> {
        self.volumes().into_iter().find(|volume| volume.level() == level)
    }

    /// Writes a unit although no public data asks for it: what the heartbeat does.
    ///
    /// # Errors
    /// [`Kind::Device`], [`Kind::ReadOnly`].
    pub fn beat(&self) -> Result<()> {
        self.engine.beat()
    }

    /// Makes all public data durable.
    ///
    /// # Errors
    /// [`Kind::Device`], [`Kind::ReadOnly`].
    pub fn flush(&self) -> Result<()> {
        self.engine.flush_public()
    }

    /// Makes all public data durable and writes one more unit that says so: the same is done whatever
    /// is open. A session that has written nothing writes nothing.
    ///
    /// # Errors
    /// [`Kind::Device`].
    pub fn close(&self) -> Result<()> {
        match self.engine.close() {
            Err(error) if error.kind() == Kind::ReadOnly => Ok(()),
            done => done,
        }
    }

    /// Number of the unit to be written next: it grows with every unit.
    pub fn written_units(&self) -> u64 {
        self.engine.emitted()
    }
}

/// Changes the password of the volume that `with` opens, or of `volume`, which it opens too. Nobody
/// can tell from the device whose it was, but for the public one, which is in the superblock.
///
/// To change a hidden password a unit is written, as in any session: volumes above the one of `with`
/// are closed meanwhile, and lose what the head goes over. Whoever has several gives the password of
/// the highest, and names the volume.
///
/// # Errors
/// As [`Session::open`]; [`Kind::NoVolume`] too if `with` does not open `volume`.
pub fn change_password(
    device: &Arc<dyn BlockDevice>,
    with: Unlock<'_>,
    volume: Option<Level>,
    new: Unlock<'_>,
    mut entropy: Entropy,
) -> Result<()> {
    let Opened { log, end, mut keys } = unlock(device, with, false)?;
    let superblock = read_superblock(&**device)?.ok_or_else(no_volume)?;
    let wrap = new.wrap(&superblock.salt);
    let top = keys.iter().rposition(Option::is_some).unwrap_or(0);
    let level = volume.map_or(top, Level::index);
    if level == Level::PUBLIC.index() {
        let wrap_salt = (entropy.public)()?;
        let (geometry, salt) = (log.geometry, superblock.salt);
        let superblock = Superblock::new(geometry, salt, wrap_salt, &wrap, &log.public);
        return write_superblock(&**device, &geometry, &superblock.encode());
    }
    keys.get_mut(level).and_then(Option::as_mut).ok_or_else(no_volume)?.wrap = wrap;
    let session = Session::start(log, &end, keys, Options { entropy, ..Options::default() })?;
    session.beat()
}
