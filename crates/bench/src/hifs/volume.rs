//! An image of a peer, mounted while it is measured, undone when dropped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::harness::runner;
use crate::hifs::peer::Peer;

/// How long a daemon may take to leave after its unmount.
const LEAVE_LIMIT: Duration = Duration::from_mins(2);

/// A peer's image and mount point.
pub(crate) struct Volume<'p> {
    peer: &'p dyn Peer,
    image: PathBuf,
    dir: PathBuf,
    mounted: bool,
}

impl<'p> Volume<'p> {
    /// Formats an image in `folder` and mounts it.
    pub(crate) fn prepare(peer: &'p dyn Peer, folder: &Path, size_bytes: u64) -> Result<Self> {
        let image = folder.join(format!("{}.img", peer.name()));
        let dir = folder.join(peer.name());
        fs::create_dir_all(&dir)?;
        peer.format(&image, size_bytes)
            .with_context(|| format!("cannot format for {}", peer.name()))?;
        let mut volume = Self { peer, image, dir, mounted: false };
        volume.mount()?;
        Ok(volume)
    }

    /// The peer's name.
    pub(crate) fn name(&self) -> &str {
        self.peer.name()
    }

    /// The mount point.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Mounts the image and says how long that took.
    pub(crate) fn mount(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.peer
            .mount(&self.image, &self.dir)
            .with_context(|| format!("cannot mount {}", self.name()))?;
        self.mounted = true;
        Ok(start.elapsed())
    }

    /// Unmounts the image and waits until the daemon is gone.
    pub(crate) fn unmount(&mut self) -> Result<()> {
        let pid = self.daemon();
        self.peer.unmount(&self.dir).with_context(|| format!("cannot unmount {}", self.name()))?;
        if let Some(pid) = pid {
            runner::wait_until(LEAVE_LIMIT, || !runner::is_running(pid))
                .with_context(|| format!("the daemon of {} stays", self.name()))?;
        }
        self.mounted = false;
        Ok(())
    }

    /// Kills the daemon: what it had not stored is lost.
    pub(crate) fn crash(&mut self) -> Result<()> {
        let pid = self.daemon();
        runner::kill(pid);
        if let Some(pid) = pid {
            runner::wait_until(LEAVE_LIMIT, || !runner::is_running(pid))?;
        }
        rustix::mount::unmount(&self.dir, rustix::mount::UnmountFlags::DETACH)?;
        self.mounted = false;
        Ok(())
    }

    /// Whether a file system answers at the mount point that is not the one below it.
    pub(crate) fn answers(&self) -> bool {
        let device = |path: &Path| rustix::fs::stat(path).map(|stat| stat.st_dev);
        let below = self.dir.parent().map(device);
        matches!((device(&self.dir), below), (Ok(here), Some(Ok(below))) if here != below)
    }

    /// The image.
    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    /// Mounts anew with empty caches, those of the daemon included; `false` if those that `forget`
    /// is for could not be emptied.
    pub(crate) fn make_cold(&mut self, forget: fn(&Path) -> bool) -> Result<bool> {
        self.unmount()?;
        let cold = forget(&self.image);
        self.mount()?;
        Ok(cold)
    }

    /// The process that serves the mount; `None` if the kernel does.
    pub(crate) fn daemon(&self) -> Option<u32> {
        runner::process_with(&self.image).or_else(|| runner::process_with(&self.dir))
    }

    /// Bytes that the file system lets its users take.
    ///
    /// The total would be no measure of what fits: some count their own tables in it, and fuse2fs
    /// keeps back a tenth.
    pub(crate) fn free_bytes(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(&self.dir)?;
        Ok(stat.f_bavail * stat.f_frsize)
    }

    /// Returns when what was changed below the folder `changed` of the mount is on the medium.
    ///
    /// Not every file system has a call that syncs all of it, so the folder is synced through the
    /// mount, and the image beneath it.
    pub(crate) fn settle(&self, changed: &Path) -> Result<()> {
        let root = File::open(&self.dir)?;
        rustix::fs::syncfs(&root)?;
        File::open(changed)?.sync_all()?;
        self.peer.settle(&self.dir)?;
        File::open(&self.image)?.sync_data()?;
        Ok(())
    }
}

impl Drop for Volume<'_> {
    fn drop(&mut self) {
        if self.mounted
            && let Err(error) = self.unmount()
        {
            eprintln!("{}: {error:#}", self.name());
        }
        // What a failed mount or unmount left; usually nothing.
        runner::kill(self.daemon());
        rustix::mount::unmount(&self.dir, rustix::mount::UnmountFlags::DETACH).ok();
        // Room for the next images; what cannot go is reported by the owner of the folder.
        fs::remove_file(&self.image).ok();
    }
}
