//! ext4 on a loop device on a file, as the kernel mounts it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::mount_guard::try_unmount;
use crate::system;

/// ext4 on a loop device on a file; both are taken away when it is dropped.
#[derive(Debug)]
pub struct LoopDisk {
    device: Option<String>,
    at: PathBuf,
}

impl LoopDisk {
    /// Attaches `file`, makes ext4 with the options `make` and mounts it with `options` at the folder `at`,
    /// which is made.
    ///
    /// # Errors
    /// What is missing on this machine.
    ///
    /// # Panics
    /// If the folder cannot be made, or a path is not UTF-8.
    pub fn new(file: &Path, at: PathBuf, make: &[&str], options: &str) -> Result<Self, String> {
        fs::create_dir(&at).expect("a new folder");
        let mut disk = Self { device: None, at };
        let file = file.to_str().expect("UTF-8");
        let device = system("losetup", &["--find", "--show", file])?;
        disk.device = Some(device.clone());
        system("mkfs.ext4", &[&["-q"], make, &[&device]].concat())?;
        disk.mount(options)?;
        Ok(disk)
    }

    /// Mounts it, once more if it was unmounted.
    ///
    /// # Errors
    /// What `mount` says.
    ///
    /// # Panics
    /// If the path is not UTF-8.
    pub fn mount(&self, options: &str) -> Result<(), String> {
        let (device, at) = (self.device(), self.at.to_str().expect("UTF-8"));
        system("mount", &["-t", "ext4", "-o", options, device, at]).map(drop)
    }

    /// Unmounts it.
    pub fn unmount(&self) {
        while try_unmount(&self.at).is_ok() {}
    }

    /// Where it is mounted.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// The loop device.
    ///
    /// # Panics
    /// If it was never attached.
    pub fn device(&self) -> &str {
        self.device.as_deref().expect("attached when it was made")
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        self.unmount();
        if let Some(device) = &self.device {
            let _ = system("losetup", &["--detach", device]);
        }
    }
}
