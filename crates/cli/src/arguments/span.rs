//! Spans of time as people write them: a number of seconds, or with units as in 90s, 5m or 1h.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Reads a span.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let with_unit = match text.parse::<f64>() {
        Ok(seconds) => {
            let span = Duration::try_from_secs_f64(seconds);
            return span.map_err(|e| format!("{text:?} is no span of time: {e}"));
        }
        Err(_) => humantime::parse_duration(text),
    };
    with_unit.map_err(|e| format!("{e}: seconds, or with units as in 90s, 5m, 1h"))
}

/// Reads whole seconds.
///
/// # Errors
/// As [`parse`]; parts of a second; more than an option takes.
pub(crate) fn seconds<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let span = parse(text)?;
    if span.subsec_nanos() != 0 {
        return Err("whole seconds are possible".to_owned());
    }
    T::try_from(span.as_secs()).map_err(|_| "too long".to_owned())
}

/// Reads whole seconds, within limits.
///
/// # Errors
/// As [`seconds`].
pub(crate) fn seconds_within(text: &str, limits: RangeInclusive<u16>) -> Result<u16, String> {
    let found = seconds(text)?;
    if limits.contains(&found) {
        return Ok(found);
    }
    Err(format!("{} to {} seconds are possible", limits.start(), limits.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_seconds_and_units_are_known() {
        assert_eq!(seconds("0"), Ok(0u32));
        assert_eq!(seconds("90"), Ok(90u32));
        assert_eq!(seconds("90s"), Ok(90u32));
        assert_eq!(seconds("5m"), Ok(300u16));
        assert_eq!(seconds("1h 30m"), Ok(5400u64));
        assert_eq!(parse("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(seconds_within("1h", 1..=3600), Ok(3600));
    }

    #[test]
    fn what_is_no_span_is_refused_with_a_reason() {
        for text in ["", "-1", "m", "5 parsecs", "NaN", "inf", "1e30", "99999999999999999999h"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(seconds::<u32>("1500ms"), Err("whole seconds are possible".to_owned()));
        assert_eq!(seconds::<u16>("100h"), Err("too long".to_owned()));
        assert_eq!(seconds_within("0", 1..=9), Err("1 to 9 seconds are possible".to_owned()));
        assert!(parse("10 x").unwrap_err().contains("5m"));
    }
}
