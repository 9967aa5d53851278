//! Tags: what tells a file under purge from one that is alive.
//!
//! Each sector that is overwritten under an intent begins with a tag, which nobody can make without
//! the intent's key. So of a file that a loss of power has brought back under its name either no
//! sector carries a tag, then all of it is as it was, or one does, then it is to be purged. When the
//! key is gone tags are noise.

use tacita_secret::Prf;

/// What a device writes whole or not at all.
pub const SECTOR_LEN: usize = 512;

/// Length of a tag.
pub const TAG_LEN: usize = 16;

/// A file is tagged only where all that is stored of it lies before this place: so recovery need
/// not read on.
pub const TAGGED_LEN_MAX: u64 = 1 << 20;

/// The stream of tags of a file.
const STREAM: u8 = 0;

/// The tags of one file.
#[derive(Debug, Clone)]
pub struct Tags {
    prf: Prf,
}

impl Tags {
    /// Those of the file that `handle` stands for, under an intent's key.
    pub fn new(key: &[u8; 32], handle: &[u8]) -> Self {
        Self { prf: Prf::new(Prf::new(*key).value(STREAM, &[handle])) }
    }

    /// All tags of `count` sectors from place `at` of the file on.
    fn all(&self, at: u64, count: usize) -> Vec<u8> {
        let mut tags = vec![0; count * TAG_LEN];
        self.prf.stream(STREAM, at / SECTOR_LEN as u64 * TAG_LEN as u64, &mut tags);
        tags
    }

    /// Puts them into what is to be written at place `at`, the beginning of a sector.
    pub fn put(&self, at: u64, bytes: &mut [u8]) {
        let tags = self.all(at, bytes.len().div_ceil(SECTOR_LEN));
        for (sector, tag) in bytes.chunks_mut(SECTOR_LEN).zip(tags.chunks(TAG_LEN)) {
            let len = sector.len().min(TAG_LEN);
            sector[..len].copy_from_slice(&tag[..len]);
        }
    }

    /// Whether any of the sectors that lie at place `at` carries its tag.
    pub fn is_any_in(&self, at: u64, bytes: &[u8]) -> bool {
        let tags = self.all(at, bytes.len() / SECTOR_LEN);
        let mut sectors = bytes.chunks_exact(SECTOR_LEN).zip(tags.chunks(TAG_LEN));
        sectors.any(|(sector, tag)| sector.starts_with(tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_single_sector_is_recognized_where_it_belongs() {
        let tags = Tags::new(&[1; 32], b"a file");
        let mut written = vec![0x55; 8 * SECTOR_LEN];
        tags.put(4096, &mut written);
        for sector in 0..8 {
            let mut found = vec![0; 8 * SECTOR_LEN];
            let place = sector * SECTOR_LEN..(sector + 1) * SECTOR_LEN;
            found[place.clone()].copy_from_slice(&written[place]);
            assert!(tags.is_any_in(4096, &found), "sector {sector}");
            assert!(!tags.is_any_in(0, &found), "elsewhere in the file");
            assert!(!Tags::new(&[1; 32], b"other").is_any_in(4096, &found), "in another file");
            assert!(!Tags::new(&[2; 32], b"a file").is_any_in(4096, &found), "of another epoch");
        }
        assert!(!tags.is_any_in(4096, &vec![0x55; 8 * SECTOR_LEN]));
    }

    #[test]
    fn a_part_is_tagged_as_the_whole() {
        let tags = Tags::new(&[1; 32], b"a file");
        let mut whole = vec![0; 3 * SECTOR_LEN + 40];
        tags.put(0, &mut whole);
        let mut part = vec![0; SECTOR_LEN + 40];
        tags.put(2 * SECTOR_LEN as u64, &mut part);
        assert_eq!(part, whole[2 * SECTOR_LEN..]);
    }
}
