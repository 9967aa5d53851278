//! Content of files: in the inode while it is short, in blocks from then on.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use bytes::Bytes;
use tacita_vfs::{FileType, Kind};

use crate::cache::{Class, NotHere};
use crate::faults::{Fault, planted};
use crate::ids::{BLOCK_LEN, Id, MountId};
use crate::inode::{BODY_LEN, Form, Inode, Range, Ranges};
use crate::tree::{self, Fresh};
use crate::view::{Step, Stop, View};

/// Blocks that one step takes away at most, but for those of a whole content.
pub(crate) const STEP_BLOCKS: u64 = 1024;

/// Blocks of a content are covered by ranges, and all that are covered are freed one day: more than so
/// many times what the store holds is no file, but holes that are too many to be remembered.
const COVER_MAX: u64 = 4;

const LEN: u64 = BLOCK_LEN as u64;

/// Sets the target of a new link.
pub(crate) fn set_target(view: &mut View<'_>, inode: &mut Inode, target: &OsStr) {
    inode.size = target.len() as u64;
    if target.len() <= BODY_LEN {
        inode.body = target.as_bytes().to_vec();
        return;
    }
    let mut block = target.as_bytes().to_vec();
    block.resize(BLOCK_LEN, 0);
    inode.form = Form::Blocks;
    inode.ranges.add(0, 1);
    view.put(view.ids.content(&inode.content, 0), Some(Bytes::from(block)), Class::Content);
}

/// The target of a link.
pub(crate) fn target(view: &mut View<'_>, inode: &Inode) -> Step<OsString> {
    if inode.kind != FileType::Symlink {
        return Err(Kind::Invalid.into());
    }
    if inode.form == Form::Inline {
        return Ok(OsString::from_vec(inode.body.clone()));
    }
    let len = usize::try_from(inode.size).unwrap_or(usize::MAX);
    let block = view.block(&view.ids.content(&inode.content, 0))?;
    let target = block.as_deref().and_then(|block| block.get(..len)).ok_or(Kind::Corrupt)?;
    Ok(OsString::from_vec(target.to_vec()))
}

/// Reads into `buf`, which ends with the file at the latest. Blocks that are not here are asked for in
/// whole windows, whether the file goes on to their end or not.
pub(crate) fn read(
    view: &mut View<'_>,
    inode: &Inode,
    offset: u64,
    buf: &mut [u8],
    window: u64,
) -> Step<()> {
    if inode.form == Form::Inline {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = at.saturating_add(buf.len());
        buf.copy_from_slice(inode.body.get(at..end).ok_or(Kind::Corrupt)?);
        return Ok(());
    }
    if buf.is_empty() {
        return Ok(());
    }
    let (first, last) = (offset / LEN, (offset + buf.len() as u64 - 1) / LEN);
    let mut missing = Vec::new();
    let mut asked = 0;
    for index in first..=last {
        let id = view.ids.content(&inode.content, index);
        match view.peek(&id) {
            Ok(block) => {
                let begin = (index * LEN).max(offset);
                let end = ((index + 1) * LEN).min(offset + buf.len() as u64);
                let into = &mut buf[place(begin - offset)..place(end - offset)];
                let from = place(begin - index * LEN);
                // What is not covered was never committed, whatever is there.
                match block.filter(|_| inode.ranges.has(index)) {
                    Some(block) => into.copy_from_slice(&block[from..from + into.len()]),
                    None => into.fill(0),
                }
            }
            Err(NotHere) if index >= asked => {
                let begin = index - index % window;
                asked = begin + window;
                if planted(Fault::ReadAheadToTheEnd) {
                    asked = asked.min(inode.size.div_ceil(LEN));
                }
                let window = (begin..asked).map(|index| view.ids.content(&inode.content, index));
                let window: Vec<Id> = window.collect();
                missing.extend(window.into_iter().filter(|id| view.peek(id).is_err()));
            }
            Err(NotHere) => {}
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Stop::Missing(missing)) }
}

/// A place within a buffer.
fn place(offset: u64) -> usize {
    usize::try_from(offset).expect("buffers are in memory")
}

/// How something is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writing {
    /// Blocks that the store holds.
    pub(crate) capacity: u64,
    /// All blocks that are written are read, whatever becomes of them, so that the commit knows what it
    /// writes over.
    pub(crate) reads_first: bool,
    /// The content was begun in this turn: nobody who has ended has left blocks of it that no range covers.
    pub(crate) is_new: bool,
}

