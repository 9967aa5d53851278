//! When generations are built, live and die: a function of the number of queries alone, which
//! everybody sees.
//!
//! Level i gets a batch each `batch(i - 1)` queries: full logs for level 1, full generations of level
//! i - 1 otherwise. A batch is merged with the generation that the level has, while as many queries
//! pass as until the next batch; then the new generation takes the place of both. After `growth`
//! batches a generation is full: it is the next level's batch and lives until that level's build is
//! complete, while its own level begins anew. So a level has at most two generations that live.

use crate::geometry::{Generation, Geometry};

/// The building of one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    /// What is built.
    pub generation: Generation,
    /// The generation of the same level that goes into it.
    pub current: Option<Generation>,
    /// The other input.
    pub batch: Batch,
    /// Number of queries when it begins: the inputs are complete.
    pub from: u64,
    /// Number of queries by which it is complete.
    pub until: u64,
}

/// What comes to a level from above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// The log of a period.
    Log {
        /// Which period, from 0 on.
        period: u64,
    },
    /// A full generation.
    Full(Generation),
}

impl Geometry {
    /// Number of queries after which batch `number` (from 1 on) is there for `level`.
    pub fn arrival(&self, level: u8, number: u64) -> u64 {
        let first: u64 = (0..level).map(|above| self.batch(above)).sum();
        first + (number - 1) * self.batch(level - 1)
    }

    /// Number of queries from which on `generation` serves.
    pub fn born(&self, generation: Generation) -> u64 {
        self.arrival(generation.level, generation.number) + self.batch(generation.level - 1)
    }

    /// Number of queries from which on no new query asks `generation`.
    pub fn dies(&self, generation: Generation) -> u64 {
        let level = if self.is_full(generation) { generation.level } else { generation.level - 1 };
        self.born(generation) + self.batch(level)
    }

    /// How `generation` comes to be.
    pub fn build(&self, generation: Generation) -> Build {
        let Generation { level, number } = generation;
        let begins_anew = level < self.levels() && (number - 1).is_multiple_of(self.growth());
        let current =
            (number > 1 && !begins_anew).then(|| Generation { level, number: number - 1 });
        let batch = if level == 1 {
            Batch::Log { period: number - 1 }
        } else {
            Batch::Full(Generation { level: level - 1, number: number * self.growth() })
        };
        let from = self.arrival(level, number);
        Build { generation, current, batch, from, until: self.born(generation) }
    }

    /// Generations that the queries of `period` ask, newest content first.
    pub fn live(&self, period: u64) -> Vec<Generation> {
        let now = period * self.period();
        self.candidates(now).filter(|&g| self.born(g) <= now && now < self.dies(g)).collect()
    }

    /// What is built while the queries of `period` come, smallest level first.
    pub fn builds(&self, period: u64) -> Vec<Build> {
        let now = period * self.period();
        (1..=self.levels())
            .filter_map(|level| {
                let first = self.arrival(level, 1);
                let number = now.checked_sub(first)? / self.batch(level - 1) + 1;
                Some(self.build(Generation { level, number }))
            })
            .collect()
    }

    /// Every generation that can live at `now`, newest content first.
    fn candidates(&self, now: u64) -> impl Iterator<Item = Generation> {
        let geometry = *self;
        (1..=self.levels()).flat_map(move |level| {
            let passed = now.saturating_sub(geometry.arrival(level, 1));
            let newest = passed / geometry.batch(level - 1);
            let oldest = newest.saturating_sub(2 * geometry.growth()).max(1);
            (oldest..=newest).rev().map(move |number| Generation { level, number })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometries() -> [Geometry; 3] {
        [(2, 4096), (4, 20_000), (4, 40)]
            .map(|(growth, capacity)| Geometry::new(4096, 16, growth, capacity).unwrap())
    }

    /// Each query's result is in exactly one of: the two logs that live, the generations that live.
    /// They are asked from the newest content to the oldest.
    #[test]
    fn what_lives_holds_each_period_once_and_in_order() {
        for geometry in geometries() {
            for period in 1..2000 {
                let mut logs = Vec::new();
                for generation in geometry.live(period) {
                    let mut content = periods_in(&geometry, generation);
                    content.reverse();
                    logs.extend(content);
                }
                let expected: Vec<u64> = (0..period - 1).rev().collect();
                assert_eq!(logs, expected, "period {period} of {geometry:?}");
            }
        }
    }

    fn periods_in(geometry: &Geometry, generation: Generation) -> Vec<u64> {
        let build = geometry.build(generation);
        let mut periods =
            build.current.map(|current| periods_in(geometry, current)).unwrap_or_default();
        match build.batch {
            Batch::Log { period } => periods.push(period),
            Batch::Full(full) => periods.extend(periods_in(geometry, full)),
        }
        periods
    }

    #[test]
    fn levels_have_two_generations_at_most_and_one_build() {
        for geometry in geometries() {
            for period in 0..3000 {
                let live = geometry.live(period);
                let builds = geometry.builds(period);
                let now = period * geometry.period();
                for level in 1..=geometry.levels() {
                    assert!(live.iter().filter(|g| g.level == level).count() <= 2);
                }
                for build in builds {
                    assert!(build.from <= now && now < build.until);
                    assert!(build.current.is_none_or(|current| live.contains(&current)));
                    if let Batch::Full(full) = build.batch {
                        assert!(live.contains(&full) && geometry.is_full(full));
                    }
                }
            }
        }
    }

    #[test]
    fn every_query_of_a_life_has_a_fake_of_its_own() {
        for geometry in geometries() {
            for period in 0..3000 {
                for generation in geometry.live(period) {
                    let life = geometry.dies(generation) - geometry.born(generation);
                    assert_eq!(geometry.shape(generation).fakes, life);
                }
            }
        }
    }
}
