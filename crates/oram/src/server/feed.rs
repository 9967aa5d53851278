//! What followers are told, from memory: the records and results of the last two periods.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

/// Records and results that one round of telling takes at most.
const BATCH_MAX: usize = 64;

/// Which connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ConnectionId(pub(super) u64);

/// Records and results in memory.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// Queries of a period; 0 as long as there is no store.
    period: u64,
    /// Sequence number of the first of `records`.
    base: u64,
    records: VecDeque<Entry>,
    /// Number of the first of `arrivals`.
    arrivals_base: u64,
    arrivals: VecDeque<Arrival>,
    /// Results of the periods that do not have all of them in the store.
    collecting: BTreeMap<u64, Collection>,
    /// Objects of records: the first record's sequence number, and how many there are.
    objects: BTreeMap<u64, u64>,
    /// Connections that follow.
    followers: HashSet<ConnectionId>,
    /// Records that are not in memory any more and whose followers have not been told yet that they are
    /// theirs.
    untold: HashMap<(ConnectionId, u64), Owner>,
}

/// A record in memory.
#[derive(Debug)]
struct Entry {
    record: Bytes,
    owner: Option<Owner>,
}

/// The connection that has appended a record, and is told so in the order of what it follows.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) id: ConnectionId,
    /// The number of its request.
    pub(super) number: u64,
    /// One of its requests under way, until it is told.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// A result that came, in the order in which results come.
#[derive(Debug, Clone)]
struct Arrival {
    sequence: u64,
    result: Bytes,
    owner: ConnectionId,
}

#[derive(Debug)]
struct Collection {
    slots: Vec<Option<Bytes>>,
    missing: usize,
}

/// How far a follower has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor {
    pub(super) record: u64,
    pub(super) arrival: u64,
}

/// Where a follower begins, results in memory, and sequence numbers of results in the store.
pub(super) type Beginning = (Cursor, VecDeque<(u64, Bytes)>, VecDeque<Range<u64>>);

/// What a follower is told next.
#[derive(Debug)]
pub(super) enum News {
    /// Nothing is new.
    Nothing,
    /// Somebody else's record.
    Record(u64, Bytes),
    /// The follower's own record: the number of its request.
    Appended(u64, u64),
    /// Somebody else's result.
    Result(u64, Bytes),
    /// Records from the cursor on that are in this object, which begins with the given one and has so many.
    Stored(u64, u64),
    /// What comes next is not there any more.
    Gone,
}

/// What came of a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// It is kept.
    Created,
    /// It is kept, and its period, this one, has all its results now.
    Complete(u64),
    /// There was one already.
    Exists,
    /// There is no such query.
    NoQuery,
}

impl Feed {
    /// Nothing but the beginning of records at `base`, with periods of so many queries.
    pub(super) fn begin(period: u64, base: u64, objects: BTreeMap<u64, u64>) -> Self {
        Self { period, base, objects, ..Self::default() }
    }

    /// Connections that follow.
    pub(super) fn followers(&self) -> u32 {
        u32::try_from(self.followers.len()).unwrap_or(u32::MAX)
    }

