//! `tacita pddm plan`: what shapes cost.

use std::fmt::Write;

use serde_json::{Value, json};
use tacita_block::size;
use tacita_pddm::{Geometry, Level, Parameters, Traffic, amplification, hidden_per_public};

use super::{POSSIBLE, name_of, shape};
use crate::arguments::PddmShape;
use crate::exit::{Failure, Outcome};
use crate::output;

const BLOCK_LEN: u64 = 4096;

/// The shape that is asked for, or all profiles.
pub(super) fn run(size: u64, asked: &PddmShape, json: bool) -> Outcome<()> {
    let is_asked = asked.profile.is_some() || asked.ratio.is_some() || asked.spare.is_some();
    let mut shapes = Vec::new();
    if is_asked {
        let name = asked.profile.filter(|_| asked.ratio.is_none() && asked.spare.is_none());
        shapes.push((name.map(shape::name), shape::of(asked)?));
    } else {
        for profile in shape::PROFILES {
            let parameters = Parameters { classes: asked.classes, ..shape::of_profile(profile) };
            shapes.push((Some(shape::name(profile)), parameters));
        }
    }
    let mut rows = Vec::new();
    for (name, parameters) in shapes {
        let geometry = Geometry::new(parameters, size / BLOCK_LEN)
            .map_err(|e| Failure::usage(e.to_string()).with_remedy(POSSIBLE))?;
        rows.push(row(name.as_deref(), &geometry));
    }
    let text = as_text(size, &rows);
    output::facts(json, &json!({ "device_bytes": size, "shapes": rows }), &text)
}

fn row(name: Option<&str>, geometry: &Geometry) -> Value {
    let p = geometry.parameters();
    let room = geometry.levels().map(|level| {
        let bytes = u64::from(geometry.volume_blocks(level)) * BLOCK_LEN;
        json!({ "name": name_of(level), "bytes": bytes })
    });
    json!({
        "profile": name,
        "ratio": format!("{}:{}", p.public_slots, p.hidden_slots),
        "public_spare": f64::from(p.public_spare) / 1000.0,
        "hidden_spare": f64::from(p.hidden_spare) / 1000.0,
        "classes": p.classes,
        "gap_bytes": u64::from(geometry.gap()) * u64::from(geometry.unit_blocks()) * BLOCK_LEN,
        "room": room.collect::<Vec<_>>(),
        "amplification_full": amplification(geometry, Traffic::Uniform, 1.0),
        "amplification_half_full": amplification(geometry, Traffic::Uniform, 0.5),
        "amplification_focused": amplification(geometry, Traffic::Focused, 1.0),
        "hidden_per_public": hidden_per_public(geometry, Level::hidden(1)),
    })
}

fn as_text(len: u64, rows: &[Value]) -> String {
    let mut text = format!(
        "{:10} {:>6} {:>9} {:>8} {:>10} {:>7} {:>7} {:>7} {:>7} {:>8}\n",
        "profile", "ratio", "spare", "public", "hidden", "gap", "full", "half", "90/10", "hidden/"
    );
    for row in rows {
        let bytes = |value: &Value| size::show(value.as_u64().unwrap_or(0));
        let number = |name: &str| row[name].as_f64().unwrap_or(0.0);
        let room = row["room"].as_array().map_or(&[][..], Vec::as_slice);
        let classes = if room.len() > 2 { format!("{} x ", room.len() - 1) } else { String::new() };
        let _ = writeln!(
            text,
            "{:10} {:>6} {:>9} {:>8} {:>10} {:>7} {:>7.2} {:>7.2} {:>7.2} {:>8.2}",
            row["profile"].as_str().unwrap_or("-"),
            row["ratio"].as_str().unwrap_or(""),
            format!("{},{}", number("public_spare"), number("hidden_spare")),
            bytes(&room[0]["bytes"]),
            format!("{classes}{}", bytes(&room[1]["bytes"])),
            bytes(&row["gap_bytes"]),
            number("amplification_full"),
            number("amplification_half_full"),
            number("amplification_focused"),
            number("hidden_per_public"),
        );
    }
    let _ = write!(
        text,
        "\nOf a device of {}: room of the volumes, and blocks that are written for each block that a\n\
         program writes to the public volume: full, half full, and full where nine of ten writes go\n\
         to a tenth of it. Last: blocks that a full hidden volume can take, in the long run, for each\n\
         public one.\n",
        size::show(len)
    );
    text
}
