//! Threads of one connection that serve what takes long. Each connection has its own, so that a
//! device that keeps one client waiting keeps no other.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Duration;

use rustix::net::Shutdown;
use tacita_block::{AlignedBuf, ByteExtent};

use super::latency::Latency;
use super::requests::Served;
use crate::buffers::{Buffers, allocated};
use crate::memory::Taken;
use crate::protocol::PAYLOAD_LEN_MAX_BYTES;
use crate::reply::{push_extents, push_read_error, push_read_head, push_simple};
use crate::request::{Operation, Work};
use crate::socket::Socket;

/// Threads of one connection; as many requests the device gets at once.
const THREADS_MAX: usize = 16;

/// Requests of one connection that wait or are being served.
const JOBS_MAX: usize = 64;

/// Memory in bytes for their content.
const CONTENT_LEN_MAX_BYTES: usize = PAYLOAD_LEN_MAX_BYTES as usize;

/// Extents in one reply; the client asks on.
const EXTENTS_MAX: usize = 1024;

/// Zeros written at once in bytes; more gain nothing.
const ZEROES_LEN_BYTES: u64 = 1 << 20;

/// How often whoever waits for room looks whether the client is still there.
const LOOK: Duration = Duration::from_millis(200);

/// A request to be served, with room for its content.
pub(super) struct Job {
    work: Work,
    /// What is to be written, or room for what is read; longer than either.
    pub(super) content: AlignedBuf,
    _taken: Taken,
}

pub(super) struct Workers<'c> {
    socket: &'c Socket,
    served: Served<'c>,
    latency: &'c Latency,
    buffers: Buffers,
    /// Held while sending, so that answers do not mix.
    sending: Mutex<()>,
    state: Mutex<State>,
    /// There is a job, or the end.
    ready: Condvar,
    /// There is more room.
    room: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// Waiting and being served.
    jobs: usize,
    content_len: usize,
    threads: usize,
    idle: usize,
    ended: bool,
}

/// Ends the connection when dropped, unless the job was answered: the receiver is to notice at once that
/// nobody is there any more, and the client that nobody answers it, if the device panics.
struct HangUp<'s> {
    socket: &'s Socket,
    answered: bool,
}

/// Lets the workers end when dropped.
pub(super) struct End<'w, 'c>(&'w Workers<'c>);

impl<'c> Workers<'c> {
    pub(super) fn new(socket: &'c Socket, served: Served<'c>, latency: &'c Latency) -> Self {
        Self {
            socket,
            served,
            latency,
            buffers: Buffers::default(),
            sending: Mutex::new(()),
            state: Mutex::default(),
            ready: Condvar::new(),
            room: Condvar::new(),
        }
    }

    pub(super) fn end_at_last(&self) -> End<'_, 'c> {
        End(self)
    }

    /// A job with so much content, when there is room for it. A single job always has room on its
    /// connection.
    ///
    /// # Errors
    /// If the client leaves before.
    pub(super) fn job(&self, work: Work, content_len: usize) -> io::Result<Job> {
        let content_len = allocated(content_len);
        let mut state = self.lock();
        while state.jobs > 0
            && (state.jobs >= JOBS_MAX || state.content_len + content_len > CONTENT_LEN_MAX_BYTES)
        {
            let waited = self.room.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            self.still_there()?;
        }
        state.jobs += 1;
        state.content_len += content_len;
        drop(state);
        let taken = loop {
            if let Some(taken) = self.served.memory.take(content_len, LOOK) {
                break taken;
            }
            if let Err(gone) = self.still_there() {
                self.forget(content_len);
                return Err(gone);
            }
        };
        Ok(Job { work, content: self.buffers.take(content_len), _taken: taken })
    }

    fn still_there(&self) -> io::Result<()> {
        if self.socket.is_gone() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// A job is no more.
    fn forget(&self, content_len: usize) {
        let mut state = self.lock();
        state.jobs -= 1;
        state.content_len -= content_len;
        drop(state);
        self.room.notify_one();
    }

    /// Hands a job to a worker, to a new one if all are busy.
    pub(super) fn hand_over<'scope>(&'scope self, job: Job, scope: &'scope Scope<'scope, '_>) {
        let mut state = self.lock();
        state.queue.push_back(job);
        if state.queue.len() <= state.idle {
            drop(state);
            self.ready.notify_one();
            return;
        }
        if state.threads < THREADS_MAX {
            let builder = Builder::new().name("nbd-worker".to_owned());
            if builder.spawn_scoped(scope, || self.work()).is_ok() {
                state.threads += 1;
            }
        }
        if state.threads == 0 {
            // The system has no thread for us.
            drop(state);
            self.serve_next();
        }
    }

