//! Plots from CSV alone: one SVG a workload, values and ratios against load.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use tacita_daemon::voice::shown_name;

use crate::harness::record::{Axis, Record, ratio_to, reference};

const PANEL_WIDTH: f64 = 420.0;
const PANEL_HEIGHT: f64 = 300.0;
/// Room around the area of the curves.
const LEFT: f64 = 70.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 50.0;
/// Room for the names of the curves, right of the last panel.
const LEGEND_WIDTH: f64 = 130.0;

/// Values that differ more than this are shown on a logarithmic axis.
const LINEAR_SPAN_MAX: f64 = 25.0;

/// Told apart in print and by the colour-blind (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999"];

/// Draws every workload that was measured at two loads or more; gives the number of files.
pub(crate) fn draw_all(records: &[Record], out: &Path, prefix: &str) -> Result<usize> {
    let mut drawn: Vec<(&str, &str)> = Vec::new();
    let peers = peers_of(records);
    for record in records {
        let key = (record.profile.as_str(), record.workload.as_str());
        if drawn.contains(&key) {
            continue;
        }
        let rows: Vec<&Record> =
            records.iter().filter(|r| (r.profile.as_str(), r.workload.as_str()) == key).collect();
        let measured = rows.iter().filter(|r| r.value().is_some());
        let loads: BTreeSet<u32> = measured.map(|r| r.load_percent).collect();
        if loads.len() < 2 {
            continue;
        }
        let name = format!("{prefix}-{}-{}.svg", key.0, key.1);
        let path = out.join(name);
        let svg = figure(&rows, records, &peers);
        fs::write(&path, svg).with_context(|| format!("cannot write {}", shown_name(&path)))?;
        drawn.push(key);
    }
    Ok(drawn.len())
}

/// The same peer has the same colour in every figure.
fn peers_of(records: &[Record]) -> Vec<String> {
    let mut peers: Vec<String> = Vec::new();
    for record in records {
        if !peers.contains(&record.peer) {
            peers.push(record.peer.clone());
        }
    }
    peers
}

/// A curve: its colour and its points.
struct Curve {
    colour: &'static str,
    points: Vec<(f64, f64)>,
}

fn figure(rows: &[&Record], records: &[Record], peers: &[String]) -> String {
    let base = reference(records);
    let curves = |value: &dyn Fn(&Record) -> Option<f64>| -> Vec<Curve> {
        let curve = |(index, peer): (usize, &String)| Curve {
            colour: COLOURS[index % COLOURS.len()],
            points: rows
                .iter()
                .filter(|r| r.peer == *peer)
                .filter_map(|r| Some((f64::from(r.load_percent), value(r)?)))
                .collect(),
        };
        peers.iter().enumerate().map(curve).collect()
    };
    let ratios = curves(&|r| ratio_to(base, r, records));
    // Where the reference was not measured there are none.
    let has_ratios = ratios.iter().any(|curve| !curve.points.is_empty());
    let panels = if has_ratios { 2.0 } else { 1.0 };
    let width = panels * (LEFT + PANEL_WIDTH) + LEGEND_WIDTH;
    let height = TOP + PANEL_HEIGHT + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let first = rows[0];
    let title = format!("{} {}", first.profile, first.workload);
    text(
        &mut svg,
        LEFT,
        24.0,
        "start",
        &format!("<tspan font-size=\"16\">{}</tspan>", escape(&title)),
    );
    let across = Across::of(rows);
    panel(&mut svg, LEFT, &escape(&first.unit), &curves(&Record::value), (None, &across));
    if has_ratios {
        let right = 2.0 * LEFT + PANEL_WIDTH;
        panel(&mut svg, right, &format!("x {}", escape(base)), &ratios, (Some(1.0), &across));
    }
    for (index, peer) in (0_u32..).zip(peers) {
        let y = TOP + 14.0 + 20.0 * f64::from(index);
        let x = width - LEGEND_WIDTH + 14.0;
        let colour = COLOURS[index as usize % COLOURS.len()];
        line(&mut svg, (x, y - 4.0), (x + 20.0, y - 4.0), colour, 2.0);
        text(&mut svg, x + 26.0, y, "start", &escape(peer));
    }
    svg.push_str("</svg>\n");
    svg
}

/// The horizontal axis: linear from 0.
struct Across {
    axis: Axis,
    end: f64,
}

impl Across {
    fn of(rows: &[&Record]) -> Self {
        let axis = Axis::of(&rows[0].profile);
        let most = rows.iter().map(|row| f64::from(row.load_percent));
        let end = axis.end.map_or_else(|| Scale::over(most).high, f64::from);
        Self { axis, end }
    }
}

