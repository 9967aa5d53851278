//! The audit of DNEFS: what a raw dump gives away to somebody who has it, every password, and all the
//! time in the world.
//!
//! It shares nothing with the file system but the format of nodes and keys, and takes nothing on
//! trust: every window of a key's length, at every byte of a dump, is tried as a key, and so is every
//! window of every page of keys that a master key opens, wherever it lies in the dump. A key is
//! recognised by the check value that the header of its node tells. What it finds beyond the keys of
//! nodes that are in use could be decrypted although it was deleted.

mod dump;
mod live;
mod search;

use std::collections::{HashMap, HashSet};

use tacita_dnefs_format::node::Header;
use tacita_dnefs_format::receipt::{NO_RECEIPT, first_break};
use tacita_dnefs_format::{CipherChoice, MainLeb};
use tacita_secret::{CheckValue, Password};

pub use dump::{Closed, Node};
pub use search::Place;
pub use tacita_dnefs_format::receipt::Receipt;

use dump::{Dump, SECTOR_LEN};

/// A deleted node whose key is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recoverable {
    /// The number of the node.
    pub sqnum: u64,
    /// Length of the node in bytes.
    pub len_bytes: u32,
    /// Where its key was found.
    pub key: Place,
}

/// What an audit saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Nodes in both dumps, in use and not, each once.
    pub nodes: u64,
    /// Nodes that are in use by the newest checkpoint of the later dump, itself included.
    pub in_use: u64,
    /// Nodes that were written after that checkpoint: they may be in use, and are not judged.
    pub newer: u64,
    /// Those of them whose keys are in the later dump.
    pub newer_known: u64,
    /// Nodes that are neither: deleted, or replaced by newer ones.
    pub deleted: u64,
    /// Windows of the later dump that were tried as keys.
    pub windows: u64,
    /// Pages of keys that a master key opened.
    pub key_pages: u64,
    /// Pages that begin as pages of keys do, and that no master key opens.
    pub key_pages_sealed: u64,
    /// Deleted nodes whose keys are still there.
    pub recoverable: Vec<Recoverable>,
    /// Receipts of purges in the later dump, the oldest first.
    pub receipts: Vec<Receipt>,
    /// Whether each of them follows from the one before.
    pub receipts_whole: bool,
    /// Why nothing can be said, if so.
    pub undecided: Option<String>,
}

impl Report {
    /// Whether no deleted node can be decrypted, as far as was looked.
    pub fn holds(&self) -> bool {
        self.undecided.is_none() && self.recoverable.is_empty() && self.key_pages_sealed == 0
    }
}

/// Who hears, from any thread, how many bytes have been searched, and of how many.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Looks for keys of deleted nodes in `after`. Nodes of `before` count, too, which was taken earlier of
/// the same volume; `passwords` are all that the volume ever had.
///
/// # Errors
/// [`Closed::WrongPassword`] if there are superblocks and none of them opens; [`Closed::NoMemory`].
pub fn audit(
    before: &[u8],
    after: &[u8],
    passwords: &[Password],
    progress: Progress<'_>,
) -> Result<Report, Closed> {
    judge(before, after, None, passwords, progress)
}

/// The same of the memory of a daemon, such as a core dump, in place of `after`, which says what is in
/// use.
///
/// # Errors
/// As [`audit`].
pub fn audit_memory(
    memory: &[u8],
    (before, after): (&[u8], &[u8]),
    passwords: &[Password],
    progress: Progress<'_>,
) -> Result<Report, Closed> {
    judge(before, after, Some(memory), passwords, progress)
}

fn judge(
    before: &[u8],
    after: &[u8],
    memory: Option<&[u8]>,
    passwords: &[Password],
    progress: Progress<'_>,
) -> Result<Report, Closed> {
    let mut masters = dump::Masters::default();
    let named = [masters.find(before, passwords)?, masters.find(after, passwords)?];
    let unrelated = unrelated(&named);
    masters.check()?;
    let before = Dump::read(before, &masters, SECTOR_LEN);
    let after = Dump::read(after, &masters, SECTOR_LEN);
    // In memory anything may begin anywhere.
    let memory = memory.map(|memory| Dump::read(memory, &masters, 1));
    let searched = memory.as_ref().unwrap_or(&after);

    let mut nodes: HashMap<CheckValue, Node> = HashMap::new();
    for node in before.nodes.iter().chain(&after.nodes) {
        nodes.entry(node.header.check_value).or_insert_with(|| node.clone());
    }
    let mut report = Report {
        nodes: nodes.len() as u64,
        in_use: 0,
        newer: 0,
        newer_known: 0,
        deleted: 0,
        windows: 0,
        key_pages: searched.key_pages.len() as u64,
        key_pages_sealed: after.key_pages_sealed,
        recoverable: Vec::new(),
        receipts: Vec::new(),
        receipts_whole: true,
        undecided: None,
    };
    let (Some(cipher), None) = (masters.cipher(), unrelated) else {
        report.undecided = unrelated.map(str::to_owned);
        return Ok(report);
    };
    // Nothing of an ephemeral volume is to be found, also where a checkpoint is still there.
    let found = if masters.is_ephemeral() {
        Ok(live::Live { next_sqnum: u64::MAX, ..live::Live::default() })
    } else {
        live::live(&after, cipher)
    };
    let live = found.unwrap_or_else(|why| {
        report.undecided = Some(format!("the later dump has no whole checkpoint: {why}"));
        live::Live::default()
    });
    classify(&mut report, &nodes, &live);
    report.receipts = live.receipts.values().copied().collect();
    let last = report.receipts.last().map_or(NO_RECEIPT, Receipt::digest);
    report.receipts_whole = first_break(&report.receipts, &last).is_none();
    let wanted: HashSet<_> = nodes.keys().copied().collect();
    let found = search::search(searched, cipher, &wanted, progress);
    report.windows = found.windows;
    judge_found(&mut report, found, &nodes, &live);
    if report.undecided.is_none() {
        let why = reversed([&before, &after], cipher)
            .or_else(|| unsought(&report))
            // What is missing makes nothing of what was found undone.
            .or_else(|| missing([&before, &after]).filter(|_| report.recoverable.is_empty()));
        report.undecided = why.map(str::to_owned);
    }
    Ok(report)
}

