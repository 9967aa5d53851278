//! A witness of everything that is purged on an image: what a verdict says is gone must not be in the
//! raw image when it is unmounted. Each image has one, so no test can forget it.
//!
//! It is shown what is about to be overwritten, and hears each verdict. What lives on in the tree, or
//! belongs to what no verdict says is gone, is no evidence; nor is what is too short, or says too
//! little, to be known again.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tacita_purge::Content;
use tacita_purge::faults::{Fault, is_any_planted, plant};
use tacita_purge::witness::{Event, Evidence, call_witness};
use tacita_testkit::{search, skip_without_fuse};

use crate::acts::fill;
use crate::image::{Fs, Image, turn};
use crate::overlay::{Mounted, options};

/// What is searched for of content: as many bytes from a place in each sector.
const SAMPLE_LEN: usize = 32;
const SAMPLE_AT: usize = 64;
const SECTOR_LEN: usize = 512;

/// Shorter names and values could be there by chance.
const LEN_MIN: usize = 12;

/// As few different bytes could be anybody's.
const LETTERS_MIN: usize = 6;

/// What is searched for, and where it was.
type Wanted = HashMap<Vec<u8>, String>;

#[derive(Debug, Default)]
struct Heard {
    /// What was shown and not judged yet, by inode number, in its order; ranges by themselves.
    shown: HashMap<(u64, bool), VecDeque<Evidence>>,
    /// What a verdict that holds was told of.
    gone: Vec<Evidence>,
    /// What no such verdict was told of.
    not_gone: Vec<Evidence>,
    /// A fault was planted: what is claimed then is that test's matter.
    is_faulty: bool,
    /// It is the witness that is tested by it.
    speaks_of_faults: bool,
}

impl Heard {
    fn hear(&mut self, event: Event) {
        self.is_faulty |= is_any_planted();
        match event {
            Event::Purging(evidence) => {
                let key = (evidence.inode, evidence.is_range);
                self.shown.entry(key).or_default().push_back(evidence);
            }
            Event::Told(verdict) => {
                let is_kept = matches!(verdict.content, Content::Kept(_));
                let is_range = verdict.name == tacita_purge::Part::None && !is_kept;
                let shown = verdict.inode.and_then(|inode| self.shown.get_mut(&(inode, is_range)));
                let Some(evidence) = shown.and_then(VecDeque::pop_front) else { return };
                let told = if verdict.holds() { &mut self.gone } else { &mut self.not_gone };
                told.push(evidence);
            }
        }
    }
}

/// Hears of everything that is purged in this process as long as it is the last that was called.
#[derive(Debug, Default)]
pub(crate) struct Witness(Arc<Mutex<Heard>>);

impl Witness {
    pub(crate) fn call() -> Self {
        let witness = Self::default();
        let heard = Arc::clone(&witness.0);
        call_witness(move |event| heard.lock().unwrap().hear(event));
        witness
    }

    /// It is to speak though faults are planted.
    fn speak_of_faults(&self) {
        self.0.lock().unwrap().speaks_of_faults = true;
    }

    /// What verdicts said is gone and is in the image: to be asked while the tree is still mounted,
    /// and answered when it is not.
    pub(crate) fn question(&self, tree: &Path) -> Option<Question> {
        let heard = std::mem::take(&mut *self.0.lock().unwrap());
        if heard.gone.is_empty() || heard.is_faulty && !heard.speaks_of_faults {
            return None;
        }
        let mut living = Vec::new();
        collect(tree, &mut living);
        let waiting = heard.shown.into_values().flatten();
        for evidence in heard.not_gone.into_iter().chain(waiting) {
            living.push(evidence.name);
            living.push(evidence.content);
            living.extend(evidence.values);
        }
        Some(Question { wanted: wanted(&heard.gone), living })
    }
}

/// What is to be looked for.
pub(crate) struct Question {
    wanted: Wanted,
    living: Vec<Vec<u8>>,
}

impl Question {
    /// What is found in an image that is not mounted.
    pub(crate) fn answer(&self, image: &Path) -> Vec<String> {
        let mut by_begin: HashMap<[u8; 8], Vec<&[u8]>> = HashMap::new();
        for wanted in self.wanted.keys() {
            by_begin.entry(*wanted.first_chunk().unwrap()).or_default().push(wanted);
        }
        // Most places are told apart by two of their bytes.
        let mut is_begin = vec![false; 1 << 16];
        let two = |bytes: &[u8]| usize::from(bytes[0]) << 8 | usize::from(bytes[1]);
        for begin in by_begin.keys() {
            is_begin[two(begin)] = true;
        }
        let mut found = Vec::new();
        for stretch in search::stretches(image).unwrap() {
            for (at, begin) in stretch.bytes.windows(8).enumerate() {
                if !is_begin[two(begin)] {
                    continue;
                }
                let rest = &stretch.bytes[at..];
                let same = by_begin.get(begin).into_iter().flatten();
                let same = same.filter(|wanted| rest.starts_with(wanted));
                found.extend(same.map(|wanted| (stretch.at + at, *wanted)));
            }
        }
        let lives = |wanted: &[u8]| {
            let mut texts = self.living.iter();
            texts.any(|text| search::holds(text, wanted))
        };
        found.retain(|(_, wanted)| !lives(wanted));
        let told = found.into_iter().map(|(at, wanted)| {
            format!("{} at {at:#x}: {}", self.wanted[wanted], String::from_utf8_lossy(wanted))
        });
        told.collect()
    }
}

