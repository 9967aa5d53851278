//! `tacita dnefs map`: what every erase block holds, as text, JSON or picture.

mod picture;

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};
use tacita_block::size;
use tacita_dnefs::{BlockUse, KeyUse, Map, Role};
use tacita_flash::emulator::BlockWear;

use super::chip::Chip;
use crate::exit::{self, Outcome};
use crate::output::shown_name;
use crate::{output, passwords};

/// Erase blocks in a row of the text.
const COLUMNS: usize = 64;
/// Characters of the bar of an erase block of keys.
const BAR: u32 = 40;

/// A volume and the chip that it is on.
struct View {
    map: Map,
    wear: Vec<BlockWear>,
}

pub(super) fn run(
    path: &Path,
    from: &passwords::From,
    svg: Option<&Path>,
    json: bool,
) -> Outcome<()> {
    let chip = Chip::open_read_only(path)?;
    let volume = chip.volume();
    let password = super::password(path, &*volume, from)?;
    let wear = chip.blocks();
    let map =
        tacita_dnefs::map(&volume, password.as_ref()).map_err(|e| exit::of_dnefs(path, &e))?;
    let view = View { map, wear };
    if let Some(svg) = svg {
        output::new_file(svg, &picture::draw(&view))?;
    }
    match (json, svg) {
        (true, _) => output::facts(true, &view.as_json(), ""),
        (false, Some(svg)) => {
            output::print(&format!("{}\n", shown_name(svg))).map_err(output::but_done)
        }
        (false, None) => output::print(&view.as_text()),
    }
}

/// What a role is called in facts and classes of the picture.
const fn name(role: Role) -> &'static str {
    match role {
        Role::Superblock => "superblock",
        Role::Roots => "roots",
        Role::Keys => "keys",
        Role::Content => "content",
        Role::Metadata => "metadata",
        Role::Checkpoint => "checkpoint",
        Role::Stale => "stale",
        Role::Free => "free",
    }
}

/// What a role means, for people.
const fn meaning(role: Role) -> &'static str {
    match role {
        Role::Superblock => "superblocks",
        Role::Roots => "roots of checkpoints",
        Role::Keys => "keys",
        Role::Content => "content of files",
        Role::Metadata => "inodes, names, attributes",
        Role::Checkpoint => "checkpoint",
        Role::Stale => "nothing that is needed",
        Role::Free => "free",
    }
}

const fn letter(role: Role) -> char {
    match role {
        Role::Superblock => 's',
        Role::Roots => 'r',
        Role::Keys => 'k',
        Role::Content => 'c',
        Role::Metadata => 'm',
        Role::Checkpoint => 'p',
        Role::Stale => 'x',
        Role::Free => '.',
    }
}

impl View {
    fn count(&self, role: Role) -> usize {
        self.map.blocks.iter().filter(|block| block.role == role).count()
    }

    fn live_bytes(&self, role: Role) -> u64 {
        let blocks = self.map.blocks.iter().filter(|block| block.role == role);
        blocks.map(|block| u64::from(block.live_bytes)).sum()
    }

    fn keys(&self) -> KeyUse {
        let sum = |of: fn(&KeyUse) -> u32| self.map.keys.iter().map(of).sum();
        KeyUse { used: sum(|k| k.used), fresh: sum(|k| k.fresh), to_purge: sum(|k| k.to_purge) }
    }

    fn erases(&self) -> Erases {
        let mut counts: Vec<_> = self
            .wear
            .iter()
            .filter(|block| !block.is_bad)
            .map(|block| block.erase_counter)
            .collect();
        counts.sort_unstable();
        Erases {
            least: counts.first().copied().unwrap_or(0),
            median: counts.get(counts.len() / 2).copied().unwrap_or(0),
            most: counts.last().copied().unwrap_or(0),
            all: self.wear.iter().map(|block| block.erase_counter).sum(),
        }
    }

    fn bad_blocks(&self) -> usize {
        self.wear.iter().filter(|block| block.is_bad).count()
    }

