//! Builds in the background, and the opening of periods.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::meter::Metered;
use super::{Shared, State};
use crate::build::{Input, Job, Objects, Pace, Room};
use crate::error::{Kind, Result};
use crate::geometry::Generation;
use crate::manifest::Manifest;
use crate::object::Object;
use crate::schedule::{Batch, Build};

/// Goes at the pace of the queries, a little ahead of them; as fast as it can when there are none.
struct WithQueries<'a> {
    shared: &'a Shared,
    metered: &'a Metered,
}

impl WithQueries<'_> {
    /// Whether the build is not to wait for queries.
    fn is_behind(&self, state: &State) -> bool {
        !self.metered.is_ahead(state.view.records() + state.appending) || state.under_way == 0
    }
}

#[async_trait]
impl Pace for WithQueries<'_> {
    async fn moved(&self, items: u64) -> Result<()> {
        self.metered.moved(items);
        self.shared.changed.notify_waiters();
        tokio::task::yield_now().await;
        // Who holds room does not wait while another build waits for it.
        let goes_on =
            |state: &mut State| (self.is_behind(state) || state.waiting_for_room > 0).then_some(());
        self.shared.when(goes_on).await
    }

    async fn room(&self) -> Result<Room> {
        self.shared.when(|state| self.is_behind(state).then_some(())).await?;
        let _waits = Waits::begin(self.shared);
        let permit = self.shared.rooms.clone().acquire_owned().await;
        Ok(Room::one(permit.expect("nobody closes them")))
    }
}

/// Counts a build as one that waits for room.
struct Waits<'a>(&'a Shared);

impl<'a> Waits<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.change(|state| state.waiting_for_room += 1);
        Self(shared)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.waiting_for_room -= 1);
    }
}

/// Builds that have begun, and who measures them.
pub(super) type Begun = Vec<(Build, Arc<Metered>)>;

impl Shared {
    /// Queries are held back for `builds` from now on, which are to be run.
    pub(super) fn begin_builds(
        &self,
        state: &State,
        builds: impl IntoIterator<Item = Build>,
    ) -> Begun {
        let queries = state.view.records();
        builds.into_iter().map(|build| (build, self.meter.begin(build, queries))).collect()
    }

    /// Runs builds, each a task of its own, until others see to them.
    pub(super) fn run_builds(self: &Arc<Self>, begun: Begun) {
        for (build, metered) in begun {
            let weak = Arc::downgrade(self);
            let measured = metered.clone();
            let building = tokio::spawn(async move {
                let Some(shared) = weak.upgrade() else { return };
                match shared.build(build, &measured).await {
                    Err(error) if error.kind() == Kind::Hostile && shared.is_relieved().await => {}
                    built => built.unwrap_or_else(|error| shared.fail(error)),
                }
            });
            tokio::spawn(Self::watch(Arc::downgrade(self), build, metered, building));
        }
    }

    /// Gives a build up when others see to it: what it would read is theirs to remove, or is forgotten.
    async fn watch(
        shared: Weak<Self>,
        build: Build,
        metered: Arc<Metered>,
        mut building: JoinHandle<()>,
    ) {
        let Some(shared) = shared.upgrade() else { return };
        let is_others = |state: &mut State| {
            let is_over = state.period() * shared.geometry.period() >= build.until;
            (is_over || !state.builds).then_some(())
        };
        tokio::select! {
            _ = &mut building => {}
            // Or all has failed.
            _ = shared.when(is_others) => building.abort(),
        }
        shared.meter.end(&metered);
    }

    async fn build(&self, build: Build, metered: &Arc<Metered>) -> Result<()> {
        let job = self.when(|state| self.job(state, &build)).await?;
        loop {
            metered.again();
            let pace = WithQueries { shared: self, metered };
            let is_short = self.geometry.shape(build.generation).buckets == 1;
            let line = if is_short { &self.short } else { &self.bulk };
            match job.run(line, &pace).await {
                Ok(()) => break,
                // The server's disk is full, or fails: it may get better.
                Err(error) if error.kind() == Kind::Storage => {
                    self.change(|state| state.trouble = Some(error));
                    sleep(self.surroundings.patience.again * 10).await;
                }
                Err(error) => return Err(error),
            }
        }
        self.meter.end(metered);
        self.change(|state| {
            state.trouble = None;
            state.generations.insert(build.generation, job.keys);
            state.built.push(build.generation);
        });
        Ok(())
    }

    /// All that `build` needs, once its inputs are complete.
    fn job(&self, state: &State, build: &Build) -> Option<Job> {
        let known = state.manifest().0.head_of(build.generation);
        let head = known.or_else(|| state.view.head_after(build.from))?;
        let batch = match build.batch {
            Batch::Log { period } => {
                if !state.view.is_settled(period) {
                    return None;
                }
                Input::Log(state.view.batch(period)?)
            }
            Batch::Full(full) => Input::Full(full, state.generations.get(&full)?.clone()),
        };
        let current = match build.current {
            Some(current) => Some(state.generations.get(&current)?.clone()),
            None => None,
        };
        let shape = self.geometry.shape(build.generation);
        let keys = Arc::new(self.keys.generation(build.generation, shape, &head));
        Some(Job { geometry: self.geometry, build: *build, keys, current, batch })
    }

