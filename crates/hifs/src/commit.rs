//! A commit: from the image of one state to the image of the next.
//!
//! [`freeze`] finds out what is stored from now on, lets both tables be placed, and collects every
//! block that may differ in a plan for the journal. From then on the state in memory is the new
//! one, and programs go on: what the image does not show yet is read through
//! [`crate::journal::InFlight`] while the plan is sealed, made durable and applied.
//!
//! Source: design note, sections 2.4 and 3.1.

mod buckets;
mod pages;
mod unread;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tacita_block::BlockNo;

use crate::error::Result;
use crate::faults::{Fault, planted};
use crate::geometry::{BLOCK_LEN, Geometry, MAP_ENTRIES, Table};
use crate::journal::{Plan, Sealed, Unread, Unsealed};
use crate::map_block;
use crate::names::FileId;
use crate::placement::{Cell, Change, Engine, Relocation, Work};
use crate::tree::{PendingWork, State};

/// What a commit cost, in counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitCost {
    /// Placement of data buckets.
    pub buckets: Work,
    /// Placement of pages.
    pub pages: Work,
    /// Blocks of journal.
    pub journal_blocks: u64,
}

impl CommitCost {
    /// Adds what another commit has cost.
    pub(crate) const fn add(&mut self, other: &Self) {
        self.buckets.add(&other.buckets);
        self.pages.add(&other.pages);
        self.journal_blocks += other.journal_blocks;
    }
}

/// Cells of one table before and after placing.
struct Cells {
    /// Where each bucket that has changed cells lay before.
    from: HashMap<(FileId, u32), Option<Cell>>,
    vacated: BTreeSet<Cell>,
    /// Cells that were the last of all that an owner leaves, and which buckets they held: there may be
    /// the end of a file, behind which all is zero.
    last: HashMap<Cell, (FileId, u32)>,
    taken: HashSet<Cell>,
    /// Taken cells that held nothing before and are all zero.
    fresh: HashSet<Cell>,
}

impl Cells {
    fn of(relocations: &[Relocation]) -> Self {
        let left: BTreeSet<Cell> = relocations.iter().filter_map(|r| r.from).collect();
        let taken: HashSet<Cell> = relocations.iter().filter_map(|r| r.to).collect();
        let mut last: HashMap<FileId, (u32, Cell)> = HashMap::new();
        for (relocation, from) in relocations.iter().filter_map(|r| Some((r, r.from?))) {
            let this = (relocation.bucket, from);
            let last = last.entry(relocation.owner).or_insert(this);
            *last = this.max(*last);
        }
        Self {
            last: last.into_iter().map(|(id, (bucket, cell))| (cell, (id, bucket))).collect(),
            from: relocations.iter().map(|r| ((r.owner, r.bucket), r.from)).collect(),
            vacated: left.iter().copied().filter(|cell| !taken.contains(cell)).collect(),
            fresh: taken.iter().copied().filter(|cell| !left.contains(cell)).collect(),
            taken,
        }
    }

    /// All cells whose map entry changes.
    fn changed(&self) -> impl Iterator<Item = Cell> + '_ {
        let vacated = self.vacated.iter().filter(|_| !planted(Fault::MapResidue));
        self.taken.iter().chain(vacated).copied()
    }
}

/// The placement of a commit, which can be taken back.
struct Placed {
    buckets_back: Vec<Change>,
    pages_back: Vec<Change>,
}

/// Takes everything that is pending into a plan that leads from the image to the present state.
/// When it returns, nothing is pending and the state is read through `state.in_flight`; the caller
/// has seen to it that nothing else is in flight. `None` if the image shows the state already.
///
/// # Errors
/// [`crate::Kind::NoSpace`] or [`crate::Kind::Device`]: nothing has changed.
pub(crate) fn freeze(state: &mut State) -> Result<Option<(Arc<Plan>, CommitCost)>> {
    if state.pending.is_empty() {
        return Ok(None);
    }
    let geometry = state.superblock.geometry;
    let (plan, cost) = placing(state, |state, plan| {
        let (blocks, room) = (plan.journal_blocks_max(&geometry), geometry.journal_blocks);
        if blocks > room {
            return Err(crate::journal::too_large(blocks, room));
        }
        settle(state)?;
        Ok(Arc::new(plan))
    })?;
    state.in_flight.depart(plan.clone(), &geometry);
    Ok(Some((plan, cost)))
}

