//! Who has been turned away by whom: a list for each slot, all in one array.

/// End of a list.
const NONE: u32 = u32::MAX;
/// Fewer entries than these are not worth a look for stale ones.
const SWEEP_MIN: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Entry {
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
    entries: Vec<Entry>,
    /// First of the entries that are free.
    free: u32,
    len: usize,
    /// With so many entries stale ones are dropped.
    sweep_at: usize,
}

impl Default for Waiters {
    fn default() -> Self {
        Self { heads: Vec::new(), entries: Vec::new(), free: NONE, len: 0, sweep_at: SWEEP_MIN }
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

    /// Entries, stale ones among them.
    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.len
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
        if self.len >= self.sweep_at {
            self.sweep(is_current);
        }
        let head = &mut self.heads[holder as usize];
        let entry = Entry { waiter, generation, next: *head };
        if self.free == NONE {
            *head = u32::try_from(self.entries.len()).expect("fewer entries than 2^32");
            self.entries.push(entry);
        } else {
            *head = self.free;
            let place = &mut self.entries[self.free as usize];
            self.free = place.next;
            *place = entry;
        }
        self.len += 1;
    }

    /// Takes the list of a slot.
    pub(super) fn take(&mut self, holder: u32) -> Vec<(u32, u32)> {
        let mut at = std::mem::replace(&mut self.heads[holder as usize], NONE);
        let mut taken = Vec::new();
        while at != NONE {
            let entry = self.entries[at as usize];
            taken.push((entry.waiter, entry.generation));
            self.release(at);
            at = entry.next;
        }
        taken
    }

    /// Gives the list of `from` to `to`, beside its own.
    pub(super) fn inherit(&mut self, to: u32, from: u32) {
        let first = std::mem::replace(&mut self.heads[from as usize], NONE);
        if first == NONE {
            return;
        }
        let mut last = first;
        while self.entries[last as usize].next != NONE {
            last = self.entries[last as usize].next;
        }
        self.entries[last as usize].next = self.heads[to as usize];
        self.heads[to as usize] = first;
    }

    fn release(&mut self, at: u32) {
        self.entries[at as usize].next = self.free;
        self.free = at;
        self.len -= 1;
    }

    fn sweep(&mut self, is_current: impl Fn(u32, u32) -> bool) {
        for holder in 0..self.heads.len() {
            let mut at = std::mem::replace(&mut self.heads[holder], NONE);
            while at != NONE {
                let entry = self.entries[at as usize];
                if is_current(entry.waiter, entry.generation) {
                    self.entries[at as usize].next = self.heads[holder];
                    self.heads[holder] = at;
                } else {
                    self.release(at);
                }
                at = entry.next;
            }
        }
        self.sweep_at = SWEEP_MIN.max(self.heads.len()).max(2 * self.len);
    }
}
