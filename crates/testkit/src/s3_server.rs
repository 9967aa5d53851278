//! A server of buckets on this machine, for tests: minio if it is installed, otherwise moto, which keeps
//! everything in memory and believes everybody.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tacita_clock::{Clock, System};

/// Longest time that a server takes until it answers.
const BEGIN_MAX: Duration = Duration::from_mins(3);

/// The bucket that every server has.
pub const BUCKET: &str = "bucket";

/// Who may do everything there.
pub const KEY_ID: &str = "AKIAEXAMPLE";

/// What shows it.
pub const SECRET: &str = "not-known-to-others";

/// Which program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Minio,
    Moto,
}

/// A server with one empty bucket, killed when dropped.
pub struct S3Server {
    program: Program,
    folder: PathBuf,
    address: SocketAddr,
    process: Option<Child>,
}

/// A port that stays free while the server is starting, or is not there for a while: below those that the kernel gives
/// to whoever asks for any, with sixteen for each process before others try them.
fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(16);
    let mut ports = std::iter::repeat_with(|| {
        let next = first.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed)) % 20_000;
        10_000 + u16::try_from(next).expect("it is less than that")
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.find(is_free).expect("they come without end")
}

impl S3Server {
    /// Starts one with its data in `folder`; `None` where there is neither program, which is told.
    ///
    /// # Panics
    /// If it does not begin to answer.
    pub fn start(test: &str, folder: &Path) -> Option<Self> {
        let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
        let program = if is_there("minio") {
            Program::Minio
        } else if is_there("moto_server") {
            Program::Moto
        } else {
            eprintln!("SKIPPED: {test}: neither minio nor moto_server is installed");
            return None;
        };
        let address = (Ipv4Addr::LOCALHOST, free_port()).into();
        std::fs::create_dir_all(folder.join(BUCKET)).expect("a folder can be made");
        let mut server = Self { program, folder: folder.to_owned(), address, process: None };
        server.begin();
        Some(server)
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether what it has answered outlives it.
    pub fn is_durable(&self) -> bool {
        self.program == Program::Minio
    }

    /// Whether it looks at credentials.
    pub fn is_strict(&self) -> bool {
        self.program == Program::Minio
    }

    /// Ends it as a power cut does.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it is a process of this one");
            process.wait().expect("it is a process of this one");
        }
    }

    /// Starts it again at the same address.
    ///
    /// # Panics
    /// If it does not begin to answer.
    pub fn begin(&mut self) {
        let port = self.address.port().to_string();
        let mut command = match self.program {
            Program::Minio => {
                let mut command = Command::new("minio");
                command.args(["server", "--quiet", "--address", &self.address.to_string()]);
                command.arg("--console-address").arg("127.0.0.1:0").arg(&self.folder);
                command.env("MINIO_ROOT_USER", KEY_ID).env("MINIO_ROOT_PASSWORD", SECRET);
                command
            }
            Program::Moto => {
                let mut command = Command::new("moto_server");
                command.args(["-H", "127.0.0.1", "-p", &port]);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("it is installed"));
        let begin = System.monotonic();
        let (asked, word) = match self.program {
            Program::Minio => ("GET /minio/health/ready", "200"),
            Program::Moto => ("PUT /bucket", "200"),
        };
        while !self.asked(asked).is_some_and(|answer| answer.contains(word)) {
            assert!(System.elapsed(begin) < BEGIN_MAX, "it does not begin to answer");
            System.wait(Duration::from_millis(20));
        }
    }

    /// The first line of an answer.
    fn asked(&self, line: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.address
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.lines().next().map(str::to_owned)
    }
}

impl fmt::Debug for S3Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Server").field("program", &self.program).finish_non_exhaustive()
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.kill();
    }
}
