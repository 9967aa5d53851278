//! A file deleted on flash: what raw dumps give back before and after the purge.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use tacita_clock::{Clock, System};
use tacita_dnefs::{Dnefs, FormatOptions, PurgeScope};
use tacita_dnefs_audit::{Report, audit};
use tacita_flash::{Emulator, EmulatorOptions, Volume};
use tacita_vfs::{FileSystem, FileType, Link, NewNode, NodeId, Stamps, Timestamp};

use super::blocks::{self, Class, Device};
use super::{Chapter, Evidence};
use crate::exit::{self, Failure, Outcome};

const CHIP_LEN: u64 = 16 << 20;
/// Bytes of a dump that are drawn as one square.
const DRAWN_LEN: usize = 2048;
const CHANGED: Class = ("changed since before the deletion", "#e69f00");
const ERASED: Class = ("erased", "#eeeeee");
/// What is deleted, and what stays.
const SECRET: &str = "LEDGER OF NOBODY, ";
const NAME: &str = "ledger-of-nobody";

pub(super) fn chapter(folder: &Path) -> Outcome<Chapter> {
    let path = folder.join("volume.nand");
    let of = |e: tacita_dnefs::Error| exit::of_dnefs(&path, &e);
    let chip = EmulatorOptions::default().len_bytes(CHIP_LEN);
    let chip = Arc::new(Emulator::create(&path, &chip).map_err(|e| exit::of_flash(&path, &e))?);
    let volume: Arc<dyn Volume> = chip.clone();
    tacita_dnefs::format(&volume, &FormatOptions::default(), None).map_err(of)?;
    let dnefs = Dnefs::open(volume, None, Arc::new(System)).map_err(of)?;
    let node = write(&dnefs, NAME)?;
    write(&dnefs, "kept")?;
    dnefs.purge(PurgeScope::Deleted).map_err(of)?;

    let dump = |name: &str| -> Outcome<Vec<u8>> {
        let mut bytes = Vec::new();
        chip.dump(&mut bytes).map_err(|e| exit::of_flash(&path, &e))?;
        fs::write(folder.join(name), &bytes)?;
        Ok(bytes)
    };
    let before = dump("before.dump")?;
    let link = Link { dir: dnefs.root(), name: OsStr::new(NAME), node };
    dnefs.remove(link, now()).map_err(failed)?;
    dnefs.forget(node);
    dnefs.sync().map_err(failed)?;
    let unpurged = dump("deleted.dump")?;
    let purge = dnefs.purge(PurgeScope::Deleted).map_err(of)?;
    let after = dump("purged.dump")?;
    dnefs.close().map_err(of)?;

    let judge = |dump: &[u8]| {
        audit(&before, dump, &[], &|_, _| ()).map_err(|e| Failure::new(exit::DEVICE, e.to_string()))
    };
    let dumps = [("after the deletion", &unpurged), ("after the purge", &after)];
    let pictures = vec![("dumps.svg", dumps_drawn(&before, dumps))];
    // What is in use is known by the dump of after.
    let (unpurged, purged) = (judge(&[unpurged, after.clone()].concat())?, judge(&after)?);
    Ok(Chapter {
        done: "Two files are written to an emulated NAND chip, where every node has a key of its own. \
               One is deleted; then the keys that no node has are purged. Raw dumps of all blocks \
               are taken before the deletion, after it, and after the purge."
            .to_owned(),
        pictures,
        evidence: evidence(&after, &unpurged, &purged, purge.keys),
        ..Chapter::default()
    })
}

/// Dumps, page by page, and what has changed in them since the one before the deletion.
fn dumps_drawn(before: &[u8], dumps: [(&str, &Vec<u8>); 2]) -> String {
    let class = |at: usize, page: &[u8]| match &before[at * DRAWN_LEN..][..page.len()] {
        before if before != page => CHANGED,
        _ if page.iter().all(|byte| *byte == 0xff) => ERASED,
        _ => blocks::IN_USE,
    };
    let devices = dumps.map(|(name, dump)| Device::new(name, dump, DRAWN_LEN, class));
    blocks::picture("Raw dumps of a chip: the deleted file is not touched, its keys are", &devices)
}

fn evidence(after: &[u8], unpurged: &Report, purged: &Report, keys: u64) -> Vec<Evidence> {
    let clear = super::ward::count(after, SECRET.trim_end()) + super::ward::count(after, NAME);
    vec![
        Evidence::new(
            "nothing stands in the dumps in clear",
            format!("content and name of the deleted file found {clear} times"),
            clear == 0,
        ),
        Evidence::new(
            "deleting alone deletes nothing: the keys are still in the dump",
            format!(
                "{} deleted nodes can be decrypted before the purge",
                unpurged.recoverable.len()
            ),
            !unpurged.recoverable.is_empty(),
        ),
        Evidence::new(
            "after the purge no window of the dump is a key of a deleted node",
            format!(
                "{keys} keys destroyed; {} windows tried on {} deleted nodes, {} can be decrypted",
                purged.windows,
                purged.deleted,
                purged.recoverable.len()
            ),
            purged.holds() && purged.deleted > 0,
        ),
    ]
}

fn now() -> Timestamp {
    System.wall().into()
}

#[allow(clippy::needless_pass_by_value, reason = "it is what errors are mapped with")]
fn failed(e: tacita_vfs::Error) -> Failure {
    Failure::new(exit::DEVICE, e.to_string())
}

fn write(dnefs: &Dnefs, name: &str) -> Outcome<NodeId> {
    let new = NewNode::new(FileType::File, 0o600, now());
    let (node, _) = dnefs.create(dnefs.root(), OsStr::new(name), &new).map_err(failed)?;
    dnefs.write(node, 0, SECRET.repeat(4000).as_bytes(), Stamps::NONE).map_err(failed)?;
    Ok(node)
}
