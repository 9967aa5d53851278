//! Requests of one client: received in order, served side by side, answered as they get done.
//!
//! A thread receives. What the device will answer at once it serves itself, and collects the
//! answers as long as further requests are there: no other thread has to wake up, and one system
//! call sends many answers. All else (long requests, flushes, anything on a device that has been
//! slow lately) it hands to workers of this connection, so that it can go on receiving.

use std::io;
use std::sync::Arc;

use tacita_block::{BlockDevice, ByteDevice};
use tacita_clock::Cancellation;

use super::latency::Latency;
use super::workers::{Job, Workers};
use crate::input::{Input, PART_LEN_MAX_BYTES};
use crate::memory::Memory;
use crate::protocol::{CMD_READ, Errno};
use crate::reply::{READ_HEAD_LEN_MAX_BYTES, push_read_error, push_read_head, push_simple};
use crate::request::{Operation, REQUEST_LEN_BYTES, Request, Terms, Work, errno_of};
use crate::socket::Socket;

/// Longest read or write in bytes that is served where it is received, and whose answer is collected
/// with others. A longer one is handed to another thread: while the device has its bytes, those of the
/// next come in.
const COLLECTED_LEN_MAX_BYTES: u32 = 128 << 10;
const _: () = assert!(COLLECTED_LEN_MAX_BYTES as usize <= PART_LEN_MAX_BYTES);

/// Answers in bytes that are sent without looking for more.
const BATCH_LEN_BYTES: usize = 64 << 10;

/// Longest answer in bytes that a batch ends with.
const LAST_LEN_MAX_BYTES: usize = COLLECTED_LEN_MAX_BYTES as usize + READ_HEAD_LEN_MAX_BYTES;

pub(super) type Device = ByteDevice<Arc<dyn BlockDevice>>;

/// What is served to a client.
#[derive(Clone, Copy)]
pub(super) struct Served<'c> {
    pub(super) device: &'c Device,
    /// For the content of all requests to this export.
    pub(super) memory: &'c Arc<Memory>,
    /// Failures are the client's business alone.
    pub(super) is_private: bool,
    pub(super) terms: Terms,
}

impl Served<'_> {
    /// What the client is answered when the device has failed. Where it is the medium that failed,
    /// that is told: whoever keeps the machine may never see what the client was answered.
    pub(super) fn failed(&self, operation: Operation, error: &tacita_block::Error) -> Errno {
        let errno = errno_of(error.kind());
        if matches!(errno, Errno::Io | Errno::NoSpc) && !self.is_private {
            let number = (errno as u32).cast_signed();
            // Without the error's own words, which may name a place.
            log::error!("NBD {operation}: {}", io::Error::from_raw_os_error(number));
        }
        errno
    }
}

/// Serves requests until the client leaves, or breaks the protocol or the connection, or the server
/// stops; returns when all that has begun is done.
pub(super) fn serve(
    socket: &Socket,
    input: Input<'_>,
    served: Served<'_>,
    stopping: &Cancellation,
    has_left: impl FnOnce(),
) -> io::Result<()> {
    let latency = Latency::new(Arc::clone(socket.clock()));
    let workers = Workers::new(socket, served, &latency);
    std::thread::scope(|scope| {
        let _end = workers.end_at_last();
        let hand_over = |job| workers.hand_over(job, scope);
        let out = Vec::with_capacity(BATCH_LEN_BYTES + LAST_LEN_MAX_BYTES);
        let receiver =
            Receiver { input, served, stopping, latency: &latency, workers: &workers, out };
        let done = receiver.run(&hand_over);
        has_left();
        done
    })
}

struct Receiver<'c> {
    input: Input<'c>,
    served: Served<'c>,
    stopping: &'c Cancellation,
    latency: &'c Latency,
    workers: &'c Workers<'c>,
    /// Answers that are not sent yet.
    out: Vec<u8>,
}

