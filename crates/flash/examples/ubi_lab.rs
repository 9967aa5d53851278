//! The work of the kernel lab (`crates/flash/lab`): the emulator judged by Linux, and Linux by the
//! conformance suite.
//!
//! ```text
//! ubi_lab conformance DEVICE    the suites on a volume of UBI, whose content is lost
//! ubi_lab change DEVICE         changes its first block from OLD to NEW
//! ubi_lab flush DEVICE          flushes its erases
//! ubi_lab count DUMP MARKER     prints how often a marker is in a dump
//! ubi_lab dumps FOLDER PAGE     dumps of emulators: N.dump, and N.content, what the volume holds
//! ```

use std::error::Error;
use std::fs;
use std::path::Path;

use tacita_flash::emulator::CutMode;
use tacita_flash::{
    Behaviour, Emulator, EmulatorOptions, Kind, Leb, UbiVolume, Volume, conformance,
};

/// What is written by `change`, again and again.
const OLD: &[u8; 16] = b"what-was-there-0";
const NEW: &[u8; 16] = b"what-is-there-00";

type Done = Result<(), Box<dyn Error>>;

fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["conformance", device] => {
            let volume = UbiVolume::open(device)?;
            println!("{:?}", volume.geometry());
            conformance::check(&volume);
            drop(volume);
            read_only(device)?;
        }
        ["change", device] => change(&UbiVolume::open(device)?)?,
        ["flush", device] => println!("{:?}", UbiVolume::open(device)?.flush_erases()?),
        ["count", dump, marker] => {
            let marker = marker.as_bytes();
            let dump = fs::read(dump)?;
            println!("{}", dump.windows(marker.len()).filter(|found| *found == marker).count());
        }
        ["dumps", folder, page] => dumps(Path::new(folder), page.parse()?)?,
        _ => return Err("see the head of crates/flash/examples/ubi_lab.rs".into()),
    }
    Ok(())
}

/// Readers let each other in, no writer, and nothing be written.
fn read_only(device: &str) -> Done {
    let volume = UbiVolume::open(device)?;
    volume.change(Leb(0), &vec![7; volume.geometry().leb_len_bytes as usize])?;
    volume.sync()?;
    drop(volume);
    let readers = [UbiVolume::open_read_only(device)?, UbiVolume::open_read_only(device)?];
    for reader in &readers {
        conformance::check_read_only(reader);
    }
    let busy = |opened: tacita_flash::Result<UbiVolume>| {
        assert_eq!(opened.map(drop).map_err(|e| e.kind()), Err(Kind::Busy));
    };
    busy(UbiVolume::open(device));
    drop(readers);
    let _writer = UbiVolume::open(device)?;
    busy(UbiVolume::open_read_only(device));
    Ok(())
}

fn change(volume: &UbiVolume) -> Done {
    let whole = volume.geometry().leb_len_bytes as usize;
    for marker in [OLD, OLD, NEW] {
        volume.change(Leb(0), &marker.repeat(whole / marker.len()))?;
    }
    Ok(volume.sync()?)
}

/// Chips in which something happened, and what is on them when the power comes back.
fn dumps(folder: &Path, page_len_bytes: u32) -> Done {
    let options = |behaviour| EmulatorOptions {
        page_len_bytes,
        pages_per_block: if page_len_bytes == 512 { 32 } else { 64 },
        blocks: 60,
        behaviour,
        ..EmulatorOptions::default()
    };
    let mut chips = vec![lived_on(options(Behaviour::default()))?];
    // Content that has moved.
    chips.push(lived_on(options(Behaviour { wear_threshold: 1, ..Behaviour::default() }))?);
    // A change that is cut at its header, at its first page, in the middle, and at its last page.
    for (at, mode) in [
        (0, CutMode::Torn),
        (1, CutMode::Clean),
        (1, CutMode::Garbled),
        (9, CutMode::Torn),
        (20, CutMode::Garbled),
        (21, CutMode::Clean),
    ] {
        let flash = lived_on(options(Behaviour::default()))?;
        flash.cut_at(flash.operations() + at, mode);
        let result = flash.change(Leb(1), &content(&flash, 99, 20));
        assert_eq!(result.is_ok(), at == 21, "a header and twenty pages");
        chips.push(flash);
    }
    for (n, flash) in chips.iter().enumerate() {
        let mut dump = fs::File::create(folder.join(format!("{n}.dump")))?;
        flash.dump(&mut dump)?;
        let again = flash.power_on()?;
        let geometry = again.geometry();
        let mut content = vec![0; geometry.leb_len_bytes as usize * geometry.lebs as usize];
        for (leb, block) in (0..).map(Leb).zip(content.chunks_mut(geometry.leb_len_bytes as usize))
        {
            again.read(leb, 0, block)?;
        }
        fs::write(folder.join(format!("{n}.content")), content)?;
    }
    Ok(())
}

/// A chip on which blocks were appended to, changed, skipped, unmapped and erased.
fn lived_on(options: EmulatorOptions) -> Result<Emulator, Box<dyn Error>> {
    let flash = Emulator::in_memory(&options)?;
    let page = options.page_len_bytes;
    for round in 0..40 {
        flash.change(Leb(1), &content(&flash, round, 1 + round % 20))?;
        flash.change(Leb(2 + round % 5), &content(&flash, 100 + round, 3))?;
    }
    for leb in 10..20 {
        flash.append(Leb(leb), 0, &content(&flash, leb, 4))?;
        flash.append(Leb(leb), 6 * page, &content(&flash, leb, 2))?;
    }
    flash.map(Leb(20))?;
    flash.unmap(Leb(12))?;
    flash.flush_erases()?;
    // One that is stale and not erased.
    flash.change(Leb(13), &content(&flash, 13, 0))?;
    flash.change(Leb(14), &content(&flash, 14, 8))?;
    Ok(flash)
}

/// So many pages that follow from a number.
fn content(flash: &Emulator, number: u32, pages: u32) -> Vec<u8> {
    let len = u64::from(pages * flash.geometry().page_len_bytes);
    let byte =
        |at: u64| (at + u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
    (0..len).map(byte).collect()
}
