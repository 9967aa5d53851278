//! The one error of purging.

use std::borrow::Cow;
use std::fmt;

use rustix::io::Errno;

/// Result of a purging operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A method, rule or option makes no sense.
    Invalid,
    /// There is no such file or folder.
    NotFound,
    /// The file system below does not overwrite in place, or lacks what is needed.
    Unsuitable,
    /// The file cannot be purged, or only at the cost of others: immutable, in use as swap, shared
    /// extents, more names.
    Unpurgeable,
    /// Another program has it open, or another mount serves it.
    InUse,
    /// Not permitted to this user.
    NotPermitted,
    /// Mounted for reading only.
    ReadOnly,
    /// Whoever asked for it wants it to end.
    Interrupted,
    /// No room.
    NoSpace,
    /// The file system below failed.
    Io,
}

/// Kind, what was being done and where, and what lies beneath.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    context: Cow<'static, str>,
    refusal: Option<std::io::Error>,
}

impl Error {
    /// An error of `kind`; `context` names the operation and the place.
    pub fn new(kind: Kind, context: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, context: context.into(), refusal: None }
    }

    /// What the standard library was refused while `context`.
    pub fn from_io(e: &std::io::Error, context: impl Into<Cow<'static, str>>) -> Self {
        Self::of_kernel(errno_of(e), context)
    }

    /// What the kernel refused while `context`.
    pub fn of_kernel(errno: Errno, context: impl Into<Cow<'static, str>>) -> Self {
        let kind = match errno {
            Errno::NOENT | Errno::NOTDIR => Kind::NotFound,
            Errno::PERM | Errno::ACCESS => Kind::NotPermitted,
            Errno::ROFS => Kind::ReadOnly,
            Errno::NOSPC | Errno::DQUOT => Kind::NoSpace,
            Errno::TXTBSY | Errno::BUSY => Kind::InUse,
            _ => Kind::Io,
        };
        Self { kind, context: context.into(), refusal: Some(errno.into()) }
    }

    /// What went wrong, for `match`.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the medium does not give what lies in one place of it.
    pub(crate) fn is_of_medium(&self) -> bool {
        self.errno().is_some_and(is_of_medium)
    }

    /// What the kernel said, if that is the cause.
    pub fn errno(&self) -> Option<Errno> {
        self.refusal.as_ref().map(errno_of)
    }
}

/// Says what was being done when the kernel refused.
pub(crate) trait During<T> {
    fn during(self, context: &'static str) -> Result<T>;
}

impl<T> During<T> for rustix::io::Result<T> {
    fn during(self, context: &'static str) -> Result<T> {
        self.map_err(|errno| Error::of_kernel(errno, context))
    }
}

impl<T> During<T> for std::io::Result<T> {
    fn during(self, context: &'static str) -> Result<T> {
        self.map_err(|e| Error::of_kernel(errno_of(&e), context))
    }
}

/// The kernel's number of an error of the standard library.
pub(crate) fn errno_of(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}

/// Whether the medium does not give what lies in one place of it, or gives something else. It may the
/// next time.
pub(crate) const fn is_of_medium(errno: Errno) -> bool {
    matches!(errno, Errno::IO | Errno::BADMSG | Errno::UCLEAN)
}

/// Whether an errno tells nothing of what was asked for: the medium does not give it, or there are too
/// many open files.
pub(crate) const fn tells_nothing(errno: Errno) -> bool {
    is_of_medium(errno) || matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)?;
        match &self.refusal {
            Some(refusal) => write!(f, ": {refusal}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.refusal.as_ref().map(|refusal| refusal as _)
    }
}
