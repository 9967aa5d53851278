//! What a time of the clock is on a node.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::Timestamp;

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self {
                secs: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                nanos: after.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let secs = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => Self { secs: -secs, nanos: 0 },
                    nanos => Self { secs: -secs - 1, nanos: 1_000_000_000 - nanos },
                }
            }
        }
    }
}
