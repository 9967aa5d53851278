//! What is said of storage that fails, to whoever runs the server: clients are told only that it does.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;

/// How long nothing more is said of an operation that has failed.
const SILENCE: Duration = Duration::from_mins(1);

/// What was said, by operation.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    said: BTreeMap<&'static str, Said>,
    last: Option<Error>,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    /// Failures since of which nothing was said.
    unsaid: u64,
}

impl Complaints {
    /// What has failed last.
    pub(super) fn last(&self) -> Option<Error> {
        self.last.clone()
    }

    /// What is to be said of a failure, if anything.
    pub(super) fn of(
        &mut self,
        operation: &'static str,
        error: &Error,
        now: Instant,
    ) -> Option<String> {
        self.last = Some(error.clone());
        let unsaid = match self.said.get_mut(operation) {
            Some(said) if now - said.at < SILENCE => {
                said.unsaid += 1;
                return None;
            }
            said => said.map_or(0, |said| said.unsaid),
        };
        self.said.insert(operation, Said { at: now, unsaid: 0 });
        Some(match unsaid {
            0 => format!("storage fails: {error}"),
            more => format!("storage fails, {more} times more since this was said: {error}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn each_operation_complains_once_a_minute() {
        let mut complaints = Complaints::default();
        let error = Error::new(Kind::Storage, "write it: full");
        let begun = Instant::now();
        let mut say = |operation, seconds| {
            complaints.of(operation, &error, begun + Duration::from_secs(seconds))
        };
        assert_eq!(say("write", 0).unwrap(), "storage fails: write it: full");
        assert_eq!((say("write", 1), say("write", 59)), (None, None));
        assert!(say("read", 59).is_some(), "another operation");
        assert!(say("write", 60).unwrap().contains(", 2 times more"));
        assert!(say("write", 61).is_none());
        assert!(say("write", 120).unwrap().contains(", 1 times more"));
        assert_eq!(say("write", 500).unwrap(), "storage fails: write it: full");
    }
}
