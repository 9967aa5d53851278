//! A client that can say anything, and a server for one test.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tacita_block::BlockDevice;
use tacita_clock::{Clock, System};
use tacita_nbd::protocol::*;
use tacita_nbd::request::{Cookie, Request};
use tacita_nbd::{Export, Limits, Listener, Server};
use tempfile::TempDir;

/// Longest wait for the server: it is the test that hangs then, not the machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_mins(2);

/// A server on a Unix socket of its own.
pub(crate) struct Served {
    pub(crate) server: Server,
    folder: TempDir,
}

impl Served {
    pub(crate) fn new(exports: Vec<Export>) -> Self {
        Self::with_limits(exports, Limits::default())
    }

    pub(crate) fn with_limits(exports: Vec<Export>, limits: Limits) -> Self {
        Self::on(exports, limits, Arc::new(System))
    }

    pub(crate) fn on(exports: Vec<Export>, limits: Limits, clock: Arc<dyn Clock>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener::unix(folder.path().join("nbd.sock")).unwrap();
        let server = Server::start_with(exports, vec![listener], limits, clock).unwrap();
        Self { server, folder }
    }

    /// Waits until so many clients are connected.
    pub(crate) fn await_connections(&self, count: usize) {
        let begin = System.monotonic();
        while self.server.connections() != count {
            assert!(System.elapsed(begin) < WAIT_MAX, "{}", self.server.connections());
            System.wait(Duration::from_millis(2));
        }
    }

    pub(crate) fn device(device: impl BlockDevice + 'static) -> Self {
        Self::new(vec![Export::new("disk", Arc::new(device))])
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("nbd.sock")
    }

    pub(crate) fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }

    /// Connects and says nothing.
    pub(crate) fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
        stream.set_write_timeout(Some(WAIT_MAX)).unwrap();
        Client { stream, structured: false }
    }

    /// Connects and is past the greeting.
    pub(crate) fn greeted(&self) -> Client {
        let mut client = self.connect();
        assert_eq!(client.take(18), tacita_nbd::negotiation::greeting());
        client.put(&[0, 0, 0, 3]);
        client
    }

    /// Ready for requests to the first export, with simple replies.
    pub(crate) fn simple(&self) -> Client {
        let mut client = self.greeted();
        client.go("");
        client
    }

    /// Ready for requests to the first export, with structured replies and extents.
    pub(crate) fn structured(&self) -> Client {
        let mut client = self.greeted();
        client.option(OPT_STRUCTURED_REPLY, &[]);
        assert_eq!(client.option_replies().last().unwrap().0, REP_ACK);
        client.structured = true;
        let query = BASE_ALLOCATION.as_bytes();
        let parts = [&[0; 4][..], &[0, 0, 0, 1], &[0, 0, 0, 15], query];
        client.option(OPT_SET_META_CONTEXT, &parts.concat());
        assert_eq!(client.option_replies().len(), 2);
        client.go("");
        client
    }
}

pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    structured: bool,
}

/// A reply: to which request, with which error number, and what was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    pub(crate) errno: u32,
    pub(crate) content: Vec<u8>,
}

