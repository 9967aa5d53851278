//! Making a store, and joining those who use it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use tacita_secret::{Key, digest};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::builder::needed;
use super::line::options;
use super::{
    Access, Client, Confirming, Line, Meter, Patience, Queue, Shared, State, Surroundings, Turns,
    queue,
};
use crate::build::{Objects, Pace, can_build, items};
use crate::error::{Error, Kind, Result};
use crate::geometry::{Generation, Geometry};
use crate::keys::Keys;
use crate::link::Connection;
use crate::log_view::{LogView, Past};
use crate::manifest::Manifest;
use crate::object::Object;
use crate::root::Root;
use crate::wire::{Answer, Request};

/// Makes a store of these shapes whose id is `store_id`, random, on the server at the other end.
///
/// # Errors
/// [`Kind::Busy`] if there is a store already: nothing is changed then.
pub async fn init(
    connect: &dyn super::Connect,
    key: &Key,
    geometry: Geometry,
    store_id: [u8; 16],
) -> Result<()> {
    if !can_build(&geometry) {
        return Err(Error::new(Kind::Parameters, "so many blocks of this length cannot be built"));
    }
    let exists = || Error::new(Kind::Busy, "there is a store already");
    let stream = connect.connect().await?;
    let (connection, welcome) =
        Connection::open(stream, options(&Patience::default()), |_| ()).await?;
    if welcome.root.is_some() {
        return Err(exists());
    }
    let keys = Keys::new(key, &store_id);
    let object = Object::Manifest { period: 0 };
    // Left by an init that was interrupted: no store has it, since there is no root.
    Connection::expect(connection.call(Request::Delete { object }).await?)?;
    connection.put(object, Bytes::from(Manifest::first(&keys).seal(&keys))).await?;
    let root = Root { geometry, store_id, fence: 0 };
    let new = Bytes::copy_from_slice(&root.encode(&keys.root_mac(&root.tagged())));
    let swap = Request::SwapRoot { expected: Bytes::new(), new };
    match Connection::expect(connection.call(swap).await?)? {
        Answer::Swapped { swapped: true, .. } => Ok(()),
        _ => Err(exists()),
    }
}

/// Nobody waits for the reading of a level.
pub(super) struct AtOnce;

#[async_trait]
impl Pace for AtOnce {
    async fn moved(&self, _: u64) -> Result<()> {
        Ok(())
    }
}

