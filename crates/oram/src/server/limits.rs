//! What one client, and all of them, can take of a server.

use std::time::Duration;

/// Limits of a server. With the defaults a hostile connection takes 25 MiB at most, but for what it puts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; further ones are closed.
    pub connections_max: usize,
    /// Requests under way on one connection; further ones are refused.
    pub in_flight_max: usize,
    /// Bytes of objects that are read for one connection and not yet sent; what would be more waits.
    pub reading_len_max: usize,
    /// Bytes of all objects of which pieces have come and the last has not; further objects are refused.
    pub assembling_len_max: usize,
    /// Objects of which a connection has begun pieces.
    pub puts_max: usize,
    /// Bytes of labels of generations that are kept in memory.
    pub labels_len_max: usize,
    /// Records of all connections that wait for a commit; what would be more waits unread.
    pub appends_waiting_max: usize,
    /// After how long a silence a connection is closed.
    pub idle: Duration,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How long the first request may take to come, and each other one from its header to its end.
    pub frame: Duration,
    /// How long a client may take nothing of what it is sent.
    pub stalled: Duration,
    /// How long to wait after a connection could not be taken.
    pub accept_again: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 256,
            in_flight_max: 256,
            reading_len_max: 8 << 20,
            assembling_len_max: 512 << 20,
            puts_max: 8,
            labels_len_max: 64 << 20,
            appends_waiting_max: 1024,
            idle: Duration::from_mins(5),
            handshake: Duration::from_secs(10),
            frame: Duration::from_secs(30),
            stalled: Duration::from_mins(1),
            accept_again: Duration::from_millis(100),
        }
    }
}
