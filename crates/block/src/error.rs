//! The one error of block devices.

use std::borrow::Cow;
use std::io;

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Beyond the end of the device, or not whole blocks.
    OutOfRange,
    /// The medium failed.
    Io,
    /// The file system under the image file is full.
    NoSpace,
    /// The device cannot be written.
    ReadOnly,
    /// Another process uses it.
    Busy,
    /// Another file has the name by now.
    Exists,
    /// There is no such file or device, or it cannot be opened.
    Unavailable,
    /// The power has been cut (fault device).
    PowerCut,
}

/// Kind, what was being done, and what lies beneath.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    kind: Kind,
    context: Cow<'static, str>,
    source: Option<io::Error>,
}

impl Error {
    /// An error of `kind`; `context` names the operation and address.
    pub fn new(kind: Kind, context: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// An operating system error; its kind follows from the error number.
    pub fn from_io(context: impl Into<Cow<'static, str>>, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::NoSpace,
            io::ErrorKind::ReadOnlyFilesystem => Kind::ReadOnly,
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Kind::Unavailable,
            io::ErrorKind::AlreadyExists => Kind::Exists,
            io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy => Kind::Busy,
            _ => Kind::Io,
        };
        Self { kind, context: context.into(), source: Some(source) }
    }

    /// The same with what lies beneath.
    pub(crate) fn because(self, source: io::Error) -> Self {
        Self { source: Some(source), ..self }
    }

    /// What went wrong, for `match`.
    pub const fn kind(&self) -> Kind {
        self.kind
    }
}
