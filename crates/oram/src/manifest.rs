//! Manifests: what opens a period. docs/spec/oram-store.md.
//!
//! A manifest follows from the one before and from the log, so all who could write one write the same
//! bytes, and the first is kept.

use std::sync::Arc;

use tacita_secret::{Digest, TAG_LEN, digest};

use crate::error::{Error, Kind, Result};
use crate::geometry::{Generation, Geometry};
use crate::item::forged;
use crate::keys::{GenerationKeys, Head, Keys};
use crate::schedule::Build;

/// Bytes of a head that the history keeps.
const SHORT_LEN: usize = 16;
const GENERATION_LEN: usize = 16 + 32;
/// Digest of the manifest before, and the salt.
const CLEAR_LEN: usize = 32 + 16;
const FIXED_LEN: usize = 32 + 8 + 4 + 4;

/// What is known when a period opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Which period.
    pub period: u64,
    /// Digest of the manifest before, as it is stored; zeros for the first.
    pub previous: Digest,
    /// The head before the first record of the period before.
    pub start: Head,
    /// Blocks that are present after the last query of the period before the one before.
    pub present: u64,
    /// For each generation that lives, or whose building began before the period before ended, the head
    /// that decides its content.
    pub generations: Vec<(Generation, Head)>,
    /// Beginnings of the heads after each record of the period before the one before: by these a client
    /// that comes back finds that the log still begins as it knows it.
    pub history: Vec<[u8; SHORT_LEN]>,
}

impl Manifest {
    /// The manifest of period 0.
    pub fn first(keys: &Keys) -> Self {
        Self {
            period: 0,
            previous: [0; 32],
            start: keys.genesis(),
            present: 0,
            generations: Vec::new(),
            history: Vec::new(),
        }
    }

    /// Keys of `generation`, which lives in this manifest's period.
    ///
    /// # Errors
    /// [`Kind::Hostile`] if the manifest does not know it.
    pub fn keys_of(
        &self,
        generation: Generation,
        keys: &Keys,
        geometry: &Geometry,
    ) -> Result<Arc<GenerationKeys>> {
        let head = self.head_of(generation).ok_or_else(|| {
            Error::new(Kind::Hostile, "a manifest does not know what lives in its period")
        })?;
        Ok(Arc::new(keys.generation(generation, geometry.shape(generation), &head)))
    }

    /// The manifest of the next period. `sealed` is this one as it is stored, `present` and `history`
    /// what the next one says, `start` the head before the first record of this one's period.
    #[must_use]
    pub fn next(
        &self,
        geometry: &Geometry,
        sealed: &[u8],
        (start, present, history): (Head, u64, Vec<[u8; SHORT_LEN]>),
    ) -> Self {
        let period = self.period + 1;
        let known = |generation: Generation| {
            let begins = geometry.build(generation).from;
            if begins == self.period * geometry.period() {
                return start;
            }
            self.head_of(generation).expect("what lives or is built was known a period ago")
        };
        let lives = geometry.live(period).into_iter();
        let begun = geometry
            .builds(period)
            .into_iter()
            .filter(|build| build.from < period * geometry.period())
            .map(|build| build.generation);
        let generations = lives.chain(begun).map(|g| (g, known(g))).collect();
        Self { period, previous: digest(sealed), start, present, generations, history }
    }

    /// Bytes of the manifest of `period` as it is stored.
    pub fn stored_len(geometry: &Geometry, period: u64) -> usize {
        let history = if period < 2 { 0 } else { geometry.period() };
        let history = usize::try_from(history).expect("a period is short");
        let begun = |build: &Build| build.from < period * geometry.period();
        let builds = geometry.builds(period);
        let generations = geometry.live(period).len() + builds.iter().filter(|b| begun(b)).count();
        CLEAR_LEN + FIXED_LEN + generations * GENERATION_LEN + history * SHORT_LEN + TAG_LEN
    }

    /// The head that decides the content of `generation`, if this manifest knows it.
    pub fn head_of(&self, generation: Generation) -> Option<Head> {
        self.generations.iter().find(|known| known.0 == generation).map(|known| known.1)
    }

    /// Whether `head` is the head after record number `sequence`, as far as the history reaches.
    pub fn remembers(&self, geometry: &Geometry, sequence: u64, head: &Head) -> bool {
        let from = self.period.saturating_sub(2) * geometry.period();
        let index = sequence.checked_sub(from).and_then(|index| usize::try_from(index).ok());
        index
            .and_then(|index| self.history.get(index))
            .is_some_and(|short| *short == head[..SHORT_LEN])
    }

