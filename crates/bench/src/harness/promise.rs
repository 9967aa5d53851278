//! What is promised, and whether a run shows it: a line each on a terminal, or a row each in a table.

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
    const fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Unclear => "unclear",
            Self::Missed => "MISSED",
        }
    }
}

/// What is wanted of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    Least(f64),
    Most(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::Least(least) => value >= least,
            Self::Most(most) => value <= most,
        }
    }

    /// With three decimals at most: what is wanted may be the inverse of a time.
    fn shown(self) -> String {
        let shown = |bound: f64| (bound * 1000.0).round() / 1000.0;
        match self {
            Self::Least(least) => format!(">= {}", shown(least)),
            Self::Most(most) => format!("<= {}", shown(most)),
        }
    }
}

/// Something that is promised, and what a run shows of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Promise {
    what: String,
    bound: Bound,
    /// What the bound counts: a unit, or shares of somebody.
    counts: String,
    /// Both values, where one is compared with another.
    theirs: String,
    ours: String,
    reached: Option<f64>,
    /// What a single round shows at best.
    best: Option<f64>,
    remark: String,
}

impl Promise {
    /// What ours is of theirs, both in `unit`. One that is missing keeps no promise.
    pub(crate) fn ratio(
        what: impl Into<String>,
        bound: Bound,
        peer: &str,
        unit: &str,
        (ours, theirs): (Option<f64>, Option<f64>),
    ) -> Self {
        let value = |value: Option<f64>| value.map_or(String::new(), |v| with_unit(v, unit));
        Self {
            what: what.into(),
            bound,
            counts: format!("x of {peer}"),
            theirs: value(theirs),
            ours: value(ours),
            reached: ours.zip(theirs).map(|(ours, theirs)| ours / theirs),
            best: None,
            remark: String::new(),
        }
    }

    /// A value by itself.
    pub(crate) fn value(what: impl Into<String>, bound: Bound, unit: &str, value: f64) -> Self {
        Self {
            what: what.into(),
            bound,
            counts: format!(" {unit}"),
            theirs: String::new(),
            ours: with_unit(value, unit),
            reached: Some(value),
            best: None,
            remark: String::new(),
        }
    }

    /// The ratio within a single round, which raises doubt where medians do not show it.
    pub(crate) fn at_best(self, best: Option<f64>) -> Self {
        Self { best, ..self }
    }

    /// Where it was, or what else is to be known.
    pub(crate) fn remarked(self, remark: impl Into<String>) -> Self {
        Self { remark: remark.into(), ..self }
    }

    /// What was reached.
    pub(crate) const fn reached(&self) -> Option<f64> {
        self.reached
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let holds = |value: Option<f64>| value.is_some_and(|value| self.bound.holds(value));
        match self.reached {
            reached if holds(reached) => Verdict::Holds,
            Some(_) if holds(self.best) => Verdict::Unclear,
            _ => Verdict::Missed,
        }
    }

    fn wanted(&self) -> String {
        format!("{}{}", self.bound.shown(), self.counts)
    }

    fn shown_reached(&self) -> String {
        let Some(reached) = self.reached else { return "no value".into() };
        if self.counts.starts_with('x') {
            // A share as small as these says nothing with two decimals.
            let fewest = if reached < 0.1 { 4 } else { 2 };
            // What is missed must not look as if it were reached, nor the other way.
            let is_true = |decimals: &usize| {
                let unit = 10_f64.powi(i32::try_from(*decimals).unwrap_or(0));
                self.bound.holds((reached * unit).round() / unit) == self.bound.holds(reached)
            };
            let decimals = (fewest..6).find(is_true).unwrap_or(6);
            return format!("{reached:.decimals$}x");
        }
        self.ours.clone()
    }

    fn shown_remark(&self) -> String {
        if self.remark.is_empty() { String::new() } else { format!(" ({})", self.remark) }
    }
}

/// A value as it is shown.
fn with_unit(value: f64, unit: &str) -> String {
    let decimals = match value {
        0.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// A line for each.
pub(crate) fn lines(promises: &[Promise]) -> String {
    let mut text = String::new();
    for promise in promises {
        let (word, what, wanted) = (promise.verdict().word(), &promise.what, promise.wanted());
        let (reached, remark) = (promise.shown_reached(), promise.shown_remark());
        writeln!(text, "{word:>7}: {what}, {wanted}: {reached}{remark}")
            .expect("a string takes all");
    }
    text
}

/// A table with a row for each, in Markdown.
pub(crate) fn rows(promises: &[Promise]) -> String {
    let mut text = String::from("| promise | theirs | ours | reached | wanted | |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for promise in promises {
        let Promise { what, theirs, ours, .. } = promise;
        let (reached, wanted) = (promise.shown_reached(), promise.wanted());
        let (word, remark) = (promise.verdict().word(), promise.shown_remark());
        writeln!(text, "| {what}{remark} | {theirs} | {ours} | {reached} | {wanted} | {word} |")
            .expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(bound: Bound, ours: Option<f64>, theirs: Option<f64>) -> Promise {
        Promise::ratio("reads", bound, "theirs", "MiB/s", (ours, theirs))
    }

    #[test]
    fn medians_decide_and_single_rounds_raise_doubt() {
        let of = |ours, best| ratio(Bound::Least(1.0), ours, Some(10.0)).at_best(best).verdict();
        assert_eq!(of(Some(10.0), None), Verdict::Holds);
        assert_eq!(of(Some(9.0), Some(1.1)), Verdict::Unclear);
        assert_eq!(of(Some(9.0), Some(0.95)), Verdict::Missed);
        assert_eq!(of(None, Some(2.0)), Verdict::Missed);
        let most = |ours| ratio(Bound::Most(2.0), Some(ours), Some(10.0)).verdict();
        assert_eq!((most(20.0), most(21.0)), (Verdict::Holds, Verdict::Missed));
        // What is shown of a bound is not what decides.
        let inverse = ratio(Bound::Least(1.0 / 1.03), Some(9.709), Some(10.0));
        assert_eq!(
            (inverse.verdict(), inverse.wanted()),
            (Verdict::Holds, ">= 0.971x of theirs".into())
        );
    }

    #[test]
    fn what_is_nearly_reached_is_shown_with_as_many_decimals_as_tell() {
        let of = |ours| ratio(Bound::Least(0.8), Some(ours), Some(100.0)).shown_reached();
        assert_eq!(of(79.57), "0.796x");
        assert_eq!(of(79.99), "0.7999x");
        assert_eq!([of(80.0), of(80.3), of(79.3)], ["0.80x", "0.80x", "0.79x"]);
    }

    #[test]
    fn they_are_told_in_lines_and_in_rows() {
        let promises = [
            ratio(Bound::Least(1.5), Some(150.0), Some(100.0)).remarked("at 60%"),
            Promise::value("memory", Bound::Most(64.0), "bytes", 70.25),
            ratio(Bound::Least(1.5), None, Some(7.0)),
        ];
        let text = lines(&promises);
        let expected = [
            "  holds: reads, >= 1.5x of theirs: 1.50x (at 60%)",
            " MISSED: memory, <= 64 bytes: 70.2 bytes",
            " MISSED: reads, >= 1.5x of theirs: no value",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        let text = rows(&promises);
        let row = "| reads (at 60%) | 100 MiB/s | 150 MiB/s | 1.50x | >= 1.5x of theirs | holds |";
        assert_eq!(text.lines().nth(2), Some(row));
        assert_eq!(text.lines().count(), 5);
    }
}
