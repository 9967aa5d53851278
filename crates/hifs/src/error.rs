//! The one error of HIFS.

use std::borrow::Cow;

/// Result of a HIFS operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The parameters make no image.
    Geometry,
    /// The file or device holds no HIFS image.
    NotAnImage,
    /// The image has another format version.
    Version,
    /// What stands in the image is damaged or not canonical; the message names the place.
    Damaged,
    /// A commit was interrupted, and the image is open for reading only; opened for writing once, it
    /// is finished or erased.
    Interrupted,
    /// No room.
    NoSpace,
    /// The device failed, is busy or cannot be opened; the source tells more.
    Device,
    /// What has to move cannot be read; the message names the file. Nothing is written until it can be
    /// read, or is not wanted any more.
    Unreadable,
    /// An earlier failure has made the mounted state unusable; mount again.
    Poisoned,
}

/// Kind, what was being done and where, and what lies beneath.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    kind: Kind,
    context: Cow<'static, str>,
    source: Option<tacita_block::Error>,
}

impl Error {
    /// An error of `kind`; `context` names the operation and the place.
    pub fn new(kind: Kind, context: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// What went wrong, for `match`.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The device's error, if that is the cause.
    pub const fn device(&self) -> Option<&tacita_block::Error> {
        self.source.as_ref()
    }
}

/// Short for a damage report.
pub(crate) fn damaged(context: impl Into<Cow<'static, str>>) -> Error {
    Error::new(Kind::Damaged, context)
}

impl From<tacita_block::Error> for Error {
    fn from(source: tacita_block::Error) -> Self {
        Self { kind: Kind::Device, context: Cow::Owned(source.to_string()), source: Some(source) }
    }
}

impl From<Error> for tacita_vfs::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            Kind::NoSpace => tacita_vfs::Kind::NoSpace,
            Kind::Damaged | Kind::Interrupted | Kind::NotAnImage | Kind::Version => {
                tacita_vfs::Kind::Corrupt
            }
            _ => tacita_vfs::Kind::Io,
        };
        Self::new(kind, error.context.clone()).because(error)
    }
}
