//! The one error of this crate: what keeps a server from starting.

use std::borrow::Cow;
use std::io;

/// Result of what can keep a server from starting.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An address, a name or a number of exports that cannot be.
    Invalid,
    /// Another server listens there.
    Busy,
    /// Something else than a socket is there.
    Exists,
    /// The folder is not there, or may not be used.
    Unavailable,
    /// The system failed.
    Io,
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
    pub(crate) fn new(kind: Kind, context: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    pub(crate) fn from_io(
        context: impl Into<Cow<'static, str>>,
        source: impl Into<io::Error>,
    ) -> Self {
        let source = source.into();
        let kind = match source.kind() {
            io::ErrorKind::AddrInUse => Kind::Busy,
            io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem => Kind::Unavailable,
            _ => Kind::Io,
        };
        Self { kind, context: context.into(), source: Some(source) }
    }

    /// What went wrong, for `match`.
    pub const fn kind(&self) -> Kind {
        self.kind
    }
}
