//! The query log as a client sees it: records in their order, who comes before whom, what each query
//! found, and what therefore each block is.
//!
//! Everything here follows from the log, so all clients see the same.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;

use crate::error::{Error, Kind, Result};
use crate::geometry::Geometry;
use crate::item::{Item, forged};
use crate::keys::{Head, Id, Keys};
use crate::record::{Found, Operation, Position, Record, digest_of};

/// What a query tells whoever asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The content before the query: `None` if there was no such block.
    Was(Option<Bytes>),
    /// [`Operation::CompareAndWrite`]: whether it wrote, and the content before it.
    Compared {
        /// Whether the content was what was expected.
        written: bool,
        /// What it was.
        was: Option<Bytes>,
    },
    /// The store has as many blocks as it was made for; nothing was written.
    Full,
    /// The record came too late, or came twice; nothing was done.
    Void,
}

#[derive(Debug)]
struct Entry {
    record: Record,
    head: Head,
    void: bool,
    /// Sequence number of the last query before this one that was for the same block.
    predecessor: Option<u64>,
    found: Option<Found>,
    settled: Option<Settled>,
}

#[derive(Debug, Clone)]
struct Settled {
    outcome: Outcome,
    after: Option<Bytes>,
    /// By how much the number of present blocks changed.
    change: i64,
}

/// What a client that joins knows of the time before the periods that live.
#[derive(Debug, Clone)]
pub struct Past {
    /// Number of records before the first one that the view has.
    pub first: u64,
    /// The head then.
    pub head: Head,
    /// All queries below this sequence number are past: they have settled, and what they left is in
    /// `blocks`.
    pub until: u64,
    /// What the blocks are that the last period of these has touched.
    pub blocks: HashMap<Id, Option<Bytes>>,
}

impl Past {
    /// There is none: the log begins with the store.
    pub fn none(keys: &Keys) -> Self {
        Self { first: 0, head: keys.genesis(), until: 0, blocks: HashMap::new() }
    }
}

/// Records of the periods that live and of the one before them.
#[derive(Debug)]
pub struct LogView {
    keys: Keys,
    geometry: Geometry,
    /// Sequence number of the first entry, and the head before it.
    first: u64,
    before: Head,
    past: Past,
    entries: VecDeque<Entry>,
    /// All queries below this sequence number have settled.
    settled: u64,
    /// Newest query for each block.
    newest: HashMap<Id, u64>,
    requests: HashMap<[u8; 16], u64>,
    /// Blocks that are present, by the manifests of periods that have opened.
    present: VecDeque<(u64, u64)>,
}

impl LogView {
    /// No records yet behind those that `past` tells of.
    pub fn new(keys: Keys, geometry: Geometry, past: Past) -> Self {
        Self {
            keys,
            geometry,
            first: past.first,
            before: past.head,
            settled: past.first,
            past,
            entries: VecDeque::new(),
            newest: HashMap::new(),
            requests: HashMap::new(),
            present: VecDeque::new(),
        }
    }