    /// Whether all that goes on in the background is done or waits for queries.
    pub(super) fn rests(&self, state: &State) -> bool {
        let queries = state.view.records();
        let due = |build: &Build| build.from <= queries && !state.built.contains(&build.generation);
        let settled = state.view.settled() == queries;
        let is_built = !state.builds || !self.geometry.builds(state.period()).iter().any(due);
        let is_open = !state.opening && self.next_manifest(state).is_none();
        let is_told = state.under_way == 0 && state.storing == 0;
        settled && is_told && is_built && is_open && state.removing == 0
    }

    /// Opens one period after the other.
    pub(super) async fn open_periods(self: Arc<Self>) -> Result<()> {
        loop {
            let next = |state: &mut State| {
                let next = self.next_manifest(state);
                state.opening = next.is_some();
                next
            };
            let (manifest, sealed) = self.when(next).await?;
            let period = manifest.period;
            let object = Object::Manifest { period };
            if self.lock().builds {
                self.keep_trying(object, Bytes::from(sealed.clone())).await?;
            }
            let (dead, begun) = self.change(|state| {
                let opened = self.opened(state, manifest, sealed)?;
                state.opening = false;
                state.removing += 1;
                Ok(opened)
            })?;
            self.run_builds(begun);
            let weak = Arc::downgrade(&self);
            tokio::spawn(async move {
                for generation in dead {
                    let Some(shared) = weak.upgrade() else { return };
                    // What stays is removed when the store is opened the next time.
                    let _ = shared.remove(generation).await;
                }
                let Some(shared) = weak.upgrade() else { return };
                shared.change(|state| state.removing -= 1);
            });
        }
    }

    async fn keep_trying(&self, object: Object, bytes: Bytes) -> Result<()> {
        loop {
            match self.short.put(object, bytes.clone()).await {
                Err(error) if error.kind() == Kind::Storage => {
                    self.change(|state| state.trouble = Some(error));
                    sleep(self.surroundings.patience.again * 10).await;
                }
                other => return other,
            }
        }
    }

    /// The manifest of the next period, once it can open: when what this client builds is complete, or when
    /// another one has let queries into that period.
    fn next_manifest(&self, state: &State) -> Option<(Manifest, Vec<u8>)> {
        let (manifest, sealed) = state.manifest();
        let period = manifest.period;
        let next_begins = (period + 1) * self.geometry.period();
        let is_due = |build: &Build| build.until == next_begins;
        let start = state.view.head_after(period * self.geometry.period())?;
        let is_built = |build: &Build| state.built.contains(&build.generation);
        let may_open = if state.builds {
            self.geometry.builds(period).iter().filter(|build| is_due(build)).all(is_built)
        } else {
            state.limit > next_begins || state.view.records() > next_begins
        };
        if !may_open {
            return None;
        }
        let Some(before) = period.checked_sub(1) else {
            let next = manifest.next(&self.geometry, sealed, (start, 0, Vec::new()));
            let sealed = next.seal(&self.keys);
            return Some((next, sealed));
        };
        if !state.view.is_settled(before) {
            return None;
        }
        let present = manifest.present.strict_add_signed(state.view.change(before));
        let history = state
            .view
            .heads(before)
            .map(|head| head[..16].try_into().expect("a head is longer"))
            .collect();
        let next = manifest.next(&self.geometry, sealed, (start, present, history));
        let sealed = next.seal(&self.keys);
        Some((next, sealed))
    }

    /// A period has opened; returns the generations that nobody asks any more and the builds that begin, if
    /// this client sees to them.
    fn opened(
        &self,
        state: &mut State,
        manifest: Manifest,
        sealed: Vec<u8>,
    ) -> Result<(Vec<Generation>, Begun)> {
        let (period, present) = (manifest.period, manifest.present);
        let geometry = &self.geometry;
        for generation in geometry.live(period) {
            let keys = manifest.keys_of(generation, &self.keys, geometry)?;
            state.generations.entry(generation).or_insert(keys);
        }
        state.manifests.insert(period, (manifest, sealed));
        state.manifests.retain(|&other, _| other + 1 >= period);
        state.view.opened(period, present)?;
        state.view.forget_before(period.saturating_sub(2));
        let needed = needed(geometry, period);
        state.generations.retain(|generation, _| needed.contains(generation));
        state.built.retain(|generation| needed.contains(generation));
        if !state.builds {
            return Ok((Vec::new(), Vec::new()));
        }
        let before = period.saturating_sub(2);
        let mut dead = geometry.live(before);
        dead.retain(|generation| !needed.contains(generation));
        let now = period * geometry.period();
        let begins = geometry.builds(period).into_iter().filter(|build| build.from == now);
        Ok((dead, self.begin_builds(state, begins)))
    }

    /// Removes all objects of a generation.
    pub(super) async fn remove(&self, generation: Generation) -> Result<()> {
        let shape = self.geometry.shape(generation);
        for bucket in 0..shape.buckets {
            self.bulk.delete(Object::Items { generation, bucket }).await?;
        }
        for part in 0..shape.parts {
            self.bulk.delete(Object::Filter { generation, part }).await?;
        }
        Ok(())
    }
}

/// Generations that somebody may ask or build while `period` is the latest that is open.
pub(super) fn needed(geometry: &crate::geometry::Geometry, period: u64) -> Vec<Generation> {
    let mut needed = geometry.live(period);
    needed.extend(geometry.live(period.saturating_sub(1)));
    needed.extend(geometry.builds(period).iter().map(|build| build.generation));
    needed
}
