//! UBI on the chip: which physical block holds which logical one, as Linux keeps it.

mod attach;
mod checksum;
mod header;
mod pool;
mod table;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use self::attach::Attached;
use self::checksum::checksum;
use self::header::{ERASE_COUNTER_MAX, EcHeader, LAYOUT_COPIES, Owner, VidHeader};
use self::pool::{Pool, Stale, Worn};
use super::nand::{Epoch, Health, Nand};
use super::options::{Behaviour, EraseMode};
use super::shape::Peb;
use crate::faults::{Fault, planted};
use crate::{EraseReport, Error, Geometry, Kind, Leb, Result};

#[cfg(feature = "faults")]
pub(super) use self::header::mend;

/// So many blocks are tried for the same content, as Linux does.
const TRIES: u32 = 4;
/// What a suspect block has to hold, one after the other.
const TRIALS: [u8; 3] = [0xa5, 0x5a, 0x00];

/// What is to be known of a physical block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockWear {
    /// How often it has been erased.
    pub erase_counter: u64,
    /// It is out of use.
    pub is_bad: bool,
    /// What is mapped to it.
    pub leb: Option<Leb>,
}

/// Where a logical block lies.
#[derive(Debug, Clone, Copy)]
struct Place {
    peb: Peb,
    /// Since when it has lain somewhere.
    since: Epoch,
}

/// Logical blocks on a chip.
///
/// The lock of an owner is taken before that of the pool, and no other one with it.
#[derive(Debug)]
pub(super) struct Ubi {
    nand: Nand,
    behaviour: Behaviour,
    image_seq: u32,
    lebs: u32,
    /// Where each logical block lies, then the copies of the volume table.
    places: Vec<RwLock<Option<Place>>>,
    pool: Mutex<Pool>,
    sqnum: AtomicU64,
    /// What could not be read when it was attached, and was taken for torn.
    unread: Option<Error>,
    /// Bad blocks when erases were last flushed.
    bad_reported: AtomicU32,
}

impl Ubi {
    /// Puts a volume of `lebs` blocks on an erased chip.
    pub(super) fn format(nand: Nand, lebs: u32, behaviour: Behaviour, seq: u32) -> Result<Self> {
        let mut pool = Pool::new(nand.shape().blocks);
        for peb in nand.shape().pebs().filter(|peb| !nand.is_bad(*peb)) {
            pool.add_free(peb, 0);
        }
        let table = table::encode(nand.shape(), lebs);
        let nothing =
            Attached { image_seq: seq, lebs, owned: Vec::new(), pool, sqnum: 0, unread: None };
        let ubi = Self::new(nand, behaviour, nothing);
        for copy in 0..LAYOUT_COPIES {
            ubi.write_block(Owner::Layout(copy), &table, Worn::Least)?;
        }
        Ok(ubi)
    }

    /// Finds the volume on a chip; nothing is written.
    ///
    /// # Errors
    /// [`Kind::Corrupt`].
    pub(super) fn attach(nand: Nand, behaviour: Behaviour) -> Result<Self> {
        let attached = attach::attach(&nand)?;
        Ok(Self::new(nand, behaviour, attached))
    }

    fn new(nand: Nand, behaviour: Behaviour, attached: Attached) -> Self {
        let Attached { image_seq, lebs, owned, pool, sqnum, unread } = attached;
        let places = (0..lebs + LAYOUT_COPIES).map(|_| RwLock::new(None)).collect();
        let bad_reported = nand.bad_blocks().into();
        let (pool, sqnum) = (Mutex::new(pool), sqnum.into());
        let ubi =
            Self { nand, behaviour, image_seq, lebs, places, pool, sqnum, unread, bad_reported };
        for (owner, peb) in owned {
            let place = Place { peb, since: Epoch::default() };
            *ubi.place(owner).write().unwrap_or_else(PoisonError::into_inner) = Some(place);
        }
        ubi
    }

    pub(super) const fn nand(&self) -> &Nand {
        &self.nand
    }

    pub(super) const fn behaviour(&self) -> Behaviour {
        self.behaviour
    }

    pub(super) fn geometry(&self) -> Geometry {
        let shape = self.nand.shape();
        Geometry {
            leb_len_bytes: shape.leb_len_bytes(),
            lebs: self.lebs,
            page_len_bytes: shape.page_len_bytes,
        }
    }

