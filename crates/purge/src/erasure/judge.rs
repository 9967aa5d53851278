//! What can be said of a file that was overwritten: it is read back, past every cache.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use tacita_block::AlignedBuf;

use super::{ALIGNMENTS, CHUNK_LEN_BYTES, Erasure, domain};
use crate::error::During;
use crate::extents::{Map, State};
use crate::faults::{Fault, planted};
use crate::method::Pattern;
use crate::verdict::{Content, Proof};
use crate::{Error, Kind, Result};

impl Erasure<'_> {
    /// What can be said of it now.
    ///
    /// # Errors
    /// [`Kind::Io`]; those of the watcher.
    pub(crate) fn judge(&self) -> Result<Content> {
        if self.shared > 0 {
            let why = format!("{} bytes are shared with another file and stay", self.shared);
            return Ok(Content::Shared(why));
        }
        if self.targets.extents.is_empty() {
            return Ok(Content::NothingStored);
        }
        if let Some(doubt) = Content::of_refused(self.lower) {
            return Ok(doubt);
        }
        if !self.placed {
            let why = "the file system does not tell where a file lies";
            return Ok(Content::Unproven(why.to_owned()));
        }
        match self.odd {
            Some(State::Packed) => {
                let why = "its content lies in the inode or shares a block with other data";
                return Ok(Content::Unproven(why.to_owned()));
            }
            None | Some(State::Encrypted) => {}
            Some(_) => {
                let why = "the file system compresses or encrypts it: copies may lie elsewhere";
                return Ok(Content::NotInPlace(why.to_owned()));
            }
        }
        let now = Map::of(self.file)?.unwrap_or_default();
        if !self.targets.is_kept_by(&now) {
            let why = "the file system put the new content elsewhere";
            return Ok(Content::NotInPlace(why.to_owned()));
        }
        if !self.method.verifies() {
            return Ok(Content::InPlace);
        }
        if self.odd == Some(State::Encrypted) {
            let why = "the file system encrypts it, so what the device holds cannot be compared";
            return Ok(Content::Unproven(why.to_owned()));
        }
        self.read_back()
    }

    /// Compares what is stored with the last pass, past every cache.
    fn read_back(&self) -> Result<Content> {
        if planted(Fault::CachedVerification) {
            let cached = |at: u64, buf: &mut [u8]| self.file.read_at(buf, at);
            return self.compare(&cached, 0, |e| e.logical, Proof::Device);
        }
        if let Some(device) = self.lower.raw() {
            let raw = |at: u64, buf: &mut [u8]| device.read_at(buf, at);
            for align in ALIGNMENTS {
                match self.compare(&raw, align, |e| e.physical, Proof::Device) {
                    Err(e) if e.errno() == Some(rustix::io::Errno::INVAL) => {}
                    told => return told,
                }
            }
        }
        if self.journaled {
            let why = "content passes through the journal, and the device cannot be read";
            return Ok(Content::Unproven(why.to_owned()));
        }
        // The same file once more, by the kernel's own name for it: nothing else can be meant.
        let direct = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT | libc::O_CLOEXEC)
            .open(format!("/proc/self/fd/{}", self.file.as_fd().as_raw_fd()));
        if let Ok(direct) = &direct {
            let read = |at: u64, buf: &mut [u8]| direct.read_at(buf, at);
            for align in ALIGNMENTS {
                match self.compare(&read, align, |e| e.logical, Proof::DirectRead) {
                    Err(e) if e.errno() == Some(rustix::io::Errno::INVAL) => {}
                    told => return told,
                }
            }
        }
        let is_limited =
            direct.is_err_and(|e| crate::error::errno_of(&e) == rustix::io::Errno::MFILE);
        let why = if is_limited {
            "there are too few open files to be had (`ulimit -n`) to read it back"
        } else {
            "it can be read neither from the device nor past the cache"
        };
        Ok(Content::Unproven(why.to_owned()))
    }

    /// Compares by `read`, whose offsets are `place`'s, in steps of `align` bytes (0: any).
    fn compare(
        &self,
        read: &dyn Fn(u64, &mut [u8]) -> std::io::Result<usize>,
        align: u64,
        place: impl Fn(&crate::extents::Extent) -> u64,
        proof: Proof,
    ) -> Result<Content> {
        let last = self.method.passes().len() - 1;
        let pattern = self.method.passes()[last];
        let align = align.max(1);
        // Fresh memory is paid for by its length.
        let longest = self.targets.extents.iter().map(|e| e.len).max().unwrap_or(0);
        let longest = longest.next_multiple_of(align) + align;
        let room = usize::try_from(longest).map_or(CHUNK_LEN_BYTES, |l| l.min(CHUNK_LEN_BYTES));
        let mut buf = AlignedBuf::new(room);
        let mut want = vec![0; room];
        for extent in &self.targets.extents {
            let (start, end) = (place(extent), place(extent) + extent.len);
            let mut at = start - start % align;
            while at < end {
                self.tell(0)?;
                let stop = (at + room as u64).min(end.next_multiple_of(align));
                let len = usize::try_from(stop - at).unwrap_or(room);
                let got = read(at, &mut buf[..len]).during("reading an overwritten file back")?;
                // The part of the chunk that belongs to the extent.
                let (from, to) = (at.max(start), stop.min(end));
                if at + (got as u64) < to {
                    return Err(Error::new(Kind::Io, "an overwritten file reads back too short"));
                }
                let index = |place: u64| usize::try_from(place - at).unwrap_or(0);
                let seen = &buf[index(from)..index(to)];
                let want = &mut want[..seen.len()];
                let logical = extent.logical + (from - start);
                match pattern {
                    Pattern::Byte(byte) => want.fill(byte),
                    Pattern::Random => self.streams.stream(domain(last), logical, want),
                }
                if let Some((tags, _)) = &self.tags {
                    tags.put(logical, want);
                }
                if seen != want {
                    let why = "the device does not hold what was written last";
                    return Ok(Content::NotInPlace(why.to_owned()));
                }
                at = stop;
            }
        }
        Ok(Content::Verified(proof))
    }
}
