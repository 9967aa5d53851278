//! The picture of what a server sees, as SVG: how much passes when, for what, and the labels.

use std::collections::BTreeMap;
use std::fmt::Write;

use tacita_oram::trace::{Comparison, Event, Side, Totals, UNDECODED};

/// Room around all, for the names of lanes, and between two traces.
const MARGIN: u32 = 24;
const NAMES: u32 = 130;
const BETWEEN: u32 = 24;
/// Columns of a lane, and how wide one is: of a trace alone, and of one of two.
const COLUMNS: u32 = 220;
const COLUMN: [u32; 2] = [4, 2];
/// Height of a lane and what is between two.
const LANE: (u32, u32) = (16, 5);
/// Shades by how much passes in a column.
const SHADES: u64 = 4;
/// Height of the field of labels, and how many are drawn at most: of more, every n-th.
const FIELD: u32 = 260;
const LABELS_MAX: usize = 6000;

const STYLE: &str = "text { font: 13px sans-serif; fill: #222 } .title { font-size: 18px; \
     font-weight: bold } .part { font-weight: bold } .ground { fill: #f2f2f2 } .small \
     { font-size: 11px } .s0 { fill: #c6dff2 } .s1 { fill: #7fb2dc } .s2 { fill: #3f83bf } \
     .s3 { fill: #1b4f86 } .dots { stroke: #1b4f86; stroke-width: 2; fill: none }";

/// A trace, and what it is called.
pub(crate) struct Trace<'a> {
    pub(crate) name: String,
    pub(crate) events: &'a [Event],
    pub(crate) totals: Totals,
}

