//! What keeps a file from being deleted, where the kernel says no more than "not permitted".

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxAttributes, makedev, statat};

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
    let Ok(table) = fs::read_to_string("/proc/swaps") else {
        return false;
    };
    let number = makedev(file.stx_dev_major, file.stx_dev_minor);
    table.lines().skip(1).filter_map(|row| row.split_whitespace().next()).any(|path| {
        statat(CWD, unescape(path), AtFlags::empty())
            .is_ok_and(|found| (found.st_dev, found.st_ino) == (number, file.stx_ino))
    })
}

/// A path as the kernel's tables write it: blanks and the like as three octal digits.
fn unescape(text: &str) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let number = (*first == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = number {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_swap_table_are_read_back() {
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
        assert_eq!(unescape("/plain\\"), "/plain\\");
        assert_eq!(unescape("\\9x"), "\\9x");
    }
}
