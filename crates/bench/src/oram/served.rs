//! The server as people run it, seen from outside: its counts, its processor time, its memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tacita_oram::link::Address;

use crate::harness::runner;
use crate::harness::statistics::real;

/// How long it has to answer for its counts.
const PATIENCE: Duration = Duration::from_secs(30);
/// What Linux counts processor time in for others to read.
const TICKS_PER_SECOND: f64 = 100.0;

/// A server in the foreground, ended with this.
pub(crate) struct Served {
    process: Child,
    socket: PathBuf,
    metrics: String,
}

/// What a server has done so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) queries: f64,
    pub(super) fetches: f64,
    pub(super) bytes: f64,
    pub(super) processor: Duration,
}

impl Served {
    /// Serves the store in `folder`, at a socket there.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let (store, socket) = (folder.join("store"), folder.join("socket"));
        let mut command = Command::new(runner::tacita()?);
        command.args(["oram", "serve", "--foreground", "--metrics", "127.0.0.1:0"]).arg(store);
        command.arg("--listen").arg(format!("unix:{}", socket.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().context("cannot start the server")?;
        let stderr = process.stderr.take().context("the server has no stderr")?;
        let mut served = Self { process, socket, metrics: String::new() };
        for line in BufReader::new(stderr).lines() {
            let line = line?;
            if let Some((_, at)) = line.split_once("http://") {
                at.trim_end_matches("/metrics").clone_into(&mut served.metrics);
                return Ok(served);
            }
        }
        anyhow::bail!("the server did not begin to serve")
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn address(&self) -> Address {
        Address::Unix(self.socket.clone())
    }

    /// What it has counted, and the time that its threads have had.
    pub(crate) fn counts(&self) -> Result<Counts> {
        let mut stream = TcpStream::connect(&self.metrics).context("no metrics")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut told = String::new();
        stream.read_to_string(&mut told)?;
        let count = |name: &str| -> Result<f64> {
            let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
            told.lines().find_map(value).with_context(|| format!("the server does not tell {name}"))
        };
        Ok(Counts {
            queries: count("tacita_oram_queries_total")?,
            fetches: count("tacita_oram_fetches_total")?,
            bytes: count("tacita_oram_bytes_in_total")? + count("tacita_oram_bytes_out_total")?,
            processor: processor_time(self.process.id()).context("no processor time")?,
        })
    }

    /// The most memory that it has had, in KiB.
    pub(super) fn memory_kib(&self) -> Option<f64> {
        memory_kib(self.process.id())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // What it has answered is durable.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Counts {
    /// What has come since `before`, for each query.
    pub(super) fn since(&self, before: &Self) -> Self {
        let queries = (self.queries - before.queries).max(1.0);
        let processor = self.processor.saturating_sub(before.processor);
        Self {
            queries,
            fetches: (self.fetches - before.fetches) / queries,
            bytes: (self.bytes - before.bytes) / queries,
            processor: processor.div_f64(queries),
        }
    }
}

/// The most memory that a process has had, in KiB.
pub(crate) fn memory_kib(pid: u32) -> Option<f64> {
    let field = runner::status_field(pid, "VmHWM")?;
    field.split_whitespace().next()?.parse().ok()
}

/// The time that the threads of a process have had, in the program and in the kernel.
fn processor_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Fields 14 and 15, counted behind the name, which may have spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let ticks = ticks()? + ticks()?;
    Some(Duration::from_secs_f64(real(ticks) / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_time_and_memory() {
        let mut sum = 0_u64;
        let enough = || processor_time(std::process::id()).unwrap() > Duration::from_millis(20);
        while !enough() {
            sum = (0..100_000).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(memory_kib(std::process::id()).unwrap() > 100.0);
    }

    #[test]
    fn counts_are_for_each_query() {
        let counts = |queries, fetches, ms| Counts {
            queries,
            fetches,
            bytes: 2.0 * fetches,
            processor: Duration::from_millis(ms),
        };
        let each = counts(30.0, 100.0, 50).since(&counts(10.0, 20.0, 10));
        assert!((each.fetches - 4.0).abs() < 1e-9 && (each.bytes - 8.0).abs() < 1e-9);
        assert_eq!(each.processor, Duration::from_millis(2));
    }
}