/// Writes, or goes a step towards it: whether it is done. The inode is changed, and not put yet.
pub(crate) fn write(
    view: &mut View<'_>,
    inode: &mut Inode,
    (offset, data): (u64, &[u8]),
    how: Writing,
) -> Step<bool> {
    let end = offset + data.len() as u64;
    if data.is_empty() {
        return Ok(true);
    }
    if inode.form == Form::Inline {
        if end <= BODY_LEN as u64 {
            let len = place(end).max(inode.body.len());
            inode.body.resize(len, 0);
            inode.body[place(offset)..place(end)].copy_from_slice(data);
            inode.size = len as u64;
            return Ok(true);
        }
        if how.reads_first {
            let first = view.ids.content(&inode.content, 0);
            view.block(&first)?;
        }
        to_blocks(view, inode);
    }
    let (first, last) = (offset / LEN, (end - 1) / LEN);
    let mut ranges = inode.ranges.clone();
    let closed = ranges.add(first, last + 1);
    if ranges.count() > how.capacity.saturating_mul(COVER_MAX).saturating_add(STEP_BLOCKS) {
        return Err(Kind::FileTooBig.into());
    }
    if let Some(gap) = closed.filter(|_| !how.is_new) {
        if gap.end - gap.start > STEP_BLOCKS {
            let part = inode.ranges.close_a_part(gap, STEP_BLOCKS);
            let_be_none(view, inode, part);
            return Ok(false);
        }
        let_be_none(view, inode, gap);
    }
    if how.reads_first {
        let ids = (first..=last).map(|index| view.ids.content(&inode.content, index));
        let ids: Vec<Id> = ids.collect();
        let missing: Vec<Id> = ids.into_iter().filter(|id| view.peek(id).is_err()).collect();
        if !missing.is_empty() {
            return Err(Stop::Missing(missing));
        }
    }
    let partial = |index: &u64| index * LEN < offset || (index + 1) * LEN > end;
    let ends = if first == last { vec![first] } else { vec![first, last] };
    let needed: Vec<Id> = ends
        .iter()
        .filter(|index| partial(index) && inode.ranges.has(**index))
        .map(|index| view.ids.content(&inode.content, *index))
        .collect();
    let missing: Vec<Id> = needed.into_iter().filter(|id| view.peek(id).is_err()).collect();
    if !missing.is_empty() {
        return Err(Stop::Missing(missing));
    }
    for index in first..=last {
        let id = view.ids.content(&inode.content, index);
        let begin = (index * LEN).max(offset);
        let until = ((index + 1) * LEN).min(end);
        let part = &data[place(begin - offset)..place(until - offset)];
        let block = if part.len() == BLOCK_LEN {
            Bytes::copy_from_slice(part)
        } else {
            let old = if inode.ranges.has(index) { view.block(&id)? } else { None };
            let mut block = old.map_or_else(|| vec![0; BLOCK_LEN], |old| old.to_vec());
            let at = place(begin - index * LEN);
            block[at..at + part.len()].copy_from_slice(part);
            Bytes::from(block)
        };
        view.put(id, Some(block), Class::Content);
    }
    inode.ranges = ranges;
    inode.size = inode.size.max(end);
    Ok(true)
}

/// These blocks were not covered and are from now on, though nothing was written there: a mount that has ended in
/// a commit may have left some that was never told of.
fn let_be_none(view: &mut View<'_>, inode: &Inode, gap: Range) {
    if planted(Fault::LeftUncovered) {
        return;
    }
    for index in gap.start..gap.end {
        view.put(view.ids.content(&inode.content, index), None, Class::Content);
    }
}

/// Moves what is in the inode into a block.
fn to_blocks(view: &mut View<'_>, inode: &mut Inode) {
    inode.form = Form::Blocks;
    if inode.body.is_empty() {
        return;
    }
    let mut block = std::mem::take(&mut inode.body);
    block.resize(BLOCK_LEN, 0);
    inode.ranges.add(0, 1);
    view.put(view.ids.content(&inode.content, 0), Some(Bytes::from(block)), Class::Content);
}

