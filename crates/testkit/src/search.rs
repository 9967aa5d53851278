//! Looking for bytes in what a disk holds, as an adversary does. Images are large and tests are
//! hardly optimised: so what looks through them is, and what is all zeroes is passed over.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use memchr::memmem;

const PAGE_LEN: usize = 4096;

/// Where bytes stand in others; places that overlap one before are left out.
pub fn places(bytes: &[u8], wanted: impl AsRef<[u8]>) -> Vec<usize> {
    memmem::find_iter(bytes, wanted.as_ref()).collect()
}

/// Whether bytes stand anywhere in others.
pub fn holds(bytes: &[u8], wanted: impl AsRef<[u8]>) -> bool {
    memmem::find(bytes, wanted.as_ref()).is_some()
}

/// What an image holds from a place on.
#[derive(Debug, PartialEq, Eq)]
pub struct Stretch {
    /// In bytes.
    pub at: usize,
    /// All zeroes at most for a page at each end.
    pub bytes: Vec<u8>,
}

/// All of an image but its empty pages; one before and one behind each stretch belong to it, so that
/// nothing shorter than a page that is not all zeroes is cut.
///
/// # Errors
///
/// If it cannot be read.
pub fn stretches(image: &Path) -> io::Result<Vec<Stretch>> {
    let mut image = BufReader::with_capacity(1 << 20, File::open(image)?);
    let mut stretches: Vec<Stretch> = Vec::new();
    let (mut at, mut was_empty) = (0, true);
    loop {
        let mut page = Vec::with_capacity(PAGE_LEN);
        let len = image.by_ref().take(PAGE_LEN as u64).read_to_end(&mut page)?;
        if len == 0 {
            return Ok(stretches);
        }
        let is_empty = page == [0; PAGE_LEN][..len];
        match stretches.last_mut() {
            Some(last) if !(is_empty && was_empty) && last.at + last.bytes.len() == at => {
                last.bytes.extend(page);
            }
            _ if is_empty => {}
            _ => {
                let empty = PAGE_LEN.min(at);
                let bytes = [&[0; PAGE_LEN][..empty], &page].concat();
                stretches.push(Stretch { at: at - empty, bytes });
            }
        }
        (at, was_empty) = (at + len, is_empty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_empty_is_found_with_what_is_beside_it() {
        type Case<'c> = (&'c [u8], &'c [(usize, usize)]);
        let image = |pages: &[u8]| pages.iter().flat_map(|b| [*b; PAGE_LEN]).collect::<Vec<_>>();
        let cases: [Case<'_>; 7] = [
            (&[], &[]),
            (&[0, 0, 0], &[]),
            (&[1], &[(0, 1)]),
            (&[0, 0, 1, 2, 0, 0, 0, 3], &[(1, 5), (6, 8)]),
            (&[1, 0, 2], &[(0, 3)]),
            (&[1, 0, 0, 2], &[(0, 2), (2, 4)]),
            (&[0, 1, 0, 0, 0], &[(0, 3)]),
        ];
        let file = tempfile::NamedTempFile::new().unwrap();
        for (pages, wanted) in cases {
            let mut all = image(pages);
            // It need not end with a page.
            all.extend(vec![7; pages.len() % 2]);
            std::fs::write(file.path(), &all).unwrap();
            let found = stretches(file.path()).unwrap();
            assert!(found.iter().all(|s| s.bytes == all[s.at..s.at + s.bytes.len()]), "{pages:?}");
            if pages.len() % 2 == 0 {
                let found = found.iter().map(|s| (s.at, s.at + s.bytes.len()));
                let wanted = wanted.iter().map(|(from, to)| (from * PAGE_LEN, to * PAGE_LEN));
                assert_eq!(found.collect::<Vec<_>>(), wanted.collect::<Vec<_>>(), "{pages:?}");
            }
        }
    }
}
