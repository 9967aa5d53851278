//! The file of the log of intents: a fixed number of slots, each on the medium when it is said to
//! be.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, Mode, OFlags, fdatasync, fsync, openat2, unlinkat};

use super::intent::{INTENT_LEN, Intent};
use super::{BENEATH, Spool};
use crate::Result;
use crate::error::{During, is_of_medium};

/// Its name in the spool.
pub(super) const INTENTS_NAME: &str = "intents";

/// Slots in it.
const SLOT_COUNT: usize = 64;

/// The open log.
#[derive(Debug)]
pub(crate) struct IntentLog {
    file: Arc<File>,
    free: Vec<usize>,
}

impl Spool {
    /// What an earlier mount was about to overwrite when it came to its end, and whether all of it could
    /// be read.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub(crate) fn read_intents(&self) -> Result<(Vec<Intent>, bool)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat2(&self.dir, INTENTS_NAME, flags, Mode::empty(), BENEATH) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Ok((Vec::new(), true)),
            Err(e) if is_of_medium(e) => {
                log::warn!("spool: the log of intents cannot be read: {e}");
                return Ok((Vec::new(), false));
            }
            Err(e) => return Err(crate::Error::of_kernel(e, "opening the log of intents")),
        };
        let (mut intents, mut are_all) = (Vec::new(), true);
        let mut bytes = [0; INTENT_LEN];
        let len = file.metadata().during("asking for the log of intents")?.len();
        for slot in 0..SLOT_COUNT {
            if offset(slot) + INTENT_LEN as u64 > len {
                break;
            }
            match file.read_exact_at(&mut bytes, offset(slot)).during("reading the log of intents")
            {
                Err(e) if e.is_of_medium() => {
                    log::warn!("spool: intent {slot} cannot be read: {e}");
                    are_all = false;
                    continue;
                }
                done => done?,
            }
            match Intent::decode(&bytes) {
                Ok(intent) => intents.extend(intent),
                // Power was cut while it was written, so nothing was overwritten under it.
                Err(damage) => log::debug!("spool: intent {slot} is not whole: {damage:?}"),
            }
        }
        Ok((intents, are_all))
    }

    /// Not all that an earlier mount has intended can be looked at: the log stays for the next one, and
    /// there is no other.
    pub(crate) fn keep_intents(&self) {
        log::warn!(
            "spool: files that were being purged may have come back: the next mount looks again"
        );
        self.keeps_intents.store(true, Ordering::Relaxed);
    }

    /// An empty log on the medium. What it held before is overwritten.
    ///
    /// # Errors
    /// [`crate::Kind::NoSpace`]; [`crate::Kind::Io`].
    pub(crate) fn make_intents(&self) -> Result<IntentLog> {
        if self.keeps_intents.load(Ordering::Relaxed) {
            let text = "the log of intents stays as an earlier mount has left it";
            return Err(crate::Error::new(crate::Kind::InUse, text));
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat2(&self.dir, INTENTS_NAME, flags, Mode::RUSR | Mode::WUSR, BENEATH)
            .during("opening the log of intents")?;
        let file = File::from(file);
        let written = file
            .write_all_at(&vec![0; SLOT_COUNT * INTENT_LEN], 0)
            .during("writing the log of intents")
            .and_then(|()| fsync(&file).during("writing the log of intents back"));
        if let Err(e) = written {
            self.remove_intents();
            return Err(e);
        }
        fsync(&self.dir).during("writing the spool back")?;
        Ok(IntentLog { file: Arc::new(file), free: (0..SLOT_COUNT).rev().collect() })
    }

    /// Nothing is intended any more.
    pub(crate) fn remove_intents(&self) {
        if self.keeps_intents.load(Ordering::Relaxed) {
            return;
        }
        // Where it was never made there is nothing to remove.
        let _ = unlinkat(&self.dir, INTENTS_NAME, AtFlags::empty());
    }
}

impl IntentLog {
    /// The file: nothing of it waits in the journal, so to flush it is to flush the device.
    pub(crate) fn barrier(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// A slot that nothing is in.
    pub(crate) fn take(&mut self) -> Option<usize> {
        self.free.pop()
    }

    /// Puts an intent into a slot; it is on the medium when this returns.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub(crate) fn write(&self, slot: usize, intent: &Intent) -> Result<()> {
        let written = self.file.write_all_at(&intent.encode(), offset(slot));
        written.during("writing an intent")?;
        fdatasync(&self.file).during("writing an intent back")
    }

    /// Overwrites slots, which are free then.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub(crate) fn erase(&mut self, slots: &[usize]) -> Result<()> {
        for slot in slots {
            let written = self.file.write_all_at(&[0; INTENT_LEN], offset(*slot));
            written.during("erasing an intent")?;
        }
        if !slots.is_empty() {
            fdatasync(&self.file).during("erasing an intent")?;
        }
        self.free.extend(slots);
        Ok(())
    }
}

const fn offset(slot: usize) -> u64 {
    slot as u64 * INTENT_LEN as u64
}
