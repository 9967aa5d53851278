//! `tacita dnefs check`, `info` and `dump`.

use std::io::{ErrorKind, Write};
use std::path::Path;

use serde_json::{Value, json};
use tacita_dnefs::{CipherChoice, Protection, read_superblock};

use super::chip::Chip;
use crate::exit::{self, Failure, Outcome};
use crate::output::shown_name;
use crate::recognise::Made;
use crate::{output, passwords};

pub(super) fn check(path: &Path, from: &passwords::From, json: bool) -> Outcome<()> {
    let volume = Chip::open_read_only(path)?.volume();
    let password = super::password(path, &*volume, from)?;
    let bar = output::counter("nodes");
    let found = tacita_dnefs::check(&volume, password.as_ref(), &mut |done, of| {
        bar.set_length(of);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let found = found.map_err(|e| exit::of_dnefs(path, &e))?;
    let facts = json!({
        "whole": found.wrong.is_empty(),
        "nodes": found.nodes,
        "inodes": found.inodes,
        "was_unmounted": found.was_unmounted,
        "wrong": found.wrong,
    });
    output::facts(json, &facts, &output::lines(&facts))?;
    match found.wrong.len() {
        0 => Ok(()),
        count => {
            let remedy = if count == found.mended_by_mount {
                "mount it for writing, which puts that right"
            } else {
                "restore what is damaged from a backup"
            };
            Err(Failure::new(exit::WRONG, format!("{count} things are wrong")).with_remedy(remedy))
        }
    }
}

pub(super) fn info(path: &Path, json: bool) -> Outcome<()> {
    let chip = Chip::open_read_only(path)?;
    let superblock = read_superblock(&*chip.volume()).map_err(|e| exit::of_dnefs(path, &e))?;
    let parameters = superblock.parameters;
    let cipher = match parameters.cipher {
        CipherChoice::Aes128Ctr => "aes128-ctr",
        CipherChoice::Aes128Gcm => "aes128-gcm",
        CipherChoice::Aes256Gcm => "aes256-gcm",
    };
    let mut facts = json!({
        "erase_block_bytes": parameters.leb_len_bytes,
        "erase_blocks": parameters.lebs,
        "key_blocks": parameters.key_lebs,
        "page_bytes": parameters.page_len_bytes,
        "node_bytes": parameters.node_len_bytes,
        "cipher": cipher,
        "compression": format!("{:?}", parameters.compression).to_lowercase(),
        "password": superblock.protection == Protection::Password,
        "ephemeral": superblock.protection == Protection::Memory,
    });
    let wear = chip.wear().map_err(|e| exit::of_flash(path, &e))?;
    if let (Value::Object(facts), Value::Object(wear)) = (&mut facts, wear) {
        facts.extend(wear);
    }
    output::facts(json, &facts, &output::lines(&facts))
}

/// Remembers that writing has failed, which whoever writes tells as a failure of what it reads.
struct Watched<W> {
    to: W,
    failure: Option<std::io::Error>,
}

impl<W: Write> Write for Watched<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.to.write(bytes).map_err(|e| {
            let kind = e.kind();
            if kind != ErrorKind::Interrupted {
                self.failure = Some(e);
            }
            kind.into()
        })
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

pub(super) fn dump(path: &Path, out: &Path) -> Outcome<()> {
    let chip = Chip::open_read_only(path)?;
    let failed = |e| output::of_file(out, e);
    let new = output::beginning(out, Some(Made::DUMP))?;
    let geometry = chip.volume().geometry();
    // Two pages of each block are headers of UBI.
    let block_len = u64::from(geometry.leb_len_bytes) + 2 * u64::from(geometry.page_len_bytes);
    let wear = chip.wear().map_err(|e| exit::of_flash(path, &e))?;
    let blocks = wear["physical_blocks"].as_u64().unwrap_or(0);
    let bar = output::progress("dumping", blocks * block_len);
    let mut into = Watched { to: bar.wrap_write(new.file()), failure: None };
    let dumped = chip.dump(&mut into);
    bar.finish_and_clear();
    if let Some(failure) = into.failure {
        return Err(failed(failure));
    }
    let unread = dumped.map_err(|e| exit::of_flash(path, &e))?;
    output::name(out, new)?;
    for range in &unread {
        output::say(&format!(
            "bytes {} to {} could not be read: zeros stand for them",
            range.start,
            range.end - 1
        ));
    }
    if unread.is_empty() {
        return Ok(());
    }
    let bytes: u64 = unread.iter().map(|range| range.end - range.start).sum();
    let text = format!("{}: {bytes} bytes could not be read", shown_name(path));
    Err(Failure::new(exit::DEVICE, text).with_remedy(format!(
        "{} holds all others; what is missing can hide keys",
        shown_name(out)
    )))
}
