//! Who serves a store: the bytes that say so. docs/spec/oram-store.md, section 15.

use std::path::Path;

use bytes::Bytes;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use tacita_secret::digest;

use crate::error::{Error, Kind, Result};
use crate::root::array;

/// Bytes of a lease.
const LEASE_LEN: usize = 72;
const MAGIC: &[u8; 8] = b"TACITLSE";
const VERSION: u16 = 1;
/// Where what lies.
const HOLDER: usize = 16;
const BEAT: usize = 32;
const MACHINE: usize = 40;
const PROCESS: usize = 56;
const BEGUN: usize = 64;

/// What a server has said of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// It serves; otherwise it has given the store back.
    pub is_held: bool,
    /// A name that it has chosen at random when it came.
    pub holder: [u8; 16],
    /// Raised each time that it says that it is still there.
    pub beat: u64,
    /// Where it runs.
    pub process: Process,
}

/// A process, for whoever runs on the same machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Digest of what tells one run of a machine, and one space of process numbers on it, from all others;
    /// zeros: unknown.
    pub machine: [u8; 16],
    /// Its number there.
    pub number: u32,
    /// When it began, in ticks since the machine did; 0: unknown.
    pub begun: u64,
}

impl Lease {
    /// That of a server that comes now.
    ///
    /// # Errors
    /// [`Kind::Storage`] if there are no random bytes.
    pub(super) fn new(process: Process) -> Result<Self> {
        let holder = tacita_secret::random();
        let holder = holder.map_err(|e| Error::new(Kind::Storage, format!("random bytes: {e}")))?;
        Ok(Self { is_held: true, holder, beat: 1, process })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; LEASE_LEN] {
        let mut bytes = [0; LEASE_LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = self.is_held.into();
        bytes[HOLDER..BEAT].copy_from_slice(&self.holder);
        bytes[BEAT..MACHINE].copy_from_slice(&self.beat.to_le_bytes());
        bytes[MACHINE..PROCESS].copy_from_slice(&self.process.machine);
        bytes[PROCESS..PROCESS + 4].copy_from_slice(&self.process.number.to_le_bytes());
        bytes[BEGUN..].copy_from_slice(&self.process.begun.to_le_bytes());
        bytes
    }

    /// The same, for a root.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.encode())
    }

    /// What `bytes` say.
    ///
    /// # Errors
    /// [`Kind::NotAStore`] if they are no lease, or one of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let refuse = || {
            let what = "what says who serves the store, its `served`, is damaged or of a later \
                        version: remove it if no server is at work there";
            Error::new(Kind::NotAStore, what)
        };
        let bytes = <&[u8; LEASE_LEN]>::try_from(bytes).map_err(|_| refuse())?;
        let lease = Self {
            is_held: bytes[10] == 1,
            holder: array(&bytes[HOLDER..BEAT]),
            beat: u64::from_le_bytes(array(&bytes[BEAT..MACHINE])),
            process: Process {
                machine: array(&bytes[MACHINE..PROCESS]),
                number: u32::from_le_bytes(array(&bytes[PROCESS..PROCESS + 4])),
                begun: u64::from_le_bytes(array(&bytes[BEGUN..])),
            },
        };
        // Nothing else stands for the same.
        if lease.encode() == *bytes { Ok(lease) } else { Err(refuse()) }
    }

    /// What the same server says next.
    pub(super) const fn next(self) -> Self {
        Self { beat: self.beat.wrapping_add(1), ..self }
    }

    /// What the same server says last.
    pub(super) const fn given_back(self) -> Self {
        Self { is_held: false, ..self.next() }
    }
}

impl Process {
    /// This one.
    pub(super) fn this() -> Self {
        let number = std::process::id();
        Self { machine: machine().unwrap_or_default(), number, begun: begun(number).unwrap_or(0) }
    }

    /// Whether it was one of this machine.
    pub(super) fn is_here(&self) -> bool {
        self.machine != [0; 16] && Some(self.machine) == machine()
    }

    /// Whether it is known here that it does not run any more.
    pub(super) fn has_ended(&self) -> bool {
        let number = i32::try_from(self.number).ok().and_then(Pid::from_raw);
        let Some(pid) = number.filter(|_| self.is_here()) else { return false };
        // Processes of others can be hidden, but not their numbers.
        test_kill_process(pid) == Err(Errno::SRCH)
            || self.begun != 0 && begun(self.number).is_some_and(|begun| begun != self.begun)
    }
}

/// This run of this machine, and its numbers of processes.
fn machine() -> Option<[u8; 16]> {
    let run = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let numbers = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let digest = digest(format!("{}\n{}", run.trim(), numbers.display()).as_bytes());
    digest.first_chunk().copied()
}

/// When a process began, in ticks since the machine did.
fn begun(number: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(number.to_string()).join("stat"));
    // Behind its name, which may contain anything, the 20th field.
    stat.ok()?.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Lease {
        let process = Process { machine: [6; 16], number: 77, begun: 9 };
        Lease { is_held: true, holder: [4; 16], beat: 3, process }
    }

    #[test]
    fn what_is_written_is_read() {
        for lease in [lease(), lease().next(), lease().given_back()] {
            assert_eq!(Lease::decode(&lease.encode()).unwrap(), lease);
        }
        assert_eq!(lease().next().beat, 4);
        assert!(!lease().given_back().is_held);
    }

    #[test]
    fn the_documents_example_is_one() {
        let spec = include_str!("../../../../../docs/spec/oram-store.md");
        let (_, rest) = spec.split_once("```lease\n").unwrap();
        let digits: String = rest.split_once("```").unwrap().0.split_whitespace().collect();
        let byte = |digits: &[u8; 2]| {
            u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
        };
        let bytes: Vec<_> = digits.as_bytes().as_chunks::<2>().0.iter().map(byte).collect();
        assert_eq!(bytes, lease().encode());
    }

    #[test]
    fn nothing_else_is_one() {
        let bytes = lease().encode();
        let mut later = bytes;
        later[8] = 2;
        let mut more = bytes;
        more[15] = 1;
        let mut state = bytes;
        state[10] = 2;
        for bytes in [&later[..], &more, &state, &bytes[1..], &[], b"TACITORM"] {
            assert_eq!(Lease::decode(bytes).unwrap_err().kind(), Kind::NotAStore);
        }
    }

    #[test]
    fn processes_are_known_where_they_run() {
        let this = Process::this();
        assert!(this.is_here() && !this.has_ended());
        assert!(Process { begun: this.begun + 1, ..this }.has_ended());
        assert!(!Process { begun: 0, ..this }.has_ended());
        for machine in [[0; 16], [1; 16]] {
            let elsewhere = Process { machine, begun: this.begun + 1, ..this };
            assert!(!elsewhere.is_here() && !elsewhere.has_ended());
        }
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let begun = begun(child.id()).unwrap();
        let other = Process { number: child.id(), begun, ..this };
        assert!(!other.has_ended());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(other.has_ended());
    }
}
