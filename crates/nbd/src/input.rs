//! What a client sends, in order, with a bound on how long it may take over a part.

use std::io;
use std::time::Duration;

use tacita_clock::Clock;

use crate::socket::{Received, Socket};

/// Bytes received at once: several requests of a busy client, and the payload of small writes.
const BUFFER_LEN_BYTES: usize = 128 << 10;

/// Behind a payload of so many bytes only the next head is received at first: another such payload then
/// goes to where it belongs, without a copy of what came with its head.
const LONG_LEN_BYTES: usize = 32 << 10;

/// Longest part that [`Input::need`] can gather.
pub(crate) const PART_LEN_MAX_BYTES: usize = BUFFER_LEN_BYTES;

/// How long [`Input::need_soon`] looks for bytes before it sleeps: about what falling asleep and
/// waking up cost on a virtual machine.
const LINGER: Duration = Duration::from_micros(50);

/// Times that it looks in vain before it gives the client up as slow.
const LINGER_CREDIT: u32 = 8;

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Timeout {
    /// Until then, by its own time, with everything.
    Until(Duration),
    /// So long for each part once it has begun, and for ever between parts.
    Each(Duration),
}

pub(crate) struct Input<'s> {
    socket: &'s Socket,
    buf: Box<[u8]>,
    start: usize,
    end: usize,
    timeout: Timeout,
    linger_credit: u32,
    /// Whether a long payload came last.
    is_after_long: bool,
}

impl<'s> Input<'s> {
    pub(crate) fn new(socket: &'s Socket, timeout: Timeout) -> Self {
        let buf = vec![0; BUFFER_LEN_BYTES].into_boxed_slice();
        Self { socket, buf, start: 0, end: 0, timeout, linger_credit: 0, is_after_long: false }
    }

    pub(crate) fn set_timeout(&mut self, timeout: Timeout) {
        self.timeout = timeout;
    }

    /// Whether so many bytes are there without waiting.
    pub(crate) fn has(&self, len: usize) -> bool {
        self.end - self.start >= len
    }

    /// Waits for `len` bytes, which then lie in front; `false` if the client ends before.
    ///
    /// # Errors
    /// If it takes too long, or the connection breaks.
    pub(crate) fn need(&mut self, len: usize) -> io::Result<bool> {
        if self.has(len) {
            return Ok(true);
        }
        self.move_to_front();
        let mut deadline = self.deadline(self.end > 0);
        while self.end < len {
            let until = self.until(len);
            match self.socket.receive(&mut self.buf[self.end..until])? {
                Received::Bytes(more) => self.end += more,
                Received::Nothing => {}
                Received::End => return Ok(false),
            }
            if self.end < len {
                deadline = deadline.or_else(|| self.deadline(self.end > 0));
                self.check(deadline)?;
            }
        }
        Ok(true)
    }

    /// How far bytes are received when `len` are needed in front, which begins at 0.
    fn until(&self, len: usize) -> usize {
        if self.is_after_long { len } else { self.buf.len() }
    }

