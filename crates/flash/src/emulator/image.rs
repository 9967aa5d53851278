//! The file of an emulator: a header page, the physical blocks as they are, and their states.
//!
//! The format is docs/spec/flash.md.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::backing::Backing;
use super::shape::{Peb, Shape};
use super::state::{STATE_LEN, State};
use crate::access::{self, Access};
use crate::{Error, Kind, Result};

/// Length of the header, and where the first block begins.
pub(super) const HEADER_LEN: usize = 4096;
const HEADER_LEN_BYTES: u64 = HEADER_LEN as u64;
const MAGIC: &[u8; 8] = b"TACITAFL";
const VERSION: u32 = 1;
/// Where the digest of all that is before it lies.
const DIGEST_AT: usize = HEADER_LEN - 32;

/// An open image, locked.
#[derive(Debug)]
pub(super) struct Image {
    backing: Backing,
    shape: Shape,
    access: Access,
    /// Whether something has been written since the last sync began.
    is_dirty: AtomicBool,
    /// Held while a sync runs, so that nobody takes one under way for done.
    syncing: Mutex<()>,
}

/// Opens and locks the file at `path`, or makes an empty one.
///
/// # Errors
/// [`Kind::Busy`], [`Kind::Unavailable`], [`Kind::ReadOnly`], [`Kind::NoSpace`], [`Kind::Io`].
pub(super) fn open_locked(path: &Path, access: Access, create: bool) -> Result<File> {
    let file = access::open(path, access, create)?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        let text = format!("{} is no regular file", path.display());
        return Err(Error::new(Kind::Unavailable, text));
    }
    access::lock(&file, &path.display(), access)?;
    Ok(file)
}

/// Makes the name of a file durable.
///
/// # Errors
/// [`Kind::Io`].
pub(super) fn sync_name(path: &Path) -> Result<()> {
    let whole = path.canonicalize();
    let folder = whole.and_then(|path| File::open(path.parent().unwrap_or(&path)));
    folder
        .and_then(|folder| folder.sync_all())
        .map_err(|e| Error::from_io(format!("cannot sync the name {}", path.display()), e))
}

impl Image {
    /// Empties the file and gives it the length that it keeps. It is no image until
    /// [`Image::finish`].
    ///
    /// # Errors
    /// [`Kind::NoSpace`], [`Kind::Io`].
    pub(super) fn begin(backing: Backing, shape: Shape) -> Result<Self> {
        let image = Self::new(backing, shape, Access::ReadWrite);
        let failed = |e| Error::from_io("cannot size the image", e);
        image.backing.reset(image.len_bytes()).map_err(failed)?;
        Ok(image)
    }

    /// Makes all of it durable, then the header.
    ///
    /// # Errors
    /// [`Kind::NoSpace`], [`Kind::Io`].
    pub(super) fn finish(&self) -> Result<()> {
        let failed = |e| Error::from_io("cannot finish the image", e);
        self.backing.sync().map_err(failed)?;
        self.backing.write(&encode_header(self.shape), 0).map_err(failed)?;
        self.backing.sync().map_err(failed)
    }

    /// Reads the header and the states of all blocks. For reading only nothing is changed: what lies behind
    /// the programmed part of blocks stays there, and nobody sees it.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] with what is wrong; [`Kind::Io`].
    pub(super) fn open(backing: Backing, access: Access) -> Result<(Self, Vec<State>)> {
        let failed = |e| Error::from_io("cannot read the image", e);
        let len_bytes = backing.len_bytes().map_err(failed)?;
        if len_bytes < HEADER_LEN_BYTES {
            return Err(corrupt(format!(
                "{len_bytes} bytes: too short for an image of flash memory"
            )));
        }
        let mut header = [0; HEADER_LEN];
        backing.read(&mut header, 0).map_err(failed)?;
        let shape = decode_header(&header)?;
        let image = Self::new(backing, shape, access);
        if len_bytes != image.len_bytes() {
            return Err(corrupt(format!(
                "the image has {len_bytes} bytes, its header says {}",
                image.len_bytes()
            )));
        }
        let mut table = vec![0; shape.blocks as usize * STATE_LEN];
        image.backing.read(&mut table, image.state_at(Peb(0))).map_err(failed)?;
        let (entries, _) = table.as_chunks::<STATE_LEN>();
        let states = shape.pebs().zip(entries).map(|(peb, entry)| {
            State::decode(*entry, shape)
                .ok_or_else(|| corrupt(format!("the state of block {} is none", peb.0)))
        });
        let states = states.collect::<Result<Vec<State>>>()?;
        if access == Access::ReadWrite {
            image.clean(&states)?;
            // Whoever had it open before may have been killed before a sync.
            image.soil();
        }
        Ok((image, states))
    }

