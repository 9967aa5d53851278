//! The picture of a volume, as SVG.

use std::fmt::Write;

use tacita_block::size;
use tacita_dnefs::{BlockUse, KeyUse, Role};
use tacita_flash::emulator::BlockWear;

use super::{Erases, View, meaning, name};

/// Length of a row of cells, and of the margin around all.
const WIDTH: usize = 896;
const MARGIN: usize = 24;
/// Cells in a row: more where there are many.
const COLUMNS: (usize, usize) = (64, 128);
/// From so many erase blocks on.
const MANY: usize = 4097;
/// Width and height of the bar of an erase block of keys.
const BAR: (usize, usize) = (14, 56);
/// Shades of wear.
const SHADES: u64 = 8;

const STYLE: &str = "text { font: 13px sans-serif; fill: #222 } .title { font-size: 18px; \
     font-weight: bold } .part { font-weight: bold } .ground, .free { fill: #ececec } \
     .superblock { fill: #5b3a8c } .roots { fill: #a0522d } .keys, .used { fill: #1f6fb2 } \
     .content { fill: #2e8b3d } .metadata { fill: #e08214 } .checkpoint { fill: #c2a500 } \
     .stale { fill: #9a9a9a } .fresh { fill: #c6dff2 } .to-purge, .bad { fill: #cc2936 } \
     .dead { fill-opacity: 0.25 } \
     .w0 { fill: #e7f0e4 } .w1 { fill: #cfe3d0 } .w2 { fill: #a9cfc0 } .w3 { fill: #7fb6b5 } \
     .w4 { fill: #5896a8 } .w5 { fill: #3f7495 } .w6 { fill: #2f5078 } .w7 { fill: #1d2b52 }";

/// What is drawn so far, and how far down that is.
struct Canvas {
    body: String,
    y: usize,
}

pub(super) fn draw(view: &View) -> String {
    let mut canvas = Canvas { body: String::new(), y: MARGIN };
    canvas.title(view);
    canvas.blocks(&view.map.blocks, view.map.leb_len_bytes);
    canvas.keys(&view.map.keys, view.keys());
    if !view.wear.is_empty() {
        canvas.wear(&view.wear, &view.erases());
    }
    let (width, height) = (WIDTH + 2 * MARGIN, canvas.y + MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
        canvas.body
    )
}

impl Canvas {
    fn title(&mut self, view: &View) {
        let count = view.map.blocks.len();
        let len = size::show(view.map.leb_len_bytes.into());
        let state = if view.map.was_unmounted { "" } else { ", not unmounted" };
        self.text("title", 0, &format!("DNEFS: {count} erase blocks of {len}{state}"));
        self.y += 14;
    }

    /// A line of text, below which it goes on.
    fn text(&mut self, class: &str, x: usize, text: &str) {
        self.y += 14;
        self.label(class, x, self.y, text);
        self.y += 8;
    }

