//! Sockets of this machine that are listened at.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::Address;
use super::address::is_of_this_machine;

/// How long is waited for others who begin to listen in the same folder.
const LOCKED_MAX: Duration = Duration::from_secs(5);
const LOCKED_LOOK: Duration = Duration::from_millis(10);

/// The file of a socket that is listened at: it goes when this is dropped, and no other one that has got its name.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    number: [u64; 2],
}

impl SocketFile {
    /// That of an address which is listened at just now; `None` where there is no file.
    pub fn of(address: &Address) -> Option<Self> {
        let path = address.socket_file()?;
        Some(Self { number: number_of(&path)?, path })
    }

    /// A path without links.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if number_of(&self.path) == Some(self.number) {
            // Whoever takes the address next replaces it if it stays.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn number_of(path: &Path) -> Option<[u64; 2]> {
    path.symlink_metadata().ok().map(|found| [found.dev(), found.ino()])
}

/// Listens at `path`; a socket that nobody listens at any more is taken over. `None` if something else is there.
pub(super) async fn listen(path: &Path) -> io::Result<Option<UnixListener>> {
    // From looking whether somebody listens to listening nobody else does the same.
    let _alone = alone_beside(path).await;
    // Nobody listens on a file that is no socket, either.
    let there = path.symlink_metadata().map(|there| there.file_type());
    if there.is_ok_and(|kind| !kind.is_socket()) {
        return Ok(None);
    }
    match UnixStream::connect(path).await {
        // Left over.
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
        Err(e) if is_of_this_machine(&e) => return Err(e),
        _ => {}
    }
    UnixListener::bind(path).map(Some)
}

/// The folder of a path, locked until it is dropped, where folders can be, and others let go of it.
async fn alone_beside(path: &Path) -> Option<File> {
    let folder = File::open(path.parent()?).ok()?;
    let locked = async {
        while let Err(TryLockError::WouldBlock) = folder.try_lock() {
            sleep(LOCKED_LOOK).await;
        }
    };
    timeout(LOCKED_MAX, locked).await.ok()?;
    Some(folder)
}