    /// Sends an answer.
    pub(super) fn send(&self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        self.socket.send(head, data)
    }

    /// Serves jobs until the end.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if !state.queue.is_empty() {
                drop(state);
                self.serve_next();
                state = self.lock();
            } else if state.ended {
                return;
            } else {
                state.idle += 1;
                state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    fn serve_next(&self) {
        let Some(job) = self.lock().queue.pop_front() else { return };
        let mut hang_up = HangUp { socket: self.socket, answered: false };
        hang_up.answered = self.serve(job).is_ok();
    }

    /// Serves a job and answers it.
    fn serve(&self, mut job: Job) -> io::Result<()> {
        // What only a client that has left wanted to know, nobody does.
        let changes = !matches!(
            job.work.operation,
            Operation::Read | Operation::BlockStatus { .. } | Operation::Flush
        );
        let sent = if changes { Ok(()) } else { self.still_there() }
            .and_then(|()| self.serve_and_send(&mut job));
        let content_len = job.content.len();
        self.buffers.give_back(job.content);
        self.forget(content_len);
        sent
    }

    fn serve_and_send(&self, job: &mut Job) -> io::Result<()> {
        let mut head = Vec::new();
        let Work { operation, cookie, offset, len_bytes, .. } = job.work;
        let len = usize::try_from(len_bytes).expect("lengths fit into memory addresses");
        let structured = self.served.terms.structured;
        let whole_len = u64::from(len_bytes);
        let result = match operation {
            Operation::Read => {
                let content = &mut job.content[..len];
                let read = self.latency.measured(len, || self.served.device.read(offset, content));
                if let Err(e) = read {
                    push_read_error(
                        &mut head,
                        structured,
                        cookie,
                        self.served.failed(operation, &e),
                    );
                    return self.send(&head, &[]);
                }
                push_read_head(&mut head, structured, cookie, offset, len_bytes);
                return self.send(&head, content);
            }
            Operation::BlockStatus { one } => match self.extents(&job.work, one) {
                Ok(extents) => {
                    push_extents(&mut head, cookie, &extents);
                    return self.send(&head, &[]);
                }
                Err(e) => Err(e),
            },
            Operation::Write => {
                self.latency.measured(len, || self.served.device.write(offset, &job.content[..len]))
            }
            Operation::Trim => self.served.device.discard(offset, whole_len),
            Operation::WriteZeroes { may_punch: true } => {
                self.served.device.write_zeroes(offset, whole_len)
            }
            Operation::WriteZeroes { may_punch: false } => {
                self.write_real_zeroes(offset, whole_len)
            }
            Operation::Flush => self.served.device.flush(),
        };
        let result = result
            .and_then(|()| if job.work.durable { self.served.device.flush() } else { Ok(()) });
        push_simple(&mut head, cookie, result.map_err(|e| self.served.failed(operation, &e)));
        self.send(&head, &[])
    }

    /// What is asked for from its start on, as far as it fits into a reply.
    fn extents(&self, work: &Work, one: bool) -> tacita_block::Result<Vec<ByteExtent>> {
        let end = work.offset + u64::from(work.len_bytes);
        let count_max = if one { 1 } else { EXTENTS_MAX };
        let mut extents: Vec<ByteExtent> = Vec::new();
        let mut at = work.offset;
        while at < end {
            let extent = self.served.device.extent(at, end - at)?;
            at += extent.len_bytes;
            match extents.last_mut() {
                Some(last) if last.allocation == extent.allocation => {
                    last.len_bytes += extent.len_bytes;
                }
                _ => extents.push(extent),
            }
            if extents.len() > count_max {
                extents.pop();
                break;
            }
        }
        Ok(extents)
    }

    /// Zeros that take room.
    fn write_real_zeroes(&self, offset: u64, len_bytes: u64) -> tacita_block::Result<()> {
        let piece = len_bytes.min(ZEROES_LEN_BYTES);
        let zeroes = AlignedBuf::new(usize::try_from(piece).expect("a short piece"));
        let mut done = 0;
        while done < len_bytes {
            let len = piece.min(len_bytes - done);
            let piece = &zeroes[..usize::try_from(len).expect("a short piece")];
            self.served.device.write(offset + done, piece)?;
            done += len;
        }
        Ok(())
    }

    // Counters are changed in one step each, so a panic elsewhere leaves them right.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.socket.shut_down(Shutdown::Both);
        }
    }
}

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.ready.notify_all();
    }
}
