//! Bounds on what clients can cost.

use std::time::Duration;

/// Bounds on what clients can cost. The defaults suit everybody; tests have less patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at the same time; further ones are closed at once. Each takes up to 40 MiB.
    pub connections: usize,
    /// Time for all options together.
    pub negotiation: Duration,
    /// Time for one request with its payload, from its first byte on.
    pub request: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 32,
            negotiation: Duration::from_secs(30),
            request: Duration::from_mins(1),
        }
    }
}
