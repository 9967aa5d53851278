//! `tacita dnefs purge` and `receipt`.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use tacita_daemon::control::{Request, Unanswered};
use tacita_dnefs::Receipt;

use super::chip::Chip;
use crate::exit::{self, Failure, Outcome};
use crate::{output, passwords, status};

/// The last second of the year 9999.
const SHOWN_MAX: u64 = 253_402_300_799;

pub(super) fn purge(dir: &Path, json: bool) -> Outcome<()> {
    let daemon = status::daemon_of(dir)?;
    let asked = daemon.ask_until_its_end(&Request::new("purge", Value::Null));
    let answer = asked.map_err(|why| match why {
        Unanswered::Done | Unanswered::Ended(_) => being_unmounted(),
        Unanswered::Failed(failure) => failure,
    })?;
    let receipt = answer.result()?;
    let heard = output::done(json, &receipt, &output::lines(&receipt));
    complete(receipt["complete"] == true)?;
    heard
}

/// What a purge is told that comes when the last one is under way.
pub(super) fn being_unmounted() -> Failure {
    Failure::new(exit::BUSY, "it is being unmounted, which purges").with_remedy(
        "wait until it is unmounted: `tacita dnefs receipt VOLUME` shows the receipt then",
    )
}

/// Of a mount, or of a volume that is not mounted.
pub(super) fn receipt(target: &Path, from: &passwords::From, all: bool, json: bool) -> Outcome<()> {
    let receipts = if status::is_folder(target) {
        status::ask(status::daemon_of(target)?, "receipts", Value::Null)?
    } else {
        let volume = Chip::open_read_only(target)?.volume();
        let password = super::password(target, &*volume, from)?;
        let found = tacita_dnefs::receipts(&volume, password.as_ref());
        list(&found.map_err(|e| exit::of_dnefs(target, &e))?)
    };
    let receipts = receipts.as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(last) = receipts.last() else {
        return Err(Failure::new(exit::WRONG, "there was no purge yet, so there is no receipt")
            .with_remedy("mount it: `tacita dnefs purge DIR` purges, and so does the unmount"));
    };
    if !all {
        return output::facts(json, last, &output::lines(last));
    }
    let text: Vec<_> = receipts.iter().map(output::lines).collect();
    output::facts(json, &json!(receipts), &text.join("\n"))
}

/// A purge that may have left something is told.
pub(super) fn complete(is_complete: bool) -> Outcome<()> {
    if is_complete {
        return Ok(());
    }
    Err(Failure::new(
        exit::WRONG,
        "a block went bad while it was erased, or a page of keys is damaged: keys of deleted nodes may \
         be left there",
    )
    .with_remedy("look for them with `tacita dnefs dump` and `tacita dnefs audit`"))
}

pub(super) fn list(receipts: &[Receipt]) -> Value {
    receipts.iter().map(facts).collect()
}

pub(super) fn facts(receipt: &Receipt) -> Value {
    json!({
        "epoch": receipt.epoch,
        "at": shown_time(receipt.time.secs),
        "scope": if receipt.of_all { "all" } else { "deleted" },
        "key_blocks": receipt.key_lebs,
        "keys_destroyed": receipt.keys,
        "keys_digest": output::hex(&receipt.destroyed),
        "complete": receipt.is_complete(),
        "bad_blocks_before": receipt.bad_before,
        "bad_blocks_after": receipt.bad_after,
        "damaged_pages": receipt.damaged_pages,
        "previous": output::hex(&receipt.previous),
        "receipt": output::hex(&receipt.digest()),
    })
}

/// A time in seconds since 1970, or the nearest one that can be shown: whoever writes a volume chooses it.
fn shown_time(secs: i64) -> String {
    let since = Duration::from_secs(secs.try_into().unwrap_or(0).min(SHOWN_MAX));
    humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_can_be_shown() {
        for (secs, shown) in [
            (i64::MIN, "1970-01-01T00:00:00Z"),
            (0, "1970-01-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (253_402_300_800, "9999-12-31T23:59:59Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(shown_time(secs), shown);
        }
    }
}
