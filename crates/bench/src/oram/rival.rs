//! What a plain store of blobs does at the same concurrency and latency: what hiding costs.
//!
//! A client of these has a connection of its own, asks one thing after the other, and waits for the round
//! trip before each: as with a slow line, but without one.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tacita_oram::geometry::{Generation, Geometry};
use tacita_oram::object::Object;
use tacita_oram::wire::codec::{Codec, Reply};
use tacita_oram::wire::{Answer, HEADER_LEN, Request, VERSION};

use super::{BLOCK_LEN, PLAIN, content};
use crate::harness::runner;

/// How long a peer has to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of a plain store.
pub(super) type Client = Box<dyn FnMut(u64) -> Result<()> + Send>;

/// A plain store.
pub(super) trait Rival {
    fn name(&self) -> &'static str;

    /// A client that reads so many blocks by turns.
    fn client(&self, round_trip: Duration) -> Result<Client>;
}

/// Our own server, which is asked for pieces of an object and not obliviously.
pub(super) struct Plain<'a> {
    pub(super) socket: &'a Path,
    pub(super) geometry: Geometry,
    /// An object that is there, and blocks in it.
    pub(super) object: Object,
    pub(super) blocks: u64,
}

impl<'a> Plain<'a> {
    /// Puts an object of so many blocks, by which no generation is called.
    pub(super) fn new(socket: &'a Path, geometry: Geometry, blocks: u64) -> Result<Self> {
        let generation = Generation { level: 1, number: u64::MAX >> 32 };
        let object = Object::Cells { generation, chunk: 0 };
        let plain = Self { socket, geometry, object, blocks };
        let mut connection = plain.connect()?;
        for block in 0..blocks {
            let bytes = Bytes::from(content(block, 0));
            let (total, offset) = (blocks * u64::from(BLOCK_LEN), block * u64::from(BLOCK_LEN));
            connection.ask(&Request::Put { object, total, offset, bytes })?;
        }
        Ok(plain)
    }

    fn connect(&self) -> Result<Connection> {
        let stream = UnixStream::connect(self.socket).context("no connection to the server")?;
        let codec = Codec::new(Some(self.geometry));
        let mut connection = Connection { stream, codec, number: 0 };
        connection.ask(&Request::Hello { version: VERSION })?;
        Ok(connection)
    }
}

/// One request after the other.
struct Connection {
    stream: UnixStream,
    codec: Codec,
    number: u64,
}

impl Connection {
    fn ask(&mut self, request: &Request) -> Result<Answer> {
        self.number += 1;
        self.stream.write_all(&self.codec.encode_request(self.number, request)?)?;
        let mut head = [0; HEADER_LEN];
        self.stream.read_exact(&mut head)?;
        let head = self.codec.reply_head(&head)?;
        let mut body = vec![0; head.len];
        self.stream.read_exact(&mut body)?;
        match self.codec.reply(head, body.into())? {
            Reply::Answer(_, answer) if request.is_answered_by(&answer) => {
                ensure!(!matches!(answer, Answer::Refused(_)), "refused: {answer:?}");
                Ok(answer)
            }
            other => anyhow::bail!("an answer to something else: {other:?}"),
        }
    }
}

impl Rival for Plain<'_> {
    fn name(&self) -> &'static str {
        PLAIN
    }

    fn client(&self, round_trip: Duration) -> Result<Client> {
        let mut connection = self.connect()?;
        let (object, blocks) = (self.object, self.blocks);
        Ok(Box::new(move |number| {
            std::thread::sleep(round_trip);
            let offset = number % blocks * u64::from(BLOCK_LEN);
            connection.ask(&Request::Get { object, offset, len: BLOCK_LEN }).map(drop)
        }))
    }
}

/// A Redis server in memory, that keeps nothing durably; ended with this.
pub(super) struct Redis {
    process: Child,
    socket: std::path::PathBuf,
    blocks: u64,
}

impl Redis {
    /// Starts one with so many blocks, if the program is there.
    pub(super) fn new(folder: &Path, blocks: u64) -> Result<Self> {
        let socket = folder.join("redis");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        command.arg(&socket).arg("--dir").arg(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().context("cannot start redis-server")?;
        let redis = Self { process, socket, blocks };
        runner::wait_until(PATIENCE, || UnixStream::connect(&redis.socket).is_ok())?;
        let mut stream = UnixStream::connect(&redis.socket)?;
        for block in 0..blocks {
            let value = content(block, 0);
            let key = format!("{block:08}");
            let head = format!("*3\r\n$3\r\nSET\r\n$8\r\n{key}\r\n${}\r\n", value.len());
            stream.write_all(&[head.as_bytes(), &value, b"\r\n"].concat())?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer)?;
            ensure!(answer == *b"+OK\r\n", "redis refuses a block");
        }
        Ok(redis)
    }
}

impl Rival for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn client(&self, round_trip: Duration) -> Result<Client> {
        let mut stream = UnixStream::connect(&self.socket).context("no connection to redis")?;
        let blocks = self.blocks;
        let head = format!("${BLOCK_LEN}\r\n");
        let mut answer = vec![0; head.len() + BLOCK_LEN as usize + 2];
        Ok(Box::new(move |number| {
            std::thread::sleep(round_trip);
            let key = number % blocks;
            stream.write_all(format!("*2\r\n$3\r\nGET\r\n$8\r\n{key:08}\r\n").as_bytes())?;
            stream.read_exact(&mut answer)?;
            ensure!(answer.starts_with(head.as_bytes()), "redis has not the block");
            Ok(())
        }))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
