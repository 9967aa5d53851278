//! Overwriting the content of one file, or of a range of it, and showing that it was reached.
//!
//! What has never left memory costs no write: it is overwritten in the cache, and only what the
//! file system has stored meanwhile is overwritten on the medium too.

mod judge;

use std::cell::RefCell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{IFlags, fdatasync, ioctl_getflags};
use tacita_secret::Prf;

use crate::Result;
use crate::error::During;
use crate::extents::{Extent, Map, State};
use crate::faults::{Fault, Step, planted, step};
use crate::kernel;
use crate::lower_fs::LowerFs;
use crate::method::{Method, Pattern};
use crate::spool::tags::{TAGGED_LEN_MAX, Tags};

/// Bytes that are read back at once.
const CHUNK_LEN_BYTES: usize = 1 << 20;

/// Bytes that are written at once: few enough to stay in a cache of the processor.
const WRITE_LEN_BYTES: usize = 256 << 10;

/// Bytes whose writing back is begun, and waited for, at once: a wait of the kernel's that has begun
/// has no end before they are on their way.
const WRITE_BACK_LEN_BYTES: usize = 8 << 20;

/// All of a file.
const ALL: Range<u64> = 0..0;

thread_local! {
    /// What is written; kept, so that fresh memory is not paid for with every file.
    static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Alignments that reading without the cache may ask for.
const ALIGNMENTS: [u64; 2] = [512, 4096];

/// What becomes of the file afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes: whole blocks are overwritten, also behind its end.
    Dies,
    /// It lives on without this range, which is overwritten byte by byte.
    Keeps(Range<u64>),
}

/// How much of a file has been written over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes that were only in memory.
    pub(crate) in_memory: u64,
    /// Bytes that are stored, all passes together.
    pub(crate) stored: u64,
}

/// Who hears between writes how far it is. An error ends the work there.
pub(crate) type Watcher<'a> = &'a dyn Fn(Written) -> Result<()>;

/// Nobody.
const UNWATCHED: Watcher<'static> = &|_| Ok(());

/// A file whose content is being overwritten.
pub(crate) struct Erasure<'a> {
    lower: &'a LowerFs,
    file: &'a File,
    method: &'a Method,
    targets: Map,
    placed: bool,
    journaled: bool,
    streams: Prf,
    shared: u64,
    odd: Option<State>,
    /// What every sector that is written begins with, and what is flushed then.
    tags: Option<(Tags, Arc<File>)>,
    watcher: Watcher<'a>,
    /// Bytes that were overwritten in memory before anything was written over what is stored.
    in_cache: u64,
    /// Bytes that never reached the medium.
    pub(crate) in_memory: u64,
    /// Bytes written over stored ones, all passes together.
    pub(crate) overwritten: u64,
}

/// An [`Erasure`] whose file has been overwritten and is still to be judged.
#[derive(Debug)]
pub(crate) struct Paused {
    targets: Map,
    placed: bool,
    journaled: bool,
    streams: Prf,
    shared: u64,
    odd: Option<State>,
    tags: Option<(Tags, Arc<File>)>,
    in_memory: u64,
    overwritten: u64,
}

impl Paused {
    /// Whether what was written carries tags.
    pub(crate) const fn is_tagged(&self) -> bool {
        self.tags.is_some()
    }

    /// Whether other files had some of its blocks as well.
    pub(crate) const fn is_shared(&self) -> bool {
        self.shared > 0
    }
}

impl<'a> Erasure<'a> {
    /// Finds out what is stored of `file`, which is open for writing, and overwrites what is only
    /// in memory.
    ///
    /// # Errors
    /// [`Kind::Io`]; [`Kind::NoSpace`].
    pub(crate) fn prepare(
        lower: &'a LowerFs,
        file: &'a File,
        fate: &Fate,
        method: &'a Method,
    ) -> Result<Self> {
        Self::prepare_watched(lower, (file, fate), method, UNWATCHED)
    }

