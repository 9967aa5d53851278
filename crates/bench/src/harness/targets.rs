//! What is wanted, and whether a run shows it.

use std::fmt::Write as _;

/// Whether something is as it is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Holds,
    /// The medians do not show it, though single rounds do.
    Unclear,
    Missed,
}

impl Verdict {
    /// Of a value that is wanted, or not.
    pub(crate) const fn of(is_wanted: bool) -> Self {
        if is_wanted { Self::Holds } else { Self::Missed }
    }

    /// Of a ratio of medians and the best of single rounds, where `least` is wanted.
    pub(crate) fn of_ratio(ratio: Option<f64>, best: Option<f64>, least: f64) -> Self {
        match (ratio, best) {
            (Some(ratio), _) if ratio >= least => Self::Holds,
            (Some(_), Some(best)) if best >= least => Self::Unclear,
            _ => Self::Missed,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Unclear => "unclear",
            Self::Missed => "MISSED",
        }
    }
}

/// Adds the line of a verdict on something.
pub(crate) fn tell(text: &mut String, verdict: Verdict, what: &str) {
    writeln!(text, "{:>7}: {what}", verdict.word()).expect("a string takes all");
}

/// A ratio as it is shown.
pub(crate) fn shown(ratio: Option<f64>) -> String {
    ratio.map_or("no value".into(), |ratio| format!("{ratio:.2}x"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_decide_and_single_rounds_raise_doubt() {
        let of = |ratio, best| Verdict::of_ratio(ratio, best, 1.0);
        assert_eq!(of(Some(1.0), None), Verdict::Holds);
        assert_eq!(of(Some(0.9), Some(1.1)), Verdict::Unclear);
        assert_eq!(of(Some(0.9), Some(0.95)), Verdict::Missed);
        assert_eq!(of(None, Some(2.0)), Verdict::Missed);
    }
}
