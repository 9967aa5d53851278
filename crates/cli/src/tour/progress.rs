//! The progress of a build beside that of queries: figure 9 of the paper, for terminals and as SVG.
//!
//! Paper: `PrivateFS`, figure 9: progress that is reported, enforced and actual.

use std::fmt::Write;
use std::time::Duration;

use tacita_oram::Progress;
use tacita_oram::geometry::Generation;

/// Characters of the drawing.
const COLUMNS: usize = 64;
const ROWS: usize = 11;
/// The field of the picture, and the room around it.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 60.0;

const STYLE: &str = "text { font: 13px sans-serif; fill: #222 } .title { font-size: 18px; \
     font-weight: bold } polyline { fill: none; stroke-width: 2 } .reported { stroke: #0072b2 } \
     .enforced { stroke: #d55e00 } .actual { stroke: #009e73 } .grid { stroke: #dddddd }";

/// How far a build was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// After so many queries, and so much time.
    pub(super) queries: u64,
    pub(super) at: Duration,
    pub(super) reported: f64,
    pub(super) enforced: f64,
}

/// How far one build was, while it went on.
#[derive(Debug)]
pub(super) struct Curves {
    pub(super) generation: Generation,
    /// Queries of the whole evening.
    pub(super) queries: u64,
    pub(super) samples: Vec<Sample>,
    /// When it was seen to be complete.
    ended: Option<Duration>,
}

/// A curve: its name, its mark, how high it is at a sample.
type Curve = (&'static str, char, fn(&Curves, &Sample) -> f64);

const CURVES: [Curve; 3] = [
    ("enforced", '-', |_, sample| sample.enforced),
    ("actual", 'o', Curves::actual),
    ("reported", '+', |_, sample| sample.reported),
];

impl Curves {
    pub(super) const fn new(generation: Generation, queries: u64) -> Self {
        Self { generation, queries, samples: Vec::new(), ended: None }
    }

    /// Takes what the builds report after so many queries and so much time.
    pub(super) fn take(&mut self, queries: u64, at: Duration, progress: &[Progress]) {
        match progress.iter().find(|build| build.generation == self.generation) {
            Some(build) => self.samples.push(Sample {
                queries,
                at,
                reported: build.reported,
                enforced: build.enforced,
            }),
            None if !self.samples.is_empty() => self.ended = self.ended.or(Some(at)),
            None => {}
        }
    }

    /// The share of its time that the build has taken, known when it has ended.
    fn actual(&self, sample: &Sample) -> f64 {
        let [Some(first), Some(last)] = [self.samples.first(), self.samples.last()] else {
            return 0.0;
        };
        let whole = self.ended.unwrap_or(last.at).saturating_sub(first.at);
        if whole.is_zero() {
            return 0.0;
        }
        sample.at.saturating_sub(first.at).as_secs_f64() / whole.as_secs_f64()
    }
}

/// The curves in characters.
pub(super) fn drawing(curves: &Curves) -> Vec<String> {
    let mut field = vec![vec![' '; COLUMNS]; ROWS];
    for (_, mark, height) in CURVES {
        for sample in &curves.samples {
            let column = index(real(sample.queries) / real(curves.queries), COLUMNS);
            let row = ROWS - 1 - index(height(curves, sample), ROWS);
            field[row][column] = mark;
        }
    }
    let Generation { level, .. } = curves.generation;
    let mut lines = vec![
        format!("Progress of the build of level {level} in evening A, as queries come:"),
        "+ reported by the build, - enforced at least, o actual share of its time".to_owned(),
    ];
    for (row, marks) in field.iter().enumerate() {
        let scale = match row {
            0 => "100%",
            row if row == ROWS / 2 => " 50%",
            row if row == ROWS - 1 => "  0%",
            _ => "",
        };
        let marks: String = marks.iter().collect();
        lines.push(format!("{scale:>4} |{}", marks.trim_end()));
    }
    lines.push(format!("     +{}", "-".repeat(COLUMNS)));
    lines.push(format!("      0{:>width$} queries", curves.queries, width = COLUMNS - 9));
    lines
}

/// Which of `count` equal parts of the whole a share falls into.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn index(share: f64, count: usize) -> usize {
    let last = count.saturating_sub(1);
    ((share.clamp(0.0, 1.0) * real(last as u64)).round() as usize).min(last)
}