    /// As [`Erasure::prepare`]; `watcher` hears of everything that is written, from now on.
    ///
    /// # Errors
    /// As [`Erasure::prepare`], and those of `watcher`.
    pub(crate) fn prepare_watched(
        lower: &'a LowerFs,
        (file, fate): (&'a File, &Fate),
        method: &'a Method,
        watcher: Watcher<'a>,
    ) -> Result<Self> {
        let flags = ioctl_getflags(file).unwrap_or(IFlags::empty());
        let is_encrypted = flags.bits() & crate::ext4::ENCRYPTED_MARK != 0;
        let mut erasure = Self {
            lower,
            file,
            method,
            targets: Map::default(),
            placed: true,
            journaled: lower.journals_data || flags.contains(IFlags::JOURNALING),
            streams: Prf::new(tacita_secret::random().during("asking for random bytes")?),
            shared: 0,
            // No sector is on the device as it is written, so nothing there shows a tag.
            odd: is_encrypted.then_some(State::Encrypted),
            tags: None,
            watcher,
            in_cache: 0,
            in_memory: 0,
            overwritten: 0,
        };
        let mut map = erasure.look(fate)?;
        if map.any(State::Shared) && !planted(Fault::MemoryUnhooked) {
            // What was written over shared blocks gets blocks of its own when it is written back, of
            // which the map says nothing before.
            fdatasync(file).during("writing a file back")?;
            map = erasure.look(fate)?;
        }
        if !planted(Fault::MemoryUnhooked) {
            let memory = map.only(|state| state == State::InMemory);
            let hidden = erasure.hidden_memory(&map, fate)?;
            for part in [&memory, &hidden] {
                let before = erasure.in_cache;
                erasure.write(part, Pattern::Byte(0), 0, &mut |written| {
                    watcher(Written { in_memory: before + written, stored: 0 })
                })?;
                erasure.in_cache += part.len_bytes();
            }
            if !hidden.extents.is_empty() && !erasure.journaled {
                // Only then it is known where all of it lies.
                fdatasync(file).during("writing a file back")?;
            }
            if !memory.extents.is_empty() || !hidden.extents.is_empty() {
                map = erasure.look(fate)?;
            }
            let promised = map.only(|state| state == State::Unwritten);
            if !promised.common(&memory).extents.is_empty() {
                // The kernel has begun to write it back meanwhile: content may be on its way to the
                // medium, and its room counts as promised until it is there.
                fdatasync(file).during("writing a file back")?;
                map = erasure.look(fate)?;
            }
        }
        erasure.in_memory = map.only(|state| state == State::InMemory).len_bytes();
        erasure.shared = map.only(|state| state == State::Shared).len_bytes();
        for state in [State::Packed, State::Encoded] {
            if map.any(state) {
                erasure.odd = Some(state);
            }
        }
        let is_stored =
            |state| !matches!(state, State::InMemory | State::Shared | State::Unwritten);
        erasure.targets = map.only(is_stored);
        Ok(erasure)
    }

    /// What may be in memory though the map of extents does not say so, and would be written by the
    /// first flush: the rest of a file that has just grown out of its inode, what was written into
    /// promised room, and what passes through the journal.
    fn hidden_memory(&self, map: &Map, fate: &Fate) -> Result<Map> {
        let mut hidden = Map::default();
        if map.any(State::Packed) {
            let size = self.file.metadata().during("asking for a file's size")?.len();
            let range = match fate {
                Fate::Dies => 0..size,
                Fate::Keeps(range) => range.start..range.end.min(size),
            };
            let (logical, len) = (range.start, range.end.saturating_sub(range.start));
            hidden.extents.push(Extent { logical, physical: 0, len, state: State::InMemory });
            return Ok(hidden);
        }
        if map.any(State::Unwritten) {
            let unwritten = map.only(|state| state == State::Unwritten);
            hidden = Map::of_data(self.file)?.common(&unwritten);
        }
        if self.journaled {
            // It is not put in place before the loss of its name, for the journal keeps the order.
            hidden.extents.extend(map.only(|state| state == State::Stored).extents);
        }
        Ok(hidden)
    }

    /// Where what is to be overwritten lies.
    fn look(&mut self, fate: &Fate) -> Result<Map> {
        let map = if let Some(map) = Map::of(self.file)? {
            map
        } else {
            self.placed = false;
            Map::of_data(self.file)?
        };
        step(Step::Looked);
        match fate {
            Fate::Dies => Ok(map),
            Fate::Keeps(range) => Ok(map.within(range)),
        }
    }

    /// Tells the watcher how far it is, with `more` bytes of the present pass.
    fn tell(&self, more: u64) -> Result<()> {
        (self.watcher)(Written { in_memory: self.in_cache, stored: self.overwritten + more })
    }

    /// Bytes that are stored and can be overwritten.
    pub(crate) fn stored(&self) -> u64 {
        self.targets.len_bytes()
    }

    /// Bytes that are shared with other files and stay.
    pub(crate) const fn shared(&self) -> u64 {
        self.shared
    }

    /// Whether what is written can carry tags, by which recovery tells that the file is under purge.
    pub(crate) fn can_be_tagged(&self) -> bool {
        let end = self.targets.extents.iter().map(Extent::end).max();
        let is_one_pass = self.method.passes().len() == 1 && !self.method.holds();
        self.is_plain()
            && self.shared == 0
            && is_one_pass
            && end.is_some_and(|end| end <= TAGGED_LEN_MAX)
    }

    /// From now on what is written carries tags. Another file of the same device, of which nothing
    /// waits in the journal, is flushed in place of this one, which may wait there in many ways: all
    /// that is written lies in its place already.
    pub(crate) fn tag(&mut self, tags: Tags, barrier: Arc<File>) {
        self.tags = Some((tags, barrier));
    }

    /// Whether its content passes through the journal.
    pub(crate) const fn is_journaled(&self) -> bool {
        self.journaled
    }

    /// Whether all of it lies in blocks of its own, and is overwritten there by writing.
    fn is_plain(&self) -> bool {
        self.placed && !self.journaled && self.odd.is_none()
    }

    /// Writes pass `index` and begins to write it back.
    ///
    /// # Errors
    /// [`Kind::Io`]; [`Kind::NoSpace`]; those of the watcher.
    pub(crate) fn write_pass(&mut self, index: usize) -> Result<()> {
        let Some(pattern) = self.method.passes().get(index).copied() else {
            return Ok(());
        };
        let targets = std::mem::take(&mut self.targets);
        let half = (targets.len_bytes() / 2).max(1);
        let mut before_half = index == 0;
        let mut begun = 0;
        let done = self.write(&targets, pattern, index, &mut |written| {
            if before_half && written >= half {
                before_half = false;
                step(Step::HalfPass);
            }
            if written - begun >= WRITE_BACK_LEN_BYTES as u64 && !planted(Fault::UnflushedPass) {
                begun = written;
                kernel::begin_write_back(self.file);
            }
            self.tell(written)
        });
        self.overwritten += targets.len_bytes();
        self.targets = targets;
        done?;
        if !self.targets.extents.is_empty() && !planted(Fault::UnflushedPass) {
            kernel::begin_write_back(self.file);
        }
        Ok(())
    }

    /// Waits until what was written is on the medium.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub(crate) fn flush_pass(&self) -> Result<()> {
        if self.targets.extents.is_empty() || planted(Fault::UnflushedPass) {
            return Ok(());
        }
        if let Some((_, barrier)) = &self.tags {
            kernel::finish_write_back(self.file, ALL).during("writing a pass back")?;
            return fdatasync(barrier).during("flushing the device");
        }
        fdatasync(self.file).during("writing a pass back")?;
        if self.journaled {
            self.lower.flush_journal(self.file)?;
        }
        Ok(())
    }