    fn as_json(&self) -> Value {
        let roles: serde_json::Map<_, _> =
            Role::ALL.iter().map(|role| (name(*role).into(), json!(self.count(*role)))).collect();
        let block = |(number, block): (usize, &BlockUse)| {
            let role = name(block.role);
            json!({ "block": number, "role": role, "live_bytes": block.live_bytes })
        };
        let key_use = |keys: &KeyUse| {
            let KeyUse { used, fresh, to_purge } = keys;
            json!({ "used": used, "fresh": fresh, "to_purge": to_purge })
        };
        let wear = |block: &BlockWear| {
            json!({
                "erases": block.erase_counter,
                "bad": block.is_bad,
                "block": block.leb.map(|leb| leb.0),
            })
        };
        let erases = self.erases();
        json!({
            "erase_blocks": self.map.blocks.len(),
            "erase_block_bytes": self.map.leb_len_bytes,
            "was_unmounted": self.map.was_unmounted,
            "roles": roles,
            "keys": key_use(&self.keys()),
            "blocks": self.map.blocks.iter().enumerate().map(block).collect::<Vec<_>>(),
            "key_blocks": self.map.keys.iter().map(key_use).collect::<Vec<_>>(),
            "bad_blocks": self.bad_blocks(),
            "erases": erases.all,
            "erases_least": erases.least,
            "erases_median": erases.median,
            "erases_most": erases.most,
            "physical_blocks": self.wear.iter().map(wear).collect::<Vec<_>>(),
        })
    }

    fn as_text(&self) -> String {
        format!("{}\n{}\n{}\n{}", self.summary(), self.rows(), self.key_bars(), self.wear_line())
    }

    fn summary(&self) -> String {
        let map = &self.map;
        let len = size::show(map.leb_len_bytes.into());
        let mut text = format!("{} erase blocks of {len}", map.blocks.len());
        let _ = writeln!(text, "{}", if map.was_unmounted { "" } else { "; it was not unmounted" });
        for role in Role::ALL {
            let count = self.count(role);
            let _ = write!(text, "  {} {:28} {count:>8}", letter(role), meaning(role));
            let room = count as u64 * u64::from(map.leb_len_bytes);
            if let Some(share) = (self.live_bytes(role) * 100).checked_div(room)
                && matches!(role, Role::Content | Role::Metadata | Role::Checkpoint)
            {
                let _ = write!(text, "   {share}% needed");
            }
            text.push('\n');
        }
        text.push_str("  in capitals: half of it is needed, or more\n");
        text
    }

    fn rows(&self) -> String {
        let mut text = String::new();
        let mut free = 0;
        for row in self.map.blocks.chunks(COLUMNS) {
            if row.iter().all(|block| block.role == Role::Free) {
                free += row.len();
                continue;
            }
            tell_free(&mut text, &mut free);
            let is_half = |live: u32| live >= self.map.leb_len_bytes / 2;
            let letters = row.iter().map(|block| match letter(block.role) {
                letter if is_half(block.live_bytes) => letter.to_ascii_uppercase(),
                letter => letter,
            });
            let _ = writeln!(text, "  {}", letters.collect::<String>());
        }
        tell_free(&mut text, &mut free);
        text
    }

    /// A bar for each erase block of keys of which some are not fresh.
    fn key_bars(&self) -> String {
        let KeyUse { used, fresh, to_purge } = self.keys();
        let mut text = format!("keys: {used} used (#), {to_purge} to purge (!), {fresh} fresh\n");
        let mut rest = 0;
        for (number, keys) in self.map.keys.iter().enumerate() {
            if keys.used + keys.to_purge == 0 {
                rest += 1;
                continue;
            }
            let all = keys.used + keys.to_purge + keys.fresh;
            let share = |count: u32| (count * BAR).div_ceil(all) as usize;
            let bar = "#".repeat(share(keys.used)) + &"!".repeat(share(keys.to_purge));
            let bar = bar.chars().take(BAR as usize).collect::<String>();
            let _ = writeln!(
                text,
                "  {number:>5} [{bar:.<40}] {:>6} {:>6} {:>6}",
                keys.used, keys.to_purge, keys.fresh
            );
        }
        let _ = writeln!(text, "  {rest} erase blocks of fresh keys alone");
        text
    }

    fn wear_line(&self) -> String {
        if self.wear.is_empty() {
            return "wear: the device tells no block's; `tacita dnefs info` shows the most\n"
                .into();
        }
        let Erases { least, median, most, all } = self.erases();
        let (blocks, bad) = (self.wear.len(), self.bad_blocks());
        format!(
            "wear: {blocks} physical blocks erased {least} to {most} times, the median {median}, \
             {all} in all; {bad} are bad\n"
        )
    }
}

/// How often physical blocks have been erased; bad ones count in the sum alone.
struct Erases {
    least: u64,
    median: u64,
    most: u64,
    all: u64,
}

fn tell_free(text: &mut String, free: &mut usize) {
    if *free > 0 {
        let _ = writeln!(text, "  ({free} free)");
        *free = 0;
    }
}
