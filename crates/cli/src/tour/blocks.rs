//! Pictures of devices: a square for each block, its colour says what is in it.

use std::fmt::Write;

/// Squares in a row, and their side.
const COLUMNS: usize = 128;
const SIDE: usize = 6;
/// Room around all, and for a line of text.
const MARGIN: usize = 16;
const LINE: usize = 24;

const STYLE: &str =
    "text { font: 13px sans-serif; fill: #222 } .title { font-size: 18px; font-weight: bold }";

/// What a block can hold: its name in the legend, and its colour.
pub(super) type Class = (&'static str, &'static str);

pub(super) const EMPTY: Class = ("empty", "#eeeeee");
pub(super) const IN_USE: Class = ("in use", "#56b4e9");
pub(super) const DIFFERENT: Class = ("different", "#e69f00");
pub(super) const DELETED: Class = ("of what was deleted", "#b2182b");

/// A device, by its blocks.
pub(super) struct Device {
    pub(super) name: String,
    pub(super) blocks: Vec<Class>,
}

impl Device {
    /// Judges every block of an image; what is like the last one to the end is left out, but for a row.
    pub(super) fn new(
        name: impl Into<String>,
        image: &[u8],
        block_len: usize,
        class: impl Fn(usize, &[u8]) -> Class,
    ) -> Self {
        let blocks = image.chunks(block_len).enumerate().map(|(at, block)| class(at, block));
        let mut blocks: Vec<Class> = blocks.collect();
        let mut name = name.into();
        let last = blocks.chunk_by(|a, b| a == b).next_back().unwrap_or_default();
        let kept = (blocks.len() - last.len()).next_multiple_of(COLUMNS) + COLUMNS;
        if kept < blocks.len() {
            let _ = write!(name, "; {} {} blocks more", blocks.len() - kept, last[0].0);
            blocks.truncate(kept);
        }
        Self { name, blocks }
    }
}

/// Devices below each other, with a legend of what occurs in them.
pub(super) fn picture(title: &str, devices: &[Device]) -> String {
    let mut body = String::new();
    let _ = writeln!(body, r#"<text class="title" x="{MARGIN}" y="{LINE}">{title}</text>"#);
    let mut top = LINE + MARGIN;
    let mut classes: Vec<Class> = devices.iter().flat_map(|d| d.blocks.clone()).collect();
    classes.sort_unstable();
    classes.dedup();
    for (number, (name, colour)) in classes.iter().enumerate() {
        let x = MARGIN + number * COLUMNS * SIDE / classes.len();
        let text = x + 18;
        let y = top + 11;
        let _ = writeln!(
            body,
            r#"<rect x="{x}" y="{top}" width="12" height="12" fill="{colour}"/><text x="{text}" y="{y}">{name}</text>"#
        );
    }
    top += LINE;
    for device in devices {
        top += LINE;
        let y = top - 8;
        let _ = writeln!(body, r#"<text x="{MARGIN}" y="{y}">{}</text>"#, device.name);
        for (row, blocks) in device.blocks.chunks(COLUMNS).enumerate() {
            let y = top + row * SIDE;
            let mut column = 0;
            for run in blocks.chunk_by(|a, b| a == b) {
                let (x, width) = (MARGIN + column * SIDE, run.len() * SIDE);
                let (_, colour) = run[0];
                let _ = writeln!(
                    body,
                    r#"<rect x="{x}" y="{y}" width="{width}" height="{SIDE}" fill="{colour}"/>"#
                );
                column += run.len();
            }
        }
        top += device.blocks.len().div_ceil(COLUMNS) * SIDE;
    }
    let (width, height) = (2 * MARGIN + COLUMNS * SIDE, top + MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_its_colour() {
        let image = [[0; 512], [1; 512], [1; 512], [0; 512]].concat();
        let class = |at: usize, block: &[u8]| match (at, block[0]) {
            (_, 0) => EMPTY,
            (1, _) => DELETED,
            _ => IN_USE,
        };
        let device = Device::new("a.img", &image, 512, class);
        assert_eq!(device.blocks, [EMPTY, DELETED, IN_USE, EMPTY]);
        let long = [image, vec![0; 512 * 300]].concat();
        let device_of_many = Device::new("b.img", &long, 512, class);
        assert_eq!(device_of_many.blocks.len(), 2 * COLUMNS);
        assert_eq!(device_of_many.name, "b.img; 48 empty blocks more");
        let svg = picture("One", &[device]);
        // A square in the legend, and one or two of the device.
        let count = |class: Class| svg.matches(class.1).count();
        assert_eq!((count(EMPTY), count(DELETED), count(IN_USE), count(DIFFERENT)), (3, 2, 2, 0));
        assert!(svg.contains("a.img") && svg.contains("of what was deleted"));
    }
}
