//! Clients that do not keep to the protocol: the server stays up, and its memory bounded.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tacita_block::{BlockDevice, RequestKind, TraceDevice};
use tacita_clock::{Clock, Simulated, System};
use tacita_nbd::negotiation::OPTION_LEN_MAX_BYTES;
use tacita_nbd::protocol::*;
use tacita_nbd::request::{Cookie, Request};
use tacita_nbd::{Export, Limits, Listener, Server};

use crate::client::{Client, Served, WAIT_MAX};
use crate::devices::memory;

/// Little patience, and time that passes when a test says so.
const HASTY: Limits = Limits {
    connections: 32,
    content_len_bytes: 256 << 20,
    negotiation: Duration::from_millis(300),
    request: Duration::from_millis(300),
};

/// Set for the process that [`memory_is_bounded`] looks at.
const SOCKET_VARIABLE: &str = "TACITA_NBD_TEST_SOCKET";

fn hasty(device: impl BlockDevice + 'static) -> (Served, Arc<Simulated>) {
    let clock = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
    let exports = vec![Export::new("disk", Arc::new(device))];
    (Served::on(exports, HASTY, Arc::<Simulated>::clone(&clock)), clock)
}

/// Says a byte and lets a sixth of a client's time pass, again and again, until the server has enough
/// of it.
fn outlast(mut client: Client, clock: &Simulated, bytes: &[u8]) {
    client.stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let (begin, mut bytes) = (System.monotonic(), bytes.iter().cycle());
    while !client.is_closed() {
        assert!(System.elapsed(begin) < WAIT_MAX, "it may take as long as it likes");
        if let Some(byte) = bytes.next() {
            // It may be closed by now.
            let _ = client.stream.write_all(&[*byte]);
        }
        clock.advance(HASTY.request / 6);
    }
}

/// A well-behaved client is served as ever.
fn assert_well(served: &Served) {
    let mut client = served.structured();
    assert_eq!(client.write(0, 100, &[5; 1000]), 0);
    assert_eq!(client.read(100, 1000), [5; 1000]);
}

/// Bytes without a pattern, the same in every run.
fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed.to_le_bytes()[7]
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn garbage_ends_a_connection_and_nothing_else() {
    let (served, _) = hasty(memory(1 << 20, 512));
    for seed in 0..20 {
        let bytes = noise(3000, seed);
        // At once, after the greeting, and among requests.
        let clients = [served.connect(), served.greeted(), served.simple()];
        for mut client in clients {
            // It may be closed while this is being sent.
            let _ = client.stream.write_all(&bytes);
            let _ = client.stream.shutdown(Shutdown::Write);
            assert!(client.is_closed());
        }
    }
    served.await_connections(0);
    assert_well(&served);
}

#[test]
fn unknown_client_flags_are_not_served() {
    let (served, _) = hasty(memory(1 << 20, 512));
    let mut client = served.connect();
    client.take(18);
    client.put(&[0x80, 0, 0, 3]);
    assert!(client.is_closed());
    assert_well(&served);
}

#[test]
fn absurd_options_are_refused_and_passed_over() {
    let (served, clock) = hasty(memory(1 << 20, 512));
    let mut client = served.greeted();
    let long = vec![0; OPTION_LEN_MAX_BYTES as usize + 1];
    for option in [OPT_GO, OPT_LIST, OPT_SET_META_CONTEXT, 12_345] {
        client.option(option, &long);
        assert_eq!(client.option_replies(), [(REP_ERR_TOO_BIG, Vec::new())]);
    }
    client.option(OPT_GO, &long[1..]);
    assert_eq!(client.option_replies()[0].0, REP_ERR_INVALID);
    client.go("disk");
    assert_eq!(client.read(0, 10), [0; 10]);
    // Data that never come.
    for option in [OPT_GO, OPT_EXPORT_NAME, 99] {
        let mut client = served.greeted();
        client.option_head(option, u32::MAX);
        outlast(client, &clock, &[]);
    }
    assert_well(&served);
}

#[test]
fn thousands_of_options_come_to_an_end() {
    let served = Served::device(memory(1 << 20, 512));
    let mut client = served.greeted();
    let mut writer = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        let option = [&OPTION_MAGIC.to_be_bytes()[..], &OPT_LIST.to_be_bytes(), &[0; 4]].concat();
        (0..100_000).find(|_| writer.write_all(&option).is_err())
    });
    assert!(client.is_closed());
    assert!(sender.join().unwrap().is_some());
    assert_well(&served);
}

#[test]
fn who_dawdles_is_shut_out() {
    let (served, clock) = hasty(memory(1 << 20, 512));
    let mut idle = served.simple();
    outlast(served.connect(), &clock, &[0, 0, 0, 3]);
    let head = [&OPTION_MAGIC.to_be_bytes()[..], &[0; 200]].concat();
    outlast(served.greeted(), &clock, &head);
    outlast(served.simple(), &clock, &REQUEST_MAGIC.to_be_bytes());
    let mut client = served.simple();
    client.send(CMD_WRITE, 0, 1, 0, 300_000);
    outlast(client, &clock, &[0]);
    // Between requests there is all the time in the world.
    assert_eq!(idle.read(0, 1), [0]);
    assert_well(&served);
}

