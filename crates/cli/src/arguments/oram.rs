//! `tacita oram ...`.

use std::net::SocketAddr;

use clap::Subcommand;
use tacita_oram::link::Address;
use tacita_oram::server::Place;

#[derive(Debug, Subcommand)]
pub(crate) enum Oram {
    /// Keep a store for clients, and see nothing of it but how often it is used
    ///
    /// The server needs no key and is not trusted. A client makes the store; until then it is empty.
    Serve {
        /// Where the store is kept: a folder, redis://HOST:PORT/DATABASE#NAME, or unix:PATH#NAME for
        /// Redis at a socket
        store: Place,
        /// Where to listen: HOST:PORT or unix:PATH; more than once if wanted. Nothing is encrypted but
        /// what clients have sealed, and everybody who can connect is served
        #[arg(long, value_name = "ADDRESS", required = true)]
        listen: Vec<Address>,
        /// Tell counts to Prometheus at this address of this machine, under /metrics
        #[arg(long, value_name = "ADDRESS")]
        metrics: Option<SocketAddr>,
        /// Stay in the foreground
        #[arg(long)]
        foreground: bool,
    },
}