/// Takes everything that is pending into a frozen plan of which `unread` has to move, so that both are one
/// commit: what is not wanted any more need not be read, and pages are as they are in memory. It is sealed at
/// once, under the lock, for whether it can be is what matters.
///
/// # Errors
/// [`crate::Kind::Unreadable`] if something is still wanted, and all others: nothing has changed.
pub(crate) fn freeze_with(
    state: &mut State,
    frozen: &Plan,
    unread: &[Unread],
) -> Result<(Arc<Sealed>, CommitCost)> {
    let geometry = state.superblock.geometry;
    let is_content = |unread: &Unread| geometry.cell_at(Table::Buckets, unread.to).is_some();
    if state.pending.is_empty() && unread.iter().any(is_content) {
        return Err(unread::in_the_way(state, unread));
    }
    let ((plan, sealed), cost) = placing(state, |state, plan| {
        let mut plan = frozen.followed_by(&plan, &geometry);
        pages::give_unread(state, &mut plan)?;
        let sealed =
            plan.seal(&state.medium, &state.superblock).map_err(|unsealed| match unsealed {
                Unsealed::Unread(unread) => unread::in_the_way(state, &unread),
                Unsealed::Failed(error) => error,
            })?;
        settle(state)?;
        Ok((Arc::new(plan), Arc::new(sealed)))
    })?;
    state.in_flight.depart(plan, &geometry);
    state.in_flight.seal(&sealed);
    Ok((sealed, cost))
}

/// Places what is pending, and has `finish` make something of the plan; takes the placement back if it
/// fails.
fn placing<T>(
    state: &mut State,
    finish: impl FnOnce(&mut State, Plan) -> Result<T>,
) -> Result<(T, CommitCost)> {
    let mut cost = CommitCost::default();
    let mut placed = Placed { buckets_back: Vec::new(), pages_back: Vec::new() };
    match prepare(state, &mut placed, &mut cost).and_then(|plan| finish(state, plan)) {
        Ok(done) => Ok((done, cost)),
        Err(error) => {
            state.buckets.place(&placed.buckets_back);
            state.pages.place(&placed.pages_back);
            Err(error)
        }
    }
}

fn prepare(state: &mut State, placed: &mut Placed, cost: &mut CommitCost) -> Result<Plan> {
    state.name_the_nameless()?;
    state.touch_renamed();
    let mut plan = Plan::default();

    let changes = buckets::changes(state);
    check_fits(&state.buckets, &changes)?;
    placed.buckets_back = state.buckets.inverse(&changes);
    let (relocations, work) = state.buckets.place(&changes);
    cost.buckets = work;
    let cells = Cells::of(&relocations);
    buckets::write(state, &relocations, &cells, &mut plan)?;
    zero_vacated(state, Table::Buckets, &cells, &mut plan);
    write_maps(&state.superblock.geometry, Table::Buckets, &state.buckets, &cells, &mut plan);
    buckets::tell_inodes(state)?;

    let changes = pages::changes(state);
    check_fits(&state.pages, &changes)?;
    placed.pages_back = state.pages.inverse(&changes);
    let (relocations, work) = state.pages.place(&changes);
    cost.pages = work;
    let cells = Cells::of(&relocations);
    pages::write(state, &relocations, &cells, &mut plan)?;
    zero_vacated(state, Table::Pages, &cells, &mut plan);
    write_maps(&state.superblock.geometry, Table::Pages, &state.pages, &cells, &mut plan);
    if planted(Fault::CounterInSuperblock) {
        let mut block = state.medium.read_block(BlockNo(0))?;
        block[100] = block[100].wrapping_add(1);
        plan.put(BlockNo(0), &block);
    }
    Ok(plan)
}