    /// Sequence number of the first record that is remembered.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Number of records so far.
    pub fn records(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// The head after all records.
    pub fn head(&self) -> Head {
        self.entries.back().map_or(self.before, |entry| entry.head)
    }

    /// The head after `count` records, if it is known still.
    pub fn head_after(&self, count: u64) -> Option<Head> {
        if count == self.first {
            return Some(self.before);
        }
        self.entry(count.checked_sub(1)?).map(|entry| entry.head)
    }

    /// All queries below this sequence number have settled.
    pub fn settled(&self) -> u64 {
        self.settled.max(self.past.until)
    }

    /// A period has opened when so many blocks were present.
    ///
    /// # Errors
    /// [`Kind::Hostile`] as [`LogView::found`].
    pub fn opened(&mut self, period: u64, present: u64) -> Result<()> {
        self.present.push_back((period, present));
        self.settle()
    }

    /// The next record, sealed, has come; returns the request it belongs to.
    ///
    /// # Errors
    /// [`Kind::Hostile`] if no client has written it, or its author has seen another log than this one.
    pub fn push(&mut self, sealed: &[u8]) -> Result<[u8; 16]> {
        let sequence = self.records();
        let record = Record::open(&self.keys, sealed)?;
        let window = self.window(sequence);
        let mut void = record.seen < window;
        if !void && !crate::faults::planted(crate::faults::Fault::ChainUnchecked) {
            let agrees = record.seen <= sequence
                && self.head_after(record.seen).is_none_or(|head| head == record.head);
            if !agrees {
                return Err(Error::new(
                    Kind::Hostile,
                    "the server shows its clients different logs: a record's author has seen another one",
                ));
            }
        }
        void |= self.requests.get(&record.request).is_some_and(|&twin| twin >= window);
        let counts = !void && record.operation != Operation::Dummy;
        let predecessor = counts
            .then(|| self.newest.get(&record.id).copied())
            .flatten()
            .filter(|&newest| newest >= window);
        if counts {
            self.newest.insert(record.id, sequence);
        }
        let request = record.request;
        self.requests.entry(request).or_insert(sequence);
        let head = self.keys.next_head(&self.head(), sealed);
        let settled = (sequence < self.past.until).then(|| Settled {
            outcome: Outcome::Void,
            after: self.past.blocks.get(&record.id).cloned().flatten(),
            change: 0,
        });
        self.entries.push_back(Entry { record, head, void, predecessor, found: None, settled });
        self.settle()?;
        Ok(request)
    }

    /// A result, sealed, has come for query `sequence`. What comes for queries that are forgotten, or
    /// twice, is passed over.
    ///
    /// # Errors
    /// [`Kind::Hostile`] if no client has found this for this query.
    pub fn found(&mut self, sequence: u64, sealed: &[u8]) -> Result<()> {
        if sequence < self.past.until {
            return Ok(());
        }
        let Some(position) = self.position(sequence) else { return Ok(()) };
        let found = Found::open(&self.keys, &position, sealed)?;
        self.found_here(sequence, found)
    }

    /// [`found`](Self::found), by this client itself.
    ///
    /// # Errors
    /// [`Kind::Hostile`] as there.
    pub fn found_here(&mut self, sequence: u64, found: Found) -> Result<()> {
        let looks = self.target(sequence).is_some();
        let Some(entry) = self.entry_mut(sequence) else { return Ok(()) };
        if looks != matches!(found, Found::Block(_)) {
            return Err(forged("a result"));
        }
        entry.found.get_or_insert(found);
        self.settle()
    }

    /// Where the result of query `sequence` belongs; `None` if its record has not come or is forgotten.
    pub fn position(&self, sequence: u64) -> Option<Position> {
        self.entry(sequence).map(|entry| Position { sequence, head: entry.head })
    }

    /// The query that `request` has become, unless it is forgotten.
    pub fn sequence_of(&self, request: &[u8; 16]) -> Option<u64> {
        self.requests.get(request).copied()
    }

    /// Whether query `sequence` has a result, settled or not; one that is forgotten has.
    pub fn is_found(&self, sequence: u64) -> bool {
        self.entry(sequence).is_none_or(|entry| entry.found.is_some() || entry.settled.is_some())
    }

    /// What query `sequence` found, sealed once more under `salt`.
    pub fn sealed_result(&self, sequence: u64, salt: [u8; 16]) -> Option<Vec<u8>> {
        let found = self.entry(sequence)?.found.as_ref()?;
        Some(found.seal(&self.keys, &self.position(sequence)?, salt, self.geometry.block_len()))
    }

    /// The block that query `sequence` has to look up; `None` if it looks for nothing.
    pub fn target(&self, sequence: u64) -> Option<Id> {
        let entry = self.entry(sequence)?;
        let looks = !entry.void
            && entry.predecessor.is_none()
            && entry.record.operation != Operation::Dummy;
        looks.then_some(entry.record.id)
    }

    /// Whether query `sequence` compares: no difference to how it is done.
    pub(crate) fn compares(&self, sequence: u64) -> bool {
        let operation = self.entry(sequence).map(|entry| &entry.record.operation);
        matches!(operation, Some(Operation::CompareAndWrite { .. }))
    }

    /// Whether query `sequence` is so old that nothing is known of it.
    pub const fn is_forgotten(&self, sequence: u64) -> bool {
        sequence < self.first
    }

    /// What query `sequence` tells, once it and all before it have settled.
    pub fn outcome(&self, sequence: u64) -> Option<Outcome> {
        Some(self.entry(sequence)?.settled.as_ref()?.outcome.clone())
    }

    /// The oldest query that has no result.
    pub fn oldest_unsettled(&self) -> Option<u64> {
        (self.settled < self.records()).then_some(self.settled)
    }

    /// What a period's queries leave, each block once; all of them have settled. `None` if they are
    /// forgotten, all or some.
    pub fn batch(&self, period: u64) -> Option<Vec<Item>> {
        // In an order that follows from the log: builds repeat to the byte.
        let mut items = BTreeMap::new();
        for sequence in self.sequences(period) {
            let entry = self.entry(sequence)?;
            let settled = entry.settled.as_ref().expect("periods that are built have settled");
            if !entry.void && entry.record.operation != Operation::Dummy {
                items.insert(entry.record.id, settled.after.clone());
            }
        }
        Some(items.into_iter().map(|(id, block)| Item { id, block }).collect())
    }

    /// Whether all queries of `period` are here and have settled.
    pub fn is_settled(&self, period: u64) -> bool {
        self.settled >= (period + 1) * self.geometry.period()
    }

    /// By how much a period, which has settled, changes the number of blocks that are present.
    pub fn change(&self, period: u64) -> i64 {
        let settled = |sequence| self.entry(sequence)?.settled.as_ref();
        self.sequences(period).filter_map(settled).map(|settled| settled.change).sum()
    }

    /// Blocks that are present after all queries that have settled, as far as the periods that live tell;
    /// `None` if none of them has opened.
    pub fn present(&self) -> Option<u64> {
        // What a manifest tells is how many there were after the period before the one before its own.
        let (period, present) = self.present.back()?;
        let from = period.saturating_sub(1) * self.geometry.period();
        let settled = (from..self.settled).filter_map(|n| self.entry(n)?.settled.as_ref());
        let change: i64 = settled.map(|settled| settled.change).sum();
        Some(present.saturating_add_signed(change))
    }

    /// The heads after each record of `period`.
    pub fn heads(&self, period: u64) -> impl Iterator<Item = Head> {
        self.sequences(period).filter_map(|sequence| Some(self.entry(sequence)?.head))
    }

    /// Forgets all before `period`.
    pub fn forget_before(&mut self, period: u64) {
        let first = (period * self.geometry.period()).min(self.settled);
        while self.first < first {
            let entry = self.entries.pop_front().expect("what has settled is here");
            if self.newest.get(&entry.record.id) == Some(&self.first) {
                self.newest.remove(&entry.record.id);
            }
            if self.requests.get(&entry.record.request) == Some(&self.first) {
                self.requests.remove(&entry.record.request);
            }
            self.before = entry.head;
            self.first += 1;
        }
        self.present.retain(|known| known.0 >= period);
    }

    fn settle(&mut self) -> Result<()> {
        while let Some(entry) = self.entry(self.settled) {
            if entry.settled.is_some() {
                self.settled += 1;
                continue;
            }
            let period = self.settled / self.geometry.period();
            let present = self.present.iter().find(|known| known.0 == period);
            let (Some(_), Some((_, present))) = (&entry.found, present) else { break };
            let is_full = *present >= self.geometry.capacity();
            let settled = if entry.void {
                Settled { outcome: Outcome::Void, after: None, change: 0 }
            } else {
                applied(&entry.record.operation, self.before_of(entry)?, is_full)
            };
            let sequence = self.settled;
            self.entry_mut(sequence).expect("it was here").settled = Some(settled);
            self.settled += 1;
        }
        Ok(())
    }

    /// What the block was before a query which has its result, as have all before it.
    fn before_of(&self, entry: &Entry) -> Result<Option<Bytes>> {
        if let Some(Found::Block(block)) = &entry.found {
            return Ok(block.clone());
        }
        let Some(predecessor) = entry.predecessor else {
            let is_dummy = entry.record.operation == Operation::Dummy;
            return if is_dummy { Ok(None) } else { Err(forged("a result")) };
        };
        let predecessor = self.entry(predecessor).and_then(|entry| entry.settled.as_ref());
        predecessor.map(|settled| settled.after.clone()).ok_or_else(|| forged("a result"))
    }

    /// The first record that lives for query `sequence`: the period before its own begins there.
    fn window(&self, sequence: u64) -> u64 {
        (sequence / self.geometry.period()).saturating_sub(1) * self.geometry.period()
    }

    fn sequences(&self, period: u64) -> std::ops::Range<u64> {
        period * self.geometry.period()..(period + 1) * self.geometry.period()
    }

    fn entry(&self, sequence: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(sequence.checked_sub(self.first)?).ok()?)
    }

