//! The one error of the oblivious store.

use std::borrow::Cow;
use std::sync::Arc;
use std::{error, fmt, io};

/// Result of an operation on the oblivious store.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The parameters make no store.
    Parameters,
    /// What is there is no store of this program.
    NotAStore,
    /// The key does not open the store.
    WrongKey,
    /// The server answers what no honest one answers: altered, missing, rolled back or forked.
    Hostile,
    /// The server knows less than this client has seen: it was set back, or is another one.
    RolledBack,
    /// More blocks than the store was made for.
    NoSpace,
    /// Another client writes, or has taken the store over.
    Busy,
    /// There is a file of this name already.
    Exists,
    /// The store's bytes cannot be read or written, for now or for good.
    Storage,
    /// What a client remembers of the store is damaged.
    Anchor,
    /// The server cannot be reached, or did not answer in time.
    Unreachable,
    /// The certificate that the server shows is not accepted, by now or yet.
    Untrusted,
    /// Nobody can be served at this address from here.
    Address,
    /// Another program listens at this address.
    Taken,
    /// What came is not what the protocol allows.
    Protocol,
    /// A password takes more memory than there is.
    Memory,
    /// An earlier failure has ended this session; open the store again.
    Poisoned,
}

impl Kind {
    /// Whether whoever has the store open goes on trying, for it may pass by itself, or by others.
    pub(crate) const fn may_pass(self) -> bool {
        matches!(self, Self::Unreachable | Self::Untrusted)
    }
}

/// Kind, what was being done and where, and what lies beneath.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    context: Cow<'static, str>,
    refusal: Option<Arc<io::Error>>,
}

impl Error {
    /// An error of `kind`; `context` names the operation and the cause.
    pub fn new(kind: Kind, context: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, context: context.into(), refusal: None }
    }

    /// [`Kind::Storage`], where the system has refused what `context` names.
    pub(crate) fn of_storage(context: impl fmt::Display, refusal: io::Error) -> Self {
        let text = format!("{context}: {refusal}");
        Self { refusal: Some(Arc::new(refusal)), ..Self::new(Kind::Storage, text) }
    }

    /// [`Kind::Storage`], where there is no room left, as whoever else keeps it says in `context`.
    pub(crate) fn of_full_storage(context: String) -> Self {
        let refusal = Arc::new(rustix::io::Errno::NOSPC.into());
        Self { refusal: Some(refusal), ..Self::new(Kind::Storage, context) }
    }

    /// What went wrong, for `match`.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The operation and the cause, as [`Error::new`] has taken them.
    pub fn into_context(self) -> Cow<'static, str> {
        self.context
    }

    /// How the system has refused, if this machine's is the cause.
    pub fn refusal(&self) -> Option<&io::Error> {
        self.refusal.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.refusal().map(|refusal| refusal as _)
    }
}
