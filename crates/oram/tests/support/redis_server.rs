//! Redis servers that tests start.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server with its data in a folder, listening there; killed when dropped.
pub(crate) struct Redis {
    process: Child,
    pub(crate) url: String,
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// `None` where there is no such program.
pub(crate) fn redis(folder: &Path, settings: &[&str]) -> Option<Redis> {
    let socket = folder.join("socket");
    let started = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--daemonize", "no", "--unixsocket"])
        .arg(&socket)
        .arg("--dir")
        .arg(folder)
        .args(settings)
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut process) = started else {
        eprintln!("SKIPPED: stores in Redis: there is no redis-server");
        return None;
    };
    let said = BufReader::new(process.stdout.take().unwrap());
    let mut lines = said.lines();
    assert!(lines.any(|line| line.unwrap().contains("eady to accept connections")));
    // What it says further is read, so that it can say it.
    std::thread::spawn(move || lines.count());
    Some(Redis { process, url: format!("unix:{}", socket.display()) })
}

/// Settings of a server that keeps what it has answered.
pub(crate) const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
