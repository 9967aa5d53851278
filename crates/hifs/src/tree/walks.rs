//! Which files will probably be read next: whoever reads the files of a folder, one after the other, does
//! so in the order of their names or as they are listed.

use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use tacita_vfs::NodeId;

use super::{Directory, Name};

/// Folders that are followed at once.
const WALKS: usize = 8;
/// Folders of more entries are only followed as they are listed, for names have to be sorted.
const SORTED_MAX: usize = 1024;
/// Files that are read ahead at most.
const FILES_MAX: usize = 32;
/// Bytes that are read ahead at most, but for the first file, and of each file.
pub(crate) const AHEAD_LEN: u64 = 1 << 20;

/// An entry's place in its folder.
pub(crate) type Key = (u64, Name);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// By hash, as the folder's entries lie.
    Listed,
    Named,
}

#[derive(Debug)]
struct Walk {
    dir: NodeId,
    /// The file that was begun last.
    last: Key,
    order: Order,
    /// How many files are read ahead: more with each that comes where it was expected.
    reach: usize,
    /// How many behind the last have been told.
    told: usize,
    /// The entries by name, as they were when that was asked for; most folders need none of it.
    sorted: Vec<Key>,
}

/// The folders whose files were read last.
#[derive(Debug, Default)]
pub(crate) struct Walks(Mutex<Vec<Walk>>);

impl Walks {
    /// Takes note that a file begins to be read, and tells which others to read ahead: none if it is not
    /// what comes behind the one before, and none twice. `len` is the length of a file.
    pub(super) fn begin(
        &self,
        dir: NodeId,
        entries: &Directory,
        key: Key,
        len: impl Fn(NodeId) -> u64,
    ) -> Vec<NodeId> {
        let mut walks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = walks.iter().position(|walk| walk.dir == dir);
        let mut walk = match known.map(|at| walks.remove(at)) {
            Some(mut walk) => {
                walk.go_on(entries, key);
                walk
            }
            None => Walk::behind(walks.first_mut(), dir, entries, key),
        };
        let files = walk.ahead(entries, len);
        walks.truncate(WALKS - 1);
        walks.insert(0, walk);
        files
    }
}

impl Walk {
    /// The first file of a folder. If the walk before has come to its end, this one goes on as that did.
    fn behind(before: Option<&mut Self>, dir: NodeId, entries: &Directory, key: Key) -> Self {
        let order = before.as_ref().map_or(Order::Listed, |before| before.order);
        let mut walk = Self { dir, last: key, order, reach: 0, told: 0, sorted: Vec::new() };
        if let Some(before) = before.filter(|before| before.reach > 0 && before.told == 0)
            && walk.is_first(entries)
        {
            walk.reach = before.reach;
        }
        walk
    }

    /// Another file of the folder.
    fn go_on(&mut self, entries: &Directory, key: Key) {
        if self.last == key {
            return;
        }
        let other = match self.order {
            Order::Listed => Order::Named,
            Order::Named => Order::Listed,
        };
        if self.next(self.order, entries).as_ref() == Some(&key) {
            self.reach = (self.reach * 2).clamp(1, FILES_MAX);
            self.told = self.told.saturating_sub(1);
        } else {
            let turns = self.next(other, entries).as_ref() == Some(&key);
            self.order = if turns { other } else { self.order };
            (self.reach, self.told) = (usize::from(turns), 0);
        }
        self.last = key;
    }

    /// The files to read ahead that have not been told yet.
    fn ahead(&mut self, entries: &Directory, len: impl Fn(NodeId) -> u64) -> Vec<NodeId> {
        // Half of them at a time, so that few are counted.
        if self.told * 2 > self.reach {
            return Vec::new();
        }
        let (mut files, mut bytes, mut key) = (Vec::new(), 0, self.last.clone());
        for n in 0..self.reach {
            let Some(next) = self.behind_key(self.order, entries, &key) else { break };
            key = next;
            let node = entries.entries.get(&key).copied();
            bytes += node.map_or(0, |node| len(node).min(AHEAD_LEN));
            if n > 0 && bytes > AHEAD_LEN {
                break;
            }
            if n >= self.told {
                self.told = n + 1;
                files.extend(node);
            }
        }
        files
    }

    fn next(&mut self, order: Order, entries: &Directory) -> Option<Key> {
        let last = self.last.clone();
        self.behind_key(order, entries, &last)
    }

    fn behind_key(&mut self, order: Order, entries: &Directory, key: &Key) -> Option<Key> {
        match order {
            Order::Listed => {
                let behind = (Bound::Excluded(key), Bound::Unbounded);
                Some(entries.entries.range(behind).next()?.0.clone())
            }
            Order::Named => {
                let sorted = self.sorted(entries);
                let at = sorted.partition_point(|(_, name)| *name <= key.1);
                sorted.get(at).cloned()
            }
        }
    }

