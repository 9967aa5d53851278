//! A workload, and what may be there after a power cut in the middle of it.

use std::collections::{BTreeMap, HashSet};

use tacita_flash::{Emulator, Kind, Leb, Result, Volume};

/// One operation on a volume.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// So many pages at this page.
    Append(Leb, u32, u32),
    /// To so many pages.
    Change(Leb, u32),
    Map(Leb),
    Unmap(Leb),
    Sync,
    FlushErases,
}

/// What a block may hold: its content without what has not been programmed.
type Content = Vec<u8>;

/// What each block of a volume may hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expected {
    /// The content, if nothing is under way.
    now: BTreeMap<Leb, Content>,
    /// What was unmapped and has not been flushed since, in the state in which it was.
    unmapped: BTreeMap<Leb, Content>,
    /// What the flush of erases has made go.
    gone: Vec<Content>,
    /// What has been replaced since.
    stale: Vec<Content>,
    /// Blocks that have gone bad, as flushes report it.
    pub(crate) gone_bad: u32,
}

/// A page that tells which step wrote it, and where it belongs.
pub(crate) fn page(step: u32, number: u32, page_len: usize) -> Vec<u8> {
    let mut page = Vec::with_capacity(page_len);
    let marker = (u64::from(step) << 32 | u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while page.len() < page_len {
        page.extend((marker | 1).to_le_bytes());
    }
    page
}

fn pages(step: u32, first: u32, count: u32, page_len: usize) -> Vec<u8> {
    (first..first + count).flat_map(|number| page(step, number, page_len)).collect()
}

impl Expected {
    /// Does a step, and notes what it should do.
    ///
    /// # Errors
    /// As the step.
    pub(crate) fn take(&mut self, volume: &dyn Volume, number: u32, step: &Step) -> Result<()> {
        let page_len = volume.geometry().page_len_bytes;
        match *step {
            Step::Append(leb, at, count) => {
                let data = pages(number, at, count, page_len as usize);
                volume.append(leb, at * page_len, &data)?;
                self.stale.extend(self.unmapped.remove(&leb));
                let held = self.now.entry(leb).or_default();
                held.resize((at * page_len) as usize, 0xff);
                held.extend(data);
            }
            Step::Change(leb, count) => {
                let data = pages(number, 0, count, page_len as usize);
                volume.change(leb, &data)?;
                self.stale.extend(self.unmapped.remove(&leb));
                self.stale.extend(self.now.insert(leb, data));
            }
            Step::Map(leb) => {
                volume.map(leb)?;
                self.stale.extend(self.unmapped.remove(&leb));
                self.now.entry(leb).or_default();
            }
            Step::Unmap(leb) => {
                volume.unmap(leb)?;
                if let Some(old) = self.now.remove(&leb) {
                    self.stale.extend(self.unmapped.insert(leb, old));
                }
            }
            Step::Sync => volume.sync()?,
            Step::FlushErases => {
                let report = volume.flush_erases()?;
                self.gone_bad += report.bad_after - report.bad_before;
                self.gone.append(&mut self.stale);
                self.gone.extend(std::mem::take(&mut self.unmapped).into_values());
            }
        }
        Ok(())
    }

    /// Checks a volume after a power cut in `step`, which has the number `number`, or in none.
    pub(crate) fn check(&self, volume: &Emulator, cut: Option<(u32, &Step)>) {
        let geometry = volume.geometry();
        let page_len = geometry.page_len_bytes;
        for leb in (0..geometry.lebs).map(Leb) {
            let mut found = vec![0; geometry.leb_len_bytes as usize];
            volume.read(leb, 0, &mut found).unwrap();
            let empty = Content::new();
            let old = self.now.get(&leb).unwrap_or(&empty);
            let mut allowed = vec![old.clone()];
            match cut {
                Some((number, Step::Append(of, at, count))) if *of == leb => {
                    // Pages in order, then one that may hold anything, then none.
                    let data = pages(number, *at, *count, page_len as usize);
                    if is_prefix(&found, old, (at * page_len) as usize, &data, page_len as usize) {
                        continue;
                    }
                }
                Some((number, Step::Change(of, count))) if *of == leb => {
                    allowed.push(pages(number, 0, *count, page_len as usize));
                }
                Some((_, Step::Unmap(of))) if *of == leb => allowed.push(empty),
                _ => {}
            }
            allowed.extend(self.unmapped.get(&leb).cloned());
            let is_allowed = allowed.iter().any(|content| is_content(&found, content));
            assert!(is_allowed, "{leb:?} holds neither the old content nor the new");
            if !self.now.contains_key(&leb)
                && !self.unmapped.contains_key(&leb)
                && !is_about(cut, leb)
            {
                assert!(!volume.is_mapped(leb).unwrap(), "{leb:?} has come out of nowhere");
            }
        }
    }

    /// Checks that what erases have been flushed for is on no dump.
    pub(crate) fn check_dump(&self, volume: &Emulator) {
        let there = dump_of(volume);
        let page_len = volume.geometry().page_len_bytes as usize;
        for page in written(&self.gone, page_len) {
            assert!(!there.contains(page), "content that has been erased is there");
        }
    }

    /// Flushes the erases of a volume after a power cut, and checks that nothing is on its dump but
    /// what can be read.
    pub(crate) fn check_flush(&self, volume: &Emulator, cut: Option<(u32, &Step)>) {
        volume.flush_erases().unwrap();
        let geometry = volume.geometry();
        let page_len = geometry.page_len_bytes as usize;
        let mut readable = HashSet::new();
        for leb in (0..geometry.lebs).map(Leb) {
            let mut found = vec![0; geometry.leb_len_bytes as usize];
            volume.read(leb, 0, &mut found).unwrap();
            readable.extend(found.chunks(page_len).map(<[u8]>::to_vec));
        }
        let under_way = match cut {
            Some((number, Step::Append(_, at, count))) => pages(number, *at, *count, page_len),
            Some((number, Step::Change(_, count))) => pages(number, 0, *count, page_len),
            _ => Content::new(),
        };
        let known = self.now.values().chain(self.unmapped.values());
        let known = known.chain(&self.stale).chain([&under_way]);
        let there = dump_of(volume);
        let is_there = |page: &Vec<u8>| there.contains(page) || page.iter().all(|b| *b == 0xff);
        assert!(readable.iter().all(is_there), "what can be read is found in the same way");
        for page in written(known, page_len) {
            let is_left = there.contains(page) && !readable.contains(page);
            assert!(!is_left, "content that nobody can read is there after a flush");
        }
    }
}

/// The pages of contents that are not skipped.
fn written<'a>(
    contents: impl IntoIterator<Item = &'a Content>,
    page_len: usize,
) -> impl Iterator<Item = &'a [u8]> {
    let pages = contents.into_iter().flat_map(move |content| content.chunks(page_len));
    pages.filter(|page| page.iter().any(|byte| *byte != 0xff))
}

