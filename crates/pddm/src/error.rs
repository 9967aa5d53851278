//! The one error of PD-DM.

use std::borrow::Cow;

/// Result of a PD-DM operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The parameters make no device.
    Geometry,
    /// Wrong password, no such volume or a damaged superblock: which of them is not told.
    NoVolume,
    /// The device is of another version of the format, whatever the password.
    Version,
    /// The device is shorter than its superblock says, whatever the password.
    TooShort,
    /// The device failed, is busy or cannot be opened; the source tells more.
    Device,
    /// A part of the log cannot be read that whoever writes has to know.
    Unread,
    /// The request is not possible the way the device is open.
    ReadOnly,
    /// The session ends before what was waited for has come.
    Closing,
    /// A new password is empty, or opens a volume already.
    Password,
    /// A password takes more memory than there is.
    Memory,
    /// The system has no thread.
    NoThread,
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

impl From<tacita_block::Error> for Error {
    fn from(source: tacita_block::Error) -> Self {
        Self { kind: Kind::Device, context: Cow::Owned(source.to_string()), source: Some(source) }
    }
}

/// The system has no thread for this.
pub(crate) fn no_thread(what: &str, refusal: &std::io::Error) -> Error {
    Error::new(Kind::NoThread, format!("there is no thread that {what}: {refusal}"))
}

/// For those who use a volume as a device: the kind of what lies beneath, where that is the cause.
impl From<&Error> for tacita_block::Error {
    fn from(error: &Error) -> Self {
        let kind = match (error.device(), error.kind()) {
            (Some(source), _) => source.kind(),
            (None, Kind::ReadOnly) => tacita_block::Kind::ReadOnly,
            (None, _) => tacita_block::Kind::Io,
        };
        let cause = error.device().and_then(std::error::Error::source);
        Self::new(
            kind,
            cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
        )
    }
}

impl From<tacita_secret::NoMemory> for Error {
    fn from(error: tacita_secret::NoMemory) -> Self {
        Self::new(Kind::Memory, error.to_string())
    }
}

impl From<std::io::Error> for Error {
    fn from(source: std::io::Error) -> Self {
        tacita_block::Error::from_io("the random source failed", source).into()
    }
}
