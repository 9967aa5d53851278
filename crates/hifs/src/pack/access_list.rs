//! What is left of an access control list of POSIX where none is kept.

use std::path::Path;

use rustix::io::Errno;
use tacita_vfs::ACCESS_LIST;

/// Numbers of `struct posix_acl_xattr_entry`.
const GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
/// A version, and then entries of a tag, bits and a number of somebody.
const HEAD_LEN: usize = 4;
const ENTRY_LEN: usize = 8;

/// The mode that a file with a list is to have without it. With one the bits of the group are the most that anybody
/// may do whom the list names, and its group may do less.
pub(super) fn mode_without(place: &Path, mode: u32) -> rustix::io::Result<u32> {
    let mut list = vec![0; 64 << 10];
    match rustix::fs::lgetxattr(place, ACCESS_LIST, &mut list[..]) {
        Ok(len) => Ok(mode & (!0o070 | group_of(&list[..len]) << 3)),
        // It has gone meanwhile.
        Err(Errno::NODATA | Errno::NOENT | Errno::NOTDIR) => Ok(mode),
        Err(e) => Err(e),
    }
}

/// What the group itself may do by a list; nothing, if it does not say.
fn group_of(list: &[u8]) -> u32 {
    let entries = list.get(HEAD_LEN..).unwrap_or_default().chunks_exact(ENTRY_LEN);
    let number = |entry: &[u8], at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
    let bits = |tag| {
        entries.clone().find(|entry| number(entry, 0) == tag).map(|entry| number(entry, 2) & 7)
    };
    (bits(GROUP).unwrap_or(0) & bits(MASK).unwrap_or(7)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_may_do_what_its_entry_and_the_mask_say() {
        let list = |entries: &[(u16, u16)]| {
            let entry = |(tag, bits): &(u16, u16)| {
                [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &[0xff; 4]].concat()
            };
            [vec![2, 0, 0, 0], entries.iter().flat_map(entry).collect()].concat()
        };
        assert_eq!(group_of(&list(&[(1, 6), (2, 7), (4, 4), (0x10, 7), (0x20, 0)])), 4);
        assert_eq!(group_of(&list(&[(1, 6), (4, 6), (0x10, 5), (0x20, 0)])), 4);
        assert_eq!(group_of(&list(&[(1, 6), (4, 6), (0x20, 0)])), 6);
        for len in 0..HEAD_LEN + ENTRY_LEN {
            assert_eq!(group_of(&list(&[(4, 6)])[..len]), 0, "{len}");
        }
    }
}
