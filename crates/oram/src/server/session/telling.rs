//! What one connection is sent: answers as they come, and the log in its order.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt, BufWriter};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Outgoing;
use crate::error::{Error, Kind, Result};
use crate::geometry::Geometry;
use crate::object::Object;
use crate::server::Core;
use crate::server::feed::{ConnectionId, Cursor, News};
use crate::wire::{Answer, Push};

/// Answers that are written before the log has its turn.
const ANSWERS_MAX: usize = 64;
/// Results of stored periods that are read at once.
const RESULTS_MAX: u64 = 64;

/// What a follower has not been told yet.
struct Follower {
    cursor: Cursor,
    /// Results that were in memory when it began.
    there: VecDeque<(u64, Bytes)>,
    /// Sequence numbers of results in the store, each range within a period.
    stored: VecDeque<Range<u64>>,
}

struct Teller<W> {
    core: Arc<Core>,
    id: ConnectionId,
    writer: BufWriter<W>,
    follower: Option<Follower>,
}

/// Writes until nothing can come any more, or the client takes nothing.
pub(super) async fn tell(
    core: Arc<Core>,
    id: ConnectionId,
    writer: impl AsyncWrite + Unpin,
    mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
) {
    let mut changed = core.changed.subscribe();
    let writer = BufWriter::with_capacity(1 << 16, writer);
    let mut teller = Teller { core, id, writer, follower: None };
    let ended = async {
        let mut batch = Vec::new();
        loop {
            changed.borrow_and_update();
            let is_idle = teller.news().await? && outgoing.is_empty();
            if is_idle {
                teller.flush().await?;
            }
            tokio::select! {
                count = outgoing.recv_many(&mut batch, ANSWERS_MAX) => {
                    if count == 0 {
                        return Ok::<(), Error>(());
                    }
                    for outgoing in batch.drain(..) {
                        teller.take(outgoing).await?;
                    }
                }
                _ = changed.changed(), if is_idle => {}
                () = std::future::ready(()), if !is_idle => {}
            }
        }
    };
    // The client learns no more than that the connection ends.
    let _ = ended.await;
    let _ = teller.flush().await;
    let _ = timeout(teller.core.limits.stalled, teller.writer.shutdown()).await;
}

impl<W: AsyncWrite + Unpin> Teller<W> {
    async fn take(&mut self, outgoing: Outgoing) -> Result<()> {
        match outgoing {
            Outgoing::Answer(number, answer, permits) => {
                let frame = self.core.codec().encode_answer(number, &answer)?;
                self.write(&frame).await?;
                drop(permits);
            }
            Outgoing::Follow { number, record, result } => {
                let frame = self.core.codec().encode_answer(number, &Answer::Following)?;
                self.write(&frame).await?;
                let feed = self.core.feed();
                let (cursor, there, stored) = feed.follow(record, result);
                drop(feed);
                self.follower = Some(Follower { cursor, there, stored });
            }
        }
        Ok(())
    }

    /// Tells some of what is new; whether that was nothing.
    async fn news(&mut self) -> Result<bool> {
        let Some(follower) = &mut self.follower else { return Ok(true) };
        // Results that were there at the beginning come when the records are told that were there.
        let is_beginning = !follower.there.is_empty() || !follower.stored.is_empty();
        let mut cursor = follower.cursor;
        let news = self.core.feed().news(&mut cursor, self.id);
        let has_records =
            !matches!(news[..], [News::Nothing | News::Gone] | [News::Result(..), ..]);
        if is_beginning && !has_records {
            self.beginning().await?;
            return Ok(false);
        }
        follower.cursor = cursor;
        if let [News::Nothing] = news[..] {
            return Ok(true);
        }
        for item in news {
            match item {
                News::Stored(first, count) => self.stored_records(first, count).await?,
                item => self.tell_one(item).await?,
            }
        }
        Ok(false)
    }

    async fn tell_one(&mut self, news: News) -> Result<()> {
        let codec = self.core.codec();
        let frame = match news {
            News::Nothing => return Ok(()),
            News::Record(sequence, record) => {
                codec.encode_push(&Push::Record { sequence, record })?
            }
            News::Result(sequence, result) => {
                codec.encode_push(&Push::Result { sequence, result })?
            }
            News::Appended(sequence, number) => {
                codec.encode_answer(number, &Answer::Appended { sequence })?
            }
            News::Stored(..) | News::Gone => {
                return Err(Error::new(Kind::Storage, "the client is too far behind"));
            }
        };
        self.core.metrics.pushes.add(1);
        self.write(&frame).await
    }

    /// Tells the records of an object from the cursor on.
    async fn stored_records(&mut self, first: u64, count: u64) -> Result<()> {
        let len = self.core.geometry.get().map_or(0, Geometry::record_len);
        let Some(follower) = &mut self.follower else { return Ok(()) };
        let from = follower.cursor.record;
        follower.cursor.record = first + count;
        let object = Object::Log { first };
        let range = (from - first) * len as u64..count * len as u64;
        let mut bytes = self.core.store.get(object, range).await?.ok_or_else(|| gone(object))?;
        for sequence in from..first + count {
            let record = bytes.split_to(len);
            let own = self.core.feed().own(self.id, sequence);
            let news = match own {
                Some(number) => News::Appended(sequence, number),
                None => News::Record(sequence, record),
            };
            self.tell_one(news).await?;
        }
        Ok(())
    }

    /// Tells some of the results that were there when the client began to follow.
    async fn beginning(&mut self) -> Result<()> {
        let Some(geometry) = self.core.geometry.get() else { return Ok(()) };
        let (period_len, len) = (geometry.period(), geometry.result_len());
        let Some(follower) = &mut self.follower else { return Ok(()) };
        let Some(stored) = follower.stored.front_mut() else {
            if let Some((sequence, result)) = follower.there.pop_front() {
                self.tell_one(News::Result(sequence, result)).await?;
            }
            return Ok(());
        };
        let (from, period) = (stored.start, stored.start / period_len);
        let end = stored.end.min(from + RESULTS_MAX);
        stored.start = end;
        if stored.is_empty() {
            follower.stored.pop_front();
        }
        let object = Object::Results { period };
        let begin = (from % period_len) * len as u64;
        let range = begin..begin + (end - from) * len as u64;
        let mut bytes = self.core.store.get(object, range).await?.ok_or_else(|| gone(object))?;
        for sequence in from..end {
            self.tell_one(News::Result(sequence, bytes.split_to(len))).await?;
        }
        Ok(())
    }

    async fn write(&mut self, frame: &[u8]) -> Result<()> {
        self.core.metrics.bytes_out.add(frame.len() as u64);
        within(self.core.limits.stalled, self.writer.write_all(frame)).await
    }

    async fn flush(&mut self) -> Result<()> {
        within(self.core.limits.stalled, self.writer.flush()).await
    }
}

async fn within(
    limit: std::time::Duration,
    work: impl Future<Output = std::io::Result<()>>,
) -> Result<()> {
    match timeout(limit, work).await {
        Ok(result) => result.map_err(|e| crate::link::frames::lost(&e)),
        Err(_) => Err(Error::new(Kind::Unreachable, "the client takes nothing")),
    }
}

fn gone(object: Object) -> Error {
    Error::new(Kind::Storage, format!("{object} was removed meanwhile"))
}
