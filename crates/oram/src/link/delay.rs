//! A slow line: what goes in comes out later, and as much of it may be on its way as there is.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::Stream;

/// Bytes that are taken at once, and that wait before the line.
const CHUNK_LEN: usize = 1 << 16;

/// How slow a line is, in each direction, on tokio's clock. The round trip takes twice `one_way`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delay {
    /// How long each byte is on its way.
    pub one_way: Duration,
    /// Up to so much longer, evenly distributed; bytes stay in order.
    pub jitter: Duration,
    /// Bytes that go through in a second; `None`: as many as come.
    pub bandwidth: Option<u64>,
    /// What the jitter follows from.
    pub seed: u64,
}

impl Delay {
    /// A line with this latency in each direction and nothing else.
    pub fn of(one_way: Duration) -> Self {
        Self { one_way, ..Self::default() }
    }

    /// The near end of a slow line to `stream`. When either end is closed, so is the other, later.
    ///
    /// Must be called within a tokio runtime, in which two tasks carry the bytes.
    pub fn wrap(self, stream: impl Stream + 'static) -> DuplexStream {
        let (near, ours) = duplex(CHUNK_LEN);
        let (from_near, to_near) = split(ours);
        let (from_far, to_far) = split(stream);
        tokio::spawn(self.carry(self.seed, from_near, to_far));
        tokio::spawn(self.carry(!self.seed, from_far, to_near));
        near
    }

    async fn carry(
        self,
        seed: u64,
        reader: impl AsyncRead + Unpin + Send,
        writer: impl AsyncWrite + Unpin + Send,
    ) {
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::join!(self.enter(seed, reader, sender), leave(writer, receiver));
    }

    /// Takes bytes as they come and says when they arrive.
    async fn enter(
        self,
        seed: u64,
        mut reader: impl AsyncRead + Unpin,
        line: mpsc::UnboundedSender<(Instant, Bytes)>,
    ) {
        let mut random = seed;
        let (mut is_free, mut last) = (Instant::now(), Instant::now());
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(CHUNK_LEN);
            let count = reader.read_buf(&mut buffer).await.unwrap_or(0);
            is_free = is_free.max(Instant::now()) + self.time_of(count);
            last = last.max(is_free + self.one_way + self.jittered(&mut random));
            // The end of the stream travels as an empty chunk.
            if line.send((last, buffer.split().freeze())).is_err() || count == 0 {
                return;
            }
        }
    }

    /// How long the line is busy with so many bytes.
    fn time_of(&self, count: usize) -> Duration {
        let Some(bandwidth) = self.bandwidth else { return Duration::ZERO };
        let nanos = count as u128 * 1_000_000_000 / u128::from(bandwidth.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn jittered(&self, random: &mut u64) -> Duration {
        // SplitMix64.
        *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let part = (mixed ^ (mixed >> 31)) >> 32;
        let nanos = (self.jitter.as_nanos() * u128::from(part)) >> 32;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Puts bytes out when their time has come.
async fn leave(
    mut writer: impl AsyncWrite + Unpin,
    mut line: mpsc::UnboundedReceiver<(Instant, Bytes)>,
) {
    while let Some((due, chunk)) = line.recv().await {
        sleep_until(due).await;
        if chunk.is_empty() || writer.write_all(&chunk).await.is_err() {
            break;
        }
    }
    let _ = writer.shutdown().await;
}
