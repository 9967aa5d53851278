//! Clearing free room of a folder that lives on: entries are put there, and removed again.
//!
//! A new entry takes the first room that it fits into, in the block where its hash belongs. So the
//! gaps of a block are filled one after the other, each exactly, up to the last that holds something:
//! no block is ever split for it. The driver clears what it removes. All fillers are names of one
//! file, so none of them takes an inode, and whoever lists the folder can leave them out.

use std::collections::HashSet;
use std::fs::File;

use rustix::fs::{AtFlags, CWD, linkat, unlinkat};
use rustix::io::Errno;

use crate::ext4::Volume;
use crate::ext4::folder::{ENTRY_LEN_MIN, Gap, Leaf, Left, Seen, Wanted, look};
use crate::faults::{Fault, Step, planted, step};
use crate::lower_fs::LowerFs;
use crate::xattrs::path_of;
use crate::{Error, Result, names};

/// Length of what precedes a name in its entry.
const HEAD_LEN: usize = 8;

/// The most that one entry takes, and the longest name.
const ENTRY_LEN_MAX: usize = 264;
const NAME_LEN_MAX: usize = 255;

/// Names that are tried for one that belongs into a block, for each block there is.
const TRIES_PER_LEAF: usize = 64;

/// How often a folder is filled, if somebody puts names there meanwhile, or looked at, if it cannot be
/// read.
const ROUNDS_MAX: usize = 3;

/// Looks at a folder and clears what is found; what is left then, `None` where nobody can tell.
/// `source` is the file that fillers are names of; `settle` puts what was changed in place.
///
/// That the device cannot be read is no failure: nothing else is to wait for that.
///
/// # Errors
/// [`crate::Kind::Io`]; [`crate::Kind::NoSpace`].
pub(crate) fn clear(
    lower: &LowerFs,
    folder: &File,
    wanted: &Wanted,
    source: &mut dyn FnMut() -> Result<File>,
    settle: &dyn Fn() -> Result<()>,
) -> Result<Option<Left>> {
    let volume = match lower.volume() {
        Ok(Some(volume)) => volume,
        Ok(None) => return Ok(None),
        Err(e) => {
            log::debug!("a folder cannot be looked at: {e}");
            return Ok(Some(Left::unseen()));
        }
    };
    for _ in 0..ROUNDS_MAX {
        let Some(seen) = look(&volume, folder, wanted) else {
            return Ok(None);
        };
        if seen.left.is_unseen() {
            // It may be there the next time.
            continue;
        }
        if !seen.leaves.iter().any(Leaf::is_dirty) {
            return Ok(Some(seen.left));
        }
        if planted(Fault::FillersUnhooked) {
            break;
        }
        fill(&volume, folder, &seen, &source()?)?;
        names::flush_folder(folder)?;
        settle()?;
    }
    Ok(look(&volume, folder, wanted).map(|seen| seen.left))
}

fn fill(volume: &Volume<'_>, folder: &File, seen: &Seen, source: &File) -> Result<()> {
    let mut made = HashSet::new();
    let mut letters = names::Letters::new()?;
    let filled = seen.leaves.iter().filter(|leaf| leaf.is_dirty()).try_for_each(|leaf| {
        lens(&leaf.gaps).try_for_each(|len| {
            let fits = |name: &str| belongs(volume, seen, leaf, name) && !made.contains(name);
            let tries = TRIES_PER_LEAF * seen.leaves.len();
            let Some(name) = (0..tries).map(|_| letters.name(len)).find(|name| fits(name)) else {
                return Ok(());
            };
            if put((folder, source), &name)? {
                made.insert(name);
            }
            Ok(())
        })
    });
    step(Step::Filled);
    let mut removed = Ok(());
    for name in &made {
        match unlinkat(folder, name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => removed = Err(Error::of_kernel(e, "removing a filler")),
        }
    }
    filled.and(removed)
}

/// Whether a name is put into that block.
fn belongs(volume: &Volume<'_>, seen: &Seen, leaf: &Leaf, name: &str) -> bool {
    seen.hash.is_none_or(|hash| {
        let hash = volume.hash(hash, name.as_bytes());
        leaf.hashes.contains(&u64::from(hash))
    })
}

/// Puts one filler in; where there is no room any more, somebody else has taken it.
fn put((folder, source): (&File, &File), name: &str) -> Result<bool> {
    let path = path_of(source);
    match linkat(CWD, &*path, folder, name, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST | Errno::NOSPC | Errno::DQUOT | Errno::MLINK) => Ok(false),
        Err(e) => Err(Error::of_kernel(e, "filling a folder")),
    }
}

/// Lengths of the names that fill all gaps up to the last that holds something, in order.
fn lens(gaps: &[Gap]) -> impl Iterator<Item = usize> {
    let last = gaps.iter().rposition(|gap| gap.is_dirty).map_or(0, |last| last + 1);
    gaps[..last].iter().flat_map(|gap| {
        let mut room = gap.room;
        std::iter::from_fn(move || {
            let len = match room {
                0..ENTRY_LEN_MIN => return None,
                ENTRY_LEN_MIN..=ENTRY_LEN_MAX => room,
                // What is left has to hold an entry, too.
                _ if room - ENTRY_LEN_MAX < ENTRY_LEN_MIN => ENTRY_LEN_MAX - ENTRY_LEN_MIN,
                _ => ENTRY_LEN_MAX,
            };
            room -= len;
            Some((len - HEAD_LEN).min(NAME_LEN_MAX))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_exactly_and_in_order() {
        let gap = |room, is_dirty| Gap { room, is_dirty };
        let gaps = [gap(8, false), gap(12, false), gap(272, true), gap(500, false)];
        let lens: Vec<usize> = lens(&gaps).collect();
        assert_eq!(lens, [4, 244, 12], "one of 8 holds no entry, and the last is clean");
        for room in (12..5000).step_by(4) {
            let gaps = [gap(room, true)];
            let entry = |len: usize| (HEAD_LEN + len).next_multiple_of(4);
            assert_eq!(super::lens(&gaps).map(entry).sum::<usize>(), room);
        }
    }
}