    fn label(&mut self, class: &str, x: usize, y: usize, text: &str) {
        let x = x + MARGIN;
        let _ = writeln!(self.body, r#"<text class="{class}" x="{x}" y="{y}">{text}</text>"#);
    }

    fn rect(&mut self, class: &str, at: (usize, usize), size: (usize, usize), title: &str) {
        let (x, y) = (at.0 + MARGIN, at.1);
        let (width, height) = size;
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}""#
        );
        let _ = match title {
            "" => writeln!(self.body, "/>"),
            _ => writeln!(self.body, "><title>{title}</title></rect>"),
        };
    }

    /// Squares and what they mean, as many in a row as there is room for.
    fn legend(&mut self, entries: &[(String, String)]) {
        let mut x = 0;
        for (class, text) in entries {
            let width = 22 + text.len() * 7 + 18;
            if x > 0 && x + width > WIDTH {
                x = 0;
                self.y += 20;
            }
            self.rect(&format!("legend {class}"), (x, self.y), (14, 14), "");
            self.label("", x + 20, self.y + 12, text);
            x += width;
        }
        self.y += 26;
    }

    fn blocks(&mut self, blocks: &[BlockUse], leb_len_bytes: u32) {
        self.text("part", 0, "Erase blocks: filled as far as what is in them is needed");
        let count = |role| blocks.iter().filter(|block| block.role == role).count();
        let entry = |role| (name(role).to_owned(), format!("{} ({})", meaning(role), count(role)));
        self.legend(&Role::ALL.map(entry));
        let columns = columns(blocks.len());
        let cell = WIDTH / columns;
        for (number, block) in blocks.iter().enumerate() {
            let at = (number % columns * cell, self.y + number / columns * cell);
            self.block(number, *block, at, cell - 1, leb_len_bytes);
        }
        self.y += blocks.len().div_ceil(columns) * cell + 22;
    }

    /// The cell of an erase block. Nodes fill it from below; a part that is needed shows.
    fn block(
        &mut self,
        number: usize,
        block: BlockUse,
        at: (usize, usize),
        side: usize,
        leb_len_bytes: u32,
    ) {
        let role = name(block.role);
        let whole = (side, side);
        if !matches!(block.role, Role::Content | Role::Metadata | Role::Checkpoint) {
            return self.rect(role, at, whole, &format!("{number}: {}", meaning(block.role)));
        }
        let percent = u64::from(block.live_bytes) * 100 / u64::from(leb_len_bytes);
        let title = format!("{number}: {}, {percent}% needed", meaning(block.role));
        self.rect(&format!("{role} dead"), at, whole, &title);
        let live = u64::from(block.live_bytes) * side as u64;
        let filled = usize::try_from(live.div_ceil(leb_len_bytes.into())).unwrap_or(side);
        self.rect(&format!("{role} live"), (at.0, at.1 + side - filled), (side, filled), &title);
    }

    fn keys(&mut self, blocks: &[KeyUse], sum: KeyUse) {
        self.text("part", 0, "Keys, a bar for each erase block of them");
        self.legend(&[
            ("used".into(), format!("used ({})", sum.used)),
            ("to-purge".into(), format!("to purge ({})", sum.to_purge)),
            ("fresh".into(), format!("fresh ({})", sum.fresh)),
        ]);
        let (width, height) = BAR;
        let columns = WIDTH / width;
        for (number, keys) in blocks.iter().enumerate() {
            let x = number % columns * width;
            let mut bottom = self.y + number / columns * (height + 6) + height;
            let KeyUse { used, fresh, to_purge } = *keys;
            let title = format!("keys {number}: {used} used, {to_purge} to purge, {fresh} fresh");
            let all = used + fresh + to_purge;
            // What there is little of is to be seen, too.
            let part = |count: u32| (count as usize * height).div_ceil(all as usize);
            let rest = height - part(used).min(height);
            let purged = part(to_purge).min(rest);
            for (class, part) in
                [("used", height - rest), ("to-purge", purged), ("fresh", rest - purged)]
            {
                bottom -= part;
                if part > 0 {
                    self.rect(class, (x, bottom), (width - 3, part), &title);
                }
            }
        }
        self.y += blocks.len().div_ceil(columns) * (height + 6) + 22;
    }

    fn wear(&mut self, blocks: &[BlockWear], erases: &Erases) {
        let Erases { least, median, most, all } = erases;
        let text = format!(
            "Wear: physical blocks erased {least} to {most} times, the median {median}, \
             {all} in all"
        );
        self.text("part", 0, &text);
        let scale = Scale::new(*least, *most);
        let mut entries = scale.legend();
        let bad = blocks.iter().filter(|block| block.is_bad).count();
        entries.push(("bad".into(), format!("bad ({bad})")));
        self.legend(&entries);
        let columns = columns(blocks.len());
        let cell = WIDTH / columns;
        for (number, block) in blocks.iter().enumerate() {
            let at = (number % columns * cell, self.y + number / columns * cell);
            let shade = || scale.shade(block.erase_counter);
            let class = if block.is_bad { "bad".to_owned() } else { shade() };
            let holds = block.leb.map_or("free".to_owned(), |leb| format!("holds {}", leb.0));
            let title = format!("physical {number}: {} erases, {holds}", block.erase_counter);
            self.rect(&class, at, (cell - 1, cell - 1), &title);
        }
        self.y += blocks.len().div_ceil(columns) * cell;
    }
}

/// Which shade a number of erases has: equal steps from the least to the most.
struct Scale {
    least: u64,
    most: u64,
    step: u64,
    steps: u64,
}

impl Scale {
    const fn new(least: u64, most: u64) -> Self {
        let step = (most - least) / SHADES + 1;
        Self { least, most, step, steps: (most - least) / step + 1 }
    }

    /// The class of a shade; few steps are as far apart as many.
    fn class(&self, step: u64) -> String {
        format!("w{}", (step * (SHADES - 1)).checked_div(self.steps - 1).unwrap_or(0))
    }

    fn shade(&self, erases: u64) -> String {
        self.class(erases.saturating_sub(self.least) / self.step)
    }

    fn legend(&self) -> Vec<(String, String)> {
        let entry = |step: u64| {
            let from = self.least + step * self.step;
            (self.class(step), range(from, (from + self.step - 1).min(self.most)))
        };
        (0..self.steps).map(entry).collect()
    }
}

fn range(from: u64, to: u64) -> String {
    if from == to { format!("{from}") } else { format!("{from} to {to}") }
}

const fn columns(cells: usize) -> usize {
    if cells < MANY { COLUMNS.0 } else { COLUMNS.1 }
}
