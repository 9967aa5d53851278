//! A sector that cannot be read until it is written, anywhere, or all of a unit: what is said, refused and written does
//! not tell what is hidden, and a sweep comes through.

use std::ops::Range;
use std::sync::Arc;

use tacita_block::{self as block, BlockDevice, BlockNo, BlockRange, Fault, FaultDevice, Geometry};
use tacita_pddm::{Error, Kind, Options, Session, Unlock, Unread};
use tacita_testkit::env_number;
use tacita_testkit::history::Rng;

use crate::damage::example;
use crate::devices::{BLOCK, content, entropy, open, volume, wrap};
use crate::worlds::{Scenario, play, public_difference, write_log};

/// So many are bad in a game, one after the other.
const SECTORS: u64 = 24;

/// A device with such a sector, or a row of them.
struct BadSectors {
    device: FaultDevice,
    /// In bytes.
    bad: Range<u64>,
}

impl BadSectors {
    /// In all of these blocks of the device.
    fn new(image: &[u8], blocks: &Range<u64>) -> Arc<Self> {
        let device = FaultDevice::from_bytes(image.to_vec(), 4096).unwrap();
        let sector_of = |block| block * BLOCK as u64 + 512;
        let bad = sector_of(blocks.start)..sector_of(blocks.end - 1) + 512;
        device.inject(Fault::FailReads(bad.clone()));
        Arc::new(Self { device, bad })
    }
}

/// The unit in which a block lies.
fn unit_around(block: u64) -> Range<u64> {
    let start = block / 8 * 8;
    start..start + 8
}

impl BlockDevice for BadSectors {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> block::Result<()> {
        self.device.read(at, buf)
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> block::Result<()> {
        self.device.write(at, buf)?;
        if self.geometry().byte_range(at, buf.len())?.contains(&self.bad.start) {
            // A disk has put others in their place.
            self.device.clear_faults();
        }
        Ok(())
    }

    fn flush(&self) -> block::Result<()> {
        self.device.flush()
    }

    fn discard(&self, range: BlockRange) -> block::Result<()> {
        self.device.discard(range)
    }
}

fn opened(device: &Arc<BadSectors>, level: u8, unread: Unread) -> Result<Session, Error> {
    let device: Arc<dyn BlockDevice> = device.clone();
    // Public randomness is the same in both worlds.
    let options =
        Options { unread, entropy: entropy(5, 5 + u64::from(level)), ..Options::default() };
    Session::open(&device, Unlock::Wrap(&wrap(level)), options)
}

/// All that whoever uses the public volume hears.
fn heard(opened: Result<Session, Error>) -> Vec<String> {
    let session = match opened {
        Ok(session) => session,
        Err(error) => return vec![format!("{:?}: {error}", error.kind())],
    };
    let mut heard = vec![format!("next is unit {}", session.written_units())];
    let public = volume(&session, 0);
    for step in 0..16 {
        let written = public.write(BlockNo(step * 3), &content(step, 77));
        heard.push(format!("{:?}, {:?}", written.is_ok(), session.beat().is_ok()));
    }
    for id in 0..public.geometry().blocks {
        let mut buf = vec![0; BLOCK];
        let read = public.read(BlockNo(id), &mut buf).map_err(|e| e.to_string());
        heard.push(format!("{read:?}: {}", String::from_utf8_lossy(&buf[..24])));
    }
    heard.push(format!("{} lost, closed: {}", public.lost_blocks(), session.close().is_ok()));
    heard
}

/// What tells a world with a hidden volume from one without, by a bad sector; empty if nothing.
pub(crate) fn difference(seed: u64) -> Vec<String> {
    let scenario = Scenario::busy(seed * 1000);
    let images = [false, true].map(|hidden| play(&scenario, hidden).device.content());
    let blocks = (images[0].len() / BLOCK) as u64;
    let mut rng = Rng::new(seed);
    let mut found = Vec::new();
    for n in 0..SECTORS {
        let block = rng.below(blocks);
        let bad = if n % 4 == 0 { unit_around(block) } else { block..block + 1 };
        // Whoever has the public password alone; and whoever opens all that there is.
        for (own, unread) in [(0, Unread::Refused), (0, Unread::GivenUp), (1, Unread::GivenUp)] {
            let worlds = [0, 1].map(|world: u8| {
                let device = BadSectors::new(&images[usize::from(world)], &bad);
                let mut session = opened(&device, world.min(own), unread);
                if session.as_ref().is_err_and(|e| own == 1 && e.kind() == Kind::NoVolume) {
                    // What public-only use has destroyed.
                    session = opened(&device, 0, unread);
                }
                (heard(session), device)
            });
            let [a, b] = &worlds;
            let logs = [write_log(&a.1.device), write_log(&b.1.device)];
            if a.0 != b.0 || logs[0] != logs[1] {
                found.push(format!("blocks {bad:?}, {own}, {unread:?}: {:?}, {:?}", a.0, b.0));
            } else {
                let what = public_difference(&a.1.device.content(), &b.1.device.content());
                found.extend(what.into_iter().map(|what| format!("blocks {bad:?}: {what}")));
            }
            if a.0.len() == 1 && (0..2).any(|n| worlds[n].1.device.content() != images[n]) {
                found.push(format!("blocks {bad:?}: it was refused, and is another"));
            }
        }
    }
    found.truncate(5);
    found
}

#[test]
fn a_bad_sector_tells_no_worlds_apart() {
    for seed in 0..env_number("TACITA_GAMES", 8) {
        assert_eq!(difference(seed), Vec::<String>::new(), "seed {seed}");
    }
}

/// Wherever they lie, also where the sweep is interrupted, or killed, and called again: then the device opens for
/// writing, is whole, and has lost what lay there at most. The same is written whatever is open.
#[test]
fn a_sweep_comes_through_a_bad_sector() {
    let good = example();
    let mut lost = 0;
    let blocks = (good.len() / BLOCK) as u64;
    let sectors = (0..blocks).map(|block| block..block + 1);
    let units = (0..blocks / 8).map(|unit| unit_around(unit * 8));
    for bad in sectors.chain(units) {
        let at = bad.start;
        let logs = [0, 1].map(|level| {
            let device = BadSectors::new(&good, &bad);
            for (calls, is_killed) in [(1, true), (3, false), (u64::MAX, false)] {
                let session = opened(&device, level, Unread::GivenUp).unwrap();
                let mut left = calls;
                let swept = session.sweep(&mut |_, _| {
                    left -= 1;
                    left > 0
                });
                assert_eq!(swept.unwrap(), calls == u64::MAX);
                if !is_killed {
                    session.close().unwrap();
                }
            }
            let dynamic: Arc<dyn BlockDevice> = device.clone();
            let session = open(&dynamic, level, entropy(6, 6));
            let damage = session.check(&mut |_| {}).unwrap();
            assert_eq!((damage.units, damage.superblocks), (vec![], vec![]), "block {at}");
            let mut unreadable = 0;
            for (of, count) in [(0, 60), (1, 40)].into_iter().take(usize::from(level) + 1) {
                for id in 0..count {
                    let mut buf = vec![0; BLOCK];
                    match volume(&session, of).read(BlockNo(id), &mut buf) {
                        Ok(()) => assert!(buf == content(id, 1), "block {at}: {of}, {id}"),
                        Err(_) => unreadable += 1,
                    }
                }
            }
            assert!(unreadable <= if at % 8 == 0 { 7 } else { 1 }, "block {at}: {unreadable}");
            lost += unreadable;
            write_log(&device.device)
        });
        assert!(logs[0] == logs[1], "block {at}");
    }
    assert!(lost > 100, "{lost}");
}
