//! Making a store, and joining those who use it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tacita_secret::{Key, digest};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::agreeing::{self, Agreeing};
use super::builder::needed;
use super::line::options;
use super::{
    Access, Anchorage, Client, Confirming, Line, Meter, Patience, Queue, Shared, State,
    Surroundings, Turns, queue,
};
use crate::agreement::Agreement;
use crate::anchor::Mark;
use crate::blob::BlobStore;
use crate::build::{Objects, Pace, ROOMS, Room, items, must_build};
use crate::error::{Error, Kind, Result};
use crate::geometry::{Generation, Geometry};
use crate::keys::Keys;
use crate::link::Connection;
use crate::log_view::{LogView, Past};
use crate::manifest::Manifest;
use crate::object::Object;
use crate::root::{GROUP_LEN, Root};
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
    must_build(&geometry)?;
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
    let root = Root { geometry, store_id, fence: 0, group: [0; 16] };
    let new = Bytes::copy_from_slice(&root.encode(&keys.root_mac(&root.tagged())));
    let swap = Request::SwapRoot { expected: Bytes::new(), new };
    match Connection::expect(connection.call(swap).await?)? {
        Answer::Swapped { swapped: true, .. } => Ok(()),
        _ => Err(exists()),
    }
}

/// Where one was to be made.
pub(crate) fn exists() -> Error {
    Error::new(Kind::Busy, "there is a store already")
}

/// How a client came to the server.
struct First {
    connection: Connection,
    root: Bytes,
    /// Whether nobody else writes to the store from now on.
    is_alone: bool,
}

/// A store that has been opened.
struct Opened {
    root: Root,
    keys: Keys,
    agreeing: Option<Agreeing>,
    /// What the log has to begin with.
    mark: Option<Mark>,
}

/// Nobody waits for the reading of a level.
pub(super) struct AtOnce;

#[async_trait]
impl Pace for AtOnce {
    async fn moved(&self, _: u64) -> Result<()> {
        Ok(())
    }

    async fn room(&self) -> Result<Room> {
        Ok(Room::unbounded())
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
        let First { connection, root, is_alone } = surroundings.first_connection(key).await?;
        let Opened { root, keys, agreeing, mark } =
            surroundings.opened(&connection, key, root).await?;
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
            awaited: Arc::default(),
            changed: Notify::new(),
            queue: Queue::new(),
            lookups: Line::new(surroundings.connect.clone(), patience),
            bulk,
            short: Line::new(surroundings.connect.clone(), patience),
            confirming: Confirming::default(),
            agreeing,
            rooms: Arc::new(Semaphore::new(ROOMS)),
            meter: Meter::new(geometry),
            turns: surroundings.between.map(|_| Turns::default()),
            surroundings,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(queue::keep(Arc::downgrade(&shared)));
        let is_compared = mark.is_some_and(|mark| mark.sequence > 0);
        let client = Self { shared: shared.clone(), tasks, is_compared };
        let has_joined = |state: &mut State| {
            let is_there = shared.queue.is_there() && state.view.records() >= welcome.records;
            is_there.then_some(())
        };
        shared.when(has_joined).await?;
        if let Some(mark) = mark {
            client.compare_with_anchor(&connection, welcome.period, mark).await?;
        }
        if let Some(agreeing) = &shared.agreeing {
            agreeing.compared().await;
        }
        if shared.surroundings.access == Access::Look {
            return Ok(client.at_rest());
        }
        shared.lookups.begin().await?;
        shared.results_come().await?;
        if shared.agreeing.is_none() {
            shared.remove_leftovers(welcome.period).await?;
        }
        Ok(client.begin(is_alone))
    }

    /// Follows the log no further: it is looked at as it was.
    fn at_rest(mut self) -> Self {
        self.tasks.abort_all();
        self.shared.queue.end();
        self
    }

