//! Who serves: a block device of ours in this process, or nbdkit in its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result};
use tacita_block::BlockDevice;
use tacita_nbd::{Export, Listener, Server};

use crate::harness::runner;

/// Longest start of a server.
const START_LIMIT: Duration = Duration::from_secs(10);

/// An export that can be measured; it is served until dropped.
pub(crate) struct Contender {
    name: String,
    uri: String,
    written_bytes: Option<Count>,
    _serving: Serving,
}

type Count = Box<dyn Fn() -> u64>;

enum Serving {
    Here { _server: Server },
    There { _process: Process },
}

/// A process that ends with its owner.
struct Process(Child);

impl Contender {
    /// Serves a device of ours.
    pub(crate) fn device(name: &str, folder: &Path, device: Arc<dyn BlockDevice>) -> Result<Self> {
        let socket = socket_of(name, folder);
        let listener = Listener::unix(&socket)?;
        let server = Server::start(vec![Export::new("", device)], vec![listener])?;
        Ok(Self {
            name: name.into(),
            uri: uri_of(&socket),
            written_bytes: None,
            _serving: Serving::Here { _server: server },
        })
    }

    /// Lets nbdkit serve a new file of `size_bytes`.
    pub(crate) fn nbdkit_file(name: &str, folder: &Path, size_bytes: u64) -> Result<Self> {
        let image = folder.join(name).with_extension("img");
        fs::File::create(&image)?.set_len(size_bytes)?;
        Self::nbdkit(name, folder, &["file".as_ref(), image.as_os_str()])
    }

    /// Lets nbdkit serve whatever `arguments` say: filters, a plugin, its parameters.
    pub(crate) fn nbdkit(
        name: &str,
        folder: &Path,
        arguments: &[&std::ffi::OsStr],
    ) -> Result<Self> {
        let socket = socket_of(name, folder);
        let mut command = Command::new("nbdkit");
        // It must not outlive us, however we end.
        command.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&socket);
        // Written when it listens.
        let ready = folder.join(name).with_extension("pid");
        command.arg("--pidfile").arg(&ready);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        let process = Process(command.spawn().context("cannot start nbdkit")?);
        runner::wait_until(START_LIMIT, || ready.exists()).context("nbdkit does not serve")?;
        Ok(Self {
            name: name.into(),
            uri: uri_of(&socket),
            written_bytes: None,
            _serving: Serving::There { _process: process },
        })
    }

    /// With a count of all bytes that it has written to its device.
    pub(crate) fn counting(mut self, written_bytes: impl Fn() -> u64 + 'static) -> Self {
        self.written_bytes = Some(Box::new(written_bytes));
        self
    }

    /// Bytes that it has written to its device, if it counts them.
    pub(crate) fn written_bytes(&self) -> Option<u64> {
        self.written_bytes.as_ref().map(|count| count())
    }

    /// Name in tables and CSV.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where clients find it.
    pub(crate) fn uri(&self) -> &str {
        &self.uri
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let ended: io::Result<_> = self.0.kill().and_then(|()| self.0.wait());
        if let Err(error) = ended {
            eprintln!("process {}: {error}", self.0.id());
        }
    }
}

fn socket_of(name: &str, folder: &Path) -> PathBuf {
    folder.join(name).with_extension("sock")
}

fn uri_of(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}
