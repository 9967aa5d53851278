//! Whether two traces have one shape.
//!
//! The shape is how many frames of which kind and length there are, from whom, and what they name but for
//! labels and numbers of pages. In which order frames pass of requests that are under way at once is up
//! to the machines, so the order is compared by itself, for each connection, side and kind: a client
//! that asks one query after the other keeps it.

use std::collections::HashMap;
use std::fmt::Write;

use super::{Event, Frame, Side, UNDECODED};
use crate::geometry::Generation;

/// What tells two traces apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// The first difference of their shapes, in words; `None`: they have one shape, to the byte.
    pub shape: Option<String>,
    /// The first difference of their order, in words; `None`: there is none.
    pub order: Option<String>,
}

impl Comparison {
    /// Whether both traces have one shape.
    pub const fn is_equal(&self) -> bool {
        self.shape.is_none()
    }
}

/// What of a frame belongs to the shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Seen<'a> {
    side: Side,
    kind: &'static str,
    len: u64,
    names: &'a str,
    page: Option<Generation>,
    item: Option<Generation>,
}

/// Compares two traces.
pub fn compare(one: &[Event], two: &[Event]) -> Comparison {
    Comparison { shape: undecoded(one, two).or_else(|| shape(one, two)), order: order(one, two) }
}

/// Nothing can be said of what is not understood.
fn undecoded(one: &[Event], two: &[Event]) -> Option<String> {
    let of = |events: &[Event]| events.iter().any(|event| event.frame.kind == UNDECODED);
    (of(one) || of(two)).then(|| "bytes that are no frames of the protocol".to_owned())
}

/// The first frame that one trace has and the other has not, or not as often.
fn shape(one: &[Event], two: &[Event]) -> Option<String> {
    let (in_one, in_two) = (counts(one), counts(two));
    let differs = |seen: &Seen| in_one.get(seen) != in_two.get(seen);
    let seen = one.iter().chain(two).map(|event| Seen::of(&event.frame)).find(differs)?;
    let times = |counts: &HashMap<Seen, u64>| counts.get(&seen).copied().unwrap_or(0);
    Some(format!("{}: {} of them and {}", seen.words(), times(&in_one), times(&in_two)))
}

fn counts(events: &[Event]) -> HashMap<Seen<'_>, u64> {
    let mut counts = HashMap::new();
    for event in events {
        *counts.entry(Seen::of(&event.frame)).or_insert(0) += 1;
    }
    counts
}

/// The first place, by the first trace, where another frame passes.
fn order(one: &[Event], two: &[Event]) -> Option<String> {
    let (in_one, in_two) = (lanes(one), lanes(two));
    let mut nth = HashMap::new();
    for event in one {
        let lane = lane(event);
        let place: &mut usize = nth.entry(lane).or_insert(0);
        let (seen, other) = (in_one[&lane][*place], in_two.get(&lane).and_then(|l| l.get(*place)));
        *place += 1;
        if other != Some(&seen) {
            let other = other.map_or_else(|| "nothing".to_owned(), Seen::words);
            let (connection, ..) = lane;
            let what = format!("connection {connection}, {place}.: {} and {other}", seen.words());
            return Some(what);
        }
    }
    let more = two.iter().find(|event| {
        let lane = lane(event);
        in_two[&lane].len() > in_one.get(&lane).map_or(0, Vec::len)
    })?;
    Some(format!("connection {}: more {} frames", more.connection, more.frame.kind))
}

/// What keeps its order.
type Lane = (u32, Side, &'static str);

fn lane(event: &Event) -> Lane {
    (event.connection, event.frame.side, event.frame.kind)
}

fn lanes(events: &[Event]) -> HashMap<Lane, Vec<Seen<'_>>> {
    let mut lanes: HashMap<Lane, Vec<Seen>> = HashMap::new();
    for event in events {
        lanes.entry(lane(event)).or_default().push(Seen::of(&event.frame));
    }
    lanes
}

impl<'a> Seen<'a> {
    fn of(frame: &'a Frame) -> Self {
        let Frame { side, kind, len, names, page, item } = frame;
        Self {
            side: *side,
            kind,
            len: *len,
            // How long the log is when a connection is made is a matter of time.
            names: if *kind == "welcome" { "" } else { names },
            page: page.map(|page| page.generation),
            item: item.map(|item| item.generation),
        }
    }

    fn words(&self) -> String {
        let Self { side, kind, len, names, page, item } = self;
        let mut words = format!("{kind} from the {side} of {len} bytes");
        if !names.is_empty() {
            let _ = write!(words, " ({names})");
        }
        for (what, generation) in [("a page", page), ("an item", item)] {
            if let Some(generation) = generation {
                let _ = write!(words, ", {what} of {generation}");
            }
        }
        words
    }
}
