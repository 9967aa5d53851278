//! What a client remembers by itself, so that a server that shows an older log is found out: how many
//! records it has seen, and their head. docs/design/oram.md.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rustix::fs::OFlags;
use tacita_secret::digest;

use crate::durable;
use crate::error::{Error, Kind, Result};
use crate::keys::Head;

/// What is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Of which store.
    pub store_id: [u8; 16],
    /// Records seen.
    pub sequence: u64,
    /// The head after them.
    pub head: Head,
}

/// Where a mark is kept. What has been stored is durable and is what is loaded later.
#[async_trait]
pub trait Anchor: Send + Sync + std::fmt::Debug {
    /// The mark; `None` if there is none yet.
    ///
    /// # Errors
    /// [`Kind::Storage`], [`Kind::Anchor`].
    async fn load(&self) -> Result<Option<Mark>>;

    /// Keeps `mark`, durably.
    ///
    /// # Errors
    /// [`Kind::Storage`]; then the mark is one of the two.
    async fn store(&self, mark: &Mark) -> Result<()>;
}

/// An anchor in memory: it does not outlive the process.
#[derive(Debug, Default)]
pub struct MemoryAnchor(Mutex<Option<Mark>>);

impl MemoryAnchor {
    /// An anchor that begins with `mark`.
    pub const fn of(mark: Option<Mark>) -> Self {
        Self(Mutex::new(mark))
    }
}

#[async_trait]
impl Anchor for MemoryAnchor {
    async fn load(&self) -> Result<Option<Mark>> {
        Ok(*self.0.lock().expect("nobody panics with the mark"))
    }

    async fn store(&self, mark: &Mark) -> Result<()> {
        *self.0.lock().expect("nobody panics with the mark") = Some(*mark);
        Ok(())
    }
}

const MAGIC: &[u8; 8] = b"TACITANC";
/// Two places that are written in turn, a sector each: one of them is whole whenever power fails.
const PLACE_LEN: usize = 512;
const MARK_LEN: usize = 8 + 8 + 16 + 8 + 32;

/// An anchor in a file.
#[derive(Debug)]
pub struct FileAnchor(Arc<Places>);

#[derive(Debug)]
struct Places {
    path: PathBuf,
    file: File,
    /// Marks that have been stored.
    turns: Mutex<u64>,
}

impl FileAnchor {
    /// The anchor at `path`, which is made if there is none. It is locked: one process has it.
    ///
    /// # Errors
    /// [`Kind::Busy`] if another process has it; [`Kind::Storage`], [`Kind::Anchor`].
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |e| failed(path, e);
        let there = || OpenOptions::new().read(true).write(true).open(path);
        let file = match there() {
            // What is there needs no room for another one beside it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => made(path).and_then(|()| there()),
            there => there,
        };
        let file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                let message = format!("anchor {}: another client uses it", path.display());
                return Err(Error::new(Kind::Busy, message));
            }
            Err(std::fs::TryLockError::Error(e)) => return Err(failed(e)),
        }
        let (turn, _) = newest(path, &file)?;
        Ok(Self(Arc::new(Places { path: path.to_owned(), file, turns: Mutex::new(turn) })))
    }

    /// The mark in the anchor at `path`, which another process may have; `None` if there is none yet.
    ///
    /// # Errors
    /// [`Kind::Storage`], [`Kind::Anchor`].
    pub fn look(path: &Path) -> Result<Option<Mark>> {
        // A pipe is no anchor, and nobody is waited for at its other end.
        let waits_not = OFlags::NONBLOCK.bits().cast_signed();
        match OpenOptions::new().read(true).custom_flags(waits_not).open(path) {
            Ok(file) => Ok(newest(path, &file)?.1),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed(path, e)),
        }
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::of_storage(format_args!("anchor {}", path.display()), error)
}

