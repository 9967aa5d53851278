//! The form in which traces are kept: below two lines that say what it is, a line for each frame, with
//! commas between its fields. What is read is what was written, to the byte.

use std::fmt::{self, Write};

use super::{Event, Frame, KINDS, Side};
use crate::error::{Error, Kind, Result};
use crate::geometry::{Generation, LABEL_LEN};
use crate::wire::{ItemAddress, PageAddress};

/// What a trace begins with: what it is, its version, and what the fields are.
pub const HEAD: &str = "tacita oram trace 1\ntime_us,connection,from,kind,bytes,page,item,names\n";
/// Levels that an address can have.
const LEVEL_MAX: usize = crate::geometry::LEVELS_MAX;

/// The line of an event.
pub fn line(event: &Event) -> String {
    let Event { at_us, connection, frame } = event;
    let Frame { side, kind, len, names, page, item } = frame;
    let mut line = format!("{at_us},{connection},{side},{kind},{len},");
    if let Some(page) = page {
        let PageAddress { generation: Generation { level, number }, page } = page;
        let _ = write!(line, "{level}-{number}-{page}");
    }
    line.push(',');
    if let Some(item) = item {
        let ItemAddress { generation: Generation { level, number }, label } = item;
        let _ = write!(line, "{level}-{number}-");
        for byte in label {
            let _ = write!(line, "{byte:02x}");
        }
    }
    let _ = writeln!(line, ",{names}");
    line
}

/// The events of a whole trace.
///
/// # Errors
/// [`Kind::Parameters`], with the number of the line, for everything that is not written so.
pub fn parse(text: &str) -> Result<Vec<Event>> {
    let refuse = |line: usize| {
        let what = format!("line {line} is not one of a trace that this version writes");
        Error::new(Kind::Parameters, what)
    };
    let events = text.strip_prefix(HEAD).ok_or_else(|| {
        Error::new(Kind::Parameters, "it does not begin as a trace that this version writes")
    })?;
    (3..)
        .zip(events.split_inclusive('\n'))
        .map(|(n, line)| event(line).ok_or_else(|| refuse(n)))
        .collect()
}

/// The event of a line, if there is one that is written so.
fn event(text: &str) -> Option<Event> {
    let fields: Vec<&str> = text.strip_suffix('\n')?.split(',').collect();
    let [at_us, connection, side, kind, len, page, item, names] = fields[..] else { return None };
    let kind = KINDS.into_iter().find(|known| *known == kind)?;
    let may_name =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"/-+ ".contains(&byte);
    if !names.bytes().all(may_name) {
        return None;
    }
    let side = [Side::Client, Side::Server].into_iter().find(|known| known.to_string() == side)?;
    let frame = Frame {
        side,
        kind,
        len: len.parse().ok()?,
        names: names.to_owned(),
        page: if page.is_empty() { None } else { Some(page_address(page)?) },
        item: if item.is_empty() { None } else { Some(item_address(item)?) },
    };
    let event = Event { at_us: at_us.parse().ok()?, connection: connection.parse().ok()?, frame };
    (line(&event) == text).then_some(event)
}

fn page_address(text: &str) -> Option<PageAddress> {
    let (generation, page) = generation(text)?;
    Some(PageAddress { generation, page: page.parse().ok()? })
}

fn item_address(text: &str) -> Option<ItemAddress> {
    let (generation, digits) = generation(text)?;
    if digits.len() != 2 * LABEL_LEN || !digits.is_ascii() {
        return None;
    }
    let mut label = [0; LABEL_LEN];
    for (at, byte) in label.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(ItemAddress { generation, label })
}

/// A generation and what follows it.
fn generation(text: &str) -> Option<(Generation, &str)> {
    let (level, rest) = text.split_once('-')?;
    let (number, rest) = rest.split_once('-')?;
    let generation = Generation { level: level.parse().ok()?, number: number.parse().ok()? };
    ((1..=LEVEL_MAX).contains(&generation.level.into()) && generation.number > 0)
        .then_some((generation, rest))
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}
