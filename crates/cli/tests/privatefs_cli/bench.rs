//! A store, its key, its server, and mounts of it; all ended with it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tacita_testkit::s3_server::{KEY_ID, SECRET};
use tacita_testkit::{MountGuard, Watchdog, kill_daemon, skip_without_fuse};

/// A test that takes so long hangs.
const TIME_MAX: Duration = Duration::from_mins(20);

pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: String,
    /// Credentials and address of a bucket.
    variables: Vec<(&'static str, String)>,
    mounts: Vec<MountGuard>,
    _watchdog: Watchdog,
}

impl Bench {
    /// A file system in a folder; `None` where nothing can be mounted.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let bench = Self::at(test, None, &[])?;
        bench.make(16384, 256);
        Some(bench)
    }

    /// Of a store elsewhere, which is not there yet.
    pub(crate) fn at(test: &str, store: Option<&str>, endpoint: &[String]) -> Option<Self> {
        if skip_without_fuse(test) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("store").to_str().unwrap().to_owned();
        let variables = endpoint.iter().flat_map(|endpoint| {
            [
                ("AWS_ACCESS_KEY_ID", KEY_ID.to_owned()),
                ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
                ("AWS_REGION", "us-east-1".to_owned()),
                ("AWS_ENDPOINT_URL", endpoint.clone()),
                ("AWS_ALLOW_HTTP", "true".to_owned()),
            ]
        });
        Some(Self {
            folder,
            store: store.map_or(own, str::to_owned),
            variables: variables.collect(),
            mounts: Vec::new(),
            _watchdog: Watchdog::start(test, TIME_MAX),
        })
    }

    /// Makes the store, serves it, and makes a file system in it.
    pub(crate) fn make(&self, blocks: u64, period: u64) {
        self.ends(&format!("oram init STORE --key KEY --blocks {blocks} --period {period}"), 0);
        self.serve();
        self.ends("privatefs format SERVER --key KEY", 0);
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn tacita(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// `tacita`, where STORE, KEY, SERVER and ENGINE (addresses) stand for those of this bench.
    pub(crate) fn command(&self, line: &str) -> Command {
        let words = line.split(' ').map(|word| match word {
            "STORE" => self.store.clone(),
            "KEY" => self.path("key"),
            "SERVER" => format!("unix:{}", self.path("server")),
            "ENGINE" => format!("engine:unix:{}", self.path("engine")),
            "AT_ENGINE" => format!("unix:{}", self.path("engine")),
            other => other.to_owned(),
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
        command.args(words).stdin(Stdio::null());
        for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CA_BUNDLE"] {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().cloned());
        command
    }

    #[track_caller]
    pub(crate) fn ends(&self, line: &str, code: i32) -> Output {
        let output = self.tacita(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        output
    }

    pub(crate) fn facts(&self, line: &str) -> Value {
        serde_json::from_slice(&self.ends(&format!("{line} --json"), 0).stdout).unwrap()
    }

    #[track_caller]
    pub(crate) fn serve(&self) {
        self.ends("oram serve STORE --listen SERVER", 0);
    }

    /// Another mount; returns its folder.
    #[track_caller]
    pub(crate) fn mount(&mut self, address: &str, options: &str) -> PathBuf {
        let guard = MountGuard::new().unwrap();
        let dir = guard.path().to_owned();
        self.mounts.push(guard);
        self.mount_at(&dir, address, options);
        dir
    }

    #[track_caller]
    pub(crate) fn mount_at(&self, dir: &std::path::Path, address: &str, options: &str) {
        let dir = dir.display();
        self.ends(format!("privatefs mount {address} {dir} --key KEY {options}").trim_end(), 0);
    }

    #[track_caller]
    pub(crate) fn umount(&self, dir: &std::path::Path) {
        self.ends(&format!("umount {}", dir.display()), 0);
    }

    /// Nothing is wrong with the file system.
    #[track_caller]
    pub(crate) fn check(&self, address: &str) -> Value {
        let found = self.facts(&format!("privatefs check {address} --key KEY"));
        assert_eq!(found["wrong"], serde_json::json!([]), "{found}");
        found
    }

    /// Kills the process that serves this, and waits until it is gone.
    pub(crate) fn kill(&self, target: &str) {
        kill_daemon(&self.ends(&format!("status {target} --json"), 0).stdout);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for guard in &self.mounts {
            let _ = self.tacita(&format!("umount {}", guard.path().display()));
        }
        self.mounts.clear();
        for name in ["engine", "server"] {
            let _ = self.tacita(&format!("oram close {}", self.path(name)));
        }
    }
}

/// Runs a program, which must succeed.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Bytes that are nowhere alike.
pub(crate) fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed + 1;
    let mut byte = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    };
    (0..len).map(|_| byte()).collect()
}
