//! From the headers on the chip to who owns what.

use std::collections::BTreeMap;

use super::super::nand::Nand;
use super::super::shape::Peb;
use super::checksum::checksum;
use super::header::{EcHeader, HEADER_LEN, LAYOUT_COPIES, Owner, Unread, VidHeader};
use super::pool::Pool;
use super::table;
use crate::faults::{Fault, planted};
use crate::{Error, Kind, Result};

/// What is on the chip.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) image_seq: u32,
    /// Number of logical erase blocks.
    pub(super) lebs: u32,
    /// Which block is whose.
    pub(super) owned: Vec<(Owner, Peb)>,
    pub(super) pool: Pool,
    /// Greater than every sequence number there is.
    pub(super) sqnum: u64,
    /// What could not be read and was taken for torn.
    pub(super) unread: Option<Error>,
}

/// What the headers of a block say.
#[derive(Debug)]
enum Found {
    /// It is erased; its erase counter may be lost.
    Free(Option<EcHeader>),
    /// An operation on it was cut.
    Torn(Option<EcHeader>),
    /// It holds a block.
    Content(EcHeader, VidHeader),
}

impl Found {
    fn ec(&self) -> Option<EcHeader> {
        match self {
            Self::Free(ec) | Self::Torn(ec) => *ec,
            Self::Content(ec, _) => Some(*ec),
        }
    }
}

/// Reads the headers of all blocks, and content where several blocks claim the same owner.
///
/// # Errors
/// [`Kind::Corrupt`] with what is wrong; [`Kind::Io`] where the machine fails, for writing.
pub(super) fn attach(nand: &Nand) -> Result<Attached> {
    let (mut found, mut unread) = (Vec::new(), None);
    for peb in nand.shape().pebs().filter(|peb| !nand.is_bad(*peb)) {
        found.push((peb, look_at(nand, peb, &mut unread)?));
    }
    let image_seq = image_seq_of(&found, &mut unread)?;
    let counters = || found.iter().filter_map(|(_, found)| found.ec());
    let sum: u64 = counters().map(|ec| ec.erase_counter).sum();
    // A block whose counter is lost is taken for an average one.
    let mean = sum / counters().count().max(1) as u64;
    let mut pool = Pool::new(nand.shape().blocks);
    let mut claims: BTreeMap<Owner, Vec<Claim>> = BTreeMap::new();
    for (peb, found) in found {
        let erase_counter = found.ec().map_or(mean, |ec| ec.erase_counter);
        match found {
            Found::Free(_) => pool.add_free(peb, erase_counter),
            Found::Torn(_) => pool.found_stale(peb, erase_counter),
            Found::Content(_, vid) => {
                let claim = Claim { peb, vid, erase_counter };
                claims.entry(vid.owner).or_default().push(claim);
            }
        }
    }
    let sqnum = claims.values().flatten().map(|claim| claim.vid.sqnum).max().unwrap_or(0) + 1;
    let (mut owned, mut losers) = (Vec::new(), Vec::new());
    for (owner, mut claims) in claims {
        let winner = winner_of(nand, &mut claims)?;
        let winner = claims.remove(winner);
        pool.found_used(winner.peb, winner.erase_counter, owner);
        owned.push((owner, winner.peb));
        losers.extend(claims);
    }
    losers.sort_by_key(|claim| claim.vid.sqnum);
    for loser in losers {
        pool.found_stale(loser.peb, loser.erase_counter);
    }
    let lebs = lebs_of(nand, &owned, &mut unread)?;
    if let Some((Owner::Data(leb), _)) =
        owned.iter().find(|(owner, _)| matches!(owner, Owner::Data(leb) if *leb >= lebs))
    {
        return Err(corrupt(format!("erase block {leb} is beyond the volume, which has {lebs}")));
    }
    Ok(Attached { image_seq, lebs, owned, pool, sqnum, unread })
}