impl Receiver<'_> {
    fn run(mut self, hand_over: &impl Fn(Job)) -> io::Result<()> {
        loop {
            if !self.need(REQUEST_LEN_BYTES)? {
                break;
            }
            let Some(request) = Request::parse(self.input.front_array()) else { break };
            self.input.consume(REQUEST_LEN_BYTES);
            if request.is_disconnect() {
                break;
            }
            if !self.serve(&request, hand_over)? {
                break;
            }
        }
        self.send()
    }

    /// Serves a request, or hands it over; `false` if the client ends before its payload does.
    fn serve(&mut self, request: &Request, hand_over: &impl Fn(Job)) -> io::Result<bool> {
        let checked = if self.stopping.is_cancelled() {
            Err(Errno::Shutdown)
        } else {
            request.check(&self.served.terms)
        };
        let work = match checked {
            Ok(work) => work,
            Err(errno) => {
                if !self.input.skip(request.payload_len_bytes())? {
                    return Ok(false);
                }
                if request.command == CMD_READ {
                    let structured = self.served.terms.structured;
                    push_read_error(&mut self.out, structured, request.cookie, errno);
                } else {
                    push_simple(&mut self.out, request.cookie, Err(errno));
                }
                self.send_if_long()?;
                return Ok(true);
            }
        };
        let is_short = work.len_bytes <= COLLECTED_LEN_MAX_BYTES && !work.durable;
        let len = usize::try_from(work.len_bytes).expect("lengths fit into memory addresses");
        match work.operation {
            Operation::Read if is_short && self.latency.is_quick() => self.read(&work, len)?,
            Operation::Write if is_short && self.latency.is_quick() => {
                if !self.need(len)? {
                    return Ok(false);
                }
                self.write(&work, len)?;
            }
            Operation::Write => {
                // Answers must not wait for a payload, nor for room.
                self.send()?;
                let mut job = self.workers.job(work, len)?;
                if !self.input.take(&mut job.content[..len])? {
                    return Ok(false);
                }
                hand_over(job);
            }
            operation => {
                self.send()?;
                let is_read = matches!(operation, Operation::Read);
                hand_over(self.workers.job(work, if is_read { len } else { 0 })?);
            }
        }
        Ok(true)
    }

    fn read(&mut self, work: &Work, len: usize) -> io::Result<()> {
        let Work { cookie, offset, len_bytes, .. } = *work;
        let begin = self.out.len();
        push_read_head(&mut self.out, self.served.terms.structured, cookie, offset, len_bytes);
        let content = self.out.len();
        self.out.resize(content + len, 0);
        let result = self
            .latency
            .measured(len, || self.served.device.read(offset, &mut self.out[content..]));
        if let Err(e) = result {
            self.out.truncate(begin);
            push_read_error(
                &mut self.out,
                self.served.terms.structured,
                cookie,
                self.served.failed(work.operation, &e),
            );
        }
        self.send_if_long()
    }

    fn write(&mut self, work: &Work, len: usize) -> io::Result<()> {
        let result = self
            .latency
            .measured(len, || self.served.device.write(work.offset, self.input.front(len)));
        self.input.consume(len);
        push_simple(
            &mut self.out,
            work.cookie,
            result.map_err(|e| self.served.failed(work.operation, &e)),
        );
        self.send_if_long()
    }

    /// Waits for bytes; whoever sends them may be waiting for answers first.
    fn need(&mut self, len: usize) -> io::Result<bool> {
        if !self.input.has(len) {
            self.send()?;
        }
        // Where the device takes long, others have a better use for the processor.
        if self.latency.is_quick() { self.input.need_soon(len) } else { self.input.need(len) }
    }

    fn send_if_long(&mut self) -> io::Result<()> {
        if self.out.len() >= BATCH_LEN_BYTES { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let sent = self.workers.send(&self.out, &[]);
        self.out.clear();
        sent
    }
}
