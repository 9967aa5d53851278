//! Disks of virtual machines: what is overwritten there is overwritten on what the host keeps as a disk,
//! and whether the host keeps copies can only be seen on the host.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// Below the folder of a device: what it says it is.
const SAYS: [&str; 2] = ["device/vendor", "device/model"];

/// Words in what disks say that are emulated, or served by a cloud.
const MAKERS: [&str; 7] =
    ["QEMU", "VBOX", "VMware", "Msft", "MSFT NVMe", "Google", "Amazon Elastic Block Store"];

/// Names of buses that only virtual machines have.
const BUSES: [&str; 3] = ["virtio", "vbd-", "VMBUS:"];

/// Disks below one another that are looked at: a loop device on a volume on a mirror on a disk are four.
const DEPTH_MAX: usize = 16;

/// Whether the device whose folder in /sys is `folder` lies on a disk of a virtual machine, as far as
/// that can be seen from within.
pub fn is_virtual_disk(folder: &Path) -> bool {
    lies_on_one(folder, DEPTH_MAX)
}

fn lies_on_one(folder: &Path, depth: usize) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    let has_bus = folder.iter().any(|name| {
        let name = name.to_string_lossy();
        BUSES.iter().any(|bus| name.starts_with(bus))
    });
    has_bus
        // A partition says nothing, and its disk is the folder above.
        || [folder.as_path(), folder.parent().unwrap_or(&folder)].into_iter().any(says_so)
        || depth > 0 && beneath(&folder).iter().any(|below| lies_on_one(below, depth - 1))
}

fn says_so(disk: &Path) -> bool {
    SAYS.iter().filter_map(|file| fs::read_to_string(disk.join(file)).ok()).any(|said| {
        let said = said.trim();
        MAKERS.iter().any(|maker| said.starts_with(maker))
    })
}

/// The file of the loop device whose folder in /sys is `folder`.
pub(crate) fn file_of_loop(folder: &Path) -> Option<PathBuf> {
    let mut path = fs::read(folder.join("loop/backing_file")).ok()?;
    path.pop_if(|last| *last == b'\n');
    Some(OsString::from_vec(path).into())
}

/// The folders of what a device lies on: of a mapped one or an array its members, of a loop device the
/// one that has its file.
fn beneath(folder: &Path) -> Vec<PathBuf> {
    let members = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
    let file = file_of_loop(folder).and_then(|file| fs::metadata(file).ok());
    let below_file = file.map(|file| {
        let number = file.dev();
        PathBuf::from(format!("/sys/dev/block/{}:{}", major(number), minor(number)))
    });
    members.map(|member| member.path()).chain(below_file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A /sys of files.
    struct Sys(tempfile::TempDir);

    impl Sys {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn disk(&self, place: &str, vendor: &str) -> PathBuf {
            let folder = self.0.path().join(place);
            fs::create_dir_all(folder.join("device")).unwrap();
            fs::write(folder.join("device/vendor"), format!("{vendor}\n")).unwrap();
            folder
        }

        /// A mapped device on others.
        fn mapped(&self, name: &str, members: &[&Path]) -> PathBuf {
            let folder = self.0.path().join(name);
            fs::create_dir_all(folder.join("slaves")).unwrap();
            for (number, member) in members.iter().enumerate() {
                std::os::unix::fs::symlink(member, folder.join(format!("slaves/{number}")))
                    .unwrap();
            }
            folder
        }
    }

    #[test]
    fn a_bus_or_a_maker_tells() {
        let sys = Sys::new();
        for (place, vendor, expected) in [
            ("pci0000:00/0000:00:02.0/virtio1/block/vda", "0x1af4", true),
            ("vbd-51712/block/xvda", "", true),
            ("pci0000:00/ata1/host0/target0/block/sda", "QEMU    ", true),
            ("pci0000:00/ata2/host0/target0/block/sdb", "ATA     ", false),
            ("pci0000:00/nvme0/nvme0n1", "Samsung SSD 990", false),
        ] {
            let disk = sys.disk(place, vendor);
            assert_eq!(is_virtual_disk(&disk), expected, "{place}");
            let partition = disk.join("p1");
            fs::create_dir(&partition).unwrap();
            assert_eq!(is_virtual_disk(&partition), expected, "a partition of {place}");
        }
        assert!(!is_virtual_disk(&sys.0.path().join("nowhere")));
    }

    #[test]
    fn one_beneath_is_enough() {
        let sys = Sys::new();
        let (own, hosts) = (sys.disk("ata/block/sda", "ATA"), sys.disk("virtio0/block/vda", ""));
        assert!(!is_virtual_disk(&sys.mapped("own", &[&own])));
        let mirror = sys.mapped("mirror", &[&own, &hosts]);
        assert!(is_virtual_disk(&mirror));
        assert!(is_virtual_disk(&sys.mapped("upon", &[&mirror])));
        // In a circle, which the kernel does not make.
        let circle = sys.mapped("circle", &[]);
        std::os::unix::fs::symlink(&circle, circle.join("slaves/0")).unwrap();
        assert!(!is_virtual_disk(&circle));
    }
}
