//! Bounds on what clients can cost.

use std::time::Duration;

/// Bounds on what clients can cost. The defaults suit everybody; tests have less patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections to one export at the same time, and as many that have not chosen one yet; further
    /// ones are closed at once.
    pub connections: usize,
    /// Memory in bytes for the content of requests, of all connections to one export together.
    pub content_len_bytes: usize,
    /// Time for all options together.
    pub negotiation: Duration,
    /// Time for one request with its payload, from its first byte on, and for taking a part of an
    /// answer.
    pub request: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 32,
            content_len_bytes: 256 << 20,
            negotiation: Duration::from_secs(30),
            request: Duration::from_mins(1),
        }
    }
}