    /// Records in the log.
    pub(super) fn next(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    /// Takes records that are durable now, in one object.
    pub(super) fn append(&mut self, records: impl IntoIterator<Item = (Bytes, Option<Owner>)>) {
        let first = self.next();
        self.records.extend(records.into_iter().map(|(record, owner)| Entry { record, owner }));
        let count = self.next() - first;
        if count == 0 {
            return;
        }
        self.objects.insert(first, count);
        self.collect(first / self.period);
        let needed = ((self.next() - 1) / self.period).saturating_sub(1) * self.period;
        while self.base < needed
            && let Some(entry) = self.records.pop_front()
        {
            if let Some(owner) = entry.owner
                && owner.permit.is_some()
                && self.followers.contains(&owner.id)
            {
                self.untold.insert((owner.id, self.base), owner);
            }
            self.base += 1;
        }
    }

    /// From now on results of `period` are taken.
    pub(super) fn collect(&mut self, period: u64) {
        let slots = usize::try_from(self.period).expect("a period is short");
        self.collecting
            .entry(period)
            .or_insert_with(|| Collection { slots: vec![None; slots], missing: slots });
    }

    /// The results of `period` are in the store.
    pub(super) fn collected(&mut self, period: u64) {
        self.collecting.remove(&period);
    }

    /// The earliest period whose results are not in the store.
    pub(super) fn earliest_collecting(&self) -> Option<u64> {
        self.collecting.first_key_value().map(|(period, _)| *period)
    }

    pub(super) fn is_collecting(&self, period: u64) -> bool {
        self.collecting.contains_key(&period)
    }

    /// All results of `period`, which is complete.
    pub(super) fn results(&self, period: u64) -> Option<Vec<Bytes>> {
        self.collecting.get(&period)?.slots.iter().cloned().collect()
    }

    pub(super) fn keep(&mut self, sequence: u64, result: Bytes, owner: ConnectionId) -> Kept {
        if sequence >= self.next() {
            return Kept::NoQuery;
        }
        let period = sequence / self.period;
        let slot = usize::try_from(sequence % self.period).expect("a period is short");
        let Some(collection) = self.collecting.get_mut(&period) else { return Kept::Exists };
        if collection.slots[slot].is_some() {
            return Kept::Exists;
        }
        collection.slots[slot] = Some(result.clone());
        collection.missing -= 1;
        let is_complete = collection.missing == 0;
        self.arrivals.push_back(Arrival { sequence, result, owner });
        // As many as there can be queries in the periods that are collected; who is further behind
        // than that is not told any more.
        while self.arrivals.len() as u64 > 3 * self.period {
            self.arrivals.pop_front();
            self.arrivals_base += 1;
        }
        if is_complete { Kept::Complete(period) } else { Kept::Created }
    }

    /// From now on `id` is told that its records are its own.
    pub(super) fn enter(&mut self, id: ConnectionId) {
        self.followers.insert(id);
    }

    /// The connection is no more.
    pub(super) fn leave(&mut self, id: ConnectionId) {
        if self.followers.remove(&id) {
            self.untold.retain(|(owner, _), _| *owner != id);
        }
    }

    /// Whether a record that is not in memory is one of `id`, which has not been told so: the number of its
    /// request.
    pub(super) fn own(&mut self, id: ConnectionId, sequence: u64) -> Option<u64> {
        self.untold.remove(&(id, sequence)).map(|owner| owner.number)
    }

    /// Where a follower begins; the results in memory from `result` on; and those in the store, in ranges
    /// within a period.
    pub(super) fn follow(&self, record: u64, result: u64) -> Beginning {
        let arrival = self.arrivals_base + self.arrivals.len() as u64;
        let mut there = VecDeque::new();
        for (period, collection) in &self.collecting {
            let first = period * self.period;
            let kept = (first..).zip(&collection.slots);
            there.extend(
                kept.filter_map(|(at, slot)| Some((at, slot.clone()?)))
                    .filter(|(at, _)| *at >= result),
            );
        }
        let len = self.period.max(1);
        let periods = result / len..self.next().div_ceil(len);
        let stored = periods
            .filter(|period| !self.is_collecting(*period))
            .map(|period| result.max(period * self.period)..(period + 1) * self.period)
            .filter(|range| !range.is_empty());
        (Cursor { record, arrival }, there, stored.collect())
    }

    /// Whether records from `record` on can be told.
    pub(super) fn has(&self, record: u64) -> bool {
        (self.base..=self.next()).contains(&record) || self.object_with(record).is_some()
    }

    /// What is told next to the connection `to`: records first, for a result comes after its record.
    pub(super) fn news(&mut self, cursor: &mut Cursor, to: ConnectionId) -> Vec<News> {
        if cursor.record < self.base {
            let object = self.object_with(cursor.record);
            return vec![object.map_or(News::Gone, |(first, count)| News::Stored(first, count))];
        }
        let mut news = Vec::new();
        while cursor.record < self.next() && news.len() < BATCH_MAX {
            let at = usize::try_from(cursor.record - self.base).expect("it is in memory");
            let entry = &mut self.records[at];
            news.push(match &mut entry.owner {
                Some(owner) if owner.id == to => {
                    owner.permit = None;
                    News::Appended(cursor.record, owner.number)
                }
                _ => News::Record(cursor.record, entry.record.clone()),
            });
            cursor.record += 1;
        }
        if !news.is_empty() {
            return news;
        }
        if cursor.arrival < self.arrivals_base {
            return vec![News::Gone];
        }
        let from = usize::try_from(cursor.arrival - self.arrivals_base).expect("it is in memory");
        for arrival in self.arrivals.iter().skip(from).take(BATCH_MAX) {
            cursor.arrival += 1;
            if arrival.owner != to {
                news.push(News::Result(arrival.sequence, arrival.result.clone()));
            }
        }
        if cursor.arrival < self.arrivals_base + self.arrivals.len() as u64 && news.is_empty() {
            return self.news(cursor, to);
        }
        if news.is_empty() { vec![News::Nothing] } else { news }
    }

    /// The object of records is removed.
    pub(super) fn forget(&mut self, first: u64) {
        self.objects.remove(&first);
    }

    /// Whether all of `period` is before the two periods that queries still need.
    pub(super) fn is_past(&self, period: u64) -> bool {
        self.next() > 0 && period.saturating_add(1) < (self.next() - 1) / self.period.max(1)
    }

    fn object_with(&self, record: u64) -> Option<(u64, u64)> {
        let (first, count) = self.objects.range(..=record).next_back()?;
        (record - first < *count).then_some((*first, *count))
    }
}
