//! The one error of daemons.

use std::borrow::Cow;
use std::io;

/// Result of an operation of a daemon.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Somebody else serves it, or still does.
    Busy,
    /// Nobody serves it, or nobody of whom this user may ask.
    NotServed,
    /// Whether somebody serves it is not known: a daemon that is there does not say what it serves.
    NoAnswer,
    /// What tells of a daemon can be kept nowhere: this user has no private folder that can be written.
    NoPlace,
    /// Processes cannot be seen: there is no /proc.
    NoProcesses,
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
    /// An error of `kind`; `context` names the operation and the path.
    pub fn new(kind: Kind, context: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    pub(crate) fn from_io(context: impl AsRef<str>, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        let context = format!("{}: {source}", context.as_ref());
        Self { kind: Kind::Io, context: context.into(), source: Some(source) }
    }

    /// A failure with what lies in the private folder, or with that.
    pub(crate) fn of_private(context: impl AsRef<str>, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory => Kind::NoPlace,
            _ => Kind::Io,
        };
        Self { kind, ..Self::from_io(context, source) }
    }

    /// What went wrong, for `match`.
    pub const fn kind(&self) -> Kind {
        self.kind
    }
}
