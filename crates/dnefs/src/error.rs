//! The one error of DNEFS.

use std::borrow::Cow;

use tacita_dnefs_format::Malformed;

/// Result of a DNEFS operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The parameters make no volume.
    Parameters,
    /// What is there is no DNEFS volume.
    NotAVolume,
    /// The password does not open the volume.
    WrongPassword,
    /// A password takes more memory than there is.
    Memory,
    /// The keys of the volume were in memory only.
    Ephemeral,
    /// What stands on the volume is damaged; the message names the place.
    Damaged,
    /// No room for nodes.
    NoSpace,
    /// No room for keys: every node needs one.
    NoKeys,
    /// What is to be stored is longer than a node can be.
    TooLarge,
    /// The volume failed, is busy or cannot be opened; the source tells more.
    Device,
    /// An earlier failure has made the mounted state unusable; mount again.
    Poisoned,
}

/// Kind, what was being done and where, and what lies beneath.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    kind: Kind,
    context: Cow<'static, str>,
    source: Option<tacita_flash::Error>,
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

    /// What it says, and what the system said.
    pub(crate) fn cause(&self) -> String {
        match self.source.as_ref().and_then(std::error::Error::source) {
            Some(system) => format!("{self}: {system}"),
            None => self.to_string(),
        }
    }

    /// Whether what was to be read is damaged, or cannot be read.
    pub(crate) fn is_of_medium(&self) -> bool {
        let device = self.device().map(tacita_flash::Error::kind);
        self.kind == Kind::Damaged || device == Some(tacita_flash::Kind::Io)
    }

    /// The volume's error, if that is the cause.
    pub const fn device(&self) -> Option<&tacita_flash::Error> {
        self.source.as_ref()
    }
}

/// Short for a damage report: `what` is malformed.
pub(crate) fn damaged(what: impl std::fmt::Display) -> impl FnOnce(Malformed) -> Error {
    move |malformed| Error::new(Kind::Damaged, format!("{what}: {malformed}"))
}

impl From<tacita_flash::Error> for Error {
    fn from(source: tacita_flash::Error) -> Self {
        Self { kind: Kind::Device, context: Cow::Owned(source.to_string()), source: Some(source) }
    }
}

impl From<Error> for tacita_vfs::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            Kind::NoSpace => tacita_vfs::Kind::NoSpace,
            Kind::NoKeys => tacita_vfs::Kind::Quota,
            Kind::TooLarge => tacita_vfs::Kind::TooLarge,
            Kind::Damaged | Kind::NotAVolume => tacita_vfs::Kind::Corrupt,
            _ => match error.device().map(tacita_flash::Error::kind) {
                Some(tacita_flash::Kind::NoSpace) => tacita_vfs::Kind::NoSpace,
                Some(tacita_flash::Kind::ReadOnly) => tacita_vfs::Kind::ReadOnly,
                _ => tacita_vfs::Kind::Io,
            },
        };
        Self::new(kind, error.context.clone()).because(error)
    }
}
