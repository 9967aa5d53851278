//! A server that shows its clients different logs: whoever has seen one of them finds it out.

use std::sync::Arc;

use tacita_oram::anchor::{Anchor, MemoryAnchor};
use tacita_oram::blob::Held;
use tacita_oram::client::Access;
use tacita_oram::faults::{Fault, plant};
use tacita_oram::geometry::Geometry;
use tacita_oram::object::Object;
use tacita_oram::record::Operation;
use tacita_oram::{Error, Kind};

use super::world::{World, block, id, key};

/// Queries before the logs part, and of each branch.
const BEFORE: u64 = 44;
const BRANCH: u64 = 10;

fn geometry() -> Geometry {
    Geometry::new(512, 32, 4, 400).unwrap()
}

/// A store whose log has parted: as it was before, and the two branches; each with the anchor of who made it.
struct Forked {
    world: World,
    before: Held,
    branches: [(Held, Arc<dyn Anchor>); 2],
}

impl Forked {
    async fn new() -> Self {
        let world = World::new(geometry(), 20).await;
        world.prepare(BEFORE).await;
        let anchors: [Arc<dyn Anchor>; 2] =
            [Arc::new(MemoryAnchor::default()), Arc::new(MemoryAnchor::default())];
        let before = world.memory.snapshot();
        let mut branches = Vec::new();
        for (which, anchor) in (0..).zip(anchors) {
            set(&world, before.clone()).await;
            let client = world.open_by(anchor.clone(), key(), Access::Write).await.unwrap();
            for n in 0..BRANCH {
                let content = block(&geometry(), 100 + which);
                client.query(id(n), Operation::Write(content)).await.unwrap();
            }
            drop(client);
            branches.push((world.memory.snapshot(), anchor));
        }
        let branches = branches.try_into().expect("two of them");
        Self { world, before, branches }
    }

    /// What comes of showing `held` to who has this anchor.
    async fn shown(&self, held: Held, anchor: Arc<dyn Anchor>) -> Result<(), Error> {
        set(&self.world, held).await;
        let client = self.world.open_by(anchor, key(), Access::Write).await?;
        client.query(id(1), Operation::Read).await.map(drop)
    }
}

async fn set(world: &World, held: Held) {
    world.stop().await;
    world.memory.restore(held);
    world.start().await;
}

#[tokio::test(start_paused = true)]
async fn who_has_seen_one_branch_does_not_take_the_other() {
    let forked = Forked::new().await;
    for (own, other) in [(0, 1), (1, 0)] {
        let anchor = forked.branches[own].1.clone();
        let refused = forked.shown(forked.branches[other].0.clone(), anchor.clone()).await;
        assert_eq!(refused.unwrap_err().kind(), Kind::RolledBack);
        let refused = forked.shown(forked.before.clone(), anchor.clone()).await;
        assert_eq!(refused.unwrap_err().kind(), Kind::RolledBack);
        forked.shown(forked.branches[own].0.clone(), anchor).await.unwrap();
    }
}

/// A server that goes back below a client to when that had not come yet: nobody else has taken the store over, and
/// the client does not say so.
#[tokio::test(start_paused = true)]
async fn who_is_set_back_before_its_own_time_says_so() {
    let world = World::new(geometry(), 20).await;
    world.prepare(BEFORE).await;
    let before = world.memory.snapshot();
    let client = world.open().await.unwrap();
    client.query(id(1), Operation::Read).await.unwrap();
    set(&world, before).await;
    let refused = client.query(id(1), Operation::Read).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::RolledBack, "{refused}");
}

/// A log that begins as one branch and goes on as the other, shown to a client that has seen neither.
async fn spliced() -> Result<(), Error> {
    let forked = Forked::new().await;
    let [(one, _), (other, _)] = &forked.branches;
    let mut held = one.clone();
    let in_middle = BEFORE + BRANCH / 2;
    let is_late = |object: &Object| matches!(object, Object::Log { first } if *first >= in_middle);
    held.blobs.retain(|object, _| !is_late(object));
    let late = other.blobs.iter().filter(|(object, _)| is_late(object));
    held.blobs.extend(late.map(|(object, blob)| (*object, blob.clone())));
    forked.shown(held, Arc::new(MemoryAnchor::default())).await
}

#[tokio::test(start_paused = true)]
async fn branches_do_not_grow_together() {
    assert_eq!(spliced().await.unwrap_err().kind(), Kind::Hostile);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_check_the_chain_is_noticed() {
    let _planted = plant(Fault::ChainUnchecked);
    spliced().await.unwrap();
}
