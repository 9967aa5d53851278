//! What will probably be read next, from where files have been read last.
//!
//! The system is not left to guess: what lies behind a block on the device is mostly another file's.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use tacita_vfs::NodeId;

/// Files that are followed at once.
const STREAMS: usize = 16;
/// How far a file is read ahead at first, and at most, in bytes.
const WINDOW: (u64, u64) = (64 << 10, 1 << 20);
/// Requests of one reader overtake each other by so much, in bytes.
const OVERTAKEN: u64 = 256 << 10;
/// A read of this length is taken for one of several in a row, in bytes.
const LONG_READ_LEN: u64 = 64 << 10;

#[derive(Debug, Clone, Copy)]
struct Stream {
    node: NodeId,
    /// Where the reads so far end.
    next: u64,
    window: u64,
    /// How far has been told already.
    told: u64,
}

/// The files that were read last.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<Vec<Stream>>);

impl Streams {
    /// Takes note of a read, and tells which bytes of the file to read ahead: none if it does not go
    /// on where one has ended, and none twice.
    pub(super) fn note(&self, node: NodeId, read: Range<u64>, size: u64) -> Range<u64> {
        let len = read.end - read.start;
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = streams.iter().position(|stream| stream.node == node);
        let goes_on = |stream: &Stream| {
            stream.next == read.start
                || stream.window > 0 && stream.next.abs_diff(read.start) <= OVERTAKEN
        };
        let mut stream = match known.map(|at| streams.remove(at)) {
            Some(stream) if goes_on(&stream) => Stream {
                next: stream.next.max(read.end),
                window: (stream.window * 2).max(len).clamp(WINDOW.0, WINDOW.1),
                ..stream
            },
            _ => {
                let is_long = len >= LONG_READ_LEN;
                let window = match (read.start == 0, is_long) {
                    // Who begins so reads the whole file.
                    (true, true) => (len * 4).min(WINDOW.1),
                    (false, false) => 0,
                    _ => len.clamp(WINDOW.0, WINDOW.1),
                };
                Stream { node, next: read.end, window, told: read.end }
            }
        };
        stream.told = stream.told.max(stream.next);
        let end = (stream.next + stream.window).min(size);
        // Half a window at a time, so that few calls are made.
        let ahead = if end > stream.told && (stream.told - stream.next) * 2 <= stream.window {
            stream.told..end
        } else {
            0..0
        };
        stream.told = stream.told.max(ahead.end);
        streams.truncate(STREAMS - 1);
        streams.insert(0, stream);
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: NodeId = NodeId(5);
    const KIB: u64 = 1 << 10;

    #[test]
    fn a_file_in_a_row_is_told_once_and_whole() {
        let (streams, size) = (Streams::default(), 3000 * KIB);
        let mut told = 0;
        for at in (0..size).step_by(4 << 10) {
            let read = at..(at + 4 * KIB).min(size);
            let ahead = streams.note(FILE, read.clone(), size);
            assert!(at == 0 || told >= read.end, "{at} was not told");
            if !ahead.is_empty() {
                assert!(ahead.start == told.max(read.end) && ahead.end <= size, "{ahead:?}");
                assert!(ahead.end <= read.end + WINDOW.1);
                told = ahead.end;
            }
        }
        assert_eq!(told, size);
    }

    #[test]
    fn reads_in_no_order_are_not_followed() {
        let (streams, size) = (Streams::default(), 1 << 40);
        for n in 1..1000u64 {
            let at = (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (size >> 12)) << 12;
            assert!(streams.note(FILE, at..at + 4096, size).is_empty());
        }
    }

    #[test]
    fn requests_that_overtake_each_other_are_followed() {
        let (streams, size) = (Streams::default(), 8192 * KIB);
        streams.note(FILE, 0..128 * KIB, size);
        assert!(!streams.note(FILE, 256 * KIB..384 * KIB, size).is_empty());
        streams.note(FILE, 128 * KIB..256 * KIB, size);
        let told = streams.note(FILE, 384 * KIB..512 * KIB, size);
        assert!(told.start >= 512 * KIB || told.is_empty(), "{told:?}");
    }

    #[test]
    fn many_files_at_once_are_followed() {
        let (streams, size) = (Streams::default(), 4096 * KIB);
        for at in (0..size).step_by(128 << 10) {
            for node in 0..STREAMS as u64 {
                let told = streams.note(NodeId(node), at..at + 128 * KIB, size);
                assert!(at > 0 || told == (128 * KIB..640 * KIB));
            }
        }
    }
}
