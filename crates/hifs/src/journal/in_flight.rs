//! Where content is read while a commit is on its way into the image.
//!
//! The state in memory is the new one as soon as a commit is frozen; the image becomes it later.
//! Until then what has changed is read from memory, and what moves from the place where it still
//! is or, once that is durable, from its new one. A layer of moves is reported before the next
//! overwrites its sources, and readers hold the lock while they read: so nobody reads a cell that
//! is being overwritten.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use tacita_block::BlockNo;

use super::{Plan, Sealed, Target};
use crate::error::Result;
use crate::faults::{Fault, planted};
use crate::geometry::{BLOCK_LEN, Geometry};
use crate::medium::Medium;

/// The commit that is on its way, if any.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    stage: RwLock<Stage>,
}

#[derive(Debug, Default)]
enum Stage {
    /// The image is the state.
    #[default]
    Landed,
    /// Nothing has been written yet.
    Planned {
        plan: Arc<Plan>,
        /// Index of each bucket's target by its first block.
        targets: BTreeMap<u64, usize>,
        bucket_blocks: u64,
    },
    /// Moves have been made up to a layer; nothing else has been written for certain.
    Sealed {
        sealed: Arc<Sealed>,
        /// What is in memory: by first block, the number of blocks and where.
        written: BTreeMap<u64, (u64, Memory)>,
        routes: BTreeMap<u64, Route>,
        /// Layers below this one are durable.
        layers: u32,
    },
}

/// Where a run of blocks is in memory.
#[derive(Debug, Clone, Copy)]
enum Memory {
    Put { index: usize },
    Fill { index: usize },
    Loose { index: usize },
    Zero,
}

/// A cell that moves: where it is before each layer, and from then on.
#[derive(Debug)]
struct Route {
    blocks: u64,
    from: u64,
    stops: Vec<(u32, u64)>,
}

/// Where some blocks are.
enum Place<'a> {
    At(u64),
    Memory(&'a [u8]),
    Zero,
}

impl InFlight {
    /// Reads content of files: whole blocks of buckets.
    ///
    /// # Errors
    /// [`crate::Kind::Device`].
    pub(crate) fn read(&self, medium: &Medium, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        let stage = self.stage.read().unwrap_or_else(PoisonError::into_inner);
        let (mut block, mut rest) = (at.0, buf);
        while !rest.is_empty() {
            let (place, run) = stage.locate(block, (rest.len() / BLOCK_LEN) as u64);
            let len = usize::try_from(run).expect("within the buffer") * BLOCK_LEN;
            let (now, later) = rest.split_at_mut(len);
            match place {
                Place::At(at) => medium.read(BlockNo(at), now)?,
                Place::Memory(bytes) => now.copy_from_slice(&bytes[..len]),
                Place::Zero => now.fill(0),
            }
            (block, rest) = (block + run, later);
        }
        Ok(())
    }

    /// The state is from now on the one that `plan` leads to.
    pub(crate) fn depart(&self, plan: Arc<Plan>, geometry: &Geometry) {
        let targets = plan.buckets().iter().enumerate().map(|(i, one)| (one.to.0, i)).collect();
        let bucket_blocks = geometry.bucket_blocks.into();
        *self.stage() = Stage::Planned { plan, targets, bucket_blocks };
    }

    /// The plan has been sealed, and its writing may begin.
    pub(crate) fn seal(&self, sealed: &Arc<Sealed>) {
        let mut written = BTreeMap::new();
        for (index, (at, run)) in sealed.fills.iter().enumerate() {
            written.insert(*at, (run.len() as u64, Memory::Fill { index }));
        }
        for (index, (at, run)) in sealed.loose.iter().enumerate() {
            written.insert(*at, (run.len() as u64, Memory::Loose { index }));
        }
        let contents = &sealed.contents;
        for (index, (at, run)) in contents.puts.iter().enumerate() {
            written.insert(*at, ((run.len() / BLOCK_LEN) as u64, Memory::Put { index }));
        }
        for run in &contents.zeros {
            written.insert(run.at, (run.count.into(), Memory::Zero));
        }
        let mut routes: BTreeMap<u64, Route> = BTreeMap::new();
        for one in &contents.moves {
            let stop = (one.layer, one.to);
            match (one.later, routes.get_mut(&one.to)) {
                // It has been parked.
                (None, Some(route)) => route.stops.push(stop),
                (later, _) => {
                    let (blocks, from) = (one.count.into(), one.from);
                    let route = Route { blocks, from, stops: vec![stop] };
                    routes.insert(later.unwrap_or(one.to), route);
                }
            }
        }
        *self.stage() = Stage::Sealed { sealed: sealed.clone(), written, routes, layers: 0 };
    }