    /// As [`Input::need`], for a client that has lately been quick to ask again: looks for bytes for a
    /// moment before it sleeps, for waking up may take longer than serving the request. Makes way for
    /// whoever else wants to run.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn need_soon(&mut self, len: usize) -> io::Result<bool> {
        if self.has(len) {
            return Ok(true);
        }
        let start = self.clock().monotonic();
        if self.linger_credit > 0 && self.end == self.start {
            self.move_to_front();
            let until = self.until(len);
            while self.clock().elapsed(start) < LINGER {
                match self.socket.receive_now(&mut self.buf[..until])? {
                    Received::Bytes(more) => {
                        self.end += more;
                        break;
                    }
                    Received::Nothing => std::thread::yield_now(),
                    Received::End => return Ok(false),
                }
            }
        }
        let there = self.need(len)?;
        self.linger_credit = if self.clock().elapsed(start) < LINGER {
            LINGER_CREDIT
        } else {
            self.linger_credit.saturating_sub(1)
        };
        Ok(there)
    }

    fn move_to_front(&mut self) {
        self.buf.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }

    /// The bytes in front; they have been needed before.
    pub(crate) fn front(&self, len: usize) -> &[u8] {
        &self.buf[self.start..self.start + len]
    }

    /// The same as an array.
    pub(crate) fn front_array<const N: usize>(&self) -> &[u8; N] {
        self.front(N).first_chunk().expect("so many bytes are there")
    }

    /// Forgets bytes in front.
    pub(crate) fn consume(&mut self, len: usize) {
        self.start += len;
        self.is_after_long = false;
    }

    /// Moves the next bytes into `into`; `false` if the client ends before.
    ///
    /// # Errors
    /// As [`Input::need`].
    pub(crate) fn take(&mut self, into: &mut [u8]) -> io::Result<bool> {
        let ready = into.len().min(self.end - self.start);
        into[..ready].copy_from_slice(self.front(ready));
        self.consume(ready);
        self.is_after_long = into.len() >= LONG_LEN_BYTES;
        let deadline = self.deadline(true);
        let mut done = ready;
        while done < into.len() {
            match self.socket.receive(&mut into[done..])? {
                Received::Bytes(more) => done += more,
                Received::Nothing => {}
                Received::End => return Ok(false),
            }
            self.check(deadline)?;
        }
        Ok(true)
    }

    /// Drops the next bytes; `false` if the client ends before.
    ///
    /// # Errors
    /// As [`Input::need`].
    pub(crate) fn skip(&mut self, len: u32) -> io::Result<bool> {
        let mut left = usize::try_from(len).expect("lengths fit into memory addresses");
        while left > 0 {
            let part = left.min(PART_LEN_MAX_BYTES);
            if !self.need(part)? {
                return Ok(false);
            }
            self.consume(part);
            left -= part;
        }
        Ok(true)
    }

    fn deadline(&self, has_begun: bool) -> Option<Duration> {
        match self.timeout {
            Timeout::Until(deadline) => Some(deadline),
            Timeout::Each(limit) if has_begun => Some(self.socket.time() + limit),
            Timeout::Each(_) => None,
        }
    }

    fn check(&self, deadline: Option<Duration>) -> io::Result<()> {
        match deadline {
            Some(deadline) if self.socket.time() > deadline => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    fn clock(&self) -> &dyn Clock {
        &**self.socket.clock()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use tacita_clock::System;

    use super::*;

    const HEAD_LEN_BYTES: usize = 28;

    /// What is sent at once arrives at once, but behind a long payload.
    #[test]
    fn a_long_payload_behind_another_is_received_to_where_it_belongs() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let limit = Duration::from_mins(1);
        let socket = Socket::new(server.into(), limit, Arc::new(System)).unwrap();
        let mut input = Input::new(&socket, Timeout::Each(limit));
        let mut payload = vec![0; LONG_LEN_BYTES];
        let sent: Vec<u8> = (0..=255).cycle().take(HEAD_LEN_BYTES + payload.len()).collect();
        for (has_payload, soon) in [(true, false), (false, false), (false, true), (true, true)] {
            client.write_all(&sent).unwrap();
            let there =
                if soon { input.need_soon(HEAD_LEN_BYTES) } else { input.need(HEAD_LEN_BYTES) };
            assert!(there.unwrap());
            assert_eq!(input.has(HEAD_LEN_BYTES + 1), has_payload);
            assert_eq!(input.front(HEAD_LEN_BYTES), &sent[..HEAD_LEN_BYTES]);
            input.consume(HEAD_LEN_BYTES);
            assert!(input.take(&mut payload).unwrap());
            assert_eq!(payload, &sent[HEAD_LEN_BYTES..]);
            // Behind a head without a payload the next come as they are sent.
            if soon && !has_payload {
                client.write_all(&sent[..3 * HEAD_LEN_BYTES]).unwrap();
                for heads in [1, 2] {
                    assert!(input.need(HEAD_LEN_BYTES).unwrap());
                    assert!(input.has(heads * HEAD_LEN_BYTES));
                    assert!(!input.has(heads * HEAD_LEN_BYTES + 1));
                    input.consume(HEAD_LEN_BYTES);
                }
                input.consume(HEAD_LEN_BYTES);
            }
        }
    }
}