/// Draws one trace, or two side by side with what tells them apart.
pub(crate) fn draw(traces: &[Trace], compared: Option<&Comparison>) -> String {
    let lanes = lanes_of(traces);
    let column = COLUMN[traces.len().min(2) - 1];
    let width = COLUMNS * column;
    let mut body = String::new();
    text(&mut body, "title", MARGIN, MARGIN + 14, &verdict(compared));
    let top = MARGIN + 64;
    let field = top + height_of(&lanes) + 34;
    for (place, name) in (0..).zip(&lanes) {
        text(&mut body, "", MARGIN, top + place * (LANE.0 + LANE.1) + 13, name);
    }
    text(&mut body, "part", MARGIN, field + 13, "labels");
    text(&mut body, "small", MARGIN, field + 30, "0 at the top, all");
    text(&mut body, "small", MARGIN, field + 45, "ones at the bottom");
    for (number, trace) in (0..).zip(traces) {
        let left = MARGIN + NAMES + number * (width + BETWEEN);
        text(&mut body, "part", left, top - 24, &escape(&trace.name));
        text(&mut body, "small", left, top - 8, &counts(&trace.totals));
        let span = trace.events.last().map_or(1, |event| event.at_us + 1);
        let at = |event: &Event| event.at_us * u64::from(COLUMNS) / span;
        for (place, name) in (0..).zip(&lanes) {
            let y = top + place * (LANE.0 + LANE.1);
            rect(&mut body, "ground", (left, y), (width, LANE.0));
            let mine = trace.events.iter().filter(|event| lane_of(event).as_deref() == Some(name));
            lane(&mut body, (left, y), column, mine.map(|event| (at(event), event.frame.len)));
        }
        rect(&mut body, "ground", (left, field), (width, FIELD));
        labels(&mut body, (left, field), width, trace.events, span);
        let seconds = format!("{}.{:03} s", span / 1_000_000, span / 1000 % 1000);
        text(&mut body, "small", left, field + FIELD + 16, &format!("0 to {seconds}"));
    }
    let count = u32::try_from(traces.len()).unwrap_or(2);
    let width = 2 * MARGIN + NAMES + count * width + (count - 1) * BETWEEN;
    let height = field + FIELD + 16 + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

fn verdict(compared: Option<&Comparison>) -> String {
    match compared {
        None => "What the server sees".to_owned(),
        Some(Comparison { shape: None, .. }) => {
            "What the server sees: one shape, equal to the byte".to_owned()
        }
        Some(Comparison { shape: Some(what), .. }) => {
            format!("What the server sees DIFFERS: {}", escape(what))
        }
    }
}

fn counts(totals: &Totals) -> String {
    let Totals { queries, frames, client_bytes, server_bytes, labels, labels_again, .. } = totals;
    format!(
        "{queries} queries, {frames} frames, {} bytes; {labels} labels, {labels_again} of them again",
        client_bytes + server_bytes
    )
}

/// The lane of an event: what clients ask for, and how much the server sends.
fn lane_of(event: &Event) -> Option<String> {
    let frame = &event.frame;
    if frame.kind == UNDECODED {
        return Some("undecoded".to_owned());
    }
    if frame.side == Side::Server {
        return Some("sent by the server".to_owned());
    }
    Some(match frame.kind {
        "append" => "queries".to_owned(),
        // The first step asks for a page alone.
        "fetch" => {
            match frame.item.map(|item| item.generation).or(frame.page.map(|p| p.generation)) {
                Some(generation) => format!("level {}", generation.level),
                None => return None,
            }
        }
        "store" => "results".to_owned(),
        "get" => "objects read".to_owned(),
        "put" => "objects written".to_owned(),
        _ => "other requests".to_owned(),
    })
}

/// Lanes that one of the traces has, in one order.
fn lanes_of(traces: &[Trace]) -> Vec<String> {
    let rank = |name: &str| match name {
        "queries" => 0,
        "results" => 100,
        "objects read" => 101,
        "objects written" => 102,
        "other requests" => 103,
        "sent by the server" => 104,
        "undecoded" => 105,
        level => level.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or(99),
    };
    let events = traces.iter().flat_map(|trace| trace.events);
    let lanes: BTreeMap<u8, String> =
        events.filter_map(lane_of).map(|name| (rank(&name), name)).collect();
    lanes.into_values().collect()
}

fn height_of(lanes: &[String]) -> u32 {
    u32::try_from(lanes.len()).unwrap_or(0) * (LANE.0 + LANE.1)
}

/// The bytes of a lane in columns, each in a shade: equal steps up to the most.
fn lane(
    body: &mut String,
    (left, y): (u32, u32),
    column: u32,
    bytes: impl Iterator<Item = (u64, u64)>,
) {
    let mut columns: BTreeMap<u64, u64> = BTreeMap::new();
    for (place, len) in bytes {
        *columns.entry(place).or_insert(0) += len.max(1);
    }
    let most = columns.values().copied().max().unwrap_or(1);
    let mut shades = vec![String::new(); usize::try_from(SHADES).unwrap_or(0)];
    for (place, len) in columns {
        let shade = usize::try_from((len * SHADES).div_ceil(most) - 1).unwrap_or(0);
        let x = u64::from(left) + place * u64::from(column);
        let _ = write!(shades[shade], "M{x} {y}h{column}v{}h-{column}z", LANE.0);
    }
    for (number, path) in shades.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let _ = writeln!(body, r#"<path class="s{number}" d="{path}"/>"#);
    }
}

/// A dot for each label: when it was asked for, and what it begins with.
fn labels(body: &mut String, (left, top): (u32, u32), width: u32, events: &[Event], span: u64) {
    let asked: Vec<_> =
        events.iter().filter_map(|event| Some((event.at_us, event.frame.item?.label))).collect();
    let mut path = String::new();
    for (at_us, label) in asked.iter().step_by(asked.len().div_ceil(LABELS_MAX).max(1)) {
        let x = u64::from(left) + at_us * u64::from(width) / span;
        let begin = u32::from(u16::from_be_bytes([label[0], label[1]]));
        let y = top + begin * (FIELD - 2) / (1 << 16) + 1;
        let _ = write!(path, "M{x} {y}h2");
    }
    let _ = writeln!(body, r#"<path class="dots" d="{path}"/>"#);
}

fn rect(body: &mut String, class: &str, (x, y): (u32, u32), (width, height): (u32, u32)) {
    let _ = writeln!(
        body,
        r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#
    );
}

/// `content` is markup.
fn text(body: &mut String, class: &str, x: u32, y: u32, content: &str) {
    let _ = writeln!(body, r#"<text class="{class}" x="{x}" y="{y}">{content}</text>"#);
}

fn escape(plain: &str) -> String {
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use tacita_oram::geometry::Generation;
    use tacita_oram::trace::{Frame, compare};
    use tacita_oram::wire::ItemAddress;

    use super::*;

    fn event(at_us: u64, kind: &'static str, label: Option<u8>) -> Event {
        let generation = Generation { level: 2, number: 1 };
        let item = label.map(|byte| ItemAddress { generation, label: [byte; 16] });
        let side = if kind == "appended" { Side::Server } else { Side::Client };
        let frame = Frame { side, kind, len: 100, names: String::new(), page: None, item };
        Event { at_us, connection: 1, frame }
    }

    fn trace<'a>(name: &str, events: &'a [Event]) -> Trace<'a> {
        Trace { name: name.to_owned(), events, totals: Totals::of(events) }
    }

    #[test]
    fn all_that_is_seen_is_drawn() {
        let one: Vec<Event> = (0..10)
            .flat_map(|n| {
                let at = u64::from(n) * 100;
                [event(at, "append", None), event(at + 50, "fetch", Some(n * 20))]
            })
            .chain([event(2000, "appended", None)])
            .collect();
        let svg = draw(&[trace("<one>", &one)], None);
        for what in ["&lt;one&gt;", ">queries<", ">level 2<", ">sent by the server<", "10 queries"]
        {
            assert!(svg.contains(what), "{what}: {svg}");
        }
        assert!(!svg.contains(">results<"));
        // Ten labels, each at its own height.
        let dots = svg.split("class=\"dots\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(dots.matches('M').count(), 10);
        let lane_y = |svg: &str| svg.matches(&format!("v{}h-2z", LANE.0)).count();
        let equal = draw(&[trace("a", &one), trace("b", &one)], Some(&compare(&one, &one)));
        assert!(equal.contains("one shape") && lane_y(&equal) == 2 * 21);
        let differs = draw(&[trace("a", &one), trace("b", &[])], Some(&compare(&one, &[])));
        assert!(differs.contains("DIFFERS: append from the client"), "{differs}");
        assert!(draw(&[trace("nothing", &[])], None).ends_with("</svg>\n"));
    }

    #[test]
    fn many_labels_are_thinned_evenly() {
        let many: Vec<Event> = (0..20_000).map(|n| event(n, "fetch", Some(7))).collect();
        let svg = draw(&[trace("many", &many)], None);
        let dots = svg.split("class=\"dots\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(dots.matches('M').count(), 5000);
    }
}
