//! Blocks of an oblivious store, which is opened again when it has to be.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tacita_oram::log_view::Outcome;
use tacita_oram::record::Operation;
use tacita_oram::{Kind, Store};

use super::{Blocks, Room};
use crate::error::{Error, Result};
use crate::ids::{BLOCK_LEN, Id};

/// Opens the store.
type Opening = Box<dyn Fn() -> tacita_oram::Result<Store> + Send + Sync>;

/// An oblivious store.
pub struct Oblivious {
    open: Opening,
    /// `None` while it is being opened again.
    store: Mutex<Option<Arc<Store>>>,
    /// Queries that may begin now.
    free: Mutex<usize>,
    freed: Condvar,
}

impl Oblivious {
    /// Opens a store, to be asked `at_once` queries at most at the same time.
    ///
    /// # Errors
    /// As opening has them; [`crate::Kind::Parameters`] if its blocks have another length.
    pub fn open(
        at_once: usize,
        open: impl Fn() -> tacita_oram::Result<Store> + Send + Sync + 'static,
    ) -> Result<Self> {
        let store = open()?;
        let len = store.geometry().block_len();
        if len != BLOCK_LEN {
            let text =
                format!("blocks of {len} bytes, but {BLOCK_LEN} are needed: make another store");
            return Err(Error::new(crate::Kind::Parameters, text));
        }
        Ok(Self {
            open: Box::new(open),
            store: Mutex::new(Some(Arc::new(store))),
            free: Mutex::new(at_once.max(1)),
            freed: Condvar::new(),
        })
    }

    fn store(&self) -> Result<Arc<Store>> {
        let mut store = lock(&self.store);
        if store.is_none() {
            *store = Some(Arc::new((self.open)()?));
        }
        Ok(Arc::clone(store.as_ref().expect("it was just opened")))
    }

    /// What failed for good is opened anew by whoever asks next.
    fn failed(&self, failed: Arc<Store>, error: tacita_oram::Error) -> Error {
        if error.kind() == Kind::Poisoned {
            let mut store = lock(&self.store);
            if store.as_ref().is_some_and(|store| Arc::ptr_eq(store, &failed)) {
                *store = None;
            }
        }
        // Not under the lock: what it waits for may take long.
        drop(failed);
        error.into()
    }

    /// Takes leave for some queries, one at least.
    fn take(&self, wanted: usize) -> usize {
        let free = lock(&self.free);
        let mut free =
            self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        let taken = wanted.min(*free);
        *free -= taken;
        taken
    }

    fn give_back(&self, count: usize) {
        *lock(&self.free) += count;
        self.freed.notify_all();
    }
}

impl Blocks for Oblivious {
    fn all(&self, operations: Vec<(Id, Operation)>) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(operations.len());
        let mut operations = operations.into_iter();
        while operations.len() > 0 {
            let store = self.store()?;
            let count = self.take(operations.len());
            let done = store.all(operations.by_ref().take(count).collect());
            self.give_back(count);
            match done {
                Ok(done) => outcomes.extend(done),
                Err(error) => return Err(self.failed(store, error)),
            }
        }
        Ok(outcomes)
    }

    fn room(&self) -> Result<Room> {
        let store = self.store()?;
        match store.status() {
            Ok(status) => {
                // A period is counted when the one after it is over, too.
                let (queries, period) = (status.queries, store.geometry().period());
                let counted = (queries / period).saturating_sub(1) * period;
                let capacity = store.geometry().capacity();
                Ok(Room { capacity, present: status.present, queries, counted })
            }
            Err(error) => Err(self.failed(store, error)),
        }
    }
}

impl fmt::Debug for Oblivious {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oblivious").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
