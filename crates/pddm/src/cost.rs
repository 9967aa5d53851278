//! What a geometry costs in writes: a function of shapes and shares, as [`Geometry`] is.
//!
//! Every slot that the head fills takes a block that was live then. When the tail comes to it, a
//! distance of the log's units less the gap later, it is free if its block has been written again
//! meanwhile; otherwise the block is carried, and fills a slot again. Design note, sections 3.1, 3.2.

use crate::geometry::{Geometry, Level};

/// Which blocks programs write again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// All alike.
    Uniform,
    /// A tenth of them nine times out of ten.
    Focused,
}

impl Traffic {
    /// Parts of the blocks, and the shares of all writes that go to them.
    const fn parts(self) -> &'static [(f64, f64)] {
        match self {
            Self::Uniform => &[(1.0, 1.0)],
            Self::Focused => &[(0.1, 0.9), (0.9, 0.1)],
        }
    }
}

/// The share of slots that the tail finds free, where `live` is the share of slots that live blocks
/// would fill.
///
/// With a share p of free slots, a part of a share b of the blocks that gets a share w of the writes
/// is written again, until the tail comes, with a chance of 1 - exp(-p w / (b live)). So it fills a
/// share p w / (1 - exp(...)) of all slots, and these shares add up to 1. With all blocks alike this
/// is equation 1 of the paper.
fn free_share(live: f64, traffic: Traffic) -> f64 {
    let filled = |p: f64| -> f64 {
        let fill =
            |(blocks, writes): &(f64, f64)| -p * writes / (-p * writes / (blocks * live)).exp_m1();
        traffic.parts().iter().map(fill).sum()
    };
    let (mut low, mut high) = (1e-9, 1.0);
    for _ in 0..100 {
        let p = f64::midpoint(low, high);
        if filled(p) < 1.0 { low = p } else { high = p }
    }
    low
}

/// Slots of a level that a unit has for blocks that programs write, when `used` of the volume's
/// blocks are in use: the others carry what is live, or pages of the map.
fn new_per_unit(geometry: &Geometry, level: Level, traffic: Traffic, used: f64) -> f64 {
    let slots = f64::from(geometry.slots_per_unit(level));
    let blocks = f64::from(geometry.volume_blocks(level));
    let live = blocks * used / (f64::from(geometry.units() - geometry.gap()) * slots);
    let pages = (blocks / 1024.0).ceil() / f64::from(geometry.checkpoint_units());
    slots * free_share(live, traffic) - pages
}

/// Blocks written to the device for each that programs write to the public volume, when `used` of its
/// blocks are in use (0 to 1) and have long been written again as `traffic` says.
pub fn amplification(geometry: &Geometry, traffic: Traffic, used: f64) -> f64 {
    let new = new_per_unit(geometry, Level::PUBLIC, traffic, used);
    f64::from(geometry.unit_blocks()) / new
}

/// Blocks that a full hidden volume can take, in the long run, for each that programs write to a full
/// public one; both are written all over.
pub fn hidden_per_public(geometry: &Geometry, level: Level) -> f64 {
    new_per_unit(geometry, level, Traffic::Uniform, 1.0)
        / new_per_unit(geometry, Level::PUBLIC, Traffic::Uniform, 1.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tacita_block::{BlockDevice, BlockNo, MemoryDevice};
    use tacita_secret::Key;

    use super::*;
    use crate::geometry::Parameters;
    use crate::{Entropy, Options, Session, Unlock, init};

    #[test]
    fn figures_of_the_note() {
        // Section 3.2, table F4: slots visited for each public write.
        for (spare, uniform, focused) in
            [(0.1, 5.18, 6.17), (0.2, 2.69, 3.53), (0.3, 1.88, 2.59), (0.5, 1.26, 1.73)]
        {
            let visits = |traffic| 1.0 / free_share(1.0 - spare, traffic);
            assert!((visits(Traffic::Uniform) - uniform).abs() < 0.01, "{spare}");
            assert!((visits(Traffic::Focused) - focused).abs() < 0.01, "{spare}");
        }
        assert!(free_share(1e-6, Traffic::Uniform) > 0.999);
    }

    /// Units that a real log takes, beside what is promised.
    #[test]
    fn a_log_costs_as_much() {
        let shape = tacita_block::Geometry { block_len_bytes: 4096, blocks: 1025 * 32 + 1 };
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(shape));
        let key = Key::take(&mut [7; 32]);
        for (shares, ratio, traffic, used) in [
            ((300, 300), (20, 11), Traffic::Uniform, 1.0),
            ((300, 300), (20, 11), Traffic::Uniform, 0.5),
            ((300, 300), (20, 11), Traffic::Focused, 1.0),
            ((500, 300), (24, 7), Traffic::Uniform, 1.0),
        ] {
            let parameters = Parameters {
                public_slots: ratio.0,
                hidden_slots: ratio.1,
                public_spare: shares.0,
                hidden_spare: shares.1,
                heartbeat_ms: 0,
                ..Parameters::default()
            };
            let blocks = device.geometry().blocks;
            let geometry = Geometry::new(parameters, blocks).unwrap();
            init(&device, &parameters, Unlock::Wrap(&key), &[], Entropy::default()).unwrap();
            let session = Session::open(&device, Unlock::Wrap(&key), Options::default()).unwrap();
            let public = session.volume(Level::PUBLIC).unwrap();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            let in_use = (f64::from(geometry.volume_blocks(Level::PUBLIC)) * used) as u64;
            let mut state = 1u64;
            let mut below = |limit: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % limit
            };
            let data = vec![0x5a; 4096];
            for at in 0..in_use {
                public.write(BlockNo(at), &data).unwrap();
            }
            let mut rounds = |count: u64| {
                let (before, writes) = (session.written_units(), count * in_use);
                for _ in 0..writes {
                    let hot = traffic == Traffic::Focused && below(10) > 0;
                    let at = if hot { below(in_use / 10) } else { below(in_use) };
                    public.write(BlockNo(at), &data).unwrap();
                }
                public.flush().unwrap();
                let units = session.written_units() - before;
                #[allow(clippy::cast_precision_loss, reason = "small")]
                let cost = units as f64 * f64::from(geometry.unit_blocks()) / writes as f64;
                cost
            };
            rounds(4);
            let cost = rounds(4);
            let promised = amplification(&geometry, traffic, used);
            // What is written again while it waits is written once: a little less, on a small log.
            assert!((cost / promised - 0.97).abs() < 0.05, "{cost}, and {promised} was promised");
            session.close().unwrap();
        }
    }
}
