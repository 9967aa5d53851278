//! What keeps a file from being deleted, where the kernel says no more than "not permitted".

use std::ffi::OsString;
use std::fs;

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxAttributes, makedev, statat};
use tacita_daemon::unescaped;

/// No swap file is shorter: ten pages, the first of which is its head.
const SWAP_LEN_MIN_BYTES: u64 = 40 << 10;

/// Why nobody can delete the file that `stat` was asked of, and the remedy; `None` if nothing of the
/// file itself is in the way.
pub(crate) fn of_file(stat: &Statx) -> Option<&'static str> {
    if stat.stx_attributes.contains(StatxAttributes::IMMUTABLE) {
        return Some("it is immutable; after `chattr -i` it can be purged");
    }
    if stat.stx_attributes.contains(StatxAttributes::APPEND) {
        return Some("it is append-only; after `chattr -a` it can be purged");
    }
    is_swap(stat).then_some("the kernel swaps to it; after `swapoff` it can be purged")
}

/// Why nobody can take a name out of the folder that `stat` was asked of.
pub(crate) fn of_folder(stat: &Statx) -> Option<&'static str> {
    let has = |mark| stat.stx_attributes.contains(mark);
    if has(StatxAttributes::IMMUTABLE) {
        return Some("its folder is immutable: `chattr -i` on the folder first");
    }
    has(StatxAttributes::APPEND)
        .then_some("its folder is append-only: `chattr -a` on the folder first")
}

/// Whether the kernel swaps to a file.
pub(crate) fn is_swap(file: &Statx) -> bool {
    let kind = FileType::from_raw_mode(file.stx_mode.into());
    if kind != FileType::RegularFile || file.stx_size < SWAP_LEN_MIN_BYTES {
        return false;
    }
    let Ok(table) = fs::read("/proc/swaps") else {
        return false;
    };
    let number = makedev(file.stx_dev_major, file.stx_dev_minor);
    paths(&table).any(|path| {
        statat(CWD, path, AtFlags::empty())
            .is_ok_and(|found| (found.st_dev, found.st_ino) == (number, file.stx_ino))
    })
}

/// The paths of the kernel's table of swap, whose first line is its head.
fn paths(table: &[u8]) -> impl Iterator<Item = OsString> {
    let rows = table.split(|byte| *byte == b'\n').skip(1);
    rows.filter_map(|row| row.split(|byte| b" \t".contains(byte)).next().map(unescaped))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn paths_of_the_swap_table_are_read_back() {
        let table = b"Filename\t\t\tType\n/a\\040b\\134c file 9 0 -2\n/d\xff\tfile 9 0 -3\n";
        let read: Vec<OsString> = paths(table).collect();
        assert_eq!(read[..2], ["/a b\\c".into(), OsString::from_vec(b"/d\xff".to_vec())]);
    }
}