/// The engine relies on its caller for this. Limits keep it from happening but in a table filled
/// beyond them by a rename.
fn check_fits(engine: &Engine, changes: &[Change]) -> Result<()> {
    let count = |changes: &[Change]| -> u64 {
        changes.iter().flat_map(|c| &c.chunks).map(|(_, mask)| u64::from(mask.count_ones())).sum()
    };
    let after = engine.stored() - count(&engine.inverse(changes)) + count(changes);
    if after > engine.procedures().shape().cells().into() {
        return Err(crate::Error::new(crate::Kind::NoSpace, "the image is full"));
    }
    Ok(())
}

fn zero_vacated(state: &State, table: Table, cells: &Cells, plan: &mut Plan) {
    let geometry = &state.superblock.geometry;
    let sizes: HashMap<FileId, u64> =
        state.pending.dead.iter().filter_map(|(id, size)| Some((*id, (*size)?))).collect();
    for cell in &cells.vacated {
        let start = geometry.cell_start(table, *cell);
        plan.leave(table, start);
        if planted(Fault::FreedBucketResidue) {
            continue;
        }
        let count = geometry.cell_blocks(table);
        match cells.last.get(cell) {
            Some((id, bucket)) if count > 1 => {
                let held = sizes.get(id).map(|size| blocks_held(geometry, *size, *bucket));
                plan.zero_in_part(start, held.unwrap_or(count));
            }
            _ => plan.zero(start, count),
        }
    }
}

/// In how many of its blocks a bucket that is stored may hold something, in a file of this size.
fn blocks_held(geometry: &Geometry, size: u64, bucket: u32) -> u32 {
    let left = size.saturating_sub(u64::from(bucket) * geometry.bucket_len_bytes());
    let blocks = u32::try_from(left.div_ceil(BLOCK_LEN as u64)).unwrap_or(u32::MAX);
    blocks.clamp(1, geometry.bucket_blocks)
}

fn write_maps(geometry: &Geometry, table: Table, engine: &Engine, cells: &Cells, plan: &mut Plan) {
    let blocks: HashMap<BlockNo, Cell> = cells
        .changed()
        .map(|cell| {
            let (block, index) = geometry.map_entry(table, cell);
            (block, Cell(cell.0 - index))
        })
        .collect();
    for (block, first) in blocks {
        plan.put(block, &encode_map(geometry, table, engine, first));
    }
}

/// The map block whose first entry is `first`.
pub(crate) fn encode_map(
    geometry: &Geometry,
    table: Table,
    engine: &Engine,
    first: Cell,
) -> Box<[u8; BLOCK_LEN]> {
    let len = geometry.shape(table).cells_per_group;
    let left = (len - first.0 % len).min(MAP_ENTRIES);
    map_block::encode(|index| {
        (index < left).then(|| engine.occupant(Cell(first.0 + index))).flatten()
    })
}

/// The image is the present state: nothing waits any more.
fn settle(state: &mut State) -> Result<()> {
    let pending = std::mem::take(&mut state.pending);
    let mut inline = Vec::with_capacity(pending.files.len());
    for id in &pending.files {
        inline.push(state.inline_of(*id)?);
    }
    for (id, inline) in pending.files.iter().zip(inline) {
        let Some(node) = state.nodes.get_mut(*id) else {
            continue;
        };
        let file = node.id;
        if let Some(content) = node.content_mut() {
            let buckets = content.buckets;
            content.settle(file, inline, buckets);
        }
    }
    for key in &pending.pages {
        let id = state.names.page(key.trie, key.leaf.start, key.leaf.depth);
        if state.pages.contains(id) {
            state.page_keys.insert(id, *key);
        } else {
            state.page_keys.remove(&id);
        }
    }
    state.pending = PendingWork { nameless: pending.nameless, ..PendingWork::default() };
    Ok(())
}
