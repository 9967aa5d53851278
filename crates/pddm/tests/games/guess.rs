//! Level C: somebody who looks from outside and guesses. Many games of two kinds, with and without a
//! hidden volume and each with public traffic of its own; all that can be counted in snapshots is
//! given to a guesser that learns from half of the games and is tested on the others. (Design note,
//! section 5.4.)

use tacita_testkit::history::Rng;

use crate::content::units;
use crate::worlds::{Scenario, play};
use tacita_testkit::env_number;

const BLOCK: usize = 4096;

/// What was found.
#[derive(Debug)]
pub(crate) struct Score {
    /// Share of right guesses on games not learnt from.
    pub(crate) accuracy: f64,
    /// Its Kolmogorov-Smirnov distance between the two kinds.
    pub(crate) distance: f64,
}

/// What can be counted of a game: the writes, and what stands in hidden slots, tags and cells.
fn features(seed: u64, hidden: bool) -> Vec<f64> {
    let world = play(&Scenario::busy(seed), hidden);
    let units = units(&world.device);
    let recording = world.device.recording();
    let count = units.len() as f64;
    let flushes = recording.events().len() as f64 - count;
    let mut features = vec![count, flushes / count, flushes];
    let slots = |from: usize, to: usize| -> Vec<u8> {
        units.iter().flat_map(|unit| unit[from * BLOCK..to * BLOCK].iter().copied()).collect()
    };
    let headers: Vec<u8> =
        units.iter().flat_map(|unit| unit[BLOCK - 224..BLOCK].iter().copied()).collect();
    for bytes in [slots(5, 6), slots(6, 7), slots(7, 8), slots(1, 5), headers] {
        features.extend(statistics(&bytes));
    }
    features
}

/// Mean, chi-square a byte, serial correlation, share of the most frequent byte.
fn statistics(bytes: &[u8]) -> [f64; 4] {
    let n = bytes.len() as f64;
    let mut bins = [0u32; 256];
    bytes.iter().for_each(|byte| bins[usize::from(*byte)] += 1);
    let mean = bytes.iter().map(|b| f64::from(*b)).sum::<f64>() / n;
    let chi = bins.iter().map(|b| (f64::from(*b) - n / 256.0).powi(2) / (n / 256.0)).sum::<f64>();
    let product = |(a, b): (&u8, &u8)| (f64::from(*a) - mean) * (f64::from(*b) - mean);
    let serial = bytes.iter().zip(&bytes[1..]).map(product).sum::<f64>() / n;
    [mean, chi, serial, f64::from(*bins.iter().max().unwrap()) / n]
}

/// The largest distance between the shares of two samples below any value, and that value.
fn distance(a: &[f64], b: &[f64]) -> (f64, f64) {
    let below = |sample: &[f64], at: f64| {
        sample.iter().filter(|value| **value <= at).count() as f64 / sample.len() as f64
    };
    let all = a.iter().chain(b).copied();
    let best = all.map(|at| (below(a, at) - below(b, at), at));
    best.max_by(|x, y| x.0.abs().total_cmp(&y.0.abs())).unwrap()
}

/// Plays so many games of either kind.
pub(crate) fn score(seed: u64, games: usize) -> Score {
    let mut rng = Rng::new(seed);
    let mut kinds = [Vec::new(), Vec::new()];
    for (hidden, games_of_kind) in [false, true].into_iter().zip(&mut kinds) {
        for _ in 0..games {
            games_of_kind.push(features(rng.below(1 << 40), hidden));
        }
    }
    let column = |kind: usize, range: std::ops::Range<usize>, feature: usize| -> Vec<f64> {
        kinds[kind][range].iter().map(|game| game[feature]).collect()
    };
    let half = games / 2;
    let learnt = (0..kinds[0][0].len()).map(|feature| {
        let (gap, at) = distance(&column(0, 0..half, feature), &column(1, 0..half, feature));
        (feature, gap, at)
    });
    let (feature, gap, at) = learnt.max_by(|x, y| x.1.abs().total_cmp(&y.1.abs())).unwrap();
    // Below the value it is the kind that is there more often.
    let right = |kind: usize, value: f64| (value <= at) == ((gap > 0.0) == (kind == 0));
    let tested = |kind| column(kind, half..games, feature).into_iter().map(move |v| (kind, v));
    let guesses: Vec<bool> = tested(0).chain(tested(1)).map(|(k, v)| right(k, v)).collect();
    let accuracy = guesses.iter().filter(|right| **right).count() as f64 / guesses.len() as f64;
    let whole = distance(&column(0, 0..games, feature), &column(1, 0..games, feature)).0.abs();
    Score { accuracy, distance: whole }
}

#[test]
fn a_guesser_stays_at_chance() {
    let games = usize::try_from(env_number("TACITA_GUESSES", 80)).unwrap();
    // Five standard deviations of so many coins.
    let bound = 5.0 * (0.25 / games as f64).sqrt();
    let score = score(1, games);
    assert!((score.accuracy - 0.5).abs() < bound, "{score:?}");
    // Of many features one is always the most different; this is far beyond that.
    assert!(score.distance < 2.9 / (games as f64 / 2.0).sqrt(), "{score:?}");
}
