//! `tacita hifs map`: who lies where, as text, JSON or picture.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};
use tacita_daemon::control::path_to_json;
use tacita_hifs::{GroupMap, Occupant};

use crate::exit::Outcome;
use crate::output::{self, shown_name};

/// Letters for files in the text form; they are used again when there are more files.
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// Cells in a row.
const COLUMNS: usize = 64;
/// Files named in the legend.
const LEGEND_MAX: usize = 60;
/// Side of a cell in the picture.
const CELL: usize = 10;

pub(super) fn run(image: &Path, svg: Option<&Path>, json: bool) -> Outcome<()> {
    let hifs = super::open_to_read(image)?;
    let groups = hifs.map();
    if let Some(path) = svg {
        output::new_file(path, &picture(&groups))?;
        if !json {
            return output::print(&format!("{}\n", shown_name(path))).map_err(output::but_done);
        }
    }
    let value = if json { as_json(&groups) } else { Value::Null };
    output::facts(json, &value, &if json { String::new() } else { as_text(&groups) })
}

fn letter(occupant: Option<&Occupant>) -> char {
    occupant.map_or('.', |o| char::from(LETTERS[o.number % LETTERS.len()]))
}

fn as_text(groups: &[GroupMap]) -> String {
    let mut text = String::new();
    for (number, group) in groups.iter().enumerate() {
        for (what, cells) in [("inode table", &group.pages), ("buckets", &group.buckets)] {
            let used = cells.iter().filter(|cell| cell.is_some()).count();
            let _ = writeln!(text, "group {number}, {what}: {used} of {} in use", cells.len());
            let mut skipped = 0;
            for row in cells.chunks(COLUMNS) {
                if row.iter().all(Option::is_none) {
                    skipped += row.len();
                    continue;
                }
                note_skipped(&mut text, &mut skipped);
                let row: String = row.iter().map(|cell| letter(cell.as_ref())).collect();
                let _ = writeln!(text, "  {row}");
            }
            note_skipped(&mut text, &mut skipped);
        }
    }
    text + &legend(groups)
}

fn note_skipped(text: &mut String, skipped: &mut usize) {
    if *skipped > 0 {
        let _ = writeln!(text, "  ({skipped} free)");
        *skipped = 0;
    }
}

fn occupants(groups: &[GroupMap]) -> Vec<&Occupant> {
    let cells = groups.iter().flat_map(|group| group.buckets.iter().chain(&group.pages));
    let mut occupants: Vec<&Occupant> = cells.flatten().collect();
    occupants.sort_by_key(|occupant| occupant.number);
    occupants.dedup_by_key(|occupant| occupant.number);
    occupants
}

fn legend(groups: &[GroupMap]) -> String {
    let occupants = occupants(groups);
    let mut text = String::new();
    for occupant in occupants.iter().take(LEGEND_MAX) {
        let _ = writeln!(text, "{} {}", letter(Some(occupant)), shown_name(&occupant.name));
    }
    if occupants.len() > LEGEND_MAX {
        let _ = writeln!(text, "  ... and {} more", occupants.len() - LEGEND_MAX);
    }
    text
}

fn as_json(groups: &[GroupMap]) -> Value {
    let cells = |cells: &[Option<Occupant>]| -> Vec<Value> {
        let used = cells.iter().enumerate().filter_map(|(i, cell)| Some((i, cell.as_ref()?)));
        used.map(|(i, o)| json!({ "cell": i, "owner": path_to_json(&o.name), "bucket": o.bucket }))
            .collect()
    };
    groups
        .iter()
        .map(|group| {
            json!({
                "buckets": group.buckets.len(),
                "pages": group.pages.len(),
                "buckets_used": cells(&group.buckets),
                "pages_used": cells(&group.pages),
            })
        })
        .collect()
}

fn picture(groups: &[GroupMap]) -> String {
    let mut body = String::new();
    let mut y = 30;
    for (number, group) in groups.iter().enumerate() {
        for (what, cells) in [("inode table", &group.pages), ("buckets", &group.buckets)] {
            let _ = writeln!(body, r#"<text x="10" y="{y}">group {number}, {what}</text>"#);
            y += 6;
            let rows = cells.len().div_ceil(COLUMNS);
            let _ = writeln!(
                body,
                r##"<rect x="10" y="{y}" width="{}" height="{}" fill="#f2f2f2"/>"##,
                COLUMNS * CELL,
                rows * CELL
            );
            for (i, occupant) in cells.iter().enumerate() {
                if let Some(occupant) = occupant {
                    draw_cell(&mut body, i, y, occupant);
                }
            }
            y += rows * CELL + 24;
        }
    }
    let width = COLUMNS * CELL + 20;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{y}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

fn draw_cell(body: &mut String, index: usize, y: usize, occupant: &Occupant) {
    let hue = occupant.number * 137 % 360;
    let light = 45 + occupant.number / 8 % 3 * 12;
    let _ = writeln!(
        body,
        r#"<rect x="{}" y="{}" width="{}" height="{}" fill="hsl({hue},65%,{light}%)"><title>{} bucket {}</title></rect>"#,
        10 + index % COLUMNS * CELL,
        y + index / COLUMNS * CELL,
        CELL - 1,
        CELL - 1,
        escape(&shown_name(&occupant.name)),
        occupant.bucket
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
