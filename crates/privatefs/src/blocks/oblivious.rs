//! Blocks of an oblivious store, which is opened again when it has to be.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    at_once: usize,
    /// `None` while it is being opened again.
    store: Mutex<Option<Arc<Store>>>,
}

impl Oblivious {
    /// Opens a store.
    ///
    /// # Errors
    /// As opening has them; [`crate::Kind::Parameters`] if its blocks have another length.
    pub fn open(
        open: impl Fn() -> tacita_oram::Result<Store> + Send + Sync + 'static,
    ) -> Result<Self> {
        let store = open()?;
        let len = store.geometry().block_len();
        if len != BLOCK_LEN {
            let text =
                format!("blocks of {len} bytes, but {BLOCK_LEN} are needed: make another store");
            return Err(Error::new(crate::Kind::Parameters, text));
        }
        let at_once = store.at_once();
        Ok(Self { open: Box::new(open), at_once, store: Mutex::new(Some(Arc::new(store))) })
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
}

impl Blocks for Oblivious {
    fn all(&self, operations: Vec<(Id, Operation)>) -> Result<Vec<Outcome>> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        let store = self.store()?;
        store.all(operations).map_err(|error| self.failed(store, error))
    }

    fn at_once(&self) -> usize {
        self.at_once
    }

    fn room(&self) -> Result<Room> {
        let store = self.store()?;
        match store.status() {
            Ok(status) => {
                Ok(Room { capacity: store.geometry().capacity(), present: status.present })
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
