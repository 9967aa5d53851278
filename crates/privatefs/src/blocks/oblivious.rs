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
    store: Mutex<Opened>,
}

/// The store, if it is open.
enum Opened {
    Store(Arc<Store>),
    /// It failed for good, and is to be opened again.
    Failed,
    /// For ever.
    Closed,
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
        Ok(Self {
            open: Box::new(open),
            at_once,
            store: Mutex::new(Opened::Store(Arc::new(store))),
        })
    }

    /// Ends in order, for ever: see [`Store::close`].
    pub fn close(&self) {
        let before = std::mem::replace(&mut *lock(&self.store), Opened::Closed);
        if let Opened::Store(store) = before {
            store.close();
        }
    }

    /// Why nothing can be asked any more, if that is so and it is not just being opened again.
    pub fn failure(&self) -> Option<tacita_oram::Error> {
        match &*self.store.try_lock().ok()? {
            Opened::Store(store) => store.failure().filter(|error| error.kind() != Kind::Poisoned),
            Opened::Failed | Opened::Closed => None,
        }
    }

    fn store(&self) -> Result<Arc<Store>> {
        let mut opened = lock(&self.store);
        match &*opened {
            Opened::Store(store) => Ok(Arc::clone(store)),
            Opened::Closed => Err(Error::new(crate::Kind::Store, "the store was closed")),
            Opened::Failed => {
                let store = Arc::new((self.open)()?);
                *opened = Opened::Store(Arc::clone(&store));
                Ok(store)
            }
        }
    }

    /// What failed for good is opened anew by whoever asks next.
    fn failed(&self, failed: Arc<Store>, error: tacita_oram::Error) -> Error {
        if error.kind() == Kind::Poisoned {
            let mut opened = lock(&self.store);
            if matches!(&*opened, Opened::Store(store) if Arc::ptr_eq(store, &failed)) {
                *opened = Opened::Failed;
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
