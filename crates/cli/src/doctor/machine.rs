//! What of the machine as a whole may keep what was in memory.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use tacita_clock::{Clock, System};

use super::Finding;
use crate::faults::{Fault, planted};

/// The machine, by the files that tell of it; tests have others.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// What is in front of /proc, /sys, /etc and /var.
    pub(super) root: PathBuf,
    pub(super) home: Option<PathBuf>,
}

impl Machine {
    pub(super) fn here() -> Self {
        Self { root: "/".into(), home: std::env::home_dir() }
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file of the system, without blanks at its ends; `None` if there is none.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let text = fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// A block device by its name in /sys/class/block, in which a partition and what it lies on are
    /// the same.
    fn block(&self, name: &str, what: &str) -> Option<String> {
        let of = |folder: &str| self.read(&format!("/sys/class/block/{name}/{folder}{what}"));
        of("").or_else(|| of("../"))
    }

    /// The file that a loop device shows, or a partition of one; `None` of another device.
    pub(super) fn behind(&self, device: &str) -> Option<PathBuf> {
        let name = device_name(&self.path(device))?;
        let of = |folder: &str| {
            fs::read(self.path(&format!("/sys/class/block/{name}/{folder}loop/backing_file"))).ok()
        };
        let mut path = of("").or_else(|| of("../"))?;
        path.pop_if(|last| *last == b'\n');
        Some(OsString::from_vec(path).into())
    }

    /// Whether a block device is encrypted by the kernel; `None` if it is not known.
    pub(super) fn is_encrypted(&self, device: &str) -> Option<bool> {
        let name = device_name(&self.path(device))?;
        if !self.path(&format!("/sys/class/block/{name}")).exists() {
            return None;
        }
        Some(self.is_encrypted_block(&name))
    }

    /// The same of a device that is there: it is encrypted, or all is that it lies on, as a volume of
    /// LVM does on an encrypted partition.
    fn is_encrypted_block(&self, name: &str) -> bool {
        if self.block(name, "dm/uuid").is_some_and(|uuid| uuid.starts_with("CRYPT-")) {
            return true;
        }
        let below = fs::read_dir(self.path(&format!("/sys/class/block/{name}/slaves")));
        let mut below = below.into_iter().flatten().flatten().peekable();
        let is_encrypted = |part: fs::DirEntry| {
            part.file_name().to_str().is_some_and(|part| self.is_encrypted_block(part))
        };
        if planted(Fault::PartEncrypted) {
            return below.any(is_encrypted);
        }
        below.peek().is_some() && below.all(is_encrypted)
    }

    /// Whether a block device keeps old content elsewhere: it does not rotate.
    pub(super) fn is_flash(&self, device: &str) -> Option<bool> {
        let name = device_name(&self.path(device))?;
        Some(self.block(&name, "queue/rotational")? == "0")
    }

    /// Whether a block device lies on a disk of a virtual machine, as far as can be seen.
    pub(super) fn is_virtual_disk(&self, device: &str) -> bool {
        let name = device_name(&self.path(device));
        let folder = name.map(|name| self.path(&format!("/sys/class/block/{name}")));
        folder.is_some_and(|folder| tacita_purge::is_virtual_disk(&folder))
    }
}

/// The name of a block device, behind links such as those in /dev/mapper.
fn device_name(path: &Path) -> Option<String> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    Some(path.file_name()?.to_str()?.to_owned())
}

pub(super) fn findings(machine: &Machine) -> Vec<Finding> {
    vec![swap(machine), hibernation(machine), core_dumps(machine), clock(&System)]
}

/// No clock of today is before this: 2026-01-01.
const CLOCK_MIN: u64 = 1_767_225_600;

/// Verdicts, receipts and times in files have the machine's time.
fn clock(clock: &dyn Clock) -> Finding {
    const WHAT: &str = "clock";
    if clock.unix_seconds() >= CLOCK_MIN {
        return Finding::fine(WHAT, "it has been set");
    }
    Finding::leaks(
        WHAT,
        "it is years behind: times in files, verdicts and receipts stand out, and are wrong",
        "set it (`timedatectl set-ntp true`, or `date -s`)",
    )
}

fn swap(machine: &Machine) -> Finding {
    const WHAT: &str = "swap";
    let Some(table) = machine.read("/proc/swaps") else {
        return Finding::unknown(WHAT, "/proc/swaps cannot be read");
    };
    let areas = table.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let clear: Vec<&str> = areas
        .filter(|area| !area.starts_with("/dev/zram") && machine.is_encrypted(area) != Some(true))
        .collect();
    if clear.is_empty() {
        return Finding::fine(WHAT, "there is none, or it is encrypted or in memory");
    }
    Finding::leaks(
        WHAT,
        format!("{} is not known to be encrypted: memory is written there", clear.join(", ")),
        "encrypt it with a random key (/etc/crypttab: `swap DEVICE /dev/urandom swap`), or `swapoff -a`",
    )
}

fn hibernation(machine: &Machine) -> Finding {
    const WHAT: &str = "hibernation";
    let resumes = machine.read("/sys/power/resume").is_some_and(|device| device != "0:0");
    let can = machine.read("/sys/power/state").is_some_and(|states| states.contains("disk"));
    if !(can && resumes) {
        return Finding::fine(WHAT, "not set up");
    }
    Finding::leaks(
        WHAT,
        "all memory is written to a disk when the machine hibernates",
        "mask hibernate.target and hybrid-sleep.target with systemctl, or encrypt what it is written to",
    )
}

