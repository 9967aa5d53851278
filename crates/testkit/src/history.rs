//! Histories: random operations on any file system behind the seam, what they leave visible, and
//! other ways to the same end.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::by_name;
use tacita_vfs::{
    Change, Exchange, FileSystem, FileType, Kind, NewNode, NodeId, Reserve, Stamps, Timestamp,
    XattrMode,
};

/// A small, seeded generator: the seed is the bug report.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The generator of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number below `count`.
    pub fn below(&mut self, count: u64) -> u64 {
        self.next() % count.max(1)
    }

    /// One of `items`.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = usize::try_from(self.below(items.len() as u64)).ok()?;
        items.get(index)
    }

    /// `len` bytes without zeros.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() >> 32).to_le_bytes()[0] | 1).collect()
    }

    /// The items in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = usize::try_from(self.below(i as u64 + 1)).expect("an index");
            items.swap(i, j);
        }
    }
}

/// What programs see of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What it is.
    pub kind: FileType,
    /// Permission bits.
    pub perm: u16,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Device number.
    pub rdev: u32,
    /// Content of a file, target of a link.
    pub content: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
    /// The least path of the same node: hard links share it.
    pub same_as: Vec<u8>,
}

/// What programs see of a whole tree, by path; the root is the empty path.
pub type Tree = BTreeMap<Vec<u8>, Seen>;

/// One name met on a walk.
#[derive(Debug, Clone)]
pub struct Place {
    /// Full path.
    pub path: Vec<u8>,
    /// Directory that holds the name.
    pub dir: NodeId,
    /// The name.
    pub name: OsString,
    /// What it names.
    pub node: NodeId,
    /// What that is.
    pub kind: FileType,
}

/// All names of a tree by path, so parents come before children.
///
/// # Panics
/// If the file system fails.
pub fn walk(fs: &dyn FileSystem) -> Vec<Place> {
    let mut places = Vec::new();
    let mut dirs = vec![(fs.root(), Vec::new())];
    while let Some((dir, path)) = dirs.pop() {
        let known = places.len();
        let mut each = |entry: tacita_vfs::Entry<'_>| {
            let mut path = path.clone();
            path.push(b'/');
            path.extend(entry.name.as_bytes());
            let name = entry.name.to_owned();
            places.push(Place { path, dir, name, node: entry.node, kind: entry.kind });
            true
        };
        fs.list(dir, 0, &mut each).expect("a directory lists");
        for place in &mut places[known..] {
            // A system need not hold in memory what it lists by name only.
            place.node = fs.lookup(dir, &place.name).expect("a listed name").0;
        }
        let found: Vec<_> = places
            .iter()
            .filter(|place| place.dir == dir && place.kind == FileType::Directory)
            .map(|place| (place.node, place.path.clone()))
            .collect();
        dirs.extend(found);
    }
    places.sort_by(|a, b| a.path.cmp(&b.path));
    places
}

/// The whole of a file.
///
/// # Panics
/// If the file system fails.
pub fn read_all(fs: &dyn FileSystem, node: NodeId) -> Vec<u8> {
    let size = usize::try_from(fs.attr(node).expect("a node").size).expect("fits in memory");
    let mut content = vec![0; size];
    let read = fs.read(node, 0, &mut content).expect("content reads");
    assert_eq!(read, size, "a short read");
    content
}

/// What programs see.
///
/// # Panics
/// If the file system fails.
pub fn tree(fs: &dyn FileSystem) -> Tree {
    let places = walk(fs);
    let mut least: BTreeMap<NodeId, Vec<u8>> = BTreeMap::new();
    for place in &places {
        let path = least.entry(place.node).or_insert_with(|| place.path.clone());
        if place.path < *path {
            path.clone_from(&place.path);
        }
    }
    let root = (Vec::new(), fs.root(), Vec::new());
    let nodes = places.into_iter().map(|p| (p.path, p.node, least[&p.node].clone()));
    let see = |(path, node, same_as): (Vec<u8>, NodeId, Vec<u8>)| {
        let attr = fs.attr(node).expect("a node");
        let content = match attr.kind {
            FileType::File => read_all(fs, node),
            FileType::Symlink => fs.read_link(node).expect("a link").as_bytes().to_vec(),
            _ => Vec::new(),
        };
        let names = fs.xattrs(node).expect("attributes list");
        let xattrs = names
            .into_iter()
            .map(|name| (name.clone(), fs.xattr(node, &name).expect("an attribute")))
            .collect();
        let owner = (attr.uid, attr.gid);
        let (kind, perm, rdev) = (attr.kind, attr.perm, attr.rdev);
        (path, Seen { kind, perm, owner, rdev, content, xattrs, same_as })
    };
    std::iter::once(root).chain(nodes).map(see).collect()
}

