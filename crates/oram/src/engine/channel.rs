//! A channel between those who have the same key: whoever listens learns the length and time of messages,
//! whoever alters something ends it. Noise, pattern `NNpsk0`.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use snow::{Builder, HandshakeState, StatelessTransportState};
use tacita_secret::Key;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf, split,
};

use crate::error::{Error, Kind, Result};
use crate::keys::engine_key;
use crate::link::Stream;
use crate::link::frames::lost;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const PROLOGUE: &[u8] = b"tacita oram engine 1";
const TAG_LEN: usize = 16;
/// Bytes of a piece of a message at most: with its tag, what the framework allows.
const PIECE_LEN_MAX: usize = 65_535 - TAG_LEN;

/// Sends messages.
#[derive(Debug)]
pub struct Sender<S> {
    state: Arc<StatelessTransportState>,
    writer: WriteHalf<S>,
    pieces: u64,
    buffer: Vec<u8>,
}

/// Receives messages.
#[derive(Debug)]
pub struct Receiver<S> {
    state: Arc<StatelessTransportState>,
    reader: BufReader<ReadHalf<S>>,
    pieces: u64,
    buffer: Vec<u8>,
}

/// Opens a channel to who listens at the other end of `stream`.
///
/// # Errors
/// [`Kind::WrongKey`] if it has another key; [`Kind::Unreachable`].
pub async fn open<S: Stream>(mut stream: S, key: &Key) -> Result<(Sender<S>, Receiver<S>)> {
    let mut state = builder(key, true)?;
    say(&mut stream, &mut state).await?;
    // Who has another key cannot say so, and leaves.
    let heard = hear(&mut stream, &mut state).await;
    heard.map_err(|_| {
        Error::new(Kind::WrongKey, "there is no engine, or it has another key than this client")
    })?;
    begin(stream, state)
}

/// Takes a channel that the other end of `stream` opens.
///
/// # Errors
/// As [`open`].
pub async fn accept<S: Stream>(mut stream: S, key: &Key) -> Result<(Sender<S>, Receiver<S>)> {
    let mut state = builder(key, false)?;
    hear(&mut stream, &mut state).await?;
    say(&mut stream, &mut state).await?;
    begin(stream, state)
}

fn builder(key: &Key, is_opening: bool) -> Result<HandshakeState> {
    let key = engine_key(key);
    let build = || {
        let builder = Builder::new(PATTERN.parse()?).prologue(PROLOGUE)?.psk(0, key.expose())?;
        if is_opening { builder.build_initiator() } else { builder.build_responder() }
    };
    build().map_err(|e| failed(&e))
}

async fn say<S: Stream>(stream: &mut S, state: &mut HandshakeState) -> Result<()> {
    let mut message = [0; 128];
    let len = state.write_message(&[], &mut message[2..]).map_err(|e| failed(&e))?;
    message[..2].copy_from_slice(&u16::try_from(len).expect("a short message").to_le_bytes());
    stream.write_all(&message[..2 + len]).await.map_err(|e| lost(&e))?;
    stream.flush().await.map_err(|e| lost(&e))
}

async fn hear<S: Stream>(stream: &mut S, state: &mut HandshakeState) -> Result<()> {
    let mut message = [0; 126];
    let len = usize::from(stream.read_u16_le().await.map_err(|e| lost(&e))?);
    let message = message.get_mut(..len).ok_or_else(forged)?;
    stream.read_exact(message).await.map_err(|e| lost(&e))?;
    let len = state.read_message(message, &mut [0; 128]).map_err(|_| forged())?;
    if len == 0 { Ok(()) } else { Err(forged()) }
}

fn begin<S: Stream>(stream: S, state: HandshakeState) -> Result<(Sender<S>, Receiver<S>)> {
    let state = Arc::new(state.into_stateless_transport_mode().map_err(|e| failed(&e))?);
    let (reader, writer) = split(stream);
    let reader = BufReader::with_capacity(1 << 16, reader);
    Ok((
        Sender { state: state.clone(), writer, pieces: 0, buffer: Vec::new() },
        Receiver { state, reader, pieces: 0, buffer: Vec::new() },
    ))
}

impl<S: AsyncWrite> Sender<S> {
    /// Sends a message, which is not empty.
    ///
    /// # Errors
    /// [`Kind::Unreachable`]: the channel is at its end then.
    pub async fn send(&mut self, message: &[u8]) -> Result<()> {
        for piece in message.chunks(PIECE_LEN_MAX) {
            self.buffer.resize(2 + piece.len() + TAG_LEN, 0);
            let sealed = self.state.write_message(self.pieces, piece, &mut self.buffer[2..]);
            let len = u16::try_from(sealed.map_err(|e| failed(&e))?).expect("a piece is shorter");
            self.buffer[..2].copy_from_slice(&len.to_le_bytes());
            self.pieces += 1;
            self.writer.write_all(&self.buffer).await.map_err(|e| lost(&e))?;
        }
        self.writer.flush().await.map_err(|e| lost(&e))
    }
}

impl<S: AsyncRead> Receiver<S> {
    /// The next message, which has this length.
    ///
    /// # Errors
    /// [`Kind::Unreachable`] at the end; [`Kind::Protocol`] if something was altered, or is of another
    /// length. The channel is at its end then.
    pub async fn receive(&mut self, len: usize) -> Result<Bytes> {
        let mut message = BytesMut::zeroed(len);
        for piece in message.chunks_mut(PIECE_LEN_MAX) {
            let sealed_len = usize::from(self.reader.read_u16_le().await.map_err(|e| lost(&e))?);
            if sealed_len != piece.len() + TAG_LEN {
                return Err(forged());
            }
            self.buffer.resize(sealed_len, 0);
            self.reader.read_exact(&mut self.buffer).await.map_err(|e| lost(&e))?;
            let opened = self.state.read_message(self.pieces, &self.buffer, piece);
            opened.map_err(|_| forged())?;
            self.pieces += 1;
        }
        Ok(message.freeze())
    }
}

fn forged() -> Error {
    Error::new(Kind::Protocol, "what came was not sent by who has the key")
}

fn failed(error: &snow::Error) -> Error {
    Error::new(Kind::Protocol, format!("no channel: {error}"))
}