    /// Begins all that goes on in the background. `is_alone`: nobody else writes.
    fn begin(mut self, is_alone: bool) -> Self {
        let shared = &self.shared;
        let (begun, unfinished) = {
            let mut state = shared.lock();
            let begun = if shared.agreeing.is_none() {
                state.builds = true;
                shared.begin_builds(&state, shared.geometry.builds(state.period()))
            } else {
                Vec::new()
            };
            (begun, state.view.settled()..state.view.records())
        };
        shared.run_builds(begun);
        // Whatever has no result gets none from elsewhere if nobody else is there.
        if is_alone {
            for sequence in unfinished {
                self.background(move |shared| async move { shared.look_up(sequence).await });
            }
        }
        if self.shared.agreeing.is_some() {
            self.background(move |shared| shared.share_building(is_alone));
            self.background(Shared::share_progress);
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
    async fn compare_with_anchor(
        &self,
        connection: &Connection,
        period: u64,
        mark: Mark,
    ) -> Result<()> {
        let shared = &self.shared;
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
    async fn first_connection(&self, key: &Key) -> Result<First> {
        let until = Instant::now() + self.patience.take_over;
        loop {
            let stream = self.connect.connect().await?;
            let (connection, welcome) =
                Connection::open(stream, options(&self.patience), |_| ()).await?;
            let none = || Error::new(Kind::NotAStore, "there is no store yet: make one by init");
            let root = welcome.root.ok_or_else(none)?;
            let is_alone = welcome.followers == 0 || matches!(self.anchor, Anchorage::Own(_));
            if self.access != Access::Write
                || welcome.followers == 0
                || self.is_member(key, &root).await?
            {
                return Ok(First { connection, root, is_alone });
            }
            if Instant::now() >= until {
                return Err(Error::new(Kind::Busy, "another client has the store open"));
            }
            sleep(self.patience.again).await;
        }
    }
}

impl Surroundings {
    /// Opens the store as whoever may write to it with this anchor, or only looks.
    async fn opened(&self, connection: &Connection, key: &Key, root: Bytes) -> Result<Opened> {
        let (root, keys, agreeing) = match (self.access, &self.anchor) {
            (Access::Look, _) => {
                let (root, keys) = opened(key, &root)?;
                (root, keys, None)
            }
            (_, Anchorage::Own(_)) => {
                let (root, keys) = fenced(connection, key, root).await?;
                (root, keys, None)
            }
            (_, Anchorage::Shared(place)) => {
                let random = || self.salt();
                let (root, keys, agreement) =
                    joining(connection, key, root, place, (random, self.patience.take_over))
                        .await?;
                let agreeing = Agreeing::new(place.clone(), keys.clone(), self.salt()?, agreement);
                (root, keys, Some(agreeing))
            }
        };
        let mark = match (&agreeing, &self.anchor) {
            (Some(agreeing), _) => Some(agreeing.known().await.mark),
            (None, Anchorage::Own(anchor)) => anchor.load().await?,
            (None, Anchorage::Shared(place)) => {
                let kept = agreeing::kept(&**place, &keys, &root.store_id).await?;
                kept.map(|agreement| agreement.mark)
            }
        };
        Ok(Opened { root, keys, agreeing, mark })
    }

    /// Whether those who write to the store share this client's anchor.
    async fn is_member(&self, key: &Key, root: &Bytes) -> Result<bool> {
        let Anchorage::Shared(place) = &self.anchor else { return Ok(false) };
        let (root, keys) = opened(key, root)?;
        let kept = agreeing::kept(&**place, &keys, &root.store_id).await?;
        Ok(kept.is_some_and(|agreement| agreement.group == root.group))
    }

    /// Random bytes that nothing else has.
    pub(super) fn salt(&self) -> Result<[u8; 16]> {
        (self.random)().map_err(|e| Error::new(Kind::Storage, format!("no random bytes: {e}")))
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

    /// Removes what clients that ended in the middle have left, when `period` was the latest. Others may have gone
    /// on by the time that this one sees what there is: what is newer is theirs.
    pub(super) async fn remove_leftovers(&self, period: u64) -> Result<()> {
        let needed = needed(&self.geometry, period);
        let is_left = |generation: Generation| {
            let is_later =
                |n: &Generation| n.level == generation.level && n.number > generation.number;
            !needed.contains(&generation) && needed.iter().any(is_later)
        };
        for object in self.bulk.names("generation/").await? {
            if object.generation().is_some_and(is_left) {
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
        let root = Root { fence: root.fence + 1, group: [0; GROUP_LEN], ..root };
        match swapped(connection, &keys, &expected, &root).await? {
            None => return Ok((root, keys)),
            Some(other) => expected = other,
        }
    }
}

/// The root with the fence of those who share the anchor at `place`, the keys, and what they have agreed on.
async fn joining(
    connection: &Connection,
    key: &Key,
    root: Bytes,
    place: &Arc<dyn BlobStore>,
    (random, patience): (impl Fn() -> Result<[u8; 16]>, Duration),
) -> Result<(Root, Keys, Agreement)> {
    let mut expected = root;
    loop {
        let (root, keys) = opened(key, &expected)?;
        let agreement =
            agreeing::kept_or_made(&**place, &keys, root.store_id, random()?, patience).await?;
        if agreement.group == root.group {
            return Ok((root, keys, agreement));
        }
        let root = Root { fence: root.fence + 1, group: agreement.group, ..root };
        match swapped(connection, &keys, &expected, &root).await? {
            None => return Ok((root, keys, agreement)),
            Some(other) => expected = other,
        }
    }
}

/// Makes `root` the root if it is `expected`; otherwise says what it is.
async fn swapped(
    connection: &Connection,
    keys: &Keys,
    expected: &Bytes,
    root: &Root,
) -> Result<Option<Bytes>> {
    let new = Bytes::copy_from_slice(&root.encode(&keys.root_mac(&root.tagged())));
    let swap = Request::SwapRoot { expected: expected.clone(), new };
    match Connection::expect(connection.call(swap).await?)? {
        Answer::Swapped { swapped: true, .. } => Ok(None),
        Answer::Swapped { root, .. } => Ok(Some(root)),
        _ => Err(Error::new(Kind::Protocol, "the server answers something else")),
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
            generations.insert(generation, manifest.keys_of(generation, keys, &geometry)?);
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
        waiting_for_room: 0,
        opening: false,
        removing: 0,
        storing: 0,
        mine: HashSet::new(),
        builds: false,
        limit: 0,
        held_back: 0,
        failed: None,
        is_left_behind: false,
        trouble: None,
    })
}
