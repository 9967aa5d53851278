//! The one error of the seam, and the one table from its kinds to error numbers.

use std::borrow::Cow;
use std::fmt;

/// Result of an operation of the seam.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// No such node, name or attribute holder.
    NotFound,
    /// The name exists already.
    Exists,
    /// A directory was needed.
    NotDirectory,
    /// Anything but a directory was needed.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// The operation is not permitted to this caller or on this node.
    NotPermitted,
    /// The permission bits forbid it.
    AccessDenied,
    /// An argument makes no sense.
    Invalid,
    /// A name or path is too long.
    NameTooLong,
    /// A node has as many names as it can have.
    TooManyLinks,
    /// The size is beyond what the system can hold.
    FileTooBig,
    /// The two names cannot be reached by a rename; copy instead.
    CrossDevice,
    /// No room.
    NoSpace,
    /// There is room, but no more of something else that every node needs.
    Quota,
    /// The file system is read-only.
    ReadOnly,
    /// No such extended attribute.
    NoAttribute,
    /// The value is larger than the caller's buffer.
    Range,
    /// The value is larger than the system can hold.
    TooLarge,
    /// Nothing beyond this offset (seek for data or holes).
    NoMore,
    /// The system does not offer this operation.
    Unsupported,
    /// In use.
    Busy,
    /// The node is gone.
    Stale,
    /// The medium failed.
    Io,
    /// What stands on the medium is damaged.
    Corrupt,
    /// An open file limit was reached.
    TooManyOpen,
    /// No such open file, or not open for this.
    BadHandle,
    /// What was waited for did not come in time.
    TimedOut,
    /// Nobody answers where the data is.
    Unreachable,
    /// A signal came before it was done; nothing has changed.
    Interrupted,
}

impl Kind {
    /// The error number that a program sees: the one table from kind to errno.
    pub const fn errno(self) -> i32 {
        match self {
            Self::NotFound => libc::ENOENT,
            Self::Exists => libc::EEXIST,
            Self::NotDirectory => libc::ENOTDIR,
            Self::IsDirectory => libc::EISDIR,
            Self::NotEmpty => libc::ENOTEMPTY,
            Self::NotPermitted => libc::EPERM,
            Self::AccessDenied => libc::EACCES,
            Self::Invalid => libc::EINVAL,
            Self::NameTooLong => libc::ENAMETOOLONG,
            Self::TooManyLinks => libc::EMLINK,
            Self::FileTooBig => libc::EFBIG,
            Self::CrossDevice => libc::EXDEV,
            Self::NoSpace => libc::ENOSPC,
            Self::Quota => libc::EDQUOT,
            Self::ReadOnly => libc::EROFS,
            Self::NoAttribute => libc::ENODATA,
            Self::Range => libc::ERANGE,
            Self::TooLarge => libc::E2BIG,
            Self::NoMore => libc::ENXIO,
            Self::Unsupported => libc::EOPNOTSUPP,
            Self::Busy => libc::EBUSY,
            Self::Stale => libc::ESTALE,
            Self::Io | Self::Corrupt => libc::EIO,
            Self::TooManyOpen => libc::ENFILE,
            Self::BadHandle => libc::EBADF,
            Self::TimedOut => libc::ETIMEDOUT,
            Self::Unreachable => libc::EHOSTUNREACH,
            Self::Interrupted => libc::EINTR,
        }
    }

    /// The kind that a system on top of another file system hands on: the same table backwards.
    pub const fn from_errno(errno: i32) -> Self {
        match errno {
            libc::ENOENT => Self::NotFound,
            libc::EEXIST => Self::Exists,
            libc::ENOTDIR => Self::NotDirectory,
            libc::EISDIR => Self::IsDirectory,
            libc::ENOTEMPTY => Self::NotEmpty,
            libc::EPERM => Self::NotPermitted,
            libc::EACCES => Self::AccessDenied,
            libc::EINVAL => Self::Invalid,
            libc::ENAMETOOLONG => Self::NameTooLong,
            libc::EMLINK => Self::TooManyLinks,
            libc::EFBIG => Self::FileTooBig,
            libc::EXDEV => Self::CrossDevice,
            libc::ENOSPC => Self::NoSpace,
            libc::EDQUOT => Self::Quota,
            libc::EROFS => Self::ReadOnly,
            libc::ENODATA => Self::NoAttribute,
            libc::ERANGE => Self::Range,
            libc::E2BIG => Self::TooLarge,
            libc::ENXIO => Self::NoMore,
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => Self::Unsupported,
            libc::EBUSY | libc::ETXTBSY => Self::Busy,
            libc::ESTALE => Self::Stale,
            libc::EUCLEAN => Self::Corrupt,
            libc::ENFILE | libc::EMFILE => Self::TooManyOpen,
            libc::EBADF => Self::BadHandle,
            libc::ETIMEDOUT => Self::TimedOut,
            libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ECONNREFUSED => Self::Unreachable,
            libc::EINTR => Self::Interrupted,
            _ => Self::Io,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.errno()).fmt(f)
    }
}

/// Kind, what was being done, and what lies beneath.
#[derive(Debug, thiserror::Error)]
#[error("{}", if context.is_empty() { kind.to_string() } else { context.to_string() })]
pub struct Error {
    kind: Kind,
    context: Cow<'static, str>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    private: bool,
}

impl Error {
    /// An error of `kind`; `context` names the operation, path or address.
    pub fn new(kind: Kind, context: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, context: context.into(), source: None, private: false }
    }

    /// The same error with the cause beneath it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same error for the program that meets it alone: no log may tell of it.
    #[must_use]
    pub const fn in_private(mut self) -> Self {
        self.private = true;
        self
    }

    /// Whether no log may tell of it.
    pub const fn is_private(&self) -> bool {
        self.private
    }

    /// What went wrong, for `match`.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// What was being done, if that is told in the program's own words: those name no file and no place.
    pub fn own_words(&self) -> Option<&'static str> {
        match self.context {
            Cow::Borrowed(words) => Some(words).filter(|words| !words.is_empty()),
            Cow::Owned(_) => None,
        }
    }

    /// The error number that a program sees.
    pub const fn errno(&self) -> i32 {
        self.kind.errno()
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self { kind, context: Cow::Borrowed(""), source: None, private: false }
    }
}

impl From<tacita_daemon::Error> for Error {
    fn from(error: tacita_daemon::Error) -> Self {
        let kind = match error.kind() {
            tacita_daemon::Kind::Busy | tacita_daemon::Kind::NoAnswer => Kind::Busy,
            tacita_daemon::Kind::NotServed => Kind::NotFound,
            _ => Kind::Io,
        };
        Self::new(kind, error.to_string()).because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_number_becomes_a_kind_that_programs_see_as_the_same_number() {
        for errno in [libc::ENOSPC, libc::EDQUOT, libc::ENOENT, libc::EROFS, libc::EIO, libc::EINTR]
        {
            assert_eq!(Kind::from_errno(errno).errno(), errno);
        }
        assert_ne!(Kind::from_errno(libc::EDQUOT), Kind::NoSpace);
    }
}