/// All pages of a chip.
fn dump_of(volume: &Emulator) -> HashSet<Vec<u8>> {
    let mut dump = Vec::new();
    volume.dump(&mut dump).unwrap();
    let page_len = volume.geometry().page_len_bytes as usize;
    dump.chunks(page_len).map(<[u8]>::to_vec).collect()
}

fn is_about(cut: Option<(u32, &Step)>, leb: Leb) -> bool {
    match cut {
        Some((_, Step::Append(of, ..) | Step::Change(of, _) | Step::Map(of) | Step::Unmap(of))) => {
            *of == leb
        }
        _ => false,
    }
}

fn is_content(found: &[u8], content: &[u8]) -> bool {
    let (head, tail) = found.split_at(content.len());
    head == content && tail.iter().all(|byte| *byte == 0xff)
}

/// Whether `found` is the old content and, from `at` on, the first pages of data, one page that may
/// hold anything if it is not the last, and nothing behind it.
fn is_prefix(found: &[u8], old: &[u8], at: usize, data: &[u8], page_len: usize) -> bool {
    let mut before = old.to_vec();
    before.resize(at, 0xff);
    let same = found[at..].chunks(page_len).zip(data.chunks(page_len)).take_while(|(a, b)| a == b);
    let end = (at + (same.count() + 1) * page_len).min(at + data.len());
    found.starts_with(&before) && found[end..].iter().all(|byte| *byte == 0xff)
}

/// Takes steps until the power is cut; the number of the step in which it was.
pub(crate) fn run(volume: &Emulator, steps: &[Step], expected: &mut Expected) -> Option<u32> {
    for (number, step) in (0..).zip(steps) {
        match expected.take(volume, number, step) {
            Ok(()) => {}
            Err(e) if e.kind() == Kind::PowerCut => return Some(number),
            Err(e) => panic!("step {number}, {step:?}: {e}"),
        }
    }
    None
}
