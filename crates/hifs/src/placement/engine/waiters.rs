//! Who has been turned away by whom: a list for each slot, all in one array.

/// End of a list.
const NONE: u32 = u32::MAX;
/// Fewer entries than these are not worth a look for stale ones.
const SWEEP_MIN: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Whose list it is in; none once it has been taken.
    holder: u32,
    waiter: u32,
    /// The waiter's generation when it was turned away: if it has another now, the entry is stale.
    generation: u32,
    next: u32,
}

/// For each slot those that it has turned away, with their generation then.
#[derive(Debug)]
pub(super) struct Waiters {
    /// First entry of each slot's list.
    heads: Vec<u32>,
    /// In the order of their coming, for there may be very many: what is gone through in any other
    /// order takes ten times as long.
    entries: Vec<Entry>,
    /// With so many entries those that are stale or taken are dropped.
    sweep_at: usize,
}

impl Default for Waiters {
    fn default() -> Self {
        Self { heads: Vec::new(), entries: Vec::new(), sweep_at: SWEEP_MIN }
    }
}

impl Waiters {
    /// Makes room for `count` slots more.
    pub(super) fn reserve(&mut self, count: usize) {
        self.heads.reserve_exact(count);
    }

    /// A slot more.
    pub(super) fn push_slot(&mut self) {
        self.heads.push(NONE);
    }

    /// Entries in lists, stale ones among them.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.iter().filter(|entry| entry.holder != NONE).count()
    }

    /// `holder` has turned `waiter` away. Now and then stale entries are dropped, so that a piece
    /// that never moves does not collect them for ever.
    pub(super) fn add(
        &mut self,
        holder: u32,
        waiter: u32,
        generation: u32,
        is_current: impl Fn(u32, u32) -> bool,
    ) {
        if self.entries.len() >= self.sweep_at {
            self.sweep(is_current);
        }
        let at = u32::try_from(self.entries.len()).expect("fewer entries than 2^32");
        let next = std::mem::replace(&mut self.heads[holder as usize], at);
        self.entries.push(Entry { holder, waiter, generation, next });
    }

    /// Takes the list of a slot.
    pub(super) fn take(&mut self, holder: u32) -> Vec<(u32, u32)> {
        let mut at = std::mem::replace(&mut self.heads[holder as usize], NONE);
        let mut taken = Vec::new();
        while at != NONE {
            let entry = &mut self.entries[at as usize];
            taken.push((entry.waiter, entry.generation));
            entry.holder = NONE;
            at = entry.next;
        }
        taken
    }

    /// Gives the list of `from` to `to`, beside its own.
    pub(super) fn inherit(&mut self, to: u32, from: u32) {
        let first = std::mem::replace(&mut self.heads[from as usize], NONE);
        let mut at = first;
        while at != NONE {
            let entry = &mut self.entries[at as usize];
            entry.holder = to;
            at = entry.next;
            if at == NONE {
                entry.next = std::mem::replace(&mut self.heads[to as usize], first);
            }
        }
    }

    fn sweep(&mut self, is_current: impl Fn(u32, u32) -> bool) {
        self.heads.fill(NONE);
        let mut kept = 0;
        for at in 0..self.entries.len() {
            let mut entry = self.entries[at];
            if entry.holder != NONE && is_current(entry.waiter, entry.generation) {
                let place = u32::try_from(kept).expect("fewer than before");
                entry.next = std::mem::replace(&mut self.heads[entry.holder as usize], place);
                self.entries[kept] = entry;
                kept += 1;
            }
        }
        self.entries.truncate(kept);
        self.sweep_at = SWEEP_MIN.max(self.heads.len()).max(2 * kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inherited_stays_so_when_stale_entries_are_dropped() {
        let mut waiters = Waiters::default();
        (0..3).for_each(|_| waiters.push_slot());
        waiters.add(0, 7, 1, |_, _| true);
        waiters.add(1, 8, 1, |_, _| true);
        waiters.inherit(2, 0);
        waiters.inherit(2, 1);
        waiters.add(0, 9, 1, |_, _| true);
        assert_eq!(waiters.take(0), [(9, 1)]);
        let is_current = |waiter, _| waiter < 10;
        while waiters.entries.len() < waiters.sweep_at {
            waiters.add(1, 10, 1, is_current);
        }
        waiters.add(1, 6, 1, is_current);
        assert_eq!(waiters.len(), 3, "stale and taken entries are gone");
        let mut inherited = waiters.take(2);
        inherited.sort_unstable();
        assert_eq!(inherited, [(7, 1), (8, 1)]);
        assert_eq!((waiters.take(0), waiters.take(1)), (vec![], vec![(6, 1)]));
    }
}
