use std::collections::HashMap;

use super::*;

struct Draw(u64);

impl Draw {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % count
    }

    fn id(&mut self, count: u64) -> u32 {
        u32::try_from(self.below(count)).unwrap()
    }
}

/// Volumes hold what was written, and no live node ever lies in a dead tuple.
#[test]
fn volumes_hold_what_is_written() {
    for (seed, k, fanout, blocks, spare) in
        [(1, 2, 9, 60, 0.3), (2, 3, 5, 90, 0.2), (3, 3, 8, 200, 0.5), (4, 4, 4, 150, 0.25)]
    {
        let mut draw = Draw(seed);
        let mut classic = Classic::new(blocks, k, fanout, spare);
        let (mut public, mut hidden) = (HashMap::new(), HashMap::new());
        let mut waiting: Option<(u32, u64)> = None;
        for step in 0..8000 {
            let id = draw.id(blocks as u64);
            if waiting.is_none() && draw.below(3) > 0 {
                let id = draw.id(blocks as u64);
                waiting = Some((id, step));
                hidden.insert(id, step);
            }
            waiting = classic.write(id, step, waiting);
            public.insert(id, step);
            if step % 97 == 0 {
                assert_eq!(classic.dangling_nodes(), 0, "seed {seed}, step {step}");
                for id in 0..u32::try_from(blocks).unwrap() {
                    assert_eq!(classic.public_read(id), public.get(&id).copied());
                    if waiting.is_none_or(|(other, _)| other != id) {
                        assert_eq!(classic.hidden_read(id), hidden.get(&id).copied());
                    }
                }
            }
        }
    }
}

/// Visits of slots a public write, and blocks a public block, after the device has been written
/// several times over.
fn settled(share: f64, k: usize, hot: Option<(u64, u64)>) -> (f64, f64) {
    let blocks = 6000;
    let mut device = Classic::new(blocks, k, 128, share);
    let mut draw = Draw(9);
    let mut next_id = |step: u64| -> u32 {
        let count = blocks as u64;
        if step < count {
            return u32::try_from(step).unwrap();
        }
        match hot {
            // So many of 100 writes go to so many of 100 blocks.
            Some((writes, of)) if draw.below(100) < writes => draw.id(count * of / 100),
            Some((_, of)) => {
                u32::try_from(count * of / 100).unwrap() + draw.id(count * (100 - of) / 100)
            }
            None => draw.id(count),
        }
    };
    let warm = 10 * blocks as u64;
    for step in 0..warm {
        device.write(next_id(step), step, None);
    }
    let before = device.cost();
    let writes = 6 * blocks as u64;
    for step in warm..warm + writes {
        device.write(next_id(step), step, None);
    }
    let after = device.cost();
    #[allow(clippy::cast_precision_loss)]
    let per_write = |blocks: u64| blocks as f64 / writes as f64;
    (per_write(after.pd_writes - before.pd_writes), per_write(after.total() - before.total()))
}

/// The paper's Figure 4 for uniform traffic: equation 1.
#[test]
fn figure_4_uniform() {
    for spare in [0.1, 0.2, 0.3, 0.5] {
        let (visits, _) = settled(spare, 3, None);
        let predicted = 1.0 / overwritable(spare);
        assert!((visits / predicted - 1.0).abs() < 0.05, "spare {spare}: {visits} {predicted}");
    }
    // Values of the design note, table F4.
    for (spare, visits) in [(0.1, 5.18), (0.2, 2.69), (0.3, 1.88), (0.5, 1.26)] {
        assert!((1.0 / overwritable(spare) - visits).abs() < 0.02, "spare {spare}");
    }
}

/// Deviation B18: focused traffic costs more, not less as the text of Figure 4 says.
#[test]
fn focused_traffic_costs_more() {
    let (uniform, _) = settled(0.2, 3, None);
    let (focused, _) = settled(0.2, 3, Some((90, 10)));
    assert!(focused > 1.15 * uniform, "{focused} {uniform}");
}

/// Blocks written a public block: (k + 4) / p + 1, the design note's table C1.
#[test]
fn cost_of_the_layout() {
    for (k, wanted) in [(2, 17.2), (3, 19.8), (4, 22.5)] {
        let (_, blocks) = settled(0.2, k, None);
        assert!((blocks / wanted - 1.0).abs() < 0.05, "k {k}: {blocks}");
    }
}