/// What is looked for of what is gone.
fn wanted(gone: &[Evidence]) -> Wanted {
    let mut wanted = Wanted::new();
    for evidence in gone {
        let inode = evidence.inode;
        let mut want = |bytes: &[u8], what: &str| {
            let mut letters = bytes.to_vec();
            letters.sort_unstable();
            letters.dedup();
            if bytes.len() >= LEN_MIN && letters.len() >= LETTERS_MIN {
                wanted.insert(bytes.to_vec(), format!("inode {inode}, {what}"));
            }
        };
        want(&evidence.name, "its name");
        for sector in evidence.content.chunks(SECTOR_LEN) {
            let from = SAMPLE_AT.min(sector.len().saturating_sub(SAMPLE_LEN));
            want(&sector[from..sector.len().min(from + SAMPLE_LEN)], "its content");
        }
        for value in &evidence.values {
            want(&value[..value.len().min(SAMPLE_LEN)], "a value");
        }
    }
    wanted
}

/// All names, contents, targets and values of a tree.
fn collect(dir: &Path, all: &mut Vec<Vec<u8>>) {
    let Ok(listed) = fs::read_dir(dir) else { return };
    for entry in listed.flatten() {
        let path = entry.path();
        all.push(entry.file_name().as_bytes().to_vec());
        let Ok(meta) = path.symlink_metadata() else { continue };
        if meta.is_symlink() {
            all.extend(fs::read_link(&path).map(|target| target.as_os_str().as_bytes().to_vec()));
            continue;
        }
        if meta.is_dir() {
            collect(&path, all);
        } else if meta.is_file() && meta.blocks() * 512 <= 64 << 20 {
            all.extend(fs::read(&path));
        }
        let mut names = vec![0_u8; 1 << 16];
        let len = rustix::fs::llistxattr(&path, &mut names[..]).unwrap_or(0);
        for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0_u8; 1 << 16];
            if let Ok(len) = rustix::fs::lgetxattr(&path, name, &mut value[..]) {
                all.push(value[..len].to_vec());
            }
        }
    }
}

/// What the witness says of files that are deleted and truncated under faults.
fn said(fs: Fs, faults: &[Fault]) -> Option<(usize, Vec<String>)> {
    let image = Image::new("a_false_verdict_is_found", fs)?;
    let path = |dir: &Path, number: usize| dir.join(format!("secretname-Witness-{number}-"));
    for number in 0..20 {
        let path = path(&image.dir(), number);
        fs::write(&path, fill(&format!("LOST-Witness-{number}-"), 9000)).unwrap();
        // Files with the same attributes share a block of them, which is gone with the last.
        let value = fill(&format!("LOST-Witness-value-{number}-"), 300);
        let none = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, "user.note", &value, none).unwrap();
    }
    image.remount();
    image.witness.speak_of_faults();
    plant(faults);
    let mounted = Mounted::new(&image, options("clear", false));
    for number in 0..20 {
        let path = path(&mounted.dir, number);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(5000).unwrap();
        drop(file);
        fs::remove_file(path).unwrap();
    }
    mounted.end();
    plant(&[]);
    let question = image.witness.question(&image.dir());
    image.unmount();
    let said = question.as_ref().map(|question| question.answer(&image.path()));
    Some((question.map_or(0, |question| question.wanted.len()), said.unwrap_or_default()))
}

#[test]
fn a_false_verdict_is_found() {
    let _turn = turn();
    if skip_without_fuse("a_false_verdict_is_found") {
        return;
    }
    let Some((wanted, found)) = said(Fs::Ext4, &[]) else { return };
    assert!(wanted > 300 && found.is_empty(), "{wanted} wanted: {found:#?}");
    let journal = [Fault::JournalStays, Fault::JournalUnseen];
    for (fs, faults, what) in [
        (Fs::Ext4, [Fault::AttributesUnhooked].as_slice(), "a value"),
        (Fs::Ext4, &journal, "its name"),
        (Fs::Ext4Journaled, &journal, "its content"),
    ] {
        let (_, found) = said(fs, faults).unwrap();
        let is_found = found.iter().any(|found| found.contains(what));
        assert!(is_found, "{fs:?}, {faults:?}: {what} is not caught: {found:#?}");
    }
}
