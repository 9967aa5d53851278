//! What an open device is served by: NBD, or files of a folder.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use tacita_block::BlockDevice;
use tacita_clock::{Clock, System};
use tacita_daemon::FuseDevice;
use tacita_devfiles::DeviceFiles;
use tacita_nbd::{Export, Listener, Server};
use tacita_pddm::Volume;
use tacita_vfs::fuse::{Mount, MountOptions, mount};
use tacita_vfs::{FileSystem, NodeId, Posix};

use super::name_of;
use crate::arguments::Endpoint;
use crate::exit::{self, Failure, Outcome};
use crate::output::shown_name;

/// The name of the public file.
pub(crate) const PUBLIC: &str = "public";
/// What can be done where nothing can be mounted.
const WITHOUT_FUSE: &str = "without FUSE, `--nbd SOCKET` serves the same volumes";
/// How long clients have to take their last answers.
const PATIENCE: Duration = Duration::from_secs(10);
/// A public file counts as in use for a moment after the last program has closed it.
const CLOSED_LOOKS: u32 = 40;
const CLOSED_STEP: Duration = Duration::from_millis(50);

/// What may end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// `tacita pddm close`.
    Close,
    /// SIGTERM and its like.
    Signal,
    /// Somebody has unmounted it.
    Unmounted,
}

/// What serves.
pub(super) enum Serving {
    Nbd(Server),
    Fuse { mount: Box<Mount>, files: Arc<Posix<DeviceFiles>>, public: NodeId },
}

impl Serving {
    /// Serves volumes by the endpoint that is given, and returns its path. `caller` hears of a folder
    /// that is unmounted.
    pub(super) fn start(
        volumes: Vec<Volume>,
        endpoint: &Endpoint,
        read_only: bool,
        caller: &Sender<Call>,
    ) -> Outcome<(Self, PathBuf)> {
        let named = volumes.into_iter().map(|volume| {
            let device: Arc<dyn BlockDevice> = Arc::new(volume.clone());
            (name_of(volume.level()), device)
        });
        match (&endpoint.nbd, &endpoint.fuse) {
            (Some(socket), _) => {
                let exports = named.map(|(name, device)| {
                    let is_hidden = name != PUBLIC;
                    Export::new(name, device).read_only(read_only).private(is_hidden)
                });
                let listener = Listener::unix(socket).map_err(|e| exit::of_nbd(socket, &e))?;
                let server = Server::start(exports.collect(), vec![listener]);
                Ok((Self::Nbd(server.map_err(|e| exit::of_nbd(socket, &e))?), socket.clone()))
            }
            (None, Some(dir)) => {
                let files = DeviceFiles::new(named.map(|(name, device)| (name.into(), device)));
                let serving = files.and_then(|files| Self::mount(files, dir, read_only, caller));
                serving.map_err(|e| exit::of_mounting(&e, WITHOUT_FUSE))
            }
            (None, None) => unreachable!("one of them is given"),
        }
    }

    fn mount(
        files: DeviceFiles,
        dir: &Path,
        read_only: bool,
        caller: &Sender<Call>,
    ) -> tacita_vfs::Result<(Self, PathBuf)> {
        let mount_options = MountOptions {
            read_only,
            fs_name: "tacita-pddm".to_owned(),
            subtype: "tacita-pddm".to_owned(),
            ..DeviceFiles::mount_options()
        };
        let (public, _) = files.lookup(files.root(), OsStr::new(PUBLIC))?;
        let files = Arc::new(Posix::new(files.hiding(|name| name != PUBLIC), Arc::new(System)));
        let mut mount = mount(Arc::clone(&files), dir, &mount_options)?;
        let caller = caller.clone();
        // Nobody listens any more where it ends otherwise.
        mount.when_ended(move || _ = caller.send(Call::Unmounted))?;
        // The path that was given may lead through the folder, where other files are now.
        let dir = mount.dir().to_owned();
        Ok((Self::Fuse { mount: Box::new(mount), files, public }, dir))
    }

    /// The number of the mounted file system, if this is one.
    pub(super) fn device(&self) -> Option<FuseDevice> {
        match self {
            Self::Nbd(_) => None,
            Self::Fuse { mount, .. } => mount.device().cloned(),
        }
    }

    /// Hands over what programs have changed in mappings of the public file. Of hidden ones nobody may be seen to
    /// wait.
    pub(super) fn hands_over(&self) -> impl Fn() + Send + Sync + use<> {
        let public = match self {
            Self::Nbd(_) => None,
            Self::Fuse { files, public, .. } => Some((Arc::clone(files), *public)),
        };
        move || {
            if let Some((files, public)) = &public {
                files.hand_over_mapped(*public);
            }
        }
    }

    /// Why it cannot be closed now, and nothing is to be changed: a program has the public file open, or
    /// another file system is mounted over the folder, which would stay then, dead. Anything else would
    /// tell what is open beside the public file.
    pub(super) fn hindrance(&self, endpoint: &Path) -> Option<Failure> {
        let Self::Fuse { mount, files, public } = self else { return None };
        let (what, first) = if mount.is_covered() {
            let text = format!("{}: another file system is mounted over it", shown_name(endpoint));
            (text, "unmount that first, with `umount DIR`")
        } else if stays_open(files, *public) {
            let public = endpoint.join(PUBLIC);
            let text = format!("{}: in use", shown_name(&public));
            (text, "close the programs that use it first")
        } else {
            return None;
        };
        let remedy = format!("nothing has been changed; {first}");
        Some(Failure::new(exit::BUSY, what).with_remedy(remedy))
    }

    /// Nobody is served any more, or not for longer than the process lives; then `close` does what is
    /// left to do.
    pub(super) fn stop(
        self,
        unmounted: bool,
        close: impl FnOnce(Outcome<()>) -> Outcome<()>,
    ) -> Outcome<()> {
        let close_mount =
            |served: tacita_vfs::Result<()>| close(served.map_err(|e| exit::of_serving(&e)));
        match self {
            Self::Nbd(server) => {
                server.stop(PATIENCE);
                close_mount(Ok(()))
            }
            Self::Fuse { mount, .. } if unmounted => mount.wait_for_good(close_mount),
            Self::Fuse { mount, .. } => mount.leave(close_mount),
        }
    }
}

/// Whether a program has a file open, and not only for a moment more.
fn stays_open(files: &Posix<DeviceFiles>, file: NodeId) -> bool {
    (0..CLOSED_LOOKS).all(|_| {
        let open = files.is_open(file);
        if open {
            System.wait(CLOSED_STEP);
        }
        open
    })
}