impl Client {
    /// Opens the store with `key`.
    ///
    /// # Errors
    /// [`Kind::NotAStore`]; [`Kind::WrongKey`]; [`Kind::Busy`] if another client has it open, see
    /// [`Access`]; [`Kind::RolledBack`] if the server knows less than the anchor; [`Kind::Hostile`];
    /// [`Kind::Unreachable`].
    pub async fn open(key: &Key, surroundings: Surroundings) -> Result<Self> {
        let patience = surroundings.patience;
        let (connection, root) = surroundings.first_connection().await?;
        let (root, keys) = match surroundings.access {
            Access::Look => opened(key, &root)?,
            Access::Write | Access::TakeOver => fenced(&connection, key, root).await?,
        };
        let geometry = root.geometry;
        // The period may have been opened since the welcome.
        let (_, welcome) = {
            let stream = surroundings.connect.connect().await?;
            Connection::open(stream, options(&patience), |_| ()).await?
        };
        let manifests = manifests(&connection, &keys, &geometry, welcome.period).await?;
        let bulk = Line::new(surroundings.connect.clone(), patience);
        let state = joined(&bulk, &keys, geometry, manifests, welcome.period).await?;
        let shared = Arc::new(Shared {
            root,
            keys,
            geometry,
            state: Mutex::new(state),
            changed: Notify::new(),
            queue: Queue::new(),
            lookups: Line::new(surroundings.connect.clone(), patience),
            bulk,
            short: Line::new(surroundings.connect.clone(), patience),
            confirming: Confirming::new(surroundings.anchor.clone()),
            meter: Meter::new(geometry),
            turns: surroundings.between.map(|_| Turns::default()),
            surroundings,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(queue::keep(Arc::downgrade(&shared)));
        let client = Self { shared: shared.clone(), tasks };
        shared.when(|state| (state.view.records() >= welcome.records).then_some(())).await?;
        client.compare_with_anchor(&connection, welcome.period).await?;
        if shared.surroundings.access == Access::Look {
            return Ok(client.at_rest());
        }
        shared.results_come().await?;
        shared.remove_leftovers(welcome.period).await?;
        Ok(client.begin(welcome.period))
    }

    /// Follows the log no further: it is looked at as it was.
    fn at_rest(mut self) -> Self {
        self.tasks.abort_all();
        self.shared.queue.end();
        self
    }

    /// Begins all that goes on in the background.
    fn begin(mut self, period: u64) -> Self {
        let shared = &self.shared;
        shared.begin_builds(shared.geometry.builds(period));
        // Nobody else writes any more, so whatever has no result gets none from elsewhere.
        let unfinished = {
            let state = shared.lock();
            state.view.settled()..state.view.records()
        };
        for sequence in unfinished {
            self.background(move |shared| async move { shared.look_up(sequence).await });
        }
        self.background(Shared::open_periods);
        self.background(Shared::take_over);
        if let Some(between) = self.shared.surroundings.between {
            self.background(move |shared| shared.keep_rate(between));
        }
        self
    }

    fn background<F: Future<Output = Result<()>> + Send + 'static>(
        &mut self,
        task: impl FnOnce(Arc<Shared>) -> F + Send + 'static,
    ) {
        let shared = self.shared.clone();
        self.tasks.spawn(async move {
            if let Err(error) = task(shared.clone()).await {
                shared.fail(error);
            }
        });
    }

    /// The log begins as this client has seen it.
    async fn compare_with_anchor(&self, connection: &Connection, period: u64) -> Result<()> {
        let shared = &self.shared;
        let Some(mark) = shared.surroundings.anchor.load().await? else { return Ok(()) };
        let behind = |what: &str| Err(Error::new(Kind::RolledBack, what.to_owned()));
        if mark.store_id != shared.root.store_id {
            return behind("the anchor belongs to another store than the server shows");
        }
        let (len, head) = {
            let state = shared.lock();
            (state.view.records(), state.view.head_after(mark.sequence))
        };
        if mark.sequence > len {
            return behind(
                "the server has fewer records than this client has seen: it was set back",
            );
        }
        let forked = "the server's log is not the one that this client has seen: it was set back";
        if let Some(head) = head {
            return if head == mark.head { Ok(()) } else { behind(forked) };
        }
        // So long ago that only the manifests tell.
        let geometry = &shared.geometry;
        let Some(last) = mark.sequence.checked_sub(1) else { return Ok(()) };
        let since = last / shared.geometry.period() + 2;
        let mut previous = None;
        for period in since..=period {
            let sealed = manifest(connection, geometry, period).await?;
            let manifest = Manifest::open(&shared.keys, period, &sealed)?;
            let follows = previous.is_none_or(|previous| previous == manifest.previous);
            let remembers =
                period > since || manifest.remembers(&shared.geometry, last, &mark.head);
            if !follows || !remembers {
                return behind(forked);
            }
            previous = Some(digest(&sealed));
        }
        // The one that this client has joined by.
        let joined = shared.lock().manifests.get(&period).map(|(_, sealed)| digest(sealed));
        if previous.is_some() && previous != joined { behind(forked) } else { Ok(()) }
    }
}

impl Surroundings {
    /// A connection, and the root, once the store is free for this access.
    async fn first_connection(&self) -> Result<(Connection, Bytes)> {
        let until = Instant::now() + self.patience.take_over;
        loop {
            let stream = self.connect.connect().await?;
            let (connection, welcome) =
                Connection::open(stream, options(&self.patience), |_| ()).await?;
            let none = || Error::new(Kind::NotAStore, "there is no store yet: make one by init");
            let root = welcome.root.ok_or_else(none)?;
            if self.access != Access::Write || welcome.followers == 0 {
                return Ok((connection, root));
            }
            if Instant::now() >= until {
                return Err(Error::new(Kind::Busy, "another client has the store open"));
            }
            sleep(self.patience.again).await;
        }
    }
}

impl Shared {
    /// Waits as long as results come that the server has, so that only the rest is looked up.
    async fn results_come(&self) -> Result<()> {
        let mut last = None;
        loop {
            let settled = {
                let state = self.lock();
                if let Some(error) = &state.failed {
                    return Err(error.clone());
                }
                let settled = state.view.settled();
                Some(settled).filter(|&settled| settled < state.view.records())
            };
            if settled.is_none() || settled == last {
                return Ok(());
            }
            last = settled;
            sleep(self.surroundings.patience.again).await;
        }
    }