/// What a block holds. `unread` remembers what could not be read and was taken for torn.
fn look_at(nand: &Nand, peb: Peb, unread: &mut Option<Error>) -> Result<Found> {
    let shape = nand.shape();
    let programmed = nand.programmed(peb);
    if programmed == 0 {
        return Ok(Found::Free(None));
    }
    let foreign = |what: String| corrupt(format!("block {} holds {what}", peb.0));
    let mut header = [0; HEADER_LEN];
    let mut read = |offset| match nand.read(peb, offset, &mut header) {
        Ok(_) => Ok(Some(header)),
        // What cannot be read has been torn, as far as anybody can tell.
        Err(e) if is_given_up(nand, &e) => {
            unread.get_or_insert(e);
            Ok(None)
        }
        Err(e) => Err(e),
    };
    let Some(bytes) = read(0)? else { return Ok(Found::Torn(None)) };
    let ec = match EcHeader::decode(&bytes, shape) {
        Ok(ec) => ec,
        Err(Unread::Torn) => return Ok(Found::Torn(None)),
        Err(Unread::Foreign(what)) => return Err(foreign(what)),
    };
    if programmed <= shape.vid_offset() {
        return Ok(Found::Free(Some(ec)));
    }
    let Some(bytes) = read(shape.vid_offset())? else { return Ok(Found::Torn(Some(ec))) };
    match VidHeader::decode(&bytes, shape) {
        Ok(vid) => Ok(Found::Content(ec, vid)),
        Err(Unread::Torn) => Ok(Found::Torn(Some(ec))),
        Err(Unread::Foreign(what)) => Err(foreign(what)),
    }
}

/// Whether what cannot be read is taken for torn. Where the machine fails it may be there the next time,
/// and what is torn is erased by whoever writes.
fn is_given_up(nand: &Nand, error: &Error) -> bool {
    error.kind() == Kind::Io && !(error.is_of_system() && nand.check_writable().is_ok())
}

fn image_seq_of(found: &[(Peb, Found)], unread: &mut Option<Error>) -> Result<u32> {
    let mut all = found.iter().filter_map(|(_, found)| found.ec()).map(|ec| ec.image_seq);
    let missing = || missing(unread.take(), "no block has a header of UBI");
    let first = all.next().ok_or_else(missing)?;
    if all.any(|image_seq| image_seq != first) {
        return Err(corrupt("its blocks come from different images".into()));
    }
    Ok(first)
}

/// A block that says whose content it holds.
#[derive(Debug)]
struct Claim {
    peb: Peb,
    vid: VidHeader,
    erase_counter: u64,
}

/// The newest claim whose content has arrived, of claims of the same owner.
fn winner_of(nand: &Nand, claims: &mut [Claim]) -> Result<usize> {
    claims.sort_by_key(|claim| claim.vid.sqnum);
    if !planted(Fault::OldCopyWins) {
        claims.reverse();
    }
    if let Some(twins) = claims.windows(2).find(|pair| pair[0].vid.sqnum == pair[1].vid.sqnum) {
        let text = format!("blocks {} and {} were mapped at once", twins[0].peb.0, twins[1].peb.0);
        return Err(corrupt(text));
    }
    let last = claims.len() - 1;
    for (at, claim) in claims[..last].iter().enumerate() {
        if has_arrived(nand, claim)? {
            return Ok(at);
        }
    }
    Ok(last)
}

/// Whether all of the content is there that was to come with the header.
fn has_arrived(nand: &Nand, claim: &Claim) -> Result<bool> {
    let Some((len_bytes, crc)) = claim.vid.copy else { return Ok(true) };
    let mut content = vec![0; len_bytes as usize];
    match nand.read(claim.peb, nand.shape().data_offset(), &mut content) {
        Ok(_) => Ok(checksum(&[&content]) == crc),
        Err(e) if is_given_up(nand, &e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The length of the volume, from its table; `unread` is what could not be read of headers.
fn lebs_of(nand: &Nand, owned: &[(Owner, Peb)], unread: &mut Option<Error>) -> Result<u32> {
    let shape = nand.shape();
    let mut found = None;
    for copy in 0..LAYOUT_COPIES {
        let Some((_, peb)) = owned.iter().find(|(owner, _)| *owner == Owner::Layout(copy)) else {
            continue;
        };
        let mut content = vec![0; table::len(shape)];
        match nand.read(*peb, shape.data_offset(), &mut content) {
            Err(e) if e.kind() != Kind::Io => return Err(e),
            Err(e) => {
                unread.get_or_insert(e);
            }
            Ok(_) => {}
        }
        match (found, table::decode(&content, shape)) {
            (Some(one), Some(other)) if one != other => {
                return Err(corrupt("its volume tables differ".into()));
            }
            (_, None) => {}
            (_, lebs) => found = lebs,
        }
    }
    found.ok_or_else(|| missing(unread.take(), "it has no volume table"))
}

/// What is missing, or why: something could not be read.
fn missing(unread: Option<Error>, what: &str) -> Error {
    unread.unwrap_or_else(|| corrupt(what.into()))
}

fn corrupt(text: String) -> Error {
    Error::new(Kind::Corrupt, text)
}
