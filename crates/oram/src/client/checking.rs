//! Reading all that lives: is it what clients have sealed?

use super::joining::AtOnce;
use super::line::options;
use super::{Access, Client, Shared};
use crate::build::{Objects, items};
use crate::error::{Error, Kind, Result};
use crate::filter::probe;
use crate::geometry::{Generation, PAGE_LEN};
use crate::keys::GenerationKeys;
use crate::link::Connection;
use crate::object::Object;

/// What a check has looked at, and what it found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Whether the log was compared with an anchor that remembers some of it.
    pub compared: bool,
    /// Generations.
    pub generations: u64,
    /// Items, real or not.
    pub items: u64,
    /// Pages of filters.
    pub pages: u64,
    /// What is not what was sealed, a line each.
    pub damage: Vec<String>,
}

impl Client {
    /// Reads all generations that live, item by item and page by page. `progress` hears how many items have
    /// been read, and of how many. The log was read when the store was opened.
    ///
    /// # Errors
    /// As [`Client::query`]; damage is no error. [`Kind::Busy`] if others have gone on meanwhile to where
    /// what lived when the store was opened is removed, and something is missing.
    pub async fn check(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<Checked> {
        let shared = &self.shared;
        let live: Vec<_> = {
            let state = shared.lock();
            let live = shared.geometry.live(state.period()).into_iter();
            live.map(|generation| (generation, state.generations[&generation].clone())).collect()
        };
        let all: u64 = live.iter().map(|(_, keys)| slots(keys)).sum();
        let mut checked = Checked { compared: self.is_compared, ..Checked::default() };
        for (generation, keys) in live {
            for bucket in 0..keys.shape().buckets {
                let read =
                    items(&shared.geometry, (generation, bucket), &keys, &shared.bulk, &AtOnce);
                checked.note(read.await.map(drop), &Object::Items { generation, bucket })?;
                checked.items += u64::from(keys.shape().slots);
                progress(checked.items, all);
            }
            for part in 0..keys.shape().parts {
                let read = shared.check_pages(generation, part, &keys).await;
                checked.note(read, &Object::Filter { generation, part })?;
                checked.pages += u64::from(keys.shape().pages_in(part));
            }
            checked.generations += 1;
        }
        if !checked.damage.is_empty() && shared.has_moved().await? {
            let moved = "others have used the store so much that what was read is no longer there";
            return Err(Error::new(Kind::Busy, moved));
        }
        Ok(checked)
    }
}

impl Checked {
    fn note(&mut self, read: Result<()>, object: &Object) -> Result<()> {
        match read {
            Err(error) if error.kind() == Kind::Hostile => {
                self.damage.push(format!("{object}: {error}"));
                Ok(())
            }
            other => other,
        }
    }
}

impl Shared {
    /// Whether generations of the period in which the store was opened may have been removed since.
    async fn has_moved(&self) -> Result<bool> {
        let stream = self.surroundings.connect.connect().await?;
        let options = options(&self.surroundings.patience);
        let (_, welcome) = Connection::open(stream, options, |_| ()).await?;
        Ok(self.surroundings.access == Access::Look && welcome.period > self.lock().period() + 1)
    }

    async fn check_pages(
        &self,
        generation: Generation,
        part: u32,
        keys: &GenerationKeys,
    ) -> Result<()> {
        let shape = keys.shape();
        let first: u32 = (0..part).map(|before| shape.pages_in(before)).sum();
        let len = u64::from(shape.pages_in(part)) * PAGE_LEN as u64;
        let pages = self.bulk.get(Object::Filter { generation, part }, 0, len).await?;
        for (number, page) in (first..).zip(pages.chunks(PAGE_LEN)) {
            probe(keys, number, page, None)?;
        }
        Ok(())
    }
}

fn slots(keys: &GenerationKeys) -> u64 {
    u64::from(keys.shape().slots) * u64::from(keys.shape().buckets)
}
