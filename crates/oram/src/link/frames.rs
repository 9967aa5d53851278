//! Whole frames from a stream, and to it.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::error::{Error, Kind, Result};
use crate::wire::HEADER_LEN;

/// How a server with TLS ends what is none: the type of a record, and a version.
const TLS_ALERT: [u8; 2] = [21, 3];

/// The header of the next frame; `None` at the end of the stream.
pub(crate) async fn read_head<R>(reader: &mut R) -> Result<Option<[u8; HEADER_LEN]>>
where
    R: AsyncRead + Unpin,
{
    let mut head = [0; HEADER_LEN];
    let mut len = 0;
    while len < HEADER_LEN {
        match reader.read(&mut head[len..]).await.map_err(|e| lost(&e))? {
            0 if len == 0 => return Ok(None),
            0 if head.starts_with(&TLS_ALERT) => return Err(other_speech()),
            0 => return Err(ended()),
            n => len += n,
        }
    }
    Ok(Some(head))
}

/// The body of a frame, of a length that was found right.
pub(crate) async fn read_body<R: AsyncRead + Unpin>(reader: &mut R, len: usize) -> Result<Bytes> {
    let mut body = BytesMut::with_capacity(len);
    let mut rest = reader.take(len as u64);
    while body.len() < len {
        if rest.read_buf(&mut body).await.map_err(|e| lost(&e))? == 0 {
            return Err(ended());
        }
    }
    Ok(body.freeze())
}

/// Writes what comes, and flushes when nothing waits any more; ends when no more can come.
pub(crate) async fn write_all<W>(writer: W, mut frames: mpsc::UnboundedReceiver<Bytes>)
where
    W: AsyncWrite + Unpin,
{
    let mut writer = tokio::io::BufWriter::with_capacity(1 << 16, writer);
    let mut batch = Vec::new();
    while frames.recv_many(&mut batch, 64).await > 0 {
        for frame in batch.drain(..) {
            if writer.write_all(&frame).await.is_err() {
                return;
            }
        }
        if frames.is_empty() && writer.flush().await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}

fn other_speech() -> Error {
    Error::new(Kind::Protocol, "the server speaks TLS at this port: its address is tls:HOST:PORT")
}

pub(crate) fn lost(error: &std::io::Error) -> Error {
    Error::new(Kind::Unreachable, format!("the connection is lost: {error}"))
}

fn ended() -> Error {
    Error::new(Kind::Unreachable, "the connection ended in the middle of a frame")
}
