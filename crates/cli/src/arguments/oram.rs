//! `tacita oram ...`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, value_parser};
use tacita_block::size;
use tacita_oram::link::Address;
use tacita_oram::server::Place;
use tacita_oram::{Access, Options, RATE_MAX, Way};

use crate::passwords;

#[derive(Debug, Subcommand)]
pub(crate) enum Oram {
    /// Make a store, and the key that all its clients share if there is none yet
    Init {
        /// Where the store is to be kept, as `serve` takes it; nobody serves it yet
        store: Place,
        /// File with the key; made if it is not there. Whoever has it reads everything; without it nobody
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// Seal a new key by a password, so that the file alone is of no use; also by --password-file
        #[arg(long)]
        seal: bool,
        #[command(flatten)]
        from: passwords::From,
        #[command(flatten)]
        shapes: Shapes,
        /// Print what was made as JSON
        #[arg(long)]
        json: bool,
    },
    /// Seal a key by a password, or by another one; copies of the file are as they were
    Passwd {
        /// File with the key
        key: PathBuf,
        #[command(flatten)]
        from: passwords::From,
        #[command(flatten)]
        change: passwords::Change,
    },
    /// Keep a store for clients, and see nothing of it but how often it is used; returns when it is ready
    ///
    /// The server needs no key and is not trusted. A client makes the store; until then it is empty.
    Serve {
        /// Where the store is kept: a folder, redis://HOST:PORT/DATABASE#NAME, unix:PATH#NAME for Redis at a
        /// socket, `s3://BUCKET/PREFIX` with credentials where other programs have them, or memory:
        store: Place,
        #[command(flatten)]
        reach: Reach,
        /// Stay in the foreground
        #[arg(long)]
        foreground: bool,
    },
    /// Serve the store at ADDRESS as a block device to NBD clients; returns when it is ready
    Export {
        /// Where the store is served: HOST:PORT, tls:HOST:PORT, unix:PATH, or engine: and where an engine listens
        address: Way,
        #[command(flatten)]
        client: Client,
        #[command(flatten)]
        writing: Writing,
        /// Socket for NBD clients
        #[arg(long, value_name = "SOCKET")]
        nbd: PathBuf,
        /// Stay in the foreground
        #[arg(long)]
        foreground: bool,
    },
    /// Ask the store at ADDRESS for many users, on a machine that they trust; returns when it is ready
    ///
    /// Users have the same key, and say engine: and where the engine listens in place of the server's
    /// address. What is between them and the engine is encrypted; how much they ask, and when, is seen.
    Engine {
        /// Where the store is served: HOST:PORT or unix:PATH
        address: Address,
        #[command(flatten)]
        client: Client,
        #[command(flatten)]
        writing: Writing,
        /// Where to listen for users: HOST:PORT or unix:PATH; more than once if wanted
        #[arg(long, value_name = "ADDRESS", required = true)]
        listen: Vec<Address>,
        /// Stay in the foreground
        #[arg(long)]
        foreground: bool,
    },
    /// Stop serving, exporting or an engine; returns when the daemon is gone
    Close {
        /// The socket, or the store's folder, or the anchor of an engine without a socket
        target: PathBuf,
    },
    /// Read everything that lives in the store at ADDRESS: exit 0 if it is what clients have sealed, 1 if not
    Check {
        /// Where the store is served: HOST:PORT, tls:HOST:PORT or unix:PATH
        address: Address,
        #[command(flatten)]
        client: Client,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the shapes of the store at ADDRESS and how far its builds are
    Status {
        /// Where the store is served: HOST:PORT, tls:HOST:PORT, unix:PATH, or engine: and where an engine listens
        address: Way,
        #[command(flatten)]
        client: Client,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a store of these shapes costs: round trips, bytes, room
    Plan {
        #[command(flatten)]
        shapes: Shapes,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure queries a second of the store at ADDRESS, by reading its blocks
    Bench {
        /// Where the store is served: HOST:PORT, tls:HOST:PORT, unix:PATH, or engine: and where an engine listens
        address: Way,
        #[command(flatten)]
        client: Client,
        /// Queries under way at once
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u16).range(1..=256))]
        clients: u16,
        /// One-way latency that is added, in milliseconds
        #[arg(long, value_name = "MS", default_value_t = 0, value_parser = value_parser!(u64).range(..=1000))]
        latency: u64,
        /// Queries in all
        #[arg(long, value_name = "N", default_value_t = 2000, value_parser = value_parser!(u64).range(1..))]
        queries: u64,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Record what the server at ADDRESS sees, from its clients' way to it; draw and compare recordings
    ///
    /// Clients connect to --listen in the server's place. Ends by SIGINT or SIGTERM.
    Trace(Trace),
}

/// A recording, or what is made of some.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// Where the store is served: HOST:PORT or unix:PATH
    #[arg(required_unless_present = "from", requires = "listen")]
    pub(crate) address: Option<Address>,
    /// Where clients are to connect instead
    #[arg(long, value_name = "ADDRESS", conflicts_with = "from")]
    pub(crate) listen: Option<Address>,
    /// Write the recording to this file, which is there when it ends
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub(crate) out: Option<PathBuf>,
    /// Read a recording instead; given twice, both are compared: exit 1 if their shapes differ
    #[arg(long, value_name = "FILE", conflicts_with = "address")]
    pub(crate) from: Vec<PathBuf>,
    /// Draw it into this file, two side by side
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where a server is reached.
#[derive(Debug, Args)]
pub(crate) struct Reach {
    /// Where to listen: HOST:PORT, tls:HOST:PORT or unix:PATH; more than once if wanted. Everybody who can
    /// connect is served; without TLS nothing is encrypted but what clients have sealed
    #[arg(long, value_name = "ADDRESS", required = true)]
    pub(crate) listen: Vec<Address>,
    /// File with the certificate that is shown at tls: addresses, and those in between (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// File with the private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Tell counts to Prometheus at this address of this machine, under /metrics
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
}

/// How the server of a store is known.
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// File of certificates that vouch for a server at tls:HOST:PORT, or its own (PEM); by default whom the
    /// system believes
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_root: Option<PathBuf>,
}

