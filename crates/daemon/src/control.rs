//! The one control channel: a socket of each daemon, in a private folder of its user, on which it is
//! asked and answers in lines of JSON. Specification: docs/spec/control.md.
//!
//! Every daemon answers `status` and `log`; what else it does is its [`Service`].

mod client;
mod finding;
mod paths;
mod peer;
mod protocol;
mod server;
mod silence;

pub use client::{Answer, Client, Unanswered};
pub use paths::{path_of_json, path_to_json};
pub use protocol::Request;
pub use server::{Control, Identity, Reply, Service};