    pub(super) const fn shape(&self) -> Shape {
        self.shape
    }

    /// # Errors
    /// [`Kind::ReadOnly`].
    pub(super) fn check_writable(&self) -> Result<()> {
        self.access.check_writable()
    }

    pub(super) fn read(&self, peb: Peb, offset: u32, buf: &mut [u8]) -> Result<()> {
        self.backing
            .read(buf, self.byte_at(peb, offset))
            .map_err(|e| Error::from_io(format!("cannot read block {}", peb.0), e))
    }

    pub(super) fn write(&self, peb: Peb, offset: u32, data: &[u8]) -> Result<()> {
        self.soil();
        self.backing
            .write(data, self.byte_at(peb, offset))
            .map_err(|e| Error::from_io(format!("cannot write block {}", peb.0), e))
    }

    pub(super) fn erase(&self, peb: Peb) -> Result<()> {
        self.soil();
        self.punch(peb, 0).map_err(|e| Error::from_io(format!("cannot erase block {}", peb.0), e))
    }

    pub(super) fn set_state(&self, peb: Peb, state: State) -> Result<()> {
        self.soil();
        self.backing
            .write(&state.encode(), self.state_at(peb))
            .map_err(|e| Error::from_io(format!("cannot write the state of block {}", peb.0), e))
    }

    /// Makes durable what has been written.
    pub(super) fn sync(&self) -> Result<()> {
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.backing.sync().map_err(|e| {
            self.soil();
            Error::from_io("cannot sync the image", e)
        })
    }

    fn new(backing: Backing, shape: Shape, access: Access) -> Self {
        Self { backing, shape, access, is_dirty: AtomicBool::new(false), syncing: Mutex::new(()) }
    }

    fn soil(&self) {
        self.is_dirty.store(true, Ordering::Release);
    }

    /// Takes away what lies behind the programmed part of blocks, as it may after a crash of the
    /// machine, which brings writes to the disk in any order: it would be on no dump, and stay.
    fn clean(&self, states: &[State]) -> Result<()> {
        let failed = |e: io::Error| Error::from_io("cannot clean the image", e);
        for (peb, state) in self.shape.pebs().zip(states) {
            let (from, end) =
                (self.byte_at(peb, state.programmed), self.byte_at(Peb(peb.0 + 1), 0));
            let Some(data) = self.backing.data_from(from).map_err(failed)? else { break };
            if data < end {
                self.soil();
                self.punch(peb, state.programmed).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Makes a hole of a block from `offset` on.
    fn punch(&self, peb: Peb, offset: u32) -> io::Result<()> {
        self.backing.punch(self.byte_at(peb, offset), self.byte_at(Peb(peb.0 + 1), 0))
    }

    fn byte_at(&self, peb: Peb, offset: u32) -> u64 {
        let block = u64::from(self.shape.block_len_bytes());
        HEADER_LEN_BYTES + u64::from(peb.0) * block + u64::from(offset)
    }

    fn state_at(&self, peb: Peb) -> u64 {
        HEADER_LEN_BYTES + self.shape.len_bytes() + u64::from(peb.0) * STATE_LEN as u64
    }

    fn len_bytes(&self) -> u64 {
        self.state_at(Peb(self.shape.blocks))
    }
}

fn encode_header(shape: Shape) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(MAGIC);
    let fields = [VERSION, shape.page_len_bytes, shape.pages_per_block, shape.blocks];
    for (place, field) in header[8..].chunks_exact_mut(4).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    mend_header(&mut header);
    header
}

/// Puts the digest of a header right.
pub(super) fn mend_header(header: &mut [u8; HEADER_LEN]) {
    let digest = blake3::hash(&header[..DIGEST_AT]);
    header[DIGEST_AT..].copy_from_slice(digest.as_bytes());
}

pub(super) fn decode_header(header: &[u8; HEADER_LEN]) -> Result<Shape> {
    if !header.starts_with(MAGIC) {
        return Err(corrupt("no image of flash memory".into()));
    }
    let field = |n: usize| {
        let at = 8 + 4 * n;
        u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"))
    };
    if field(0) != VERSION {
        let text = format!("version {} of images of flash memory is not known here", field(0));
        return Err(corrupt(text));
    }
    if blake3::hash(&header[..DIGEST_AT]).as_bytes() != &header[DIGEST_AT..] {
        return Err(corrupt("the header of the image is damaged".into()));
    }
    let shape = Shape::new(field(1), field(2), field(3));
    shape.map_err(|e| corrupt(format!("the header of the image says {e}")))
}

fn corrupt(text: String) -> Error {
    Error::new(Kind::Corrupt, text)
}