/// The time of the `n`-th step: each differs, so that a stored one would show.
fn time(rng: &mut Rng) -> Timestamp {
    let secs = i64::try_from(rng.below(1 << 31)).expect("31 bits");
    Timestamp { secs, nanos: u32::try_from(rng.below(1_000_000_000)).expect("30 bits") }
}

fn new_node(kind: FileType, perm: u16, owner: (u32, u32), rdev: u32, now: Timestamp) -> NewNode {
    NewNode { kind, perm, uid: owner.0, gid: owner.1, rdev, target: OsString::new(), now }
}

/// Shape of random histories.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Names to choose from in each directory.
    pub names: u64,
    /// Largest offset at which files are written, in bytes.
    pub size_max: u64,
    /// Largest single write, in bytes.
    pub write_max: u64,
}

/// One random operation; one that the file system refuses for lack of room, or cannot do, changes
/// nothing. The root keeps its attributes.
///
/// # Panics
/// If the file system fails in any other way.
pub fn step(fs: &dyn FileSystem, rng: &mut Rng, limits: &Limits) {
    let places = walk(fs);
    let of = |kind| -> Vec<&Place> { places.iter().filter(|place| place.kind == kind).collect() };
    let files = of(FileType::File);
    let now = time(rng);
    match rng.below(100) {
        0..30 => create(fs, rng, limits, &places, now),
        30..67 => {
            if let Some(file) = rng.pick(&files) {
                change_content(fs, rng, limits, file.node);
            }
        }
        67..82 => remove(fs, rng, &places, now),
        82..90 => rename(fs, rng, limits, &places, now),
        90..94 => {
            let (Some(file), Some(dir)) = (rng.pick(&files), any_dir(fs, rng, &places)) else {
                return;
            };
            let name = name(rng, limits);
            if fs.lookup(dir, &name).is_err() {
                allow(fs.link(file.node, dir, &name, now).map(|_| ()));
            }
        }
        _ => {
            if let Some(place) = rng.pick(&places) {
                change_attributes(fs, rng, place.node, now);
            }
        }
    }
}

/// Passes over what a file system may refuse.
fn allow(result: tacita_vfs::Result<()>) {
    match result {
        Err(error)
            if matches!(error.kind(), Kind::NoSpace | Kind::CrossDevice | Kind::NoAttribute) => {}
        other => other.expect("the file system does as it is told"),
    }
}

fn change_content(fs: &dyn FileSystem, rng: &mut Rng, limits: &Limits, file: NodeId) {
    let offset = rng.below(limits.size_max);
    let len = rng.below(limits.write_max) + 1;
    match rng.below(9) {
        0..6 => {
            let len = usize::try_from(len).expect("fits");
            let data = match rng.below(8) {
                0 => vec![0; len],
                // Content that other files have too, also block by block.
                1 | 2 => Rng::new(0).bytes(4096).into_iter().cycle().take(len).collect(),
                _ => rng.bytes(len),
            };
            allow(fs.write(file, offset, &data, Stamps::NONE));
        }
        6..8 => {
            let size = Some(offset);
            allow(fs.change(file, &Change { size, ..Change::default() }).map(|_| ()));
        }
        _ => {
            let how =
                if rng.below(2) == 0 { Reserve::Punch } else { Reserve::Zero { keep_size: false } };
            allow(fs.reserve(file, offset..offset + len, how));
        }
    }
}

fn change_attributes(fs: &dyn FileSystem, rng: &mut Rng, node: NodeId, now: Timestamp) {
    if rng.below(2) == 0 {
        let perm = u16::try_from(rng.below(0o1000)).ok();
        let uid = u32::try_from(rng.below(5)).ok();
        let mtime = Some(now);
        let change = Change { perm, uid, mtime, ctime: mtime, ..Change::default() };
        allow(fs.change(node, &change).map(|_| ()));
        return;
    }
    let name = OsString::from(format!("user.{}", rng.below(3)));
    let len = usize::try_from(rng.below(300)).expect("fits");
    let value = rng.bytes(len);
    let done = if rng.below(3) == 0 {
        fs.remove_xattr(node, &name)
    } else {
        fs.set_xattr(node, &name, &value, XattrMode::Any)
    };
    // On top of another file system only files and folders may have attributes of users.
    if !done.as_ref().is_err_and(|error| error.kind() == Kind::NotPermitted) {
        allow(done);
    }
}

fn any_dir(fs: &dyn FileSystem, rng: &mut Rng, places: &[Place]) -> Option<NodeId> {
    let mut dirs: Vec<NodeId> =
        places.iter().filter(|p| p.kind == FileType::Directory).map(|p| p.node).collect();
    dirs.push(fs.root());
    rng.pick(&dirs).copied()
}