    /// Waits until what was written has been handed to the device, which may still keep it in its
    /// own memory: for many files that share one [`Erasure::flush_pass`]. Whether that is enough.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub(crate) fn hand_over_pass(&self) -> Result<bool> {
        if self.targets.extents.is_empty() || planted(Fault::UnflushedPass) {
            return Ok(true);
        }
        if !self.is_plain() || !self.lower.is_ordered {
            return Ok(false);
        }
        kernel::finish_write_back(self.file, ALL).during("writing a pass back")?;
        Ok(true)
    }

    /// Waits until what was written has been handed to the device, piece by piece, so that whoever
    /// watches can end it. To be flushed it is all the same.
    fn await_write_back(&self) -> Result<()> {
        let is_short = self.targets.len_bytes() <= WRITE_BACK_LEN_BYTES as u64;
        if is_short || planted(Fault::UnflushedPass) {
            return Ok(());
        }
        for extent in &self.targets.extents {
            for at in (extent.logical..extent.end()).step_by(WRITE_BACK_LEN_BYTES) {
                let piece = at..extent.end().min(at + WRITE_BACK_LEN_BYTES as u64);
                kernel::finish_write_back(self.file, piece).during("writing a pass back")?;
                self.tell(0)?;
            }
        }
        Ok(())
    }

    /// All passes from `first` on, each on the medium before the next; `passed` hears of each.
    ///
    /// # Errors
    /// [`Kind::Io`]; [`Kind::NoSpace`]; those of the watcher.
    pub(crate) fn run(&mut self, first: usize, passed: &mut dyn FnMut(usize)) -> Result<()> {
        if self.targets.extents.is_empty() {
            return Ok(());
        }
        // The last pass is always done again, for its pattern has to be known to be compared.
        for index in first.min(self.method.passes().len() - 1)..self.method.passes().len() {
            self.write_pass(index)?;
            self.await_write_back()?;
            self.flush_pass()?;
            if index == 0 {
                step(Step::FirstPass);
            }
            passed(index + 1);
        }
        Ok(())
    }

    /// Lets go of what it borrows.
    pub(crate) fn pause(self) -> Paused {
        Paused {
            targets: self.targets,
            placed: self.placed,
            journaled: self.journaled,
            streams: self.streams,
            shared: self.shared,
            odd: self.odd,
            tags: self.tags,
            in_memory: self.in_memory,
            overwritten: self.overwritten,
        }
    }

    /// Goes on with the same file.
    pub(crate) fn go_on(
        lower: &'a LowerFs,
        file: &'a File,
        method: &'a Method,
        paused: Paused,
    ) -> Self {
        Self {
            lower,
            file,
            method,
            targets: paused.targets,
            placed: paused.placed,
            journaled: paused.journaled,
            streams: paused.streams,
            shared: paused.shared,
            odd: paused.odd,
            tags: paused.tags,
            watcher: UNWATCHED,
            in_cache: 0,
            in_memory: paused.in_memory,
            overwritten: paused.overwritten,
        }
    }

    /// Writes a pattern over the extents of `map`.
    fn write(
        &self,
        map: &Map,
        pattern: Pattern,
        index: usize,
        written: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let longest = map.extents.iter().map(|e| e.len).max().unwrap_or(0);
        let len = usize::try_from(longest).map_or(WRITE_LEN_BYTES, |l| l.min(WRITE_LEN_BYTES));
        WRITTEN.with_borrow_mut(|chunk| {
            if chunk.len() < len {
                chunk.resize(len, 0);
            }
            self.write_chunks(map, (pattern, index), &mut chunk[..len], written)
        })
    }

    fn write_chunks(
        &self,
        map: &Map,
        (pattern, index): (Pattern, usize),
        chunk: &mut [u8],
        written: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        if let Pattern::Byte(byte) = pattern {
            chunk.fill(byte);
        }
        let len = chunk.len();
        let mut total = 0;
        for extent in &map.extents {
            let mut at = extent.logical;
            while at < extent.end() {
                written(total)?;
                let want = usize::try_from(extent.end() - at).map_or(len, |l| l.min(len));
                let part = &mut chunk[..want];
                if pattern == Pattern::Random {
                    self.streams.stream(domain(index), at, part);
                }
                if let Some((tags, _)) = &self.tags {
                    tags.put(at, part);
                }
                self.file.write_all_at(part, at).during("overwriting a file")?;
                at += want as u64;
                total += want as u64;
            }
        }
        written(total)
    }
}

/// Each pass has a stream of its own.
fn domain(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}
