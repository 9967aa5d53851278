//! What was written and flushed, and every image that a power cut may leave of it.

/// Size in bytes of what a disk writes wholly or not at all.
pub const SECTOR_LEN_BYTES: usize = 512;

/// What discarded bytes read as: a value that nobody may rely on.
pub(crate) const DISCARDED: u8 = 0xdd;

/// Number of a 512-byte sector from the device start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sector(pub u64);

/// A change of the device, or a point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// These bytes were written.
    Write {
        /// Bytes from the device start, a multiple of the block length.
        offset: u64,
        /// What was written.
        data: Box<[u8]>,
    },
    /// These bytes were discarded.
    Discard {
        /// Bytes from the device start, a multiple of the block length.
        offset: u64,
        /// Length in bytes.
        len_bytes: u64,
    },
    /// Every write before is durable.
    Flush,
    /// A flush that failed: any of the writes since the flush before may be lost for good, even if
    /// a later flush succeeds.
    FailedFlush,
}

/// A sector of a write that was not durable when the power failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InFlight {
    /// Index of the write among [`Recording::events`].
    pub event: usize,
    /// Where it was to go.
    pub sector: Sector,
}

/// A base image, all of it durable, and what happened since.
///
/// A *cut* is a number of events, from 0 to all: those were asked for when the power failed, and
/// the last of them may have been under way.
#[derive(Debug, Clone)]
pub struct Recording {
    base: Vec<u8>,
    events: Vec<Event>,
}

impl Recording {
    /// No events yet.
    pub fn new(base: Vec<u8>) -> Self {
        Self { base, events: Vec::new() }
    }

    /// Adds what happened next.
    ///
    /// # Panics
    /// If it lies beyond the end of the base image.
    pub fn push(&mut self, event: Event) {
        let end = match &event {
            Event::Write { offset, data } => offset + data.len() as u64,
            Event::Discard { offset, len_bytes } => offset + len_bytes,
            Event::Flush | Event::FailedFlush => 0,
        };
        assert!(end <= self.base.len() as u64, "beyond the end of the image");
        self.events.push(event);
    }

    /// The image that the recording started from.
    pub fn base(&self) -> &[u8] {
        &self.base
    }

    /// What happened, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The events up to and with write `write`, as a cut; `None` if there were fewer writes.
    pub fn cut_at_write(&self, write: usize) -> Option<usize> {
        let is_write = |(_, e): &(usize, &Event)| matches!(e, Event::Write { .. });
        let mut writes = self.events.iter().enumerate().filter(is_write);
        writes.nth(write).map(|(index, _)| index + 1)
    }

    /// The sectors that were not durable at `cut`, in the order in which they were written; a
    /// sector written twice stands there twice.
    pub fn in_flight(&self, cut: usize) -> Vec<InFlight> {
        let mut found = Vec::new();
        self.image_at(cut, |sector| {
            found.push(sector);
            true
        });
        found
    }

    /// The image after a power failure at `cut`.
    ///
    /// Durable writes are in it; of the others, those sectors of which `survives` says so. It is
    /// asked once for each, in the order of writing.
    ///
    /// # Panics
    /// If `cut` is more than the number of events.
    pub fn image_at(&self, cut: usize, mut survives: impl FnMut(InFlight) -> bool) -> Vec<u8> {
        let events = &self.events[..cut];
        let mut image = self.base.clone();
        let mut epoch = 0;
        while epoch < events.len() {
            let rest = &events[epoch..];
            let ends = |e: &Event| matches!(e, Event::Flush | Event::FailedFlush);
            let len = rest.iter().position(ends).unwrap_or(rest.len());
            let durable = rest.get(len) == Some(&Event::Flush);
            for (index, event) in rest[..len].iter().enumerate() {
                apply(&mut image, event, |sector| {
                    let event = epoch + index;
                    durable || survives(InFlight { event, sector })
                });
            }
            epoch += len + 1;
        }
        image
    }

    /// The image if all writes up to `cut` survive: a device that never reorders.
    pub fn prefix_image(&self, cut: usize) -> Vec<u8> {
        self.image_at(cut, |_| true)
    }

    /// The image after a power failure at `cut` with a subset of the sectors in flight that is
    /// drawn from `seed` alone.
    ///
    /// Seeds 0 and 1 stand for none and all of them. Others keep one of eight, half, or seven of
    /// eight, sector by sector or write by write, so that both single losses and single survivors
    /// are met often.
    pub fn crash_image(&self, cut: usize, seed: u64) -> Vec<u8> {
        let odds = [1, 4, 7][usize::from(mix(seed).to_le_bytes()[0] % 3)];
        let whole_writes = mix(seed ^ 1).is_multiple_of(4);
        self.image_at(cut, |InFlight { event, sector }| match seed {
            0 => false,
            1 => true,
            _ => {
                let place = if whole_writes { 0 } else { sector.0 + 1 };
                let draw = mix(mix(seed ^ mix(event as u64)) ^ place);
                draw % 8 < odds
            }
        })
    }

    /// Every image that a device which never reorders may leave, from no event to all, with its
    /// cut.
    pub fn prefix_images(&self) -> impl Iterator<Item = (usize, Vec<u8>)> {
        (0..=self.events.len()).map(|cut| (cut, self.prefix_image(cut)))
    }
}

fn apply(image: &mut [u8], event: &Event, mut survives: impl FnMut(Sector) -> bool) {
    let (offset, len_bytes) = match event {
        Event::Write { offset, data } => (*offset, data.len() as u64),
        Event::Discard { offset, len_bytes } => (*offset, *len_bytes),
        Event::Flush | Event::FailedFlush => return,
    };
    let index = |n: u64| usize::try_from(n).expect("the image fits into memory");
    let sectors = image[index(offset)..index(offset + len_bytes)].chunks_mut(SECTOR_LEN_BYTES);
    for (number, target) in sectors.enumerate() {
        let sector = Sector(offset / SECTOR_LEN_BYTES as u64 + number as u64);
        if survives(sector) {
            match event {
                Event::Write { data, .. } => {
                    let from = number * SECTOR_LEN_BYTES;
                    target.copy_from_slice(&data[from..from + target.len()]);
                }
                _ => target.fill(DISCARDED),
            }
        }
    }
}

/// The finaliser of `SplitMix64`: an even spread, the same on every machine.
pub(crate) const fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