/// Makes the file of an anchor that has seen nothing, unless somebody else has made it meanwhile.
fn made(path: &Path) -> io::Result<()> {
    // Whole from the beginning: what is torn later leaves the other place.
    let none = Mark { store_id: [0; 16], sequence: 0, head: [0; 32] };
    match durable::create(path, &encode(0, &none)) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

impl Places {
    fn store(&self, mark: &Mark) -> Result<()> {
        let mut turns = self.turns.lock().expect("nobody panics with it");
        let turn = *turns + 1;
        let failed = |e| failed(&self.path, e);
        let place = (turn % 2) * PLACE_LEN as u64;
        self.file.write_all_at(&encode(turn, mark), place).map_err(failed)?;
        self.file.sync_data().map_err(failed)?;
        *turns = turn;
        Ok(())
    }
}

#[async_trait]
impl Anchor for FileAnchor {
    async fn load(&self) -> Result<Option<Mark>> {
        Ok(newest(&self.0.path, &self.0.file)?.1)
    }

    async fn store(&self, mark: &Mark) -> Result<()> {
        let (places, mark) = (self.0.clone(), *mark);
        let stored = tokio::task::spawn_blocking(move || places.store(&mark)).await;
        stored.map_err(|_| Error::new(Kind::Storage, "the anchor could not be written"))?
    }
}

/// How many marks have been stored, and the last of them.
fn newest(path: &Path, file: &File) -> Result<(u64, Option<Mark>)> {
    let mut bytes = [0; 2 * PLACE_LEN];
    let mut len = 0;
    while len < bytes.len() {
        let count = file.read_at(&mut bytes[len..], len as u64);
        match count.map_err(|e| failed(path, e))? {
            0 => break,
            count => len += count,
        }
    }
    let newest = bytes.chunks(PLACE_LEN).filter_map(decode).max_by_key(|(turn, _)| *turn);
    let (turn, mark) = newest.ok_or_else(|| {
        let path = path.display();
        Error::new(Kind::Anchor, format!("anchor {path}: it does not tell what was seen"))
    })?;
    Ok((turn, (turn > 0).then_some(mark)))
}

fn encode(turn: u64, mark: &Mark) -> [u8; PLACE_LEN] {
    let mut bytes = [0; PLACE_LEN];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&turn.to_le_bytes());
    bytes[16..32].copy_from_slice(&mark.store_id);
    bytes[32..40].copy_from_slice(&mark.sequence.to_le_bytes());
    bytes[40..72].copy_from_slice(&mark.head);
    let sum = digest(&bytes[..MARK_LEN]);
    bytes[MARK_LEN..MARK_LEN + 32].copy_from_slice(&sum);
    bytes
}

fn decode(bytes: &[u8]) -> Option<(u64, Mark)> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let mark = Mark {
        store_id: bytes[16..32].try_into().expect("an id"),
        sequence: number(32),
        head: bytes[40..72].try_into().expect("a head"),
    };
    let turn = number(8);
    (encode(turn, &mark) == bytes).then_some((turn, mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(sequence: u64) -> Mark {
        Mark { store_id: [1; 16], sequence, head: [2; 32] }
    }

    #[tokio::test]
    async fn a_torn_write_leaves_the_mark_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("anchor");
        for torn in 0..2 {
            let anchor = FileAnchor::open(&path).unwrap();
            for sequence in 1..=2 + torn {
                anchor.store(&mark(sequence)).await.unwrap();
            }
            drop(anchor);
            let turns = newest(&path, &File::open(&path).unwrap()).unwrap().0;
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[0xff; 40], (turns % 2) * PLACE_LEN as u64 + 20).unwrap();
            let anchor = FileAnchor::open(&path).unwrap();
            assert_eq!(anchor.load().await.unwrap(), Some(mark(1 + torn)));
            assert_eq!(FileAnchor::open(&path).unwrap_err().kind(), Kind::Busy);
        }
    }

    #[tokio::test]
    async fn whoever_looks_needs_no_lock_and_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("anchor");
        assert_eq!(FileAnchor::look(&path).unwrap(), None);
        assert!(!path.exists());
        let anchor = FileAnchor::open(&path).unwrap();
        assert_eq!(FileAnchor::look(&path).unwrap(), None);
        anchor.store(&mark(7)).await.unwrap();
        assert_eq!(FileAnchor::look(&path).unwrap(), Some(mark(7)));
    }

    /// Where nothing more can be made, as on a full disk, an anchor that is there is of use.
    #[test]
    fn one_that_is_there_is_opened_without_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("anchor");
        drop(FileAnchor::open(&path).unwrap());
        // In a folder that is gone nothing can be made.
        let held = File::open(&path).unwrap();
        drop(folder);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
        FileAnchor::open(Path::new(&path)).unwrap();
    }

    #[test]
    fn a_damaged_anchor_is_no_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("anchor");
        std::fs::write(&path, [7; 1024]).unwrap();
        for error in [FileAnchor::open(&path).unwrap_err(), FileAnchor::look(&path).unwrap_err()] {
            assert_eq!(error.kind(), Kind::Anchor);
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn a_pipe_is_no_anchor_and_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(FileAnchor::look(&path).unwrap_err().kind(), Kind::Storage);
        assert_eq!(FileAnchor::open(&path).unwrap_err().kind(), Kind::Storage);
    }
}