    fn is_first(&mut self, entries: &Directory) -> bool {
        let last = self.last.clone();
        match self.order {
            Order::Listed => entries.entries.keys().next() == Some(&last),
            Order::Named => self.sorted(entries).first() == Some(&last),
        }
    }

    /// The entries by name, sorted anew when the last file is none of them. That others have come or gone
    /// meanwhile makes for a wrong guess, no more.
    fn sorted(&mut self, entries: &Directory) -> &[Key] {
        let knows =
            |sorted: &[Key]| sorted.binary_search_by(|(_, name)| name.cmp(&self.last.1)).is_ok();
        if entries.entries.len() <= SORTED_MAX && !knows(&self.sorted) {
            self.sorted = entries.entries.keys().cloned().collect();
            self.sorted.sort_unstable_by(|(_, a), (_, b)| a.cmp(b));
        }
        &self.sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    /// A folder of so many files, whose names are in another order than their hashes; each file's node has
    /// the number of its name.
    fn folder(files: u64) -> Directory {
        let mut directory = Directory::default();
        for n in 0..files {
            directory.entries.insert(key(n), NodeId(n));
        }
        directory
    }

    fn key(n: u64) -> Key {
        (n.wrapping_mul(0x9E37_79B9_7F4A_7C15), format!("{n:08}").into_bytes().into())
    }

    /// What is told when these files of one folder are read.
    fn told(files: u64, read: impl IntoIterator<Item = u64>, len: u64) -> Vec<Vec<u64>> {
        let (walks, folder) = (Walks::default(), folder(files));
        let begin = |n| walks.begin(NodeId(1 << 20), &folder, key(n), |_| len);
        read.into_iter().map(|n| begin(n).into_iter().map(|node| node.0).collect()).collect()
    }

    #[test]
    fn names_in_a_row_are_told_once_each() {
        let told = told(100, 0..100, 4 * KIB);
        assert_eq!(told[..4], [vec![], vec![2], vec![3, 4], vec![5, 6, 7]]);
        let all: Vec<u64> = told.into_iter().flatten().collect();
        assert_eq!(all, (2..100).collect::<Vec<_>>());
    }

    #[test]
    fn listings_are_followed_in_folders_of_any_size() {
        let files = 2 * SORTED_MAX as u64;
        let listed: Vec<u64> = folder(files).entries.values().map(|node| node.0).collect();
        let all: Vec<u64> =
            told(files, listed.iter().copied(), KIB).into_iter().flatten().collect();
        assert_eq!(all, listed[2..]);
    }

    #[test]
    fn files_in_no_order_are_not_followed() {
        let told = told(1000, (0..1000).map(|n| n * 389 % 1000), KIB);
        assert!(told.iter().all(Vec::is_empty));
    }

    #[test]
    fn long_files_are_told_by_their_length() {
        let told = told(100, 0..10, 512 * KIB);
        assert!(told[4..].iter().all(|files| files.len() == 1), "{told:?}");
        let far = super::tests::told(100, 0..10, 1 << 40);
        assert_eq!(far[5], [6]);
    }

    /// The same file again is no other, and one that is left out begins anew.
    #[test]
    fn what_comes_unexpectedly_is_no_longer_followed() {
        let told = told(100, [5, 5, 6, 6, 7, 9, 10, 10], 4 * KIB);
        let expected = [vec![], vec![], vec![7], vec![], vec![8, 9], vec![], vec![11], vec![]];
        assert_eq!(told, expected);
    }

    /// Files that came after their folder was first read are followed, too.
    #[test]
    fn new_files_are_followed() {
        let (walks, few, many) = (Walks::default(), folder(3), folder(100));
        let begin = |entries, n| walks.begin(NodeId(1 << 20), entries, key(n), |_| KIB);
        (0..3).for_each(|n| drop(begin(&few, n)));
        let told: usize = (50..100).map(|n| begin(&many, n).len()).sum();
        assert_eq!(told, 48);
    }

    #[test]
    fn the_next_folder_is_followed_from_its_first_file() {
        let (walks, folder) = (Walks::default(), folder(16));
        let begin = |dir, n| walks.begin(NodeId(dir), &folder, key(n), |_| KIB);
        for n in 0..16 {
            begin(1 << 20, n);
        }
        assert_eq!(begin(1 << 21, 0).len(), 15);
        assert!(begin(1 << 22, 3).is_empty(), "not the first of its folder");
    }
}
