//! Receipts: a node for each purge, in a chain that the checkpoints end.

use std::sync::Arc;

use tacita_dnefs_format::Compression;
use tacita_dnefs_format::node::{self, Class, Record, Standing};
use tacita_dnefs_format::receipt::{Receipt, first_break};
use tacita_dnefs_format::record::{IndexKey, Kind as RecordKind};
use tacita_flash::Volume;
use tacita_secret::{Password, Traces};

use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::format::unlock;
use crate::load;
use crate::store::{Core, Store, Write};

/// Receipts that are kept: a month of purges every ten minutes.
const KEPT_MAX: usize = 4096;
/// Receipts that are kept where keys are few.
const KEPT_MIN: usize = 16;

fn all() -> std::ops::Range<IndexKey> {
    IndexKey::receipt(0)..IndexKey::end_of(0)
}

/// The receipts on a volume, the oldest first.
///
/// # Errors
/// [`Kind::NotAVolume`]; [`Kind::WrongPassword`]; [`Kind::Damaged`], also if they are no chain;
/// [`Kind::Device`].
pub fn receipts(volume: &Arc<dyn Volume>, password: Option<&Password>) -> Result<Vec<Receipt>> {
    let unlocked = unlock(&**volume, password)?;
    let parameters = unlocked.superblock.parameters;
    let loaded = load::load(volume, unlocked)?;
    let store = Store::new(Arc::clone(volume), parameters, loaded.core)?;
    store.receipts(loaded.receipt)
}

impl Store {
    /// The receipts that there are, the oldest first; `newer` is one that is not in the index.
    pub(crate) fn receipts(&self, newer: Option<Receipt>) -> Result<Vec<Receipt>> {
        let last = self.core().last_receipt;
        let most = self.layout.leb_len_bytes as usize;
        let mut receipts = Vec::new();
        self.read(all(), |_, opened| {
            receipts.push(Receipt::decode(&opened.payload(most)?)?);
            Ok(())
        })?;
        receipts.extend(newer);
        let last = newer.map_or(last, |receipt| receipt.digest());
        match first_break(&receipts, &last) {
            None => Ok(receipts),
            Some(at) => Err(Error::new(
                Kind::Damaged,
                format!("the receipt after that of epoch {} is missing", receipts[at].epoch),
            )),
        }
    }

    /// The newest receipt in the index, if it can be read.
    pub(crate) fn newest_receipt(&self) -> Option<Receipt> {
        let last = self.list(all(), usize::MAX).pop()?;
        Receipt::decode(&self.get(last).ok()??).ok()
    }

    /// Adds a receipt to the chain.
    pub(crate) fn write_receipt(&self, receipt: &Receipt) -> Result<()> {
        let at = IndexKey::receipt(receipt.epoch);
        let payload = receipt.encode().into();
        self.write_group(&[Write { kind: RecordKind::Receipt, at, payload }])
    }

    /// Puts the last receipt behind the root, and the mark that the volume was unmounted behind it. With
    /// a damaged page of keys it does not count as unmounted: not all keys that no node has are fresh.
    pub(crate) fn end(&self, receipt: &Receipt) -> Result<()> {
        if planted(Fault::ReceiptLost) {
            return self.mark(Class::Unmounted);
        }
        let sealed = self.core().seal_receipt(self, receipt);
        let written = sealed.and_then(|node| self.core().roots.write(&*self.volume, &node));
        self.poison(written)?;
        if receipt.damaged_pages > 0 { Ok(()) } else { self.mark(Class::Unmounted) }
    }
}

impl Core {
    /// Forgets the oldest receipts where there are too many. The next checkpoint makes that last.
    pub(crate) fn forget_old_receipts(&mut self) {
        let free = self.keys.count() as usize - self.index.len();
        let kept = KEPT_MAX.min(KEPT_MIN.max(free / 8));
        let Some(forgotten) = self.index.count(all()).checked_sub(kept) else { return };
        let oldest_kept = self.index.range(all()).nth(forgotten).map(|(at, _)| at);
        self.drop_range(IndexKey::receipt(0)..oldest_kept.unwrap_or(all().end));
    }

    fn seal_receipt(&mut self, store: &Store, receipt: &Receipt) -> Result<Vec<u8>> {
        let (key, fresh) = self.keys.take(&*store.volume)?;
        let standing = Standing {
            class: Class::Record,
            more_of_group: false,
            sqnum: self.log.take_sqnums(1),
            key: self.keys.position(key),
        };
        let record = Record {
            kind: RecordKind::Receipt,
            at: IndexKey::receipt(receipt.epoch),
            compression: Compression::None,
            payload: &receipt.encode(),
        };
        let mut node = Vec::new();
        let authenticates = store.parameters.cipher.authenticates();
        node::seal(&mut node, standing, fresh, &mut Traces::new(), authenticates, &record);
        Ok(node)
    }
}