    /// Removes what clients that ended in the middle have left.
    async fn remove_leftovers(&self, period: u64) -> Result<()> {
        let needed = needed(&self.geometry, period);
        for object in self.bulk.names("generation/").await? {
            if object.generation().is_some_and(|generation| !needed.contains(&generation)) {
                self.bulk.delete(object).await?;
            }
        }
        Ok(())
    }
}

/// The root, and the keys.
fn opened(key: &Key, root: &Bytes) -> Result<(Root, Keys)> {
    let (root, mac) = Root::decode(root)?;
    let keys = Keys::new(key, &root.store_id);
    if keys.root_mac(&root.tagged()) != mac {
        return Err(Error::new(Kind::WrongKey, "the key does not open this store"));
    }
    Ok((root, keys))
}

/// The root with a fence of its own, and the keys.
async fn fenced(connection: &Connection, key: &Key, root: Bytes) -> Result<(Root, Keys)> {
    let mut expected = root;
    loop {
        let (root, keys) = opened(key, &expected)?;
        let root = Root { fence: root.fence + 1, ..root };
        let new = Bytes::copy_from_slice(&root.encode(&keys.root_mac(&root.tagged())));
        let swap = Request::SwapRoot { expected: expected.clone(), new };
        match Connection::expect(connection.call(swap).await?)? {
            Answer::Swapped { swapped: true, .. } => return Ok((root, keys)),
            Answer::Swapped { root, .. } => expected = root,
            _ => return Err(Error::new(Kind::Protocol, "the server answers something else")),
        }
    }
}

/// Manifests of `period` and the two before.
async fn manifests(
    connection: &Connection,
    keys: &Keys,
    geometry: &Geometry,
    period: u64,
) -> Result<BTreeMap<u64, (Manifest, Vec<u8>)>> {
    let mut manifests = BTreeMap::new();
    let mut previous = None;
    for period in period.saturating_sub(2)..=period {
        let sealed = manifest(connection, geometry, period).await?;
        let manifest = Manifest::open(keys, period, &sealed)?;
        if previous.is_some_and(|previous| previous != manifest.previous) {
            return Err(Error::new(
                Kind::Hostile,
                "the server's manifests do not follow each other",
            ));
        }
        previous = Some(digest(&sealed));
        manifests.insert(period, (manifest, sealed));
    }
    Ok(manifests)
}

async fn manifest(connection: &Connection, geometry: &Geometry, period: u64) -> Result<Vec<u8>> {
    let missing =
        || Error::new(Kind::Hostile, format!("the manifest of period {period} is missing"));
    let len = Manifest::stored_len(geometry, period) as u64;
    let sealed = connection.get(Object::Manifest { period }, 0..len).await?;
    sealed.map(|sealed| sealed.to_vec()).ok_or_else(missing)
}

/// The state of a client that has just come.
async fn joined(
    bulk: &Line,
    keys: &Keys,
    geometry: Geometry,
    mut manifests: BTreeMap<u64, (Manifest, Vec<u8>)>,
    period: u64,
) -> Result<State> {
    let before = period.saturating_sub(1);
    let mut generations = HashMap::new();
    for (asking, manifest) in manifests.range(before..).map(|(asking, (known, _))| (asking, known))
    {
        for generation in geometry.live(*asking) {
            let head = manifest.head_of(generation).ok_or_else(|| {
                Error::new(Kind::Hostile, "a manifest does not know what lives in its period")
            })?;
            let keys = keys.generation(generation, geometry.shape(generation), &head);
            generations.insert(generation, Arc::new(keys));
        }
    }
    let mut past = Past::none(keys);
    if period >= 2 {
        past.until = (period - 1) * geometry.period();
        past.first = period.saturating_sub(3) * geometry.period();
        past.head = manifests[&(period - 2)].0.start;
        let generation = Generation { level: 1, number: period - 1 };
        let keys = generations[&generation].clone();
        for bucket in 0..keys.shape().buckets {
            let items = items(&geometry, (generation, bucket), &keys, bulk, &AtOnce).await?;
            past.blocks.extend(items.into_iter().map(|item| (item.id, item.block)));
        }
    }
    let mut view = LogView::new(keys.clone(), geometry, past);
    for (period, (manifest, _)) in &manifests {
        view.opened(*period, manifest.present)?;
    }
    manifests.retain(|&other, _| other + 1 >= period);
    Ok(State {
        view,
        manifests,
        generations,
        built: Vec::new(),
        appending: 0,
        under_way: 0,
        mine: HashSet::new(),
        failed: None,
        trouble: None,
    })
}