fn name(rng: &mut Rng, limits: &Limits) -> OsString {
    let number = rng.below(limits.names);
    // Long names fill pages soon.
    let pad = usize::try_from(number % 7 * 30).expect("fits");
    OsString::from(format!("{number}-{}", "n".repeat(pad)))
}

fn create(fs: &dyn FileSystem, rng: &mut Rng, limits: &Limits, places: &[Place], now: Timestamp) {
    let Some(dir) = any_dir(fs, rng, places) else {
        return;
    };
    let name = name(rng, limits);
    if fs.lookup(dir, &name).is_ok() {
        return;
    }
    let kind = match rng.below(10) {
        0..6 => FileType::File,
        6..8 => FileType::Directory,
        8 => FileType::Symlink,
        _ => FileType::Fifo,
    };
    let mut new = new_node(kind, 0o640, (1000, 100), 0, now);
    if kind == FileType::Symlink {
        let len = usize::try_from(rng.below(400) + 1).expect("fits");
        new.target = OsString::from("t".repeat(len));
    }
    match fs.create(dir, &name, &new) {
        Err(error) if error.kind() == Kind::NoSpace => {}
        other => drop(other.expect("a node is made")),
    }
}

fn is_empty(fs: &dyn FileSystem, dir: NodeId) -> bool {
    let mut empty = true;
    fs.list(dir, 0, &mut |_| {
        empty = false;
        false
    })
    .expect("a directory lists");
    empty
}

fn removable(fs: &dyn FileSystem, place: &Place) -> bool {
    place.kind != FileType::Directory || is_empty(fs, place.node)
}

fn remove(fs: &dyn FileSystem, rng: &mut Rng, places: &[Place], now: Timestamp) {
    let Some(place) = rng.pick(places) else {
        return;
    };
    if removable(fs, place) {
        remove_place(fs, place, now);
    }
}

fn remove_place(fs: &dyn FileSystem, place: &Place, now: Timestamp) {
    let node = by_name::remove(fs, place.dir, &place.name, now).expect("the name is there");
    fs.forget(node);
}

fn rename(fs: &dyn FileSystem, rng: &mut Rng, limits: &Limits, places: &[Place], now: Timestamp) {
    let (Some(from), Some(to_dir)) = (rng.pick(places), any_dir(fs, rng, places)) else {
        return;
    };
    let to_name = name(rng, limits);
    // Not into itself, and nothing that may not be replaced.
    let to_path = places.iter().find(|p| p.node == to_dir && p.kind == FileType::Directory);
    let inside =
        |path: &[u8]| path == from.path || path.starts_with(&[&from.path[..], b"/"].concat());
    if from.kind == FileType::Directory && to_path.is_some_and(|to| inside(&to.path)) {
        return;
    }
    let target = places.iter().find(|p| p.dir == to_dir && p.name == to_name);
    let exchange = match target {
        Some(to) if to.node == from.node => return,
        Some(to) if inside(&to.path) || from.path.starts_with(&[&to.path[..], b"/"].concat()) => {
            return;
        }
        Some(to) if rng.below(2) == 0 || !removable(fs, to) => {
            if from.kind != FileType::Directory && to.kind != FileType::Directory
                || to.kind == from.kind
            {
                Exchange::Yes
            } else {
                return;
            }
        }
        Some(to) if (to.kind == FileType::Directory) != (from.kind == FileType::Directory) => {
            return;
        }
        _ => Exchange::No,
    };
    match by_name::rename(fs, (from.dir, &from.name), (to_dir, &to_name), exchange, now) {
        Ok(Some(replaced)) if exchange == Exchange::No => fs.forget(replaced),
        Ok(_) => {}
        Err(error) => assert!(
            matches!(error.kind(), Kind::CrossDevice | Kind::NoSpace),
            "rename failed: {error:?}"
        ),
    }
}

/// Whether [`build`] commits on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commits {
    /// Now and then.
    Often,
    /// Not at all.
    Never,
}

/// Builds `tree` in a random order with detours: files that come and go, content that is written
/// over, names that move, and commits in between.
///
/// # Panics
/// If the file system fails or has no room.
pub fn build(fs: &dyn FileSystem, tree: &Tree, rng: &mut Rng, commits: Commits) {
    let commit = |rng: &mut Rng, one_in: u64| {
        if rng.below(one_in) == 0 && commits == Commits::Often {
            fs.sync().expect("a commit");
        }
    };
    let mut nodes: BTreeMap<Vec<u8>, NodeId> = BTreeMap::from([(Vec::new(), fs.root())]);
    let mut open: Vec<&Vec<u8>> = tree.keys().filter(|path| !path.is_empty()).collect();
    rng.shuffle(&mut open);
    while !open.is_empty() {
        // Any path whose directory is there.
        let ready = open.iter().position(|path| nodes.contains_key(parent(path)));
        let path = open.swap_remove(ready.expect("every path has a parent"));
        make(fs, tree, path, &mut nodes, rng, &commit);
        if rng.below(6) == 0 {
            detour(fs, nodes[parent(path)], rng, &commit);
        }
        commit(rng, 10);
    }
    let seen = &tree[&Vec::new()];
    finish(fs, fs.root(), seen, rng);
    for (path, seen) in tree.iter().filter(|(path, _)| !path.is_empty()) {
        finish(fs, nodes[path], seen, rng);
    }
}

