//! The ways to a store, and how it is opened by them.

use std::fmt::{self, Display, Formatter};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use crate::client::{Access, Connect, Patience};
use crate::error::{Error, Result};
use crate::link::{Address, Delay, Remote, Stream};
use crate::server::Place;

/// How a store is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How patient the client is.
    pub patience: Patience,
    /// What the store is opened for.
    pub access: Access,
    /// Queries a second, neither more nor less; `None`: as they come.
    pub rate: Option<u32>,
    /// Queries of [`Store::all`](super::Store::all) that are under way at once, of all callers; `None`: as many
    /// as there are.
    pub at_once: Option<NonZeroUsize>,
    /// How slow the way to the server is made.
    pub delay: Option<Delay>,
    /// A file of certificates that vouch for a server with TLS; `None`: whom the system believes.
    pub roots: Option<PathBuf>,
}

/// Where it is remembered what the log was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnchorAt {
    /// In a file of the only client that writes.
    File(PathBuf),
    /// By all clients that write, together, as the root of a store that is kept by somebody else than the
    /// server.
    Shared(Place),
}

/// Who asks the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// This process, at the server's address.
    Server(Address),
    /// An engine, which others may use too.
    Engine(Address),
}

impl Display for Way {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(address) => write!(f, "{address}"),
            Self::Engine(address) => write!(f, "engine:{address}"),
        }
    }
}

impl FromStr for Way {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.strip_prefix("engine:") {
            Some(address) => address.parse().map(Self::Engine),
            None => text.parse().map(Self::Server),
        }
    }
}

/// A way to the server that is made slower.
pub(super) struct Slow {
    pub(super) remote: Remote,
    pub(super) delay: Delay,
}

#[async_trait::async_trait]
impl Connect for Slow {
    async fn connect(&self) -> Result<Box<dyn Stream>> {
        let stream = self.remote.connect().await?;
        Ok(Box::new(self.delay.wrap(stream)))
    }
}