#[test]
fn half_a_write_changes_nothing() {
    let device = TraceDevice::new(memory(1 << 20, 512));
    let trace = device.trace();
    let served = Served::device(device);
    for len in [1000_u32, 1 << 20] {
        for warm in [0, 60] {
            let mut client = served.simple();
            for _ in 0..warm {
                client.read(0, 512);
            }
            client.send(CMD_WRITE, 0, 1, 0, len);
            client.put(&vec![9; len as usize - 1]);
            drop(client);
            served.await_connections(0);
        }
    }
    assert_eq!(trace.count(RequestKind::Write), 0);
    assert_eq!(served.simple().read(0, 1000), [0; 1000]);
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let served = Served::device(memory(64 << 20, 512));
    for round in 0..30 {
        let mut client = served.simple();
        for cookie in 0..10 {
            // Answers that nobody will read.
            client.send(CMD_READ, 0, cookie, 0, 1 << (10 + round % 13));
        }
        if round % 2 == 0 {
            client.stream.shutdown(Shutdown::Both).unwrap();
        }
    }
    served.await_connections(0);
    assert_well(&served);
}

#[test]
fn oversized_lengths_are_refused_in_step() {
    let served = Served::device(memory(128 << 20, 4096));
    let mut client = served.simple();
    let over = PAYLOAD_LEN_MAX_BYTES + 1;
    for len in [over, u32::MAX] {
        assert_eq!(client.errno(CMD_READ, 0, 0, len), Errno::Inval as u32);
    }
    assert_eq!(client.write(0, 0, &vec![1; over as usize]), Errno::Inval as u32);
    assert_eq!(client.write(0, u64::MAX, &vec![1; 100_000]), Errno::NoSpc as u32);
    assert_eq!(client.write(0, u64::MAX - 10, &[1; 11]), Errno::NoSpc as u32);
    assert_eq!(client.errno(CMD_BLOCK_STATUS, 0, 0, u32::MAX), Errno::Inval as u32);
    assert_eq!(client.read(0, 100), [0; 100], "the connection is in step, and nothing was written");
    // A payload that is announced and never comes.
    let mut liar = served.simple();
    liar.send(CMD_WRITE, 0, 1, 0, u32::MAX);
    liar.put(&vec![0; 1 << 20]);
    drop(liar);
    assert_well(&served);
}

/// Runs as a process of its own, for [`memory_is_bounded`] alone.
#[test]
fn a_process_that_serves() {
    let Some(socket) = std::env::var_os(SOCKET_VARIABLE) else { return };
    let listener = Listener::unix(socket).unwrap();
    let export = Export::new("disk", Arc::new(memory(64 << 20, 512)));
    let server = Server::start(vec![export], vec![listener]).unwrap();
    // Until the parent goes, too.
    std::io::stdin().lines().for_each(drop);
    server.stop(Duration::ZERO);
}

struct ServingProcess(Child);

impl ServingProcess {
    fn start(socket: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["hostile::a_process_that_serves", "--exact"]);
        command.env(SOCKET_VARIABLE, socket).stdin(Stdio::piped()).stdout(Stdio::null());
        let child = Self(command.spawn().unwrap());
        let begin = System.monotonic();
        while UnixStream::connect(socket).is_err() {
            assert!(System.elapsed(begin) < WAIT_MAX, "the server does not start");
            System.wait(Duration::from_millis(5));
        }
        child
    }

    /// Most memory it ever had, in MiB.
    fn peak_mib(&self) -> u64 {
        let status = std::fs::File::open(format!("/proc/{}/status", self.0.id())).unwrap();
        let lines = BufReader::new(status).lines().map(|line| line.unwrap());
        let line = lines.into_iter().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }
}

impl Drop for ServingProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn memory_is_bounded() {
    const CLIENTS: u64 = 3;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let server = ServingProcess::start(&socket);
    let before = server.peak_mib();
    let flood = |command: u16| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let go = [&OPTION_MAGIC.to_be_bytes()[..], &OPT_GO.to_be_bytes(), &[0, 0, 0, 6], &[0; 6]];
        stream.write_all(&[&[0, 0, 0, 3], &go.concat()[..]].concat()).unwrap();
        let (flags, offset, len_bytes) = (0, 0, PAYLOAD_LEN_MAX_BYTES);
        let payload = vec![0; if command == CMD_WRITE { len_bytes as usize } else { 0 }];
        for cookie in 0..100 {
            let request = Request { flags, command, cookie: Cookie(cookie), offset, len_bytes };
            // Nobody reads the answers, so it comes to a halt at some time.
            if stream
                .write_all(&request.encode())
                .and_then(|()| stream.write_all(&payload))
                .is_err()
            {
                break;
            }
        }
        stream
    };
    std::thread::scope(|scope| {
        let floods: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn(move || flood(if client == 0 { CMD_WRITE } else { CMD_READ }))
            })
            .collect();
        let streams: Vec<_> = floods.into_iter().map(|flood| flood.join().unwrap()).collect();
        let grown = || server.peak_mib() - before;
        let begin = System.monotonic();
        while grown() < 32 {
            assert!(System.elapsed(begin) < WAIT_MAX, "the clients are not served at all");
            System.wait(Duration::from_millis(5));
        }
        // There is time for more.
        System.wait(Duration::from_millis(300));
        // What the limits promise for each connection, and what writing zeros takes.
        assert!(grown() <= 40 * CLIENTS, "{} MiB for {CLIENTS} clients", grown());
        drop(streams);
    });
}
