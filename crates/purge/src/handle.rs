//! Handles of the file system: names for a file or folder that hold wherever it is moved to.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::{Errno, Result};

/// The longest that any file system gives (`MAX_HANDLE_SZ`).
const LEN_MAX: usize = 128;

/// `struct file_handle` with room behind it.
#[repr(C)]
#[derive(Clone)]
struct Raw {
    len: u32,
    kind: i32,
    bytes: [u8; LEN_MAX],
}

/// A file or folder of one file system, whatever it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handle {
    kind: i32,
    bytes: Vec<u8>,
}

impl Handle {
    /// The handle of an open file or folder.
    ///
    /// # Errors
    /// [`Errno::OPNOTSUPP`] where there are none.
    pub(crate) fn of(file: impl AsFd) -> Result<Self> {
        let mut raw =
            Raw { len: u32::try_from(LEN_MAX).unwrap_or(0), kind: 0, bytes: [0; LEN_MAX] };
        let mut mount = 0;
        let (fd, empty) = (file.as_fd().as_raw_fd(), CStr::as_ptr(c""));
        // JUSTIFICATION: no safe wrapper of name_to_handle_at exists.
        // SAFETY: `Raw` is laid out as the kernel's `struct file_handle` with `len` bytes behind it,
        // and the descriptor is open.
        #[allow(unsafe_code)]
        let done = unsafe {
            libc::name_to_handle_at(
                fd,
                empty,
                (&raw mut raw).cast(),
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        if done != 0 {
            return Err(last_error());
        }
        let len = usize::try_from(raw.len).unwrap_or(0).min(LEN_MAX);
        Ok(Self { kind: raw.kind, bytes: raw.bytes[..len].to_vec() })
    }

    /// Opens what it stands for; `mount` is open on the same file system. Only for root.
    ///
    /// # Errors
    /// [`Errno::STALE`] if it is gone; [`Errno::PERM`].
    pub(crate) fn open(&self, mount: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
        let mut raw = Raw { len: 0, kind: self.kind, bytes: [0; LEN_MAX] };
        let len = self.bytes.len().min(LEN_MAX);
        raw.len = u32::try_from(len).unwrap_or(0);
        raw.bytes[..len].copy_from_slice(&self.bytes[..len]);
        let flags = flags.union(OFlags::CLOEXEC).bits().cast_signed();
        // JUSTIFICATION: no safe wrapper of open_by_handle_at exists.
        // SAFETY: as above; a descriptor that is returned is ours alone.
        #[allow(unsafe_code)]
        unsafe {
            let fd = mount.as_fd().as_raw_fd();
            let fd = libc::open_by_handle_at(fd, (&raw mut raw).cast(), flags);
            if fd < 0 { Err(last_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
        }
    }

    /// Its bytes, to be kept.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.kind.to_le_bytes(), self.bytes.as_slice()].concat()
    }

    /// Reads them back.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, bytes) = bytes.split_first_chunk::<4>()?;
        (!bytes.is_empty() && bytes.len() <= LEN_MAX)
            .then(|| Self { kind: i32::from_le_bytes(*kind), bytes: bytes.to_vec() })
    }
}

fn last_error() -> Errno {
    crate::error::errno_of(&std::io::Error::last_os_error())
}
