//! What a store of given shapes costs: steps, bytes, room.

use crate::build::ROOMS;
use crate::geometry::{Generation, Geometry, PAGE_LEN};
use crate::schedule::Build;
use crate::wire::HEADER_LEN;

/// What a store costs once it has been used long enough that all levels are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Levels.
    pub levels: u8,
    /// Generations that a query asks, at most.
    pub generations: usize,
    /// Round trips of a query until it is answered.
    pub round_trips: usize,
    /// Bytes that a query sends and receives in its own steps.
    pub query_bytes: u64,
    /// Bytes that builds read and write for each query, on average.
    pub build_bytes: u64,
    /// Bytes on the server, at most.
    pub server_bytes: u64,
    /// Bytes of memory that a client needs for builds, at most.
    pub client_bytes: u64,
}

/// Buckets that a part of a large build has in memory at once: what is read, what waits, what is written.
const BUCKETS_OF_A_PART: u64 = 3;
/// Buckets that the build of a generation of one bucket has in memory: what is read, what is written.
const BUCKETS_AT_ONCE: u64 = 2;

/// Bytes of memory that these builds take while all are under way.
fn memory(geometry: &Geometry, builds: &[Build]) -> u64 {
    let shapes = builds.iter().map(|build| geometry.shape(build.generation));
    let (small, large): (Vec<_>, Vec<_>) = shapes.partition(|shape| shape.buckets == 1);
    let small: u64 = small.iter().map(|shape| BUCKETS_AT_ONCE * u64::from(shape.slots)).sum();
    let parts = large.len().min(ROOMS) as u64;
    let large = parts * BUCKETS_OF_A_PART * u64::from(geometry.bucket_slots());
    (small + large) * geometry.item_len() as u64
}

/// What a store of these shapes costs.
pub fn plan(geometry: &Geometry) -> Plan {
    let period = geometry.period();
    // Long enough that the lowest level has been built several times.
    let bottom = geometry.batch(geometry.levels() - 1);
    let end = (geometry.arrival(geometry.levels(), 1) + 4 * bottom) / period;
    let begin = end.saturating_sub(bottom / period);
    let item_len = geometry.item_len() as u64;
    let bytes_of = |generation: Generation| {
        let shape = geometry.shape(generation);
        shape.items_len(geometry.item_len()) * u64::from(shape.buckets)
            + u64::from(shape.pages) * PAGE_LEN as u64
    };
    let mut plan = Plan {
        levels: geometry.levels(),
        generations: 0,
        round_trips: 0,
        query_bytes: 0,
        build_bytes: 0,
        server_bytes: 0,
        client_bytes: 0,
    };
    // More than 64 bits, where many blocks of 64 KiB go through small periods.
    let mut moved = 0;
    let step = (end - begin).div_ceil(4096).max(1);
    for now in (begin..end).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        let live = geometry.live(now);
        plan.generations = plan.generations.max(live.len());
        let builds = geometry.builds(now);
        let kept: u64 = live.iter().map(|&generation| bytes_of(generation)).sum();
        let made: u64 = builds.iter().map(|build| bytes_of(build.generation)).sum();
        plan.server_bytes = plan.server_bytes.max(kept + 2 * made);
        plan.client_bytes = plan.client_bytes.max(memory(geometry, &builds));
        for build in &builds {
            let work = u128::from(crate::build::work(geometry, build));
            let share = u128::from(period * item_len) * work;
            moved += share / u128::from(build.until - build.from) * u128::from(step);
        }
    }
    let queries = u128::from((end - begin) * period).max(1);
    plan.build_bytes = u64::try_from(moved / queries).unwrap_or(u64::MAX);
    // The record; a step for each generation and one more; the result is not waited for.
    plan.round_trips = plan.generations + 2;
    let steps = plan.generations as u64 + 1;
    let fetch = 2 * HEADER_LEN as u64 + 64;
    plan.query_bytes = (geometry.record_len() + geometry.result_len() + 4 * HEADER_LEN) as u64
        + steps * fetch
        + plan.generations as u64 * (PAGE_LEN as u64 + item_len);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Note 1.10 computes for blocks of 4 KiB, a log of 256 and 2^20 of them about 11 generations and
    /// 86 blocks of builds with growth 4, about 20 generations with growth 2.
    #[test]
    fn agrees_with_the_note() {
        let quick = plan(&Geometry::new(4096, 256, 4, 1 << 20).unwrap());
        assert!((10..=12).contains(&quick.generations), "{quick:?}");
        assert!((60..=130).contains(&(quick.build_bytes / 4160)), "{quick:?}");
        let faithful = plan(&Geometry::new(4096, 256, 2, 1 << 20).unwrap());
        assert!((19..=24).contains(&faithful.generations), "{faithful:?}");
    }

    /// More bytes are moved than 64 bits count.
    #[test]
    fn the_largest_shapes_have_a_plan() {
        for growth in [2, 4] {
            let of = |block_len| plan(&Geometry::new(block_len, 16, growth, 1 << 31).unwrap());
            let (large, small) = (of(1 << 16), of(512));
            assert!(large.build_bytes / small.build_bytes > 100, "{large:?} {small:?}");
        }
    }
}