/// Axes, grid and curves, with the area starting at `left`; `mark` is a value to draw across.
fn panel(
    svg: &mut String,
    left: f64,
    label: &str,
    curves: &[Curve],
    (mark, across): (Option<f64>, &Across),
) {
    let values = || curves.iter().flat_map(|c| &c.points).map(|p| p.1);
    // Shares are of a whole, however small some are.
    let scale = if label == "%" { Scale::WHOLE } else { Scale::over(values().chain(mark)) };
    let x_of = |load: f64| left + load / across.end * PANEL_WIDTH;
    let y_of = |value: f64| TOP + PANEL_HEIGHT * (1.0 - scale.part(value));
    text(svg, left, TOP - 10.0, "start", label);
    for tick in scale.ticks() {
        let y = y_of(tick);
        line(svg, (left, y), (left + PANEL_WIDTH, y), "#dddddd", 1.0);
        text(svg, left - 6.0, y + 4.0, "end", &number(tick));
    }
    for part in 0..=5 {
        let load = across.end * f64::from(part) / 5.0;
        let x = x_of(load);
        line(svg, (x, TOP + PANEL_HEIGHT), (x, TOP + PANEL_HEIGHT + 5.0), "black", 1.0);
        text(svg, x, TOP + PANEL_HEIGHT + 20.0, "middle", &number(load));
    }
    let middle = left + PANEL_WIDTH / 2.0;
    text(svg, middle, TOP + PANEL_HEIGHT + 38.0, "middle", &across.axis.label());
    if let Some(value) = mark {
        line(svg, (left, y_of(value)), (left + PANEL_WIDTH, y_of(value)), "#888888", 1.5);
    }
    for curve in curves {
        let places: Vec<(f64, f64)> = curve.points.iter().map(|p| (x_of(p.0), y_of(p.1))).collect();
        for pair in places.windows(2) {
            line(svg, pair[0], pair[1], curve.colour, 2.0);
        }
        for (x, y) in places {
            writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{}\"/>",
                curve.colour
            )
            .expect("a string takes all");
        }
    }
    writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{TOP}\" width=\"{PANEL_WIDTH}\" height=\"{PANEL_HEIGHT}\" \
         fill=\"none\" stroke=\"black\"/>"
    )
    .expect("a string takes all");
}

/// A vertical axis: linear from 0, or logarithmic over whole decades.
#[derive(Debug)]
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    /// From none to all, in percent.
    const WHOLE: Self = Self { low: 0.0, high: 100.0, logarithmic: false };

    fn over(values: impl Iterator<Item = f64>) -> Self {
        let positive: Vec<f64> = values.filter(|v| *v > 0.0).collect();
        let most = positive.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let least = positive.iter().copied().fold(most, f64::min);
        if positive.is_empty() {
            return Self { low: 0.0, high: 1.0, logarithmic: false };
        }
        if most / least > LINEAR_SPAN_MAX {
            return Self {
                low: 10_f64.powf(least.log10().floor()),
                high: 10_f64.powf(most.log10().ceil()),
                logarithmic: true,
            };
        }
        let decade = 10_f64.powf(most.log10().floor());
        let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
        let high = steps.iter().map(|s| s * decade).find(|h| *h >= most);
        Self { low: 0.0, high: high.unwrap_or(most), logarithmic: false }
    }

    /// Where a value stands between bottom, 0, and top, 1.
    fn part(&self, value: f64) -> f64 {
        if self.logarithmic {
            let value = value.max(self.low);
            return (value / self.low).log10() / (self.high / self.low).log10();
        }
        (value - self.low) / (self.high - self.low)
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            return (0..=5).map(|i| self.high * f64::from(i) / 5.0).collect();
        }
        let powers = std::iter::successors(Some(self.low), |tick| Some(tick * 10.0));
        powers.take_while(|tick| *tick <= self.high * 1.001).collect()
    }
}

fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
    writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" \
         stroke-width=\"{width}\"/>",
        from.0, from.1, to.0, to.1
    )
    .expect("a string takes all");
}

/// `content` is markup.
fn text(svg: &mut String, x: f64, y: f64, anchor: &str, content: &str) {
    writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>")
        .expect("a string takes all");
}

fn escape(plain: &str) -> String {
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_hold_their_values() {
        for values in [vec![0.9, 1.0, 1.1], vec![3.0, 800.0], vec![7.0], vec![]] {
            let scale = Scale::over(values.iter().copied());
            for value in values {
                let part = scale.part(value);
                assert!((0.0..=1.0).contains(&part), "{value} on {scale:?}");
            }
            assert!(scale.ticks().len() >= 2);
        }
    }

    #[test]
    fn draws_a_figure_a_workload() {
        let folder = tempfile::tempdir().unwrap();
        let record =
            |load_percent, peer, value| Record::sample(peer, "seq-read", load_percent, &[value]);
        let one_load = [record(10, "fuse2fs", 5.0)];
        assert_eq!(draw_all(&one_load, folder.path(), "r").unwrap(), 0);
        let records = [
            record(10, "fuse2fs", 5.0),
            record(90, "fuse2fs", 4.0),
            record(10, "a<b", 500.0),
            record(90, "a<b", 400.0),
        ];
        assert_eq!(draw_all(&records, folder.path(), "r").unwrap(), 1);
        let svg = fs::read_to_string(folder.path().join("r-db-seq-read.svg")).unwrap();
        assert!(svg.contains("a&lt;b") && !svg.contains("NaN"));
        assert_eq!(svg.matches("<circle").count(), 8);
    }

    #[test]
    fn shares_without_a_reference_have_one_panel_to_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let record = |at, value| Record {
            profile: "progress".into(),
            unit: "%".into(),
            ..Record::sample("reported", "build", at, &[value])
        };
        let records = [record(0, 0.1), record(50, 2.0), record(100, 90.0)];
        assert_eq!(draw_all(&records, folder.path(), "r").unwrap(), 1);
        let svg = fs::read_to_string(folder.path().join("r-progress-build.svg")).unwrap();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("time in %").count(), 1);
        // Nine tenths up.
        assert!(svg.contains(&format!("cy=\"{:.1}\"", TOP + PANEL_HEIGHT / 10.0)), "{svg}");
    }
}