fn core_dumps(machine: &Machine) -> Finding {
    const WHAT: &str = "core dumps";
    let Some(pattern) = machine.read("/proc/sys/kernel/core_pattern") else {
        return Finding::unknown(WHAT, "/proc/sys/kernel/core_pattern cannot be read");
    };
    let limits = machine.read("/proc/self/limits").unwrap_or_default();
    let limit = limits.lines().find(|line| line.starts_with("Max core file size"));
    let is_zero = limit.is_some_and(|line| line.split_whitespace().nth(4) == Some("0"));
    let kept_by_service = pattern.starts_with('|');
    if pattern.is_empty() || pattern == "|/bin/false" || is_zero && !kept_by_service {
        return Finding::fine(WHAT, "programs that crash leave none");
    }
    Finding::leaks(
        WHAT,
        format!(
            "programs that crash leave their memory behind, with the files they had open ({pattern})"
        ),
        "`ulimit -c 0` where such programs start; for systemd-coredump Storage=none in coredump.conf",
    )
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use tacita_clock::Simulated;

    use super::super::Verdict;
    use super::*;

    /// A machine of these files.
    pub(in super::super) fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        let machine =
            Machine { root: root.path().to_owned(), home: Some(root.path().join("home")) };
        for (path, text) in files {
            let path = machine.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        (root, machine)
    }

    pub(in super::super) fn leaks(finding: &Finding) -> Option<bool> {
        match finding.verdict {
            Verdict::Fine(_) => Some(false),
            Verdict::Leaks(..) => Some(true),
            Verdict::Unknown(_) => None,
        }
    }

    const HEAD: &str = "Filename Type Size Used Priority\n";
    const CRYPT: (&str, &str) = ("/sys/class/block/dm-0/dm/uuid", "CRYPT-PLAIN-swap\n");

    #[test]
    fn swap_is_looked_at() {
        let of = |lines: &str, more: &[(&str, &str)]| {
            let table = format!("{HEAD}{lines}");
            let (_root, machine) = machine(&[&[("/proc/swaps", &table[..])], more].concat());
            leaks(&swap(&machine))
        };
        assert_eq!(of("", &[]), Some(false));
        assert_eq!(of("/dev/zram0 partition 9 0 -2\n", &[]), Some(false));
        assert_eq!(of("/swap.zram file 9 0 -2\n", &[]), Some(true));
        assert_eq!(of("/dev/dm-0 partition 9 0 -2\n", &[CRYPT]), Some(false));
        assert_eq!(of("/dev/dm-0 partition 9 0 -2\n/swapfile file 9 0 -2\n", &[CRYPT]), Some(true));
        let volume = [("/sys/class/block/dm-0/dm/uuid", "LVM-abc")];
        assert_eq!(of("/dev/dm-0 partition 9 0 -2\n", &volume), Some(true));
        // A volume of LVM on an encrypted partition, as installers make it.
        let below = [volume[0], ("/sys/class/block/dm-0/slaves/dm-1/dm/uuid", "CRYPT-LUKS2-a")];
        let encrypted = [("/sys/class/block/dm-1/dm/uuid", "CRYPT-LUKS2-a")];
        let layers = [&below[..], &encrypted[..]].concat();
        assert_eq!(of("/dev/dm-0 partition 9 0 -2\n", &layers), Some(false));
        assert_eq!(of("/dev/dm-0 partition 9 0 -2\n", &below), Some(true));
        let one_is_not = ("/sys/class/block/dm-0/slaves/sda2/size", "1");
        let mixed = [&layers[..], &[one_is_not]].concat();
        assert_eq!(of("/dev/dm-0 partition 9 0 -2\n", &mixed), Some(true));
        let (_root, none) = machine(&[]);
        assert_eq!(leaks(&swap(&none)), None);
    }

    #[test]
    fn a_clock_that_was_never_set() {
        let at = |seconds| leaks(&clock(&Simulated::at(UNIX_EPOCH + Duration::from_secs(seconds))));
        assert_eq!((at(1000), at(CLOCK_MIN)), (Some(true), Some(false)));
    }

    #[test]
    fn what_keeps_memory_is_looked_at() {
        let of = |files: &[(&str, &str)], judge: fn(&Machine) -> Finding| {
            let (_root, machine) = machine(files);
            leaks(&judge(&machine))
        };
        let state = ("/sys/power/state", "freeze mem disk\n");
        assert_eq!(of(&[state, ("/sys/power/resume", "0:0\n")], hibernation), Some(false));
        assert_eq!(of(&[state, ("/sys/power/resume", "254:1\n")], hibernation), Some(true));
        assert_eq!(of(&[("/sys/power/resume", "254:1\n")], hibernation), Some(false));
        let pattern = |text| ("/proc/sys/kernel/core_pattern", text);
        let limit = |text| ("/proc/self/limits", text);
        let none = limit("Limit\nMax core file size        0      unlimited  bytes\n");
        let much = limit("Limit\nMax core file size        unlimited unlimited  bytes\n");
        assert_eq!(of(&[pattern("core\n"), none], core_dumps), Some(false));
        assert_eq!(of(&[pattern("core\n"), much], core_dumps), Some(true));
        assert_eq!(
            of(&[pattern("|/usr/lib/systemd/systemd-coredump %P\n"), none], core_dumps),
            Some(true)
        );
        assert_eq!(of(&[pattern("|/bin/false\n"), much], core_dumps), Some(false));
        assert_eq!(of(&[], core_dumps), None);
    }
}
