//! The one error of the file system.

use std::borrow::Cow;

/// Result of an operation on the file system.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The store cannot hold this file system.
    Parameters,
    /// There is no file system in the store.
    NotFormatted,
    /// There is a file system in the store already.
    Exists,
    /// It was made by a version that this program does not know.
    Version,
    /// A block is not what any mount has written.
    Damaged,
    /// As many mounts as can be.
    Busy,
    /// No room in the store.
    NoSpace,
    /// Another mount has taken over: this one can do no more.
    Fenced,
    /// The store did not answer in time, or no turn came.
    TimedOut,
    /// The store failed.
    Store,
}

/// Kind, and what was being done.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    kind: Kind,
    context: Cow<'static, str>,
    store: Option<tacita_oram::Error>,
}

impl Error {
    /// An error of `kind`; `context` names the operation and the cause.
    pub fn new(kind: Kind, context: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, context: context.into(), store: None }
    }

    /// What went wrong, for `match`.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// What the store says, if it is the store that failed.
    pub const fn store(&self) -> Option<&tacita_oram::Error> {
        self.store.as_ref()
    }

    pub(crate) fn damaged(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Damaged, what)
    }

    pub(crate) fn fenced() -> Self {
        let text = "another mount has taken over from this one, which did not answer for long: if something was not \
                    synced, mount again";
        Self::new(Kind::Fenced, text)
    }
}

impl From<tacita_oram::Error> for Error {
    fn from(error: tacita_oram::Error) -> Self {
        let kind = match error.kind() {
            tacita_oram::Kind::NoSpace => Kind::NoSpace,
            tacita_oram::Kind::Unreachable | tacita_oram::Kind::Untrusted => Kind::TimedOut,
            _ => Kind::Store,
        };
        Self { kind, context: error.clone().into_context(), store: Some(error) }
    }
}

impl From<Error> for tacita_vfs::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            Kind::NoSpace => tacita_vfs::Kind::NoSpace,
            Kind::TimedOut => tacita_vfs::Kind::TimedOut,
            Kind::Damaged => tacita_vfs::Kind::Corrupt,
            Kind::Busy => tacita_vfs::Kind::Busy,
            _ => tacita_vfs::Kind::Io,
        };
        Self::new(kind, error.context.clone()).because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_store_says_in_words_of_its_own_comes_through() {
        let through = |context: Cow<'static, str>| {
            let error = tacita_oram::Error::new(tacita_oram::Kind::Hostile, context);
            tacita_vfs::Error::from(Error::from(error))
        };
        let another = through("it is another store".into());
        assert_eq!(another.own_words(), Some("it is another store"));
        assert!(tacita_vfs::Error::from(Error::fenced()).own_words().is_some());
        assert_eq!(through("unix:/place: it is another store".to_owned().into()).own_words(), None);
    }
}