    fn entry_mut(&mut self, sequence: u64) -> Option<&mut Entry> {
        self.entries.get_mut(usize::try_from(sequence.checked_sub(self.first)?).ok()?)
    }
}

fn applied(operation: &Operation, before: Option<Bytes>, is_full: bool) -> Settled {
    let full = is_full && before.is_none();
    let was = i64::from(before.is_some());
    let (outcome, after) = match operation {
        Operation::Write(_) | Operation::CompareAndWrite { .. } if full => {
            let expects_other =
                matches!(operation, Operation::CompareAndWrite { expected: Some(_), .. });
            let outcome = if expects_other {
                Outcome::Compared { written: false, was: None }
            } else {
                Outcome::Full
            };
            (outcome, before)
        }
        Operation::Read | Operation::Dummy => (Outcome::Was(before.clone()), before),
        Operation::Write(block) => (Outcome::Was(before), Some(block.clone())),
        Operation::Free => (Outcome::Was(before), None),
        Operation::CompareAndWrite { expected, new } => {
            let written = before.as_deref().map(digest_of) == *expected;
            let after = if written { Some(new.clone()) } else { before.clone() };
            (Outcome::Compared { written, was: before }, after)
        }
    };
    let change = i64::from(after.is_some()) - was;
    Settled { outcome, after, change }
}

#[cfg(test)]
mod tests;
