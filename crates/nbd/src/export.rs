//! What is served: a device under a name.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use tacita_block::{BlockDevice, ByteDevice};

use crate::memory::Memory;
use crate::negotiation::Facts;
use crate::protocol::STRING_LEN_MAX_BYTES;
use crate::{Error, Kind, Result};

/// A block device under a name.
///
/// Clients may write at any byte, which takes reading and writing back; so nobody else may write to
/// the device meanwhile.
pub struct Export {
    facts: Facts,
    device: Arc<dyn BlockDevice>,
    is_private: bool,
}

impl Export {
    /// `device` as `name`, which is at most 4096 bytes long.
    pub fn new(name: impl Into<String>, device: Arc<dyn BlockDevice>) -> Self {
        let len_bytes = device.geometry().len_bytes();
        let facts = Facts { name: name.into(), len_bytes, read_only: false };
        Self { facts, device, is_private: false }
    }

    /// Whether clients cannot write.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.facts.read_only = read_only;
        self
    }

    /// Whether failures of the device are told to its clients alone, never to a log.
    #[must_use]
    pub fn private(mut self, is_private: bool) -> Self {
        self.is_private = is_private;
        self
    }
}

impl fmt::Debug for Export {
    // A name may tell what its owner does not want told.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").finish_non_exhaustive()
    }
}

/// All that is served, each part by the same index.
pub(crate) struct Exports {
    pub(crate) facts: Vec<Facts>,
    pub(crate) devices: Vec<ByteDevice<Arc<dyn BlockDevice>>>,
    pub(crate) memory: Vec<Arc<Memory>>,
    pub(crate) is_private: Vec<bool>,
}

impl Exports {
    pub(crate) fn new(exports: Vec<Export>, content_len_bytes: usize) -> Result<Self> {
        if exports.is_empty() {
            return Err(Error::new(Kind::Invalid, "there is nothing to serve"));
        }
        let mut names = HashSet::new();
        for Export { facts, .. } in &exports {
            if facts.name.len() > STRING_LEN_MAX_BYTES {
                return Err(Error::new(Kind::Invalid, "the name of an export is too long"));
            }
            if !names.insert(&facts.name) {
                return Err(Error::new(Kind::Invalid, "two exports have the same name"));
            }
        }
        let memory = exports.iter().map(|_| Arc::new(Memory::new(content_len_bytes))).collect();
        let is_private = exports.iter().map(|export| export.is_private).collect();
        let served = exports.into_iter().map(|e| (e.facts, ByteDevice::new(e.device)));
        let (facts, devices) = served.unzip();
        Ok(Self { facts, devices, memory, is_private })
    }
}
