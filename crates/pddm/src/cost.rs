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

    /// A new log in memory, its public volume as full as asked for.
    struct Log {
        session: Session,
        public: crate::Volume,
        geometry: Geometry,
        state: u64,
    }

    impl Log {
        fn new(parameters: &Parameters, used: f64) -> (Self, u64) {
            let shape = tacita_block::Geometry { block_len_bytes: 4096, blocks: 1025 * 32 + 1 };
            let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(shape));
            let key = Key::take(&mut [7; 32]);
            let geometry = Geometry::new(*parameters, device.geometry().blocks).unwrap();
            init(&device, parameters, Unlock::Wrap(&key), &[], Entropy::default()).unwrap();
            let session = Session::open(&device, Unlock::Wrap(&key), Options::default()).unwrap();
            let public = session.volume(Level::PUBLIC).unwrap();
            let log = Self { session, public, geometry, state: 1 };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            let in_use = (f64::from(geometry.volume_blocks(Level::PUBLIC)) * used) as u64;
            (0..in_use).for_each(|at| log.write(at));
            (log, in_use)
        }

        fn write(&self, at: u64) {
            self.public.write(BlockNo(at), &[0x5a; 4096]).unwrap();
        }

        fn below(&mut self, limit: u64) -> u64 {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.state >> 33) % limit
        }

        /// Device blocks for each of so many writes.
        fn cost(&mut self, writes: u64, mut at: impl FnMut(&mut Self, u64) -> u64) -> f64 {
            let before = self.session.written_units();
            for n in 0..writes {
                let at = at(self, n);
                self.write(at);
            }
            self.public.flush().unwrap();
            let units = self.session.written_units() - before;
            #[allow(clippy::cast_precision_loss, reason = "small")]
            let cost = units as f64 * f64::from(self.geometry.unit_blocks()) / writes as f64;
            cost
        }
    }

    /// Units that a real log takes, beside what is promised.
    #[test]
    fn a_log_costs_as_much() {
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
            let (mut log, in_use) = Log::new(&parameters, used);
            let anywhere = |log: &mut Log, _| {
                let hot = traffic == Traffic::Focused && log.below(10) > 0;
                log.below(if hot { in_use / 10 } else { in_use })
            };
            log.cost(4 * in_use, anywhere);
            let cost = log.cost(4 * in_use, anywhere);
            let promised = amplification(&log.geometry, traffic, used);
            // What is written again while it waits is written once: a little less, on a small log.
            assert!((cost / promised - 0.97).abs() < 0.05, "{cost}, and {promised} was promised");
            log.session.close().unwrap();
        }
    }

    /// A full log that has been overwritten at random, and then in order: with enough to spare the tail
    /// soon finds nothing alive, and with less it goes on to carry what is about to die.
    #[test]
    fn a_log_that_is_overwritten_in_order_settles() {
        let settled = |spare| {
            let parameters =
                Parameters { public_spare: spare, heartbeat_ms: 0, ..Parameters::default() };
            let (mut log, in_use) = Log::new(&parameters, 1.0);
            log.cost(3 * in_use, |log, _| log.below(in_use));
            log.cost(2 * in_use, |_, n| n % in_use);
            let cost = log.cost(6 * in_use, |_, n| n % in_use);
            log.session.close().unwrap();
            cost / (f64::from(log.geometry.unit_blocks()) / 20.0)
        };
        let (default, less) = (settled(Parameters::default().public_spare), settled(300));
        assert!(default < 1.05, "{default}");
        assert!(less > 1.7, "{less}");
    }
}
