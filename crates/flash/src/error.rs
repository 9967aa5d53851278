//! The one error of flash volumes.

use std::borrow::Cow;
use std::io;

/// Result of an operation on a volume.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Beyond the end of the volume or of an erase block, or not whole pages.
    OutOfRange,
    /// A page would be programmed twice, or out of order.
    Programmed,
    /// The medium failed, or what it holds cannot be corrected.
    Io,
    /// No good erase block is left to write to.
    WornOut,
    /// What is there is no volume, or it is damaged.
    Corrupt,
    /// The file system under the emulator's file is full.
    NoSpace,
    /// The volume cannot be written.
    ReadOnly,
    /// Another process uses it.
    Busy,
    /// There is no such file or device, or it cannot be opened.
    Unavailable,
    /// The power has been cut (emulator).
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
            io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::IsADirectory => Kind::Unavailable,
            io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy => Kind::Busy,
            _ => Kind::Io,
        };
        Self { kind, context: context.into(), source: Some(source) }
    }

    /// The same with what lies beneath.
    pub(crate) fn because(self, source: io::Error) -> Self {
        Self { source: Some(source), ..self }
    }

    /// The same, for whoever asks again.
    pub(crate) fn again(&self) -> Self {
        let beneath =
            |e: &io::Error| e.raw_os_error().map_or(e.kind().into(), io::Error::from_raw_os_error);
        let source = self.source.as_ref().map(beneath);
        Self { kind: self.kind, context: self.context.clone(), source }
    }

    /// What went wrong, for `match`.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the system tells of it, and not the chip.
    pub(crate) const fn is_of_system(&self) -> bool {
        self.source.is_some()
    }
}
