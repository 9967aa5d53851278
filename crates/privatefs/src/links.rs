//! Names in directories: in the inode while they are few, in buckets from then on.

use bytes::Bytes;
use tacita_vfs::{FileType, Kind};

use crate::cache::Class;
use crate::directory::{
    Entry, FILL, PART_LEN, PARTS, Part, bucket_of, decode_entries, encode_entries, len_of, places,
};
use crate::error::Error;
use crate::ids::{Id, PLACES, turned};
use crate::inode::{BODY_LEN, Inode};
use crate::view::{Step, View};

/// Refuses what is no directory.
pub(crate) fn directory(view: &mut View<'_>, id: &Id) -> Step<Inode> {
    let inode = view.inode(id)?;
    if inode.kind == FileType::Directory { Ok(inode) } else { Err(Kind::NotDirectory.into()) }
}

/// The entry of a name.
pub(crate) fn find(view: &mut View<'_>, dir: &Inode, name: &[u8]) -> Step<Option<Entry>> {
    let entries = with(view, dir, view.ids.name(name))?;
    Ok(entries.into_iter().find(|entry| entry.name == name))
}

/// Adds an entry whose name is free. The inode is changed, and not put yet.
pub(crate) fn insert(view: &mut View<'_>, dir: &mut Inode, entry: Entry) -> Step<()> {
    let hash = view.ids.name(&entry.name);
    let mut entries = with(view, dir, hash)?;
    for other in &entries {
        if other.name == entry.name {
            return Err(Kind::Exists.into());
        }
        if view.ids.name(&other.name) == hash {
            // One place in listings cannot be two names'. No two names are known for which it is.
            return Err(Kind::NoSpace.into());
        }
    }
    dir.size += entry.size() as u64;
    dir.entries += 1;
    entries.push(entry);
    if dir.buckets == 0 {
        if dir.size <= BODY_LEN as u64 {
            dir.body = encode_entries(&entries);
            return Ok(());
        }
        dir.body.clear();
        dir.buckets = 2;
        for bucket in 0..dir.buckets {
            let its = |entry: &&Entry| bucket_of(view.ids.name(&entry.name), 2) == bucket;
            let its = entries.iter().filter(its).cloned().collect();
            store(view, dir, bucket, its)?;
        }
        return Ok(());
    }
    store(view, dir, bucket_of(hash, dir.buckets), entries)?;
    if dir.size > dir.buckets * FILL { split(view, dir) } else { Ok(()) }
}

/// Takes an entry away. The inode is changed, and not put yet.
pub(crate) fn remove(view: &mut View<'_>, dir: &mut Inode, name: &[u8]) -> Step<()> {
    let hash = view.ids.name(name);
    let mut entries = with(view, dir, hash)?;
    let at = entries.iter().position(|entry| entry.name == name).ok_or(Kind::NotFound)?;
    entries.remove(at);
    dir.size -= len_of(name) as u64;
    dir.entries -= 1;
    if dir.buckets == 0 {
        dir.body = encode_entries(&entries);
        return Ok(());
    }
    store(view, dir, bucket_of(hash, dir.buckets), entries)
}

/// Gives the name of an entry to another inode.
pub(crate) fn replace(view: &mut View<'_>, dir: &mut Inode, entry: Entry) -> Step<()> {
    let hash = view.ids.name(&entry.name);
    let mut entries = with(view, dir, hash)?;
    let at = entries.iter().position(|other| other.name == entry.name).ok_or(Kind::NotFound)?;
    entries[at] = entry;
    if dir.buckets == 0 {
        dir.body = encode_entries(&entries);
        return Ok(());
    }
    store(view, dir, bucket_of(hash, dir.buckets), entries)
}

/// Entries at places from `from` on, in their order, with their places: those of one bucket, and where
/// to go on; `None` at the end.
pub(crate) type Listed = (Vec<(u64, Entry)>, Option<u64>);

/// Lists entries from a place on.
pub(crate) fn list(view: &mut View<'_>, dir: &Inode, from: u64) -> Step<Listed> {
    let hash = turned(from);
    let entries = with(view, dir, hash)?;
    let end = match dir.buckets {
        0 => PLACES,
        buckets => places(bucket_of(hash, buckets), buckets).1,
    };
    let mut listed: Vec<(u64, Entry)> = entries
        .into_iter()
        .map(|entry| (turned(view.ids.name(&entry.name)), entry))
        .filter(|(place, _)| *place >= from)
        .collect();
    listed.sort_unstable_by_key(|(place, _)| *place);
    Ok((listed, (end < PLACES).then_some(end)))
}

/// All entries with those of a hash.
fn with(view: &mut View<'_>, dir: &Inode, hash: u64) -> Step<Vec<Entry>> {
    if dir.buckets == 0 {
        return Ok(decode_entries(&dir.body)?);
    }
    bucket(view, dir, bucket_of(hash, dir.buckets))
}

/// All entries of a bucket.
fn bucket(view: &mut View<'_>, dir: &Inode, bucket: u64) -> Step<Vec<Entry>> {
    let mut entries = Vec::new();
    for part in 0..PARTS {
        let Some(found) = part_of(view, dir, bucket, part)? else { return Ok(entries) };
        entries.extend(found.entries);
        if !found.has_more {
            return Ok(entries);
        }
    }
    Err(Error::damaged("a bucket of a directory has no end").into())
}

fn part_of(view: &mut View<'_>, dir: &Inode, bucket: u64, part: u32) -> Step<Option<Part>> {
    let id = view.ids.bucket(&dir.content, bucket, part);
    let Some(block) = view.block(&id)? else { return Ok(None) };
    let found = Part::decode(&block)?;
    if (found.content, found.bucket, found.part) != (dir.content, bucket, part) {
        return Err(Error::damaged("a bucket of a directory: it is another one").into());
    }
    Ok(Some(found))
}

/// Makes these the entries of a bucket.
fn store(view: &mut View<'_>, dir: &Inode, bucket: u64, entries: Vec<Entry>) -> Step<()> {
    let mut parts: Vec<Vec<Entry>> = Vec::new();
    let mut len = PART_LEN;
    for entry in entries {
        if len + entry.size() > PART_LEN {
            parts.push(Vec::new());
            len = 0;
        }
        len += entry.size();
        parts.last_mut().expect("one was just added").push(entry);
    }
    let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    if count > PARTS {
        return Err(Kind::NoSpace.into());
    }
    // What is there beyond goes.
    let mut beyond = 0;
    while let Some(found) = part_of(view, dir, bucket, beyond)? {
        if beyond >= count {
            view.put(view.ids.bucket(&dir.content, bucket, beyond), None, Class::Meta);
        }
        beyond += 1;
        if !found.has_more {
            break;
        }
    }
    for (part, entries) in (0..).zip(parts) {
        let has_more = part + 1 < count;
        let content = dir.content;
        let encoded = Part { content, bucket, part, has_more, entries }.encode();
        view.put(view.ids.bucket(&content, bucket, part), Some(Bytes::from(encoded)), Class::Meta);
    }
    Ok(())
}

/// Adds a bucket, and moves what belongs there from the one whose turn it is.
fn split(view: &mut View<'_>, dir: &mut Inode) -> Step<()> {
    let new = dir.buckets;
    let old = new - (1 << new.ilog2());
    let entries = bucket(view, dir, old)?;
    dir.buckets += 1;
    let (moving, staying) = entries
        .into_iter()
        .partition(|entry| bucket_of(view.ids.name(&entry.name), dir.buckets) == new);
    store(view, dir, old, staying)?;
    store(view, dir, new, moving)
}