fn parent(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|&b| b == b'/').expect("an absolute path")]
}

fn last(path: &[u8]) -> &OsStr {
    OsStr::from_bytes(&path[parent(path).len() + 1..])
}

fn make(
    fs: &dyn FileSystem,
    tree: &Tree,
    path: &[u8],
    nodes: &mut BTreeMap<Vec<u8>, NodeId>,
    rng: &mut Rng,
    commit: &dyn Fn(&mut Rng, u64),
) {
    let (seen, dir, now) = (&tree[path], nodes[parent(path)], time(rng));
    let twin = tree.iter().find_map(|(other, s)| {
        (s.same_as == seen.same_as).then(|| nodes.get(other)).flatten().copied()
    });
    if let Some(twin) = twin {
        fs.link(twin, dir, last(path), now).expect("a link");
        nodes.insert(path.to_vec(), twin);
        return;
    }
    let mut new = new_node(seen.kind, seen.perm, seen.owner, seen.rdev, now);
    if seen.kind == FileType::Symlink {
        OsStr::from_bytes(&seen.content).clone_into(&mut new.target);
    }
    let aside = rng.below(4) == 0;
    let name = if aside { OsStr::new("aside") } else { last(path) };
    let (node, _) = fs.create(dir, name, &new).expect("a node is made");
    if seen.kind == FileType::File {
        if rng.below(4) == 0 {
            let len = usize::try_from(rng.below(60_000) + 1).expect("fits");
            fs.write(node, rng.below(100_000), &rng.bytes(len), Stamps::NONE).expect("a write");
            commit(rng, 2);
        }
        write_in_pieces(fs, node, &seen.content, rng);
    }
    if aside {
        by_name::rename(fs, (dir, name), (dir, last(path)), Exchange::No, now).expect("a rename");
    }
    nodes.insert(path.to_vec(), node);
}

fn write_in_pieces(fs: &dyn FileSystem, node: NodeId, content: &[u8], rng: &mut Rng) {
    let piece = usize::try_from(rng.below(40_000) + 1).expect("fits");
    let mut pieces: Vec<usize> = (0..content.len().div_ceil(piece)).collect();
    rng.shuffle(&mut pieces);
    for i in pieces {
        let at = i * piece;
        let end = (at + piece).min(content.len());
        fs.write(node, at as u64, &content[at..end], Stamps::NONE).expect("a write");
    }
    let size = Some(content.len() as u64);
    fs.change(node, &Change { size, ..Change::default() }).expect("a size");
}

/// Something that leaves no trace in what programs see.
fn detour(fs: &dyn FileSystem, dir: NodeId, rng: &mut Rng, commit: &dyn Fn(&mut Rng, u64)) {
    let now = time(rng);
    let new = new_node(FileType::File, 0o600, (7, 7), 0, now);
    let name = OsString::from(format!("detour-{}", rng.below(1000)));
    let (node, _) = fs.create(dir, &name, &new).expect("a detour");
    let len = usize::try_from(rng.below(50_000) + 1).expect("fits");
    fs.write(node, rng.below(50_000), &rng.bytes(len), Stamps::NONE).expect("a detour");
    fs.set_xattr(node, OsStr::new("user.detour"), b"x", XattrMode::Any).expect("a detour");
    commit(rng, 2);
    let gone = by_name::remove(fs, dir, &name, now).expect("a detour");
    fs.forget(gone);
}

fn finish(fs: &dyn FileSystem, node: NodeId, seen: &Seen, rng: &mut Rng) {
    for name in fs.xattrs(node).expect("attributes list") {
        fs.remove_xattr(node, &name).expect("an attribute");
    }
    for (name, value) in &seen.xattrs {
        fs.set_xattr(node, name, value, XattrMode::Any).expect("an attribute");
    }
    let change = Change {
        perm: Some(seen.perm),
        uid: Some(seen.owner.0),
        gid: Some(seen.owner.1),
        ctime: Some(time(rng)),
        ..Change::default()
    };
    fs.change(node, &change).expect("attributes");
}

/// Erases everything, children first.
///
/// # Panics
/// If the file system fails.
pub fn clear(fs: &dyn FileSystem, rng: &mut Rng) {
    for place in walk(fs).iter().rev() {
        remove_place(fs, place, time(rng));
    }
}
