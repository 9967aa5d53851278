//! Making a volume.

use std::collections::BTreeSet;
use std::sync::Arc;

use tacita_dnefs_format::node::Class;
use tacita_dnefs_format::record::{IndexKey, Inode, Kind as RecordKind, Time};
use tacita_dnefs_format::{
    CipherChoice, Closed, Compression, LEBS_MIN, Layout, Parameters, Protection, SUPERBLOCK_LEBS,
    Superblock, Unlocked,
};
use tacita_flash::{EraseReport, Geometry, Leb, Volume};
use tacita_secret::{Key, Password};

use crate::checkpoint::chunk_len_max;
use crate::error::{Error, Kind, Result};
use crate::index::Index;
use crate::keys::{Keys, fresh_block, new_uuid, no_randomness};
use crate::log::Log;
use crate::roots::Roots;
use crate::store::{Core, ROOT_INO, Store, Write};

/// Bytes of the main area for each key, as a share of a node: files that are smaller than a node, and
/// names and inodes, need keys too.
const NODE_SHARE: u32 = 2;

/// What is chosen when a volume is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatOptions {
    /// Most bytes of a file in one data node: a power of two.
    pub node_len_bytes: u32,
    /// How nodes are encrypted.
    pub cipher: CipherChoice,
    /// How they are compressed before that.
    pub compression: Compression,
    /// Erase blocks of keys; by default a key for each half node of the volume.
    pub key_lebs: Option<u32>,
    /// Owner and group of the root directory.
    pub owner: (u32, u32),
    /// When it was made.
    pub now: Time,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            node_len_bytes: 4096,
            cipher: CipherChoice::Aes256Gcm,
            compression: Compression::Lz4,
            key_lebs: None,
            owner: (0, 0),
            now: Time::default(),
        }
    }
}

/// The parameters of a volume of this shape.
///
/// # Errors
/// [`Kind::Parameters`] if they make none.
pub fn plan(geometry: Geometry, options: &FormatOptions) -> Result<(Parameters, Layout)> {
    let Geometry { leb_len_bytes, lebs, page_len_bytes } = geometry;
    if lebs < LEBS_MIN {
        let text = format!("it has {lebs} erase blocks, and {LEBS_MIN} are the fewest");
        return Err(Error::new(Kind::Parameters, text));
    }
    let mut parameters = Parameters {
        uuid: new_uuid()?,
        leb_len_bytes,
        lebs,
        page_len_bytes,
        key_lebs: options.key_lebs.unwrap_or(2),
        node_len_bytes: options.node_len_bytes,
        cipher: options.cipher,
        compression: options.compression,
    };
    let layout_of = |parameters: &Parameters| {
        Layout::new(parameters).map_err(|e| Error::new(Kind::Parameters, e.to_string()))
    };
    let mut layout = layout_of(&parameters)?;
    if options.key_lebs.is_none() {
        let len = u64::from(layout.main_lebs) * u64::from(leb_len_bytes);
        let keys = len / u64::from(options.node_len_bytes / NODE_SHARE);
        let wanted = keys.div_ceil(u64::from(layout.keys_per_leb));
        parameters.key_lebs = u32::try_from(wanted).unwrap_or(u32::MAX).max(2);
        layout = layout_of(&parameters)?;
    }
    Ok((parameters, layout))
}

/// Makes a volume; what was there before is erased, but for what is in blocks that went bad meanwhile.
///
/// # Errors
/// [`Kind::Parameters`]; [`Kind::Device`].
pub fn format(
    volume: &Arc<dyn Volume>,
    options: &FormatOptions,
    password: Option<&Password>,
) -> Result<EraseReport> {
    let geometry = volume.geometry();
    let (parameters, layout) = plan(geometry, options)?;
    for leb in (0..geometry.lebs).map(Leb) {
        volume.unmap(leb)?;
    }
    let erased = volume.flush_erases()?;
    let master = Key::random().map_err(no_randomness)?;
    for number in 0..layout.key_lebs {
        let block = fresh_block(&layout, &master, number)?;
        volume.change(Leb(layout.key_leb(number)), &block)?;
    }
    let superblock = Superblock::new(parameters, 1, &master, password).map_err(not_made)?;
    let mut keys = Keys::new(layout, parameters.cipher, master);
    keys.loaded(true);
    let core = Core {
        index: Index::new(chunk_len_max(&layout)),
        keys,
        log: Log::new(layout),
        roots: Roots::new(layout),
        next_ino: ROOT_INO + 1,
        epoch: 0,
        last_receipt: [0; 32],
        orphans: BTreeSet::new(),
        obsolete_bytes: 0,
        collected: 0,
        until_checkpoint: Vec::new(),
        tables: Vec::new(),
        root_key: None,
        checkpoint_sqnum: 0,
    };
    let store = Store::new(Arc::clone(volume), parameters, core)?;
    store.write_group(&[root_directory(options)])?;
    store.core().checkpoint(&**volume, &parameters)?;
    store.mark(Class::Unmounted)?;
    write_superblock(&**volume, &superblock)?;
    Ok(EraseReport { bad_before: erased.bad_before, ..volume.flush_erases()? })
}

