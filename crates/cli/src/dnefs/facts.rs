//! `tacita dnefs check`, `info` and `dump`.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tacita_block::NewFile;
use tacita_dnefs::{CipherChoice, Protection, read_superblock};
use tacita_flash::Volume;

use crate::exit::{self, Failure, Outcome};
use crate::{output, passwords};

pub(super) fn check(path: &Path, from: &passwords::From, json: bool) -> Outcome<()> {
    let chip = super::open(path)?;
    let password = super::password(path, &chip, from)?;
    let volume: Arc<dyn Volume> = chip;
    let found =
        tacita_dnefs::check(&volume, password.as_ref()).map_err(|e| exit::of_dnefs(path, &e))?;
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
        count => Err(Failure::new(exit::WRONG, format!("{count} things are wrong"))),
    }
}

pub(super) fn info(path: &Path, json: bool) -> Outcome<()> {
    let chip = super::open(path)?;
    let superblock = read_superblock(&*chip).map_err(|e| exit::of_dnefs(path, &e))?;
    let parameters = superblock.parameters;
    let wear = chip.wear();
    let erased = wear.iter().map(|block| block.erase_counter);
    let cipher = match parameters.cipher {
        CipherChoice::Aes128Ctr => "aes128-ctr",
        CipherChoice::Aes128Gcm => "aes128-gcm",
        CipherChoice::Aes256Gcm => "aes256-gcm",
    };
    let facts = json!({
        "erase_block_bytes": parameters.leb_len_bytes,
        "erase_blocks": parameters.lebs,
        "key_blocks": parameters.key_lebs,
        "page_bytes": parameters.page_len_bytes,
        "node_bytes": parameters.node_len_bytes,
        "cipher": cipher,
        "compression": format!("{:?}", parameters.compression).to_lowercase(),
        "password": superblock.protection == Protection::Password,
        "physical_blocks": wear.len(),
        "bad_blocks": wear.iter().filter(|block| block.is_bad).count(),
        "erases_most": erased.clone().max().unwrap_or(0),
        "erases": erased.sum::<u64>(),
    });
    output::facts(json, &facts, &output::lines(&facts))
}

pub(super) fn dump(path: &Path, out: &Path) -> Outcome<()> {
    let chip = super::open(path)?;
    let failed = |e: std::io::Error| Failure::new(exit::DEVICE, format!("{}: {e}", out.display()));
    let new = NewFile::create(out).map_err(failed)?;
    chip.dump(&mut new.file()).map_err(|e| exit::of_flash(path, &e))?;
    new.publish().map_err(failed)
}
