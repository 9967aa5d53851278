//! An overlay on an image, mounted in this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tacita_clock::System;
use tacita_purge::{Overlay, OverlayOptions, Policy};
use tacita_vfs::Posix;
use tacita_vfs::fuse::{Mount, MountOptions, mount};

use crate::image::Image;

/// A mounted overlay.
pub(crate) struct Mounted {
    pub(crate) dir: PathBuf,
    mount: Option<Mount>,
    posix: Option<Arc<Posix<Overlay>>>,
}

pub(crate) fn options(method: &str, asynchronous: bool) -> OverlayOptions {
    OverlayOptions {
        policy: Policy { method: method.parse().unwrap(), ..Policy::default() },
        asynchronous,
        epoch: Duration::from_hours(1),
        ..OverlayOptions::default()
    }
}

impl Mounted {
    pub(crate) fn new(image: &Image, options: OverlayOptions) -> Self {
        Self::at(&image.dir(), image.mount_dir(), options)
    }

    /// One of any folder.
    pub(crate) fn at(lower: &Path, dir: PathBuf, options: OverlayOptions) -> Self {
        Self::start(lower, dir, options, true)
    }

    /// As the daemon, root, writes: also what other users have it write.
    pub(crate) fn by_root_alone(image: &Image, options: OverlayOptions) -> Self {
        Self::start(&image.dir(), image.mount_dir(), options, false)
    }

    fn start(lower: &Path, dir: PathBuf, options: OverlayOptions, callers_room: bool) -> Self {
        let passthrough = options.passthrough;
        let overlay = Overlay::open(lower, options).unwrap();
        let posix = Arc::new(Posix::new(overlay, Arc::new(System)));
        let options = MountOptions {
            allow_other: true,
            passthrough,
            callers_room,
            // What waits for a request within another one needs a thread that is free.
            threads: 4,
            sync_interval: Duration::ZERO,
            extra: vec!["dev,suid".to_owned()],
            ..MountOptions::default()
        };
        let mount = mount(Arc::clone(&posix), &dir, &options).unwrap();
        Self { dir, mount: Some(mount), posix: Some(posix) }
    }

    pub(crate) fn overlay(&self) -> &Overlay {
        self.posix.as_ref().unwrap().file_system()
    }

    /// Unmounts it; everything is purged then.
    pub(crate) fn end(mut self) {
        self.mount.take().unwrap().unmount().unwrap();
        drop(self.posix.take());
    }

    /// Unmounts it, which says that something is not purged, or not on the medium.
    #[cfg(feature = "faults")]
    pub(crate) fn end_in_failure(mut self) {
        self.mount.take().unwrap().unmount().unwrap_err();
        drop(self.posix.take());
    }
}