fn root_directory(options: &FormatOptions) -> Write<'static> {
    let inode = Inode {
        mode: 0o040_755,
        nlink: 2,
        uid: options.owner.0,
        gid: options.owner.1,
        rdev: 0,
        flags: 0,
        size: 0,
        parent: ROOT_INO,
        atime: options.now,
        mtime: options.now,
        ctime: options.now,
        target: Vec::new(),
    };
    let at = IndexKey::inode(ROOT_INO);
    Write { kind: RecordKind::Inode, at, payload: inode.encode().into() }
}

/// Puts a superblock into both of its places, one after the other.
pub(crate) fn write_superblock(volume: &dyn Volume, superblock: &Superblock) -> Result<()> {
    let page = page_of(volume, superblock);
    for leb in SUPERBLOCK_LEBS {
        volume.change(Leb(leb), &page)?;
    }
    Ok(())
}

/// Puts a superblock where it is not: a change was cut short, or a copy is damaged. Whether anything was
/// replaced; it is still to be erased.
pub(crate) fn complete_superblock(volume: &dyn Volume, superblock: &Superblock) -> Result<bool> {
    let page = page_of(volume, superblock);
    let others = places_without(volume, superblock)?;
    for (leb, _) in &others {
        volume.change(*leb, &page)?;
    }
    Ok(!others.is_empty())
}

/// Which of its two places do not hold a superblock, as far as anybody can tell, and what they hold instead.
pub(crate) fn places_without(
    volume: &dyn Volume,
    superblock: &Superblock,
) -> Result<Vec<(Leb, std::result::Result<Superblock, Error>)>> {
    let mut others = Vec::new();
    for leb in SUPERBLOCK_LEBS.map(Leb) {
        let found = superblock_in(volume, leb)?;
        if found.as_ref().ok() != Some(superblock) {
            others.push((leb, found));
        }
    }
    Ok(others)
}

/// The superblock in one of its places, or why there is none: one that cannot be read is as good as lost, for
/// the other says the same.
fn superblock_in(volume: &dyn Volume, leb: Leb) -> Result<std::result::Result<Superblock, Error>> {
    let mut page = vec![0; volume.geometry().page_len_bytes as usize];
    match volume.read(leb, 0, &mut page) {
        Ok(()) => {}
        Err(e) if e.kind() == tacita_flash::Kind::Io => return Ok(Err(e.into())),
        Err(e) => return Err(e.into()),
    }
    Ok(Superblock::decode(&page).map_err(|why| {
        if let Some(missed) = volume.missed() {
            return missed.into();
        }
        let text = format!("this holds no DNEFS volume: the superblock: {why}");
        Error::new(Kind::NotAVolume, text)
    }))
}

/// A page that holds a superblock.
fn page_of(volume: &dyn Volume, superblock: &Superblock) -> Vec<u8> {
    let mut page = superblock.encode();
    page.resize(volume.geometry().page_len_bytes as usize, 0);
    page
}

/// Why there is no new superblock.
pub(crate) fn not_made(error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::OutOfMemory {
        return Error::new(Kind::Memory, error.to_string());
    }
    no_randomness(error)
}

/// The superblock of a volume, and its master key.
pub(crate) fn unlock(volume: &dyn Volume, password: Option<&Password>) -> Result<Unlocked> {
    let superblock = read_superblock(volume)?;
    if superblock.protection == Protection::Memory {
        let why = "the volume is ephemeral: its keys were in memory only, and are gone";
        return Err(Error::new(Kind::Ephemeral, why));
    }
    superblock.unlock(password).map_err(|e| {
        let kind = match e {
            Closed::WrongPassword => Kind::WrongPassword,
            Closed::NoMemory(_) => Kind::Memory,
        };
        Error::new(kind, e.to_string())
    })
}

/// The superblock of a volume.
///
/// # Errors
/// [`Kind::NotAVolume`] if there is none; [`Kind::Damaged`] if it is another volume's; [`Kind::Device`] if
/// neither can be read.
pub fn read_superblock(volume: &dyn Volume) -> Result<Superblock> {
    let geometry = volume.geometry();
    let [first, second] = SUPERBLOCK_LEBS.map(|leb| superblock_in(volume, Leb(leb)));
    let found = match (first?, second?) {
        (Ok(one), Ok(other)) => {
            if one.generation < other.generation {
                other
            } else {
                one
            }
        }
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => one,
        // It may be there where nothing can be read.
        (Err(unread), Err(_)) if unread.kind() == Kind::Device => return Err(unread),
        (Err(_), Err(why)) => return Err(why),
    };
    let Parameters { leb_len_bytes, lebs, page_len_bytes, .. } = found.parameters;
    if (Geometry { leb_len_bytes, lebs, page_len_bytes }) != geometry {
        return Err(Error::new(
            Kind::Damaged,
            "the volume was made with other erase blocks than it has now: it was moved or resized",
        ));
    }
    Ok(found)
}