impl Client {
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn take_array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().unwrap()
    }

    /// Whether the server has closed the connection; waits for it.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(e) => e.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    pub(crate) fn option(&mut self, option: u32, data: &[u8]) {
        let len = u32::try_from(data.len()).unwrap();
        self.option_head(option, len);
        self.put(data);
    }

    pub(crate) fn option_head(&mut self, option: u32, len: u32) {
        self.put(&OPTION_MAGIC.to_be_bytes());
        self.put(&option.to_be_bytes());
        self.put(&len.to_be_bytes());
    }

    /// All replies to an option: number and data.
    pub(crate) fn option_replies(&mut self) -> Vec<(u32, Vec<u8>)> {
        let mut replies = Vec::new();
        loop {
            assert_eq!(self.take_array(), OPTION_REPLY_MAGIC.to_be_bytes());
            self.take(4);
            let number = u32::from_be_bytes(self.take_array());
            let len = u32::from_be_bytes(self.take_array());
            replies.push((number, self.take(len as usize)));
            if number == REP_ACK || number & (1 << 31) != 0 {
                return replies;
            }
        }
    }

    pub(crate) fn go(&mut self, export: &str) {
        let len = u32::try_from(export.len()).unwrap().to_be_bytes();
        self.option(OPT_GO, &[&len, export.as_bytes(), &[0, 0]].concat());
        assert_eq!(self.option_replies().last().unwrap().0, REP_ACK);
    }

    pub(crate) fn send(
        &mut self,
        command: u16,
        flags: u16,
        cookie: u64,
        offset: u64,
        len_bytes: u32,
    ) {
        let request = Request { flags, command, cookie: Cookie(cookie), offset, len_bytes };
        self.put(&request.encode());
    }

    /// The next reply to a request that reads `read_len` bytes.
    pub(crate) fn reply(&mut self, read_len: usize) -> Reply {
        let magic = u32::from_be_bytes(self.take_array());
        if magic == SIMPLE_REPLY_MAGIC {
            let errno = u32::from_be_bytes(self.take_array());
            let cookie = u64::from_be_bytes(self.take_array());
            let content = self.take(if errno == 0 { read_len } else { 0 });
            assert!(!self.structured || read_len == 0, "reads are answered by chunks");
            return Reply { cookie, errno, content };
        }
        assert_eq!(magic, STRUCTURED_REPLY_MAGIC);
        assert!(self.structured);
        assert_eq!(self.take_array(), REPLY_FLAG_DONE.to_be_bytes());
        let kind = u16::from_be_bytes(self.take_array());
        let cookie = u64::from_be_bytes(self.take_array());
        let len = u32::from_be_bytes(self.take_array());
        let content = self.take(len as usize);
        match kind {
            REPLY_TYPE_OFFSET_DATA => {
                assert_eq!(content.len(), 8 + read_len);
                Reply { cookie, errno: 0, content: content[8..].to_vec() }
            }
            REPLY_TYPE_ERROR => {
                assert_eq!(content[4..], [0, 0]);
                let errno = u32::from_be_bytes(content[..4].try_into().unwrap());
                Reply { cookie, errno, content: Vec::new() }
            }
            REPLY_TYPE_BLOCK_STATUS => Reply { cookie, errno: 0, content },
            _ => panic!("a chunk of type {kind}"),
        }
    }

    /// One request and its error number.
    pub(crate) fn errno(&mut self, command: u16, flags: u16, offset: u64, len_bytes: u32) -> u32 {
        self.send(command, flags, 77, offset, len_bytes);
        let reply = self.reply(if command == CMD_READ { len_bytes as usize } else { 0 });
        assert_eq!(reply.cookie, 77);
        reply.errno
    }

    pub(crate) fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        self.send(CMD_WRITE, flags, 78, offset, u32::try_from(data.len()).unwrap());
        self.put(data);
        let reply = self.reply(0);
        assert_eq!(reply.cookie, 78);
        reply.errno
    }

    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        self.send(CMD_READ, 0, 79, offset, u32::try_from(len).unwrap());
        let reply = self.reply(len);
        assert_eq!((reply.cookie, reply.errno), (79, 0));
        reply.content
    }

    /// Lengths and states of the extents in a range.
    pub(crate) fn extents(&mut self, flags: u16, offset: u64, len_bytes: u32) -> Vec<(u32, u32)> {
        self.send(CMD_BLOCK_STATUS, flags, 80, offset, len_bytes);
        let reply = self.reply(0);
        assert_eq!(reply.errno, 0);
        let (context, extents) = reply.content.split_at(4);
        assert_eq!(context, BASE_ALLOCATION_ID.to_be_bytes());
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        extents.chunks(8).map(|e| (number(&e[..4]), number(&e[4..]))).collect()
    }
}
