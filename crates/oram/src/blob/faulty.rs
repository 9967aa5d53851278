//! A store that fails and lies, as a plan or a seed has it: for tests.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use super::memory::Held;
use super::{BlobStore, MemoryStore, Put, Swap};
use crate::error::{Error, Kind, Result};
use crate::object::Object;

/// What goes wrong with one operation. The first three are what an honest store may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// Nothing is done, and the store says so.
    Fails,
    /// It is done, and the store says that it failed.
    FailsAfterwards,
    /// It is done later.
    Late(Duration),
    /// A put or a swap says that it is done, and nothing is; a read finds nothing.
    Lost,
    /// A put leaves the first half of the blob; a read gets zeros in place of the second half.
    Torn,
    /// One bit of what is read or put is another one.
    Altered,
    /// A put says `Created` though there is a blob, a swap `Swapped` though it differs.
    CreatedTwice,
    /// A read sees the store as it was at the last [`FaultyStore::mark`].
    RolledBack,
}

/// How often what goes wrong, in so many of 1000 operations each.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// What it all follows from.
    pub seed: u64,
    /// Mishaps, and how often each.
    pub rates: Vec<(Mishap, u32)>,
}

/// A store in memory, and what goes wrong with it.
#[derive(Debug)]
pub struct FaultyStore {
    memory: Arc<MemoryStore>,
    state: Mutex<State>,
    is_held: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    plan: Plan,
    next: VecDeque<Option<Mishap>>,
    marked: Held,
    operations: Vec<String>,
}

impl FaultyStore {
    /// Nothing goes wrong with `memory` until it is told to.
    pub fn new(memory: Arc<MemoryStore>) -> Self {
        Self { memory, state: Mutex::default(), is_held: watch::Sender::new(false) }
    }

    /// From now on what goes wrong follows from `plan`.
    pub fn plan(&self, plan: Plan) {
        self.lock().plan = plan;
    }

    /// What goes wrong with the next operations, before the plan has its say.
    pub fn next(&self, mishaps: impl IntoIterator<Item = Option<Mishap>>) {
        self.lock().next.extend(mishaps);
    }

    /// Where [`Mishap::RolledBack`] goes back to.
    pub fn mark(&self) {
        self.lock().marked = self.memory.snapshot();
    }

    /// From now on operations begin and go no further.
    pub fn hold(&self) {
        self.is_held.send_replace(true);
    }

    /// Operations go on.
    pub fn release(&self) {
        self.is_held.send_replace(false);
    }

    /// What was asked for, in its order, since this was asked last: `put log/0000000000000000` and the like.
    pub fn operations(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().operations)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an operation: what goes wrong with it, but for what is over already.
    async fn begin(&self, operation: String) -> Result<Option<Mishap>> {
        let mishap = {
            let mut state = self.lock();
            state.operations.push(operation.clone());
            let planned = state.plan.draw();
            state.next.pop_front().unwrap_or(planned)
        };
        let mut held = self.is_held.subscribe();
        held.wait_for(|is_held| !is_held).await.expect("the sender is in the store");
        match mishap {
            Some(Mishap::Fails) => Err(failure(&operation)),
            Some(Mishap::Late(by)) => {
                tokio::time::sleep(by).await;
                Ok(None)
            }
            other => Ok(other),
        }
    }

    /// The store that a read sees.
    fn seen(&self, mishap: Option<Mishap>) -> MemoryStore {
        let memory = MemoryStore::new();
        memory.restore(match mishap {
            Some(Mishap::RolledBack) => self.lock().marked.clone(),
            Some(Mishap::Lost) => Held::default(),
            _ => self.memory.snapshot(),
        });
        memory
    }
}

impl Plan {
    fn draw(&mut self) -> Option<Mishap> {
        // A linear congruential generator is random enough to choose by.
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut drawn = u32::try_from((self.seed >> 33) % 1000).expect("less than 1000");
        for (mishap, rate) in &self.rates {
            if drawn < *rate {
                return Some(*mishap);
            }
            drawn -= rate;
        }
        None
    }
}

#[async_trait]
impl BlobStore for FaultyStore {
    async fn get(&self, object: Object, ranges: &[Range<u64>]) -> Result<Option<Vec<Bytes>>> {
        let mishap = self.begin(format!("get {object}")).await?;
        let parts = self.seen(mishap).get(object, ranges).await?;
        let garble = |part: Bytes| garbled(part, mishap);
        if mishap == Some(Mishap::FailsAfterwards) {
            return Err(failure("get"));
        }
        Ok(parts.map(|parts| parts.into_iter().map(garble).collect()))
    }

    async fn len(&self, object: Object) -> Result<Option<u64>> {
        let mishap = self.begin(format!("len {object}")).await?;
        let len = self.seen(mishap).len(object).await?;
        if mishap == Some(Mishap::FailsAfterwards) { Err(failure("len")) } else { Ok(len) }
    }

    async fn put_if_absent(&self, object: Object, bytes: Bytes) -> Result<Put> {
        let mishap = self.begin(format!("put {object}")).await?;
        let bytes = match mishap {
            Some(Mishap::Lost) => return Ok(Put::Created),
            Some(Mishap::Torn) => bytes.slice(..bytes.len() / 2),
            mishap => garbled(bytes, mishap),
        };
        let put = self.memory.put_if_absent(object, bytes).await?;
        match mishap {
            Some(Mishap::FailsAfterwards) => Err(failure("put")),
            Some(Mishap::CreatedTwice) => Ok(Put::Created),
            _ => Ok(put),
        }
    }

    async fn delete(&self, object: Object) -> Result<()> {
        let mishap = self.begin(format!("delete {object}")).await?;
        if mishap != Some(Mishap::Lost) {
            self.memory.delete(object).await?;
        }
        if mishap == Some(Mishap::FailsAfterwards) { Err(failure("delete")) } else { Ok(()) }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let mishap = self.begin(format!("list {prefix}")).await?;
        let names = self.seen(mishap).list(prefix).await?;
        if mishap == Some(Mishap::FailsAfterwards) { Err(failure("list")) } else { Ok(names) }
    }

    async fn root(&self) -> Result<Option<Bytes>> {
        let mishap = self.begin("root".into()).await?;
        let root = self.seen(mishap).root().await?;
        if mishap == Some(Mishap::FailsAfterwards) {
            return Err(failure("root"));
        }
        Ok(root.map(|root| garbled(root, mishap)))
    }

    async fn swap_root(&self, expected: Option<Bytes>, new: Bytes) -> Result<Swap> {
        let mishap = self.begin("swap".into()).await?;
        if mishap == Some(Mishap::Lost) {
            return Ok(Swap::Swapped);
        }
        let swap = self.memory.swap_root(expected, garbled(new, mishap)).await?;
        match mishap {
            Some(Mishap::FailsAfterwards) => Err(failure("swap")),
            Some(Mishap::CreatedTwice) => Ok(Swap::Swapped),
            _ => Ok(swap),
        }
    }
}

fn garbled(bytes: Bytes, mishap: Option<Mishap>) -> Bytes {
    let mut bytes = match mishap {
        Some(Mishap::Altered | Mishap::Torn) => bytes.to_vec(),
        _ => return bytes,
    };
    let middle = bytes.len() / 2;
    if mishap == Some(Mishap::Torn) {
        bytes[middle..].fill(0);
    } else if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 1;
    }
    bytes.into()
}

fn failure(operation: &str) -> Error {
    Error::new(Kind::Storage, format!("{operation}: a planted failure"))
}