/// Why these are no two dumps of one volume, if so, by the volumes that their superblocks name.
///
/// What is no dump at all has no node that was deleted later, so all would hold if it was named as the earlier one by
/// mistake. The later one may have lost its superblocks since: they can be erased.
fn unrelated([before, after]: &[dump::Volumes; 2]) -> Option<&'static str> {
    match (before.is_empty(), after.is_empty()) {
        (true, true) => return Some("no superblock was found in either dump"),
        (true, false) => return Some("no superblock was found in the earlier dump"),
        (false, true) => return None,
        (false, false) => {}
    }
    let both: Vec<_> =
        before.iter().filter_map(|(uuid, one)| Some((one, after.get(uuid)?))).collect();
    if both.is_empty() {
        return Some("the dumps are of different volumes");
    }
    both.iter().all(|(earlier, later)| earlier > later).then_some(REVERSED)
}

/// Dumps that were given the wrong way round.
const REVERSED: &str = "the earlier dump is newer than the later one";

/// Why nothing was shown, if dumps were given the wrong way round: what was deleted between them is in use in the later
/// one then.
fn reversed(dumps: [&Dump<'_>; 2], cipher: CipherChoice) -> Option<&'static str> {
    let [earlier, later] = dumps.map(|dump| live::newest_root(dump, cipher));
    let is_newer = later.is_some() && earlier > later;
    is_newer.then_some(REVERSED)
}

/// Why there was no key to be looked for, if so: then nothing was shown.
fn unsought(report: &Report) -> Option<&'static str> {
    if report.nodes == 0 {
        return Some("no node was found in either dump, so there was no key to look for");
    }
    (report.windows == 0).then_some("what was to be searched is too short to hold any key")
}

/// Why something of the dumps is missing, if so: a key may be there, or a node that it belongs to.
fn missing([before, after]: [&Dump<'_>; 2]) -> Option<&'static str> {
    let layout = after.layout?;
    let main = u64::from(layout.main_leb(MainLeb(0))) + u64::from(layout.main_lebs);
    let volume = main * u64::from(layout.leb_len_bytes);
    // Whoever looks at the past has several dumps, one behind the other, as the later one.
    if !after.bytes.len().is_multiple_of(before.bytes.len()) {
        return Some("the dumps differ in length, so one of them is not whole");
    }
    if (before.bytes.len() as u64) < volume {
        return Some("the dumps are shorter than the volume, so they are not whole");
    }
    // Nothing that is written fills a page with zeros.
    let is_unread = |page: &[u8]| page.iter().all(|byte| *byte == 0);
    let page_len = layout.page_len_bytes as usize;
    let mut dumps = [before, after].into_iter();
    let unread = dumps.any(|dump| dump.bytes.chunks_exact(page_len).any(is_unread));
    unread.then_some("a dump has pages of zeros, as stand where the chip could not be read")
}

fn classify(report: &mut Report, nodes: &HashMap<CheckValue, Node>, live: &live::Live) {
    for (check_value, node) in nodes {
        let class = if live.keys.contains(check_value) {
            &mut report.in_use
        } else if node.header.sqnum >= live.next_sqnum {
            &mut report.newer
        } else {
            &mut report.deleted
        };
        *class += 1;
    }
}

/// What the keys that were found say of their nodes.
fn judge_found(
    report: &mut Report,
    found: search::Found,
    nodes: &HashMap<CheckValue, Node>,
    live: &live::Live,
) {
    for (check_value, key) in found.keys {
        let Header { sqnum, len_bytes, .. } = nodes[&check_value].header;
        if live.keys.contains(&check_value) {
            continue;
        }
        if sqnum >= live.next_sqnum {
            report.newer_known += 1;
        } else {
            report.recoverable.push(Recoverable { sqnum, len_bytes, key });
        }
    }
    report.recoverable.sort_by_key(|node| node.sqnum);
}

/// Check values that stand before two different messages: keys that were used twice. For tests of the
/// promise that there are none.
pub fn keys_used_twice(dump: &[u8]) -> Vec<CheckValue> {
    let mut messages: HashMap<CheckValue, &[u8]> = HashMap::new();
    let mut twice = Vec::new();
    for node in dump::nodes(dump) {
        let message = &dump[node.offset..][..node.header.len_bytes as usize];
        if *messages.entry(node.header.check_value).or_insert(message) != message {
            twice.push(node.header.check_value);
        }
    }
    twice
}
