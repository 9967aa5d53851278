//! Blocks in dumps, as far as they can be read.

use std::ops::Range;

/// Reads a block, page by page if it cannot be read at once; the pages that could not be read, which
/// are zero.
pub(crate) fn read_pages<E>(
    block: &mut [u8],
    page_len_bytes: usize,
    read: impl Fn(u64, &mut [u8]) -> Result<(), E>,
) -> Vec<Range<u64>> {
    if read(0, block).is_ok() {
        return Vec::new();
    }
    let mut unread: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    for page in block.chunks_mut(page_len_bytes) {
        let end = at + page.len() as u64;
        if read(at, page).is_err() {
            page.fill(0);
            match unread.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => unread.push(at..end),
            }
        }
        at = end;
    }
    unread
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn pages_that_cannot_be_read_are_told_and_the_others_are_there() {
        let bad = [1, 2, 5];
        let read = |at: u64, buf: &mut [u8]| {
            for (n, byte) in (at..).zip(&mut *buf) {
                *byte = u8::try_from(n / 16 + 1).unwrap();
            }
            let reads_bad =
                bad.iter().any(|page| (at..at + buf.len() as u64).contains(&(page * 16)));
            if reads_bad { Err(io::Error::from(io::ErrorKind::Other)) } else { Ok(()) }
        };
        let mut block = vec![9; 128];
        assert_eq!(read_pages(&mut block, 16, read), [16..48, 80..96]);
        let pages: Vec<u8> = block.chunks(16).map(|page| page[15]).collect();
        assert_eq!(pages, [1, 0, 0, 4, 5, 0, 7, 8]);
        assert!(read_pages(&mut block[..16], 16, read).is_empty());
    }
}