/// Sets the size, or goes a step towards it: whether it is reached. `fresh` is used where all content
/// goes: then the old one is buried under a name of its own.
pub(crate) fn resize(
    view: &mut View<'_>,
    mount: &MountId,
    inode: &mut Inode,
    size: u64,
    fresh: Fresh,
) -> Step<bool> {
    if inode.form == Form::Inline {
        if size > BODY_LEN as u64 {
            to_blocks(view, inode);
        } else {
            inode.body.resize(place(size), 0);
        }
        inode.size = size;
        return Ok(true);
    }
    if size >= inode.size {
        inode.size = size;
        return Ok(true);
    }
    if size == 0 {
        let old = Inode { id: fresh.inode, nlink: 0, xattrs: Vec::new(), ..inode.clone() };
        if !old.ranges.all().is_empty() {
            view.put_inode(&old);
            tree::bury(view, mount, &old)?;
        }
        inode.content = fresh.content;
        inode.form = Form::Inline;
        inode.ranges = Ranges::default();
        inode.size = 0;
        return Ok(true);
    }
    let keep = size.div_ceil(LEN);
    let is_long = inode.ranges.count_from(keep) > STEP_BLOCKS;
    let from = if is_long { last_covered(inode, STEP_BLOCKS) } else { keep };
    for index in inode.ranges.within(from, u64::MAX).collect::<Vec<_>>() {
        view.put(view.ids.content(&inode.content, index), None, Class::Content);
    }
    inode.ranges.cut(from);
    if from > keep {
        inode.size = from * LEN;
        return Ok(false);
    }
    if !size.is_multiple_of(LEN) {
        zero(view, inode, size, keep * LEN)?;
    }
    inode.size = size;
    Ok(true)
}

/// Where the last so many covered blocks begin.
fn last_covered(inode: &Inode, count: u64) -> u64 {
    let mut left = count;
    for range in inode.ranges.all().iter().rev() {
        let len = range.end - range.start;
        if len >= left {
            return range.end - left;
        }
        left -= len;
    }
    0
}

/// Lets bytes within one block be zeros.
fn zero(view: &mut View<'_>, inode: &Inode, from: u64, to: u64) -> Step<()> {
    let index = from / LEN;
    if !inode.ranges.has(index) || from == to {
        return Ok(());
    }
    let id = view.ids.content(&inode.content, index);
    let Some(block) = view.block(&id)? else { return Ok(()) };
    let mut block = block.to_vec();
    block[place(from - index * LEN)..place(to - index * LEN)].fill(0);
    view.put(id, Some(Bytes::from(block)), Class::Content);
    Ok(())
}

/// Lets bytes of `from..to` be zeros, a step of them: where to go on, `to` at the end. The size stays.
pub(crate) fn punch(view: &mut View<'_>, inode: &mut Inode, from: u64, to: u64) -> Step<u64> {
    if inode.form == Form::Inline {
        let end = to.min(inode.body.len() as u64);
        if from < end {
            inode.body[place(from)..place(end)].fill(0);
        }
        return Ok(to);
    }
    let (first, last) = (from.div_ceil(LEN), to / LEN);
    if first > last {
        zero(view, inode, from, to)?;
        return Ok(to);
    }
    zero(view, inode, from, first * LEN)?;
    let mut gone: Vec<u64> =
        inode.ranges.within(first, last).take(place(STEP_BLOCKS) + 1).collect();
    let next = if gone.len() as u64 > STEP_BLOCKS { gone.pop() } else { None };
    for index in gone {
        view.put(view.ids.content(&inode.content, index), None, Class::Content);
    }
    // It is not longer than what is punched here: that is within one range, or there are no more than before.
    if let Some(gap) = inode.ranges.remove(first, next.unwrap_or(last)) {
        let_be_none(view, inode, gap);
    }
    if let Some(next) = next {
        return Ok(next * LEN);
    }
    zero(view, inode, last * LEN, to)?;
    Ok(to)
}

/// Where data or a hole is, from `offset` on, which is within the file.
pub(crate) fn seek(inode: &Inode, offset: u64, is_data: bool) -> Option<u64> {
    if inode.form == Form::Inline {
        return Some(if is_data { offset } else { inode.size });
    }
    let index = offset / LEN;
    if is_data {
        let found = (inode.ranges.next(index)? * LEN).max(offset);
        return (found < inode.size).then_some(found);
    }
    Some((inode.ranges.next_gap(index).saturating_mul(LEN)).max(offset).min(inode.size))
}
