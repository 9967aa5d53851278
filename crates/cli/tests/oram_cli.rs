//! `tacita oram`, as it is typed.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn tacita(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// A server in the foreground, killed if a test fails.
struct Served {
    process: Child,
    stderr: BufReader<ChildStderr>,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Served {
    fn start(store: &str, listen: &str) -> Self {
        let arguments = [
            "oram",
            "serve",
            store,
            "--listen",
            listen,
            "--metrics",
            "127.0.0.1:0",
            "--foreground",
        ];
        let mut process = command(&arguments).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        Self { process, stderr }
    }

    fn said(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn stop(mut self) {
        let pid = Pid::from_raw(self.process.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(self.process.wait().unwrap().code(), Some(0), "{}", self.said());
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_server_serves_and_tells_of_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (store, socket) = (folder.path().join("store"), folder.path().join("socket"));
    for _ in 0..2 {
        let mut served = Served::start(text(&store), &format!("unix:{}", text(&socket)));
        let line = served.said();
        assert!(line.ends_with(&format!("is served at unix:{}", text(&socket))), "{line}");
        let line = served.said();
        let at = line.split_once("http://").unwrap().1.strip_suffix("/metrics").unwrap();
        // A greeting of another protocol is no harm, and is counted.
        UnixStream::connect(&socket).unwrap().write_all(&[9; 40]).unwrap();
        let mut metrics = TcpStream::connect(at).unwrap();
        metrics.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut told = String::new();
        metrics.read_to_string(&mut told).unwrap();
        assert!(told.contains("# TYPE tacita_oram_queries_total counter"), "{told}");
        for target in [&socket, &store] {
            let output = tacita(&["status", "--json", text(target)]);
            let status: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(status["system"], "oram");
            assert_eq!(status["facts"]["queries"], 0, "{status}");
        }
        let second = tacita(&[
            "oram",
            "serve",
            text(&store),
            "--listen",
            &format!("unix:{}", text(&socket)),
        ]);
        assert_eq!(second.status.code(), Some(5), "{second:?}");
        served.stop();
        assert!(!socket.exists());
    }
}

#[test]
fn what_cannot_be_served_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let store = folder.path().join("store");
    let (file, store) = (text(&file), text(&store));
    let port = "127.0.0.1:0";
    for (code, arguments) in [
        (2, vec!["oram", "serve", store]),
        (2, vec!["oram", "serve", store, "--listen", "nowhere"]),
        (2, vec!["oram", "serve", "s3://bucket", "--listen", port]),
        (2, vec!["oram", "serve", store, "--listen", port, "--metrics", "0.0.0.0:0"]),
        (4, vec!["oram", "serve", file, "--listen", port]),
        (4, vec!["oram", "serve", "redis://127.0.0.1:1/#a", "--listen", port]),
    ] {
        let output = tacita(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(!said.is_empty() && !said.contains("panicked"), "{said}");
    }
}