    /// A layer of moves is durable at its targets.
    pub(crate) fn flushed(&self, layer: u32) {
        if planted(Fault::ReadsOldPlace) {
            return;
        }
        if let Stage::Sealed { layers, .. } = &mut *self.stage() {
            *layers = layer + 1;
        }
    }

    /// A layer of moves is durable where it came from, and about to be undone at its targets.
    pub(crate) fn returned(&self, layer: u32) {
        if planted(Fault::ReadsNewPlace) {
            return;
        }
        if let Stage::Sealed { layers, .. } = &mut *self.stage() {
            *layers = layer.min(*layers);
        }
    }

    /// The image is the state again.
    pub(crate) fn land(&self) {
        *self.stage() = Stage::Landed;
    }

    fn stage(&self) -> RwLockWriteGuard<'_, Stage> {
        self.stage.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage {
    /// Where `block` is, and how many blocks from there on lie together, `wanted` at most.
    fn locate(&self, block: u64, wanted: u64) -> (Place<'_>, u64) {
        match self {
            Self::Landed => (Place::At(block), wanted),
            Self::Planned { plan, targets, bucket_blocks } => {
                let until = next_key(targets, block, wanted);
                match targets.range(..=block).next_back() {
                    Some((start, index)) if block - start < *bucket_blocks => {
                        locate_planned(&plan.buckets()[*index], block - start)
                    }
                    _ => (Place::At(block), until),
                }
            }
            Self::Sealed { sealed, written, routes, layers } => {
                if let Some((start, (blocks, memory))) = written.range(..=block).next_back()
                    && block - start < *blocks
                {
                    let skip = usize::try_from(block - start).expect("in memory");
                    let until = wanted.min(start + blocks - block);
                    return match *memory {
                        Memory::Put { index } => {
                            let (_, bytes) = &sealed.contents.puts[index];
                            (Place::Memory(&bytes[skip * BLOCK_LEN..]), until)
                        }
                        Memory::Fill { index } => {
                            (Place::Memory(&sealed.fills[index].1[skip][..]), 1)
                        }
                        Memory::Loose { index } => {
                            (Place::Memory(&sealed.loose[index].1[skip][..]), 1)
                        }
                        Memory::Zero => (Place::Zero, until),
                    };
                }
                let until = next_key(written, block, wanted);
                if let Some((start, route)) = routes.range(..=block).next_back()
                    && block - start < route.blocks
                {
                    let now = route.stops.iter().rev().find(|(layer, _)| layer < layers);
                    let at = now.map_or(route.from, |(_, at)| *at);
                    return (
                        Place::At(at + block - start),
                        until.min(start + route.blocks - block),
                    );
                }
                (Place::At(block), until.min(next_key(routes, block, wanted)))
            }
        }
    }
}

/// How many blocks from `block` on lie before the next key, `wanted` at most.
fn next_key<T>(map: &BTreeMap<u64, T>, block: u64, wanted: u64) -> u64 {
    map.range(block + 1..).next().map_or(wanted, |(next, _)| wanted.min(next - block))
}

fn locate_planned(target: &Target, index: u64) -> (Place<'_>, u64) {
    match target.blocks.iter().find(|(i, _)| u64::from(*i) == index) {
        Some((_, Some(block))) => (Place::Memory(&block[..]), 1),
        Some((_, None)) => (Place::Zero, 1),
        None => (target.base.map_or(Place::Zero, |base| Place::At(base.0 + index)), 1),
    }
}
