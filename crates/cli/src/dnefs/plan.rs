//! `tacita dnefs plan`: what the length of nodes costs, for any chip.

use std::fmt::Write;

use serde_json::json;
use tacita_block::size;
use tacita_dnefs::{ChipShape, CipherChoice, FormatOptions, Kind, PAPER_PURGE, VolumeCost};
use tacita_flash::{EmulatorOptions, Geometry};

use crate::arguments::Dnefs as Command;
use crate::exit::{self, Failure, Outcome};
use crate::output;

/// What can be done about a chip or a volume that cannot be.
const POSSIBLE: &str = "`tacita dnefs plan --help` tells what is possible";

/// Nodes of so many bytes, where none are asked for: those of volumes, and of the paper's Table 5.
const NODES: [u64; 7] = [2 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 1 << 20, 8 << 20];

/// A row of the table.
struct Row {
    node_len_bytes: u32,
    key_blocks_per_gib: f64,
    copied_blocks: f64,
    /// None where a volume cannot have such nodes.
    volume: Option<VolumeCost>,
}

pub(super) fn run(command: &Command) -> Outcome<()> {
    let Command::Plan { size, node_size, page_size, pages_per_block, key, json } = command else {
        unreachable!("called for plan");
    };
    let page_len_bytes = u32::try_from(*page_size).map_err(|_| {
        Failure::usage(format!("no pages have {page_size} bytes")).with_remedy(POSSIBLE)
    })?;
    let chip = EmulatorOptions {
        page_len_bytes,
        pages_per_block: *pages_per_block,
        ..EmulatorOptions::default()
    }
    .len_bytes(*size);
    let geometry =
        chip.geometry().map_err(|e| Failure::usage(e.to_string()).with_remedy(POSSIBLE))?;
    let shape =
        ChipShape { page_len_bytes: chip.page_len_bytes, pages_per_block: chip.pages_per_block };
    let nodes = if node_size.is_empty() { &NODES[..] } else { node_size };
    let rows: Vec<_> =
        nodes.iter().map(|node| row(geometry, shape, *node, *key)).collect::<Outcome<_>>()?;
    let (ms, len) = PAPER_PURGE;
    let facts = json!({
        "chip_bytes": size,
        "page_bytes": chip.page_len_bytes,
        "erase_block_bytes": geometry.leb_len_bytes,
        "erase_blocks": geometry.lebs,
        "key_bytes": key,
        "purge_rate": { "ms": ms, "block_bytes": len, "source": "the paper's device, Table 4" },
        "nodes": rows.iter().map(|row| as_json(row, geometry)).collect::<Vec<_>>(),
    });
    output::facts(*json, &facts, &as_text(&rows, geometry))
}

fn row(geometry: Geometry, shape: ChipShape, node: u64, key: u32) -> Outcome<Row> {
    let node_len_bytes =
        u32::try_from(node).ok().filter(|len| len.is_power_of_two()).ok_or_else(|| {
            Failure::usage(format!("no nodes have {node} bytes"))
                .with_remedy("give --node-size a power of two below 4G")
        })?;
    let cipher = match key {
        32 => CipherChoice::Aes256Gcm,
        16 => CipherChoice::Aes128Gcm,
        _ => return Err(exit::key_length(key)),
    };
    let options = FormatOptions { node_len_bytes, cipher, ..FormatOptions::default() };
    let volume = match VolumeCost::of(geometry, &options) {
        Ok(cost) => Some(cost),
        Err(e) if e.kind() == Kind::Parameters => None,
        Err(e) => return Err(Failure::new(exit::DEVICE, e.to_string()).with_remedy(POSSIBLE)),
    };
    Ok(Row {
        node_len_bytes,
        key_blocks_per_gib: shape.key_blocks_per_gib(node_len_bytes, key),
        copied_blocks: shape.copied_blocks(node_len_bytes),
        volume,
    })
}

fn as_json(row: &Row, geometry: Geometry) -> serde_json::Value {
    json!({
        "node_bytes": row.node_len_bytes,
        "key_blocks_per_gib": row.key_blocks_per_gib,
        "copied_blocks": row.copied_blocks,
        "key_blocks": row.volume.map(|cost| cost.key_lebs),
        "keys": row.volume.map(|cost| cost.keys),
        "node_blocks": row.volume.map(|cost| cost.main_lebs),
        "memory_bytes": row.volume.map(|cost| cost.memory_bytes),
        "purge_ms": row.volume.map(|cost| cost.purge_ms(geometry.leb_len_bytes)),
    })
}

fn as_text(rows: &[Row], geometry: Geometry) -> String {
    let mut text = format!(
        "{:>10} {:>14} {:>14} {:>12} {:>12} {:>12}\n",
        "node", "key blocks", "blocks copied", "key blocks", "memory", "purge of all"
    );
    let _ = writeln!(
        text,
        "{:>10} {:>14} {:>14} {:>12} {:>12} {:>12}",
        "", "a GiB", "a deletion", "in all", "in all", "key blocks"
    );
    for row in rows {
        let cell = |show: &dyn Fn(VolumeCost) -> String| row.volume.map_or("-".into(), show);
        let _ = writeln!(
            text,
            "{:>10} {:>14.3} {:>14.2} {:>12} {:>12} {:>12}",
            size::show(row.node_len_bytes.into()),
            row.key_blocks_per_gib,
            row.copied_blocks,
            cell(&|cost| cost.key_lebs.to_string()),
            cell(&|cost| size::show(cost.memory_bytes)),
            cell(&|cost| format!("{:.0} ms", cost.purge_ms(geometry.leb_len_bytes))),
        );
    }
    let (ms, len) = PAPER_PURGE;
    let _ = writeln!(
        text,
        "\nThe first three columns are the paper's Table 5 by its text. The rest is of a volume\n\
         on {} erase blocks of {}, with a key for each half node; - where it cannot\n\
         have such nodes, for they have 512 bytes to half an erase block, and keys are less than\n\
         2^32. Time at the rate of the paper's device, {ms} ms for {}.",
        geometry.lebs,
        size::show(geometry.leb_len_bytes.into()),
        size::show(len.into()),
    );
    text
}