/// The shapes of a store.
#[derive(Debug, Args)]
pub(crate) struct Shapes {
    /// How many blocks the store is to have room for
    #[arg(long, value_name = "N")]
    pub(crate) blocks: u64,
    /// Length of a block: 512 to 64K, a power of two
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "4K")]
    pub(crate) block_size: u64,
    /// How much larger each level is than the one above: 4, or 2 as in the paper
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) growth: u8,
    /// Queries that the log holds: 16 to 1024, a power of two
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) period: u32,
    /// Scheme of the store
    #[arg(long, value_enum, default_value = "pd")]
    pub(crate) scheme: SchemeName,
}

/// Schemes of stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SchemeName {
    /// Levels, filters and logs, for many clients at once
    Pd,
}

/// How a store is opened to write.
#[derive(Debug, Args)]
pub(crate) struct Writing {
    /// Take the store over from another client that has it open: it is told, and can write no more
    #[arg(long)]
    take_over: bool,
    /// Ask so many times a second, no more and no less: dummies where there is nothing to ask
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=RATE_MAX.into()))]
    rate: Option<u32>,
}

impl Writing {
    pub(crate) fn options(&self) -> Options {
        let access = if self.take_over { Access::TakeOver } else { Access::Write };
        Options { access, rate: self.rate, ..Options::default() }
    }
}

/// A client of a store.
#[derive(Debug, Args)]
pub(crate) struct Client {
    /// File with the key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    #[command(flatten)]
    pub(crate) from: passwords::From,
    /// What this client remembers, so that it notices a store that was set back; by default the key's
    /// name with .anchor behind it
    #[arg(long, value_name = "FILE")]
    pub(crate) anchor: Option<PathBuf>,
    /// Remember it together with other clients that write at the same time, at this place: a folder, Redis
    /// or a bucket as `serve` takes them, which the server's owner cannot write to; the same for all
    #[arg(long, value_name = "STORE", conflicts_with = "anchor")]
    pub(crate) shared_anchor: Option<Place>,
    #[command(flatten)]
    pub(crate) server: Server,
}