/// A count, far below 2^53.
#[allow(clippy::cast_precision_loss, reason = "counts of queries and columns are small")]
fn real(count: u64) -> f64 {
    count as f64
}

/// The curves as SVG.
pub(super) fn picture(curves: &Curves) -> String {
    let Generation { level, number } = curves.generation;
    let mut body = String::new();
    let mut text = |class: &str, x: f64, y: f64, content: &str| {
        let _ = writeln!(body, r#"<text class="{class}" x="{x}" y="{y}">{content}</text>"#);
    };
    text("title", LEFT, 28.0, &format!("Progress of the build of level {level}, number {number}"));
    text("", LEFT, TOP + HEIGHT + 20.0, "0");
    text("", LEFT + WIDTH - 90.0, TOP + HEIGHT + 20.0, &format!("{} queries", curves.queries));
    for percent in [0, 25, 50, 75, 100] {
        let y = TOP + HEIGHT * (1.0 - f64::from(percent) / 100.0);
        text("", 16.0, y + 4.0, &format!("{percent}%"));
    }
    for (number, (name, ..)) in (0..).zip(CURVES) {
        let x = LEFT + 130.0 * f64::from(number);
        text("", x + 26.0, TOP - 12.0, name);
    }
    for percent in [0, 25, 50, 75, 100] {
        let y = TOP + HEIGHT * (1.0 - f64::from(percent) / 100.0);
        let right = LEFT + WIDTH;
        let _ =
            writeln!(body, r#"<line class="grid" x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}"/>"#);
    }
    for (number, (name, _, height)) in (0..).zip(CURVES) {
        let (x, y) = (LEFT + 130.0 * f64::from(number), TOP - 16.0);
        let end = x + 20.0;
        let _ = writeln!(body, r#"<polyline class="{name}" points="{x},{y} {end},{y}"/>"#);
        let mut points = String::new();
        for sample in &curves.samples {
            let x = LEFT + WIDTH * real(sample.queries) / real(curves.queries);
            let y = TOP + HEIGHT * (1.0 - height(curves, sample));
            let _ = write!(points, "{x:.1},{y:.1} ");
        }
        let _ = writeln!(body, r#"<polyline class="{name}" points="{}"/>"#, points.trim_end());
    }
    let (width, height) = (2.0 * LEFT + WIDTH, TOP + HEIGHT + 40.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves() -> Curves {
        let generation = Generation { level: 3, number: 1 };
        let mut curves = Curves::new(generation, 100);
        let of = |generation, reported| Progress { generation, reported, enforced: reported / 2.0 };
        let other = of(Generation { level: 1, number: 9 }, 0.9);
        for n in 0..=50 {
            let at = Duration::from_millis(10 * n);
            let reported = real(n) / 50.0;
            curves.take(n, at, &[other, of(generation, reported)]);
        }
        curves.take(51, Duration::from_secs(1), &[other]);
        curves.take(52, Duration::from_secs(2), &[]);
        curves
    }

    #[test]
    fn all_three_are_drawn() {
        let curves = curves();
        assert_eq!((curves.samples.len(), curves.ended), (51, Some(Duration::from_secs(1))));
        let lines = drawing(&curves);
        assert_eq!(lines.len(), 2 + ROWS + 2);
        // Half of the queries: all is reported, half is enforced, half of the time is over.
        assert!(lines[2].starts_with("100% |") && lines[2].ends_with('+'), "{lines:#?}");
        assert!(lines[2 + ROWS / 2].ends_with('o'), "{lines:#?}");
        assert!(lines.iter().any(|line| line.ends_with('-') && line.contains('+')));
        let svg = picture(&curves);
        assert!(svg.contains("380.0,60.0") && svg.contains("380.0,220.0"), "{svg}");
        for (name, ..) in CURVES {
            assert_eq!(svg.matches(&format!("class=\"{name}\"")).count(), 2);
        }
        assert!(!drawing(&Curves::new(curves.generation, 100)).is_empty());
    }
}