    /// The manifest as it is stored: digest of the one before and salt in clear, the rest sealed.
    pub fn seal(&self, keys: &Keys) -> Vec<u8> {
        let mut sealed = self.previous.to_vec();
        sealed.resize(CLEAR_LEN, 0);
        sealed.extend_from_slice(&self.start);
        sealed.extend_from_slice(&self.present.to_le_bytes());
        let count = |len: usize| u32::try_from(len).expect("fewer than 2^32").to_le_bytes();
        sealed.extend_from_slice(&count(self.generations.len()));
        sealed.extend_from_slice(&count(self.history.len()));
        for (generation, head) in &self.generations {
            sealed.extend_from_slice(&u64::from(generation.level).to_le_bytes());
            sealed.extend_from_slice(&generation.number.to_le_bytes());
            sealed.extend_from_slice(head);
        }
        sealed.extend(self.history.iter().flatten());
        let salt = keys.manifest_salt(self.period, &sealed);
        sealed[32..CLEAR_LEN].copy_from_slice(&salt);
        let (clear, content) = sealed.split_at_mut(CLEAR_LEN);
        let tag = keys.seal_manifest(self.period, &salt).seal(0, clear, content);
        sealed.extend_from_slice(&tag);
        sealed
    }

    /// The manifest of `period` in `sealed`.
    ///
    /// # Errors
    /// [`crate::Kind::Hostile`] if no client has sealed it for this period.
    pub fn open(keys: &Keys, period: u64, sealed: &[u8]) -> Result<Self> {
        let damaged = || forged("a manifest");
        let (clear, rest) = sealed.split_first_chunk::<CLEAR_LEN>().ok_or_else(damaged)?;
        let (content, tag) = rest.split_last_chunk::<TAG_LEN>().ok_or_else(damaged)?;
        let (previous, salt) = clear.split_first_chunk::<32>().expect("it is longer");
        let salt = salt.try_into().expect("the rest is the salt");
        let mut content = content.to_vec();
        keys.open_manifest(period, salt)
            .open(0, clear, &mut content, tag)
            .map_err(|_| damaged())?;
        let mut rest = Fields(&content);
        let start = rest.take().ok_or_else(damaged)?;
        let present = u64::from_le_bytes(rest.take().ok_or_else(damaged)?);
        let count = |bytes: [u8; 4]| u32::from_le_bytes(bytes) as usize;
        let generation_count = count(rest.take().ok_or_else(damaged)?);
        let history_count = count(rest.take().ok_or_else(damaged)?);
        if rest.0.len() != generation_count * GENERATION_LEN + history_count * SHORT_LEN {
            return Err(damaged());
        }
        let mut generations = Vec::with_capacity(generation_count);
        for _ in 0..generation_count {
            let level = u64::from_le_bytes(rest.take().ok_or_else(damaged)?);
            let number = u64::from_le_bytes(rest.take().ok_or_else(damaged)?);
            let level = u8::try_from(level).map_err(|_| damaged())?;
            generations.push((Generation { level, number }, rest.take().ok_or_else(damaged)?));
        }
        let history = rest.0.as_chunks().0.to_vec();
        Ok(Self { period, previous: *previous, start, present, generations, history })
    }
}

/// What is left to read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacita_secret::Key;

    /// Through many periods each manifest knows the head of all that lives and of all builds but those
    /// that have just begun, and it is the head at which the build began.
    #[test]
    fn knows_the_heads_of_what_lives_and_of_what_is_built() {
        let keys = Keys::new(&Key::take(&mut [1; 32]), &[2; 16]);
        for growth in [2, 4] {
            let geometry = Geometry::new(512, 16, growth, 1000).unwrap();
            let head_at = |sequence: u64| {
                let mut head = [7; 32];
                head[..8].copy_from_slice(&sequence.to_le_bytes());
                head
            };
            let mut manifest = Manifest { start: head_at(0), ..Manifest::first(&keys) };
            for period in 0..500 {
                let now = period * geometry.period();
                for (generation, head) in &manifest.generations {
                    assert_eq!(*head, head_at(geometry.build(*generation).from));
                }
                for generation in geometry.live(period) {
                    assert!(manifest.head_of(generation).is_some());
                }
                for build in geometry.builds(period).iter().filter(|build| build.from < now) {
                    assert!(manifest.head_of(build.generation).is_some());
                }
                let sealed = manifest.seal(&keys);
                assert_eq!(sealed.len(), Manifest::stored_len(&geometry, period));
                assert_eq!(Manifest::open(&keys, period, &sealed).unwrap(), manifest);
                Manifest::open(&keys, period + 1, &sealed).unwrap_err();
                let history = if period == 0 { Vec::new() } else { vec![[6; SHORT_LEN]; 16] };
                manifest = manifest.next(&geometry, &sealed, (head_at(now), 5, history));
            }
        }
    }
}
