//! Runs a job file of `fio/` and reads what it says.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::harness::runner;

/// Longest run of a job; the job files bound themselves well below it.
const LIMIT: Duration = Duration::from_mins(2);

/// A job file, compiled in so that the binary needs no source tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    name: &'static str,
    text: &'static str,
}

pub(crate) const SEQ_READ: Job =
    Job { name: "seq-read.fio", text: include_str!("../../../../fio/seq-read.fio") };
pub(crate) const RAND_READ: Job =
    Job { name: "rand-read.fio", text: include_str!("../../../../fio/rand-read.fio") };
pub(crate) const SEQ_OVERWRITE: Job =
    Job { name: "seq-overwrite.fio", text: include_str!("../../../../fio/seq-overwrite.fio") };
pub(crate) const RAND_OVERWRITE: Job =
    Job { name: "rand-overwrite.fio", text: include_str!("../../../../fio/rand-overwrite.fio") };
pub(crate) const NEW_DATA: Job =
    Job { name: "new-data.fio", text: include_str!("../../../../fio/new-data.fio") };

pub(crate) const READ_BESIDE: Job =
    Job { name: "read-beside.fio", text: include_str!("../../../../fio/read-beside.fio") };
pub(crate) const DIRECT_WRITE: Job =
    Job { name: "direct-write.fio", text: include_str!("../../../../fio/direct-write.fio") };
pub(crate) const NBD: Job = Job { name: "nbd.fio", text: include_str!("../../../../fio/nbd.fio") };

/// What a job did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Bytes read and written.
    pub(crate) bytes: u64,
    /// Reads and writes.
    pub(crate) requests: u64,
    /// Reads alone.
    pub(crate) reads: u64,
    /// From the first request to the last, or to the end of the sync.
    pub(crate) runtime_ms: u64,
}

/// Runs `job` with these variables, `scratch` holding the job file meanwhile.
pub(crate) fn run(job: Job, scratch: &Path, variables: &[(&str, String)]) -> Result<Outcome> {
    let path = scratch.join(job.name);
    std::fs::write(&path, job.text)?;
    let mut command = Command::new("fio");
    command.current_dir(scratch);
    command.arg("--output-format=json").arg(&path);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let output = runner::run(&mut command, LIMIT)?;
    parse(&output).with_context(|| format!("{} went wrong", job.name))
}

/// The JSON in what fio says, whatever notes stand before it.
pub(crate) fn facts(output: &str) -> Result<Value> {
    let start = output.find('{').context("no JSON from fio")?;
    serde_json::from_str(&output[start..]).context("bad JSON from fio")
}

/// Adds up the jobs of fio's JSON.
fn parse(output: &str) -> Result<Outcome> {
    let value = facts(output)?;
    let jobs = value["jobs"].as_array().context("no jobs in fio's JSON")?;
    let mut total = Outcome { bytes: 0, requests: 0, reads: 0, runtime_ms: 0 };
    for job in jobs {
        if job["error"].as_u64() != Some(0) {
            bail!("fio reports error {}", job["error"]);
        }
        for direction in ["read", "write"] {
            let field = |name: &str| {
                let number = job[direction][name].as_u64();
                number.with_context(|| format!("no {direction}.{name} in fio's JSON"))
            };
            total.bytes += field("io_bytes")?;
            total.requests += field("total_ios")?;
            total.reads += if direction == "read" { field("total_ios")? } else { 0 };
            total.runtime_ms = total.runtime_ms.max(field("runtime")?);
        }
    }
    if total.bytes == 0 {
        bail!("fio moved no data");
    }
    // Less than a millisecond counts as one.
    total.runtime_ms = total.runtime_ms.max(1);
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"fio: a note before it
{
  "fio version" : "fio-3.33",
  "jobs" : [
    {
      "jobname" : "w",
      "error" : 0,
      "read" : { "io_bytes" : 0, "total_ios" : 0, "runtime" : 0, "bw" : 0 },
      "write" : { "io_bytes" : 67108864, "total_ios" : 2048, "runtime" : 811, "bw" : 80808 },
      "trim" : { "io_bytes" : 0, "total_ios" : 0, "runtime" : 0 }
    }
  ]
}
"#;

    #[test]
    fn reads_what_a_job_did() {
        let expected = Outcome { bytes: 67_108_864, requests: 2048, reads: 0, runtime_ms: 811 };
        assert_eq!(parse(JSON).unwrap(), expected);
    }

    #[test]
    fn tells_errors() {
        let failed = JSON.replace("\"error\" : 0", "\"error\" : 28");
        assert!(parse(&failed).unwrap_err().to_string().contains("28"));
        let idle = JSON.replace("67108864", "0");
        assert!(parse(&idle).is_err());
        assert!(parse("fio: no such job").is_err());
        assert!(parse("{}").is_err());
    }
}