    pub(super) fn read(&self, leb: Leb, offset: u32, buf: &mut [u8]) -> Result<()> {
        let place = self.place(Owner::Data(leb.0)).read().unwrap_or_else(PoisonError::into_inner);
        let Some(Place { peb, .. }) = *place else {
            buf.fill(0xff);
            return self.nand.power.check();
        };
        let health = self.nand.read(peb, self.nand.shape().data_offset() + offset, buf)?;
        drop(place);
        if health == Health::Corrected {
            self.pool().add_flipped(peb);
            self.settle();
        }
        Ok(())
    }

    pub(super) fn append(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return self.nand.power.check();
        }
        let owner = Owner::Data(leb.0);
        let mut place = self.place(owner).write().unwrap_or_else(PoisonError::into_inner);
        let is_new = place.is_none();
        let old = match *place {
            Some(old) => old,
            None => *place.insert(self.map_block(owner)?),
        };
        let at = self.nand.shape().data_offset() + offset;
        match self.nand.program(old.peb, at, data) {
            Ok(()) if !is_new => return Ok(()),
            Err(e) if e.kind() == Kind::Io => {
                // What is there moves to a better block, together with what could not be added.
                let mut content = vec![0; offset as usize + data.len()];
                let (before, added) = content.split_at_mut(offset as usize);
                self.nand.read(old.peb, self.nand.shape().data_offset(), before)?;
                added.copy_from_slice(data);
                let peb = self.write_block(owner, &content, Worn::Least)?;
                *place = Some(Place { peb, ..old });
                self.add_stale(old.peb, true);
            }
            result => result?,
        }
        drop(place);
        self.settle();
        Ok(())
    }

    pub(super) fn change(&self, leb: Leb, data: &[u8]) -> Result<()> {
        let owner = Owner::Data(leb.0);
        let mut place = self.place(owner).write().unwrap_or_else(PoisonError::into_inner);
        let old = match *place {
            Some(old) => old,
            None => *place.insert(self.map_block(owner)?),
        };
        let is_safe = self.nand.is_durable(old.since) || planted(Fault::LoneCopy);
        if !data.is_empty() && !is_safe {
            // A lone copy is believed without a look at its content: the old block must not be lost.
            self.nand.sync()?;
        }
        if planted(Fault::ChangeInPlace) {
            self.erase_block(old.peb)?;
            return self.fill(old.peb, owner, data);
        }
        let peb = self.write_block(owner, data, Worn::Least)?;
        *place = Some(Place { peb, ..old });
        self.add_stale(old.peb, false);
        drop(place);
        self.settle();
        Ok(())
    }

    pub(super) fn map(&self, leb: Leb) -> Result<()> {
        let owner = Owner::Data(leb.0);
        let mut place = self.place(owner).write().unwrap_or_else(PoisonError::into_inner);
        if place.is_some() {
            return self.nand.power.check();
        }
        *place = Some(self.map_block(owner)?);
        drop(place);
        self.settle();
        Ok(())
    }

    pub(super) fn unmap(&self, leb: Leb) -> Result<()> {
        self.nand.power.check()?;
        let place = self.place(Owner::Data(leb.0));
        let mut place = place.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = place.take() {
            self.add_stale(old.peb, false);
        }
        drop(place);
        self.settle();
        Ok(())
    }

    pub(super) fn is_mapped(&self, leb: Leb) -> Result<bool> {
        self.nand.power.check()?;
        let place = self.place(Owner::Data(leb.0));
        Ok(place.read().unwrap_or_else(PoisonError::into_inner).is_some())
    }

    pub(super) fn missed(&self) -> Option<Error> {
        self.unread.as_ref().map(Error::again)
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.nand.sync()
    }

    pub(super) fn flush_erases(&self) -> Result<EraseReport> {
        let mut pool = self.pool();
        self.nand.sync()?;
        if !planted(Fault::EraseSkipped) {
            self.erase_stale(&mut pool, usize::MAX)?;
        }
        let bad_after = self.nand.bad_blocks();
        let bad_before = self.bad_reported.swap(bad_after, Ordering::AcqRel);
        Ok(EraseReport { bad_before, bad_after })
    }

    pub(super) fn wear(&self) -> Vec<BlockWear> {
        let pool = self.pool();
        let wear = |peb| BlockWear {
            erase_counter: pool.erase_counter(peb),
            is_bad: self.nand.is_bad(peb),
            leb: match pool.owner(peb) {
                Some(Owner::Data(leb)) => Some(Leb(leb)),
                Some(Owner::Layout(_)) | None => None,
            },
        };
        self.nand.shape().pebs().map(wear).collect()
    }

    /// Gives an owner a block.
    fn map_block(&self, owner: Owner) -> Result<Place> {
        let peb = self.write_block(owner, &[], Worn::Least)?;
        Ok(Place { peb, since: self.nand.now() })
    }

    /// Puts content into a free block, which belongs to its owner from then on. After a power cut it
    /// is all there, or what was there before is.
    ///
    /// # Errors
    /// [`Kind::WornOut`]; [`Kind::Io`] if no block takes it; [`Kind::PowerCut`].
    fn write_block(&self, owner: Owner, content: &[u8], worn: Worn) -> Result<Peb> {
        let mut tries = 1..=TRIES;
        loop {
            let last = tries.next() == Some(TRIES);
            let peb = self.take_free(worn)?;
            match self.fill(peb, owner, content) {
                Ok(()) => {
                    self.pool().add_used(peb, owner);
                    return Ok(peb);
                }
                Err(e) => {
                    let is_suspect = e.kind() == Kind::Io;
                    self.add_stale(peb, is_suspect);
                    if last || !is_suspect {
                        return Err(e);
                    }
                }
            }
        }
    }

    fn fill(&self, peb: Peb, owner: Owner, content: &[u8]) -> Result<()> {
        let shape = self.nand.shape();
        if self.nand.programmed(peb) == 0 {
            self.write_counter(peb, self.pool().erase_counter(peb))?;
        }
        let len_bytes = u32::try_from(content.len()).expect("no more than an erase block");
        let copy = (len_bytes > 0).then(|| (len_bytes, checksum(&[content])));
        let sqnum = self.sqnum.fetch_add(1, Ordering::AcqRel);
        self.program_header(peb, shape.vid_offset(), &VidHeader { owner, sqnum, copy }.encode())?;
        self.nand.program(peb, shape.data_offset(), content)
    }

    /// Takes a free block, and erases stale ones if there is none.
    fn take_free(&self, worn: Worn) -> Result<Peb> {
        let mut pool = self.pool();
        while !pool.has_free() && self.behaviour.erase_mode != EraseMode::Never {
            if !pool.has_stale() {
                break;
            }
            // Those that need no sync go first.
            let is_replaced = |stale: &Stale| self.nand.is_durable(stale.since);
            let mut count = pool.stale().take_while(is_replaced).count();
            if count == 0 {
                self.sync_replaced()?;
                count = usize::MAX;
            }
            self.erase_stale(&mut pool, count)?;
        }
        let text = if pool.has_stale() {
            "no block is free until erases are flushed"
        } else {
            "no good block is left"
        };
        pool.take(worn).ok_or_else(|| Error::new(Kind::WornOut, text))
    }

    /// Erases so many stale blocks, oldest first, and makes that durable. What cannot be erased is bad
    /// from then on.
    fn erase_stale(&self, pool: &mut Pool, count: usize) -> Result<()> {
        let batch: Vec<Stale> = pool.stale().take(count).collect();
        if batch.is_empty() {
            return Ok(());
        }
        let pebs: Vec<Peb> = batch.iter().map(|stale| stale.peb).collect();
        self.nand.announce_erases(&pebs)?;
        let mut erased = Vec::new();
        let mut result = Ok(());
        for stale in &batch {
            let erase_counter = pool.erase_counter(stale.peb) + 1;
            result = match self.erase(*stale, erase_counter) {
                Ok(()) => {
                    erased.push((stale.peb, erase_counter));
                    Ok(())
                }
                Err(e) if e.kind() == Kind::Io => self.nand.mark_bad(stale.peb),
                Err(e) => Err(e),
            };
            if result.is_err() {
                break;
            }
            pool.drop_oldest_stale();
        }
        if result.is_err() {
            let left: Vec<Peb> = pool.stale().take(batch.len()).map(|stale| stale.peb).collect();
            self.nand.withdraw_erases(&left)?;
        }
        // Before they are used, for else old headers may come back under what is new.
        let synced = self.nand.sync();
        for (peb, erase_counter) in erased {
            match synced {
                Ok(()) => pool.add_free(peb, erase_counter),
                Err(_) => pool.add_stale(Stale { peb, is_suspect: false, since: self.nand.now() }),
            }
        }
        result.and(synced)
    }

    fn erase(&self, stale: Stale, erase_counter: u64) -> Result<()> {
        if stale.is_suspect {
            self.try_block(stale.peb)?;
        }
        self.nand.erase(stale.peb)?;
        self.write_counter(stale.peb, erase_counter)
    }

    /// Nothing refers to a block any more.
    fn add_stale(&self, peb: Peb, is_suspect: bool) {
        let since = self.nand.now();
        self.pool().add_stale(Stale { peb, is_suspect, since });
    }

    /// Sees to it that what has replaced stale blocks is durable.
    fn sync_replaced(&self) -> Result<()> {
        if planted(Fault::EraseBeforeSync) {
            return Ok(());
        }
        self.nand.sync()
    }

    /// Erases a block that is to be used again at once.
    fn erase_block(&self, peb: Peb) -> Result<()> {
        self.nand.erase(peb)?;
        self.write_counter(peb, self.pool().erase_counter(peb) + 1)
    }

    /// Whether a suspect block can be programmed after all.
    fn try_block(&self, peb: Peb) -> Result<()> {
        let mut buf = vec![0; self.nand.shape().block_len_bytes() as usize];
        for trial in TRIALS {
            self.nand.erase(peb)?;
            buf.fill(trial);
            self.nand.program(peb, 0, &buf)?;
            self.nand.read(peb, 0, &mut buf)?;
            if buf.iter().any(|byte| *byte != trial) {
                let text = format!("block {} does not hold what is programmed", peb.0);
                return Err(Error::new(Kind::Io, text));
            }
        }
        Ok(())
    }

    fn write_counter(&self, peb: Peb, erase_counter: u64) -> Result<()> {
        if erase_counter > ERASE_COUNTER_MAX {
            return Err(Error::new(Kind::Io, format!("block {} was erased too often", peb.0)));
        }
        let header = EcHeader { erase_counter, image_seq: self.image_seq };
        self.program_header(peb, 0, &header.encode(self.nand.shape()))
    }

    /// Programs a header with zeros behind it, up to the end of its sub-page.
    fn program_header(&self, peb: Peb, offset: u32, header: &[u8]) -> Result<()> {
        let mut sub_page = vec![0; self.nand.shape().sub_page_len_bytes() as usize];
        sub_page[..header.len()].copy_from_slice(header);
        self.nand.program(peb, offset, &sub_page)
    }

    /// Does what is due between operations: moves content, and erases at once where that is asked
    /// for. What goes wrong here is met again by whoever needs the block. Where nothing is written,
    /// nothing is due.
    fn settle(&self) {
        if self.nand.check_writable().is_err() {
            return;
        }
        loop {
            let flipped = self.pool().take_flipped();
            match flipped.map(|peb| self.move_content(peb, Worn::Least)) {
                Some(Ok(())) => {}
                Some(Err(_)) | None => break,
            }
        }
        let rested = self.pool().rested(self.behaviour.wear_threshold);
        if let Some(peb) = rested {
            let _ = self.move_content(peb, Worn::Most);
        }
        if self.behaviour.erase_mode == EraseMode::Eager {
            let mut pool = self.pool();
            if pool.has_stale() {
                let synced = self.sync_replaced();
                let _ = synced.and_then(|()| self.erase_stale(&mut pool, usize::MAX));
            }
        }
    }

    /// Moves what is in a block to another one.
    fn move_content(&self, peb: Peb, worn: Worn) -> Result<()> {
        let Some(owner) = self.pool().owner(peb) else { return Ok(()) };
        let mut place = self.place(owner).write().unwrap_or_else(PoisonError::into_inner);
        let Some(old) = place.filter(|place| place.peb == peb) else { return Ok(()) };
        let from = self.nand.shape().data_offset();
        let mut content = vec![0; self.nand.programmed(peb).saturating_sub(from) as usize];
        self.nand.read(peb, from, &mut content)?;
        *place = Some(Place { peb: self.write_block(owner, &content, worn)?, ..old });
        self.add_stale(peb, false);
        Ok(())
    }

    fn place(&self, owner: Owner) -> &RwLock<Option<Place>> {
        let at = match owner {
            Owner::Data(leb) => leb,
            Owner::Layout(copy) => self.lebs + copy,
        };
        &self.places[at as usize]
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
