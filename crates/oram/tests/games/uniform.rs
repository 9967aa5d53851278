//! What has to look random does: labels and pages of all workloads are spread evenly, follow each other
//! without a pattern, and do not tell one workload from another. Each store has other keys, and all of it
//! is the same whenever it is played.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "statistics of small counts"
)]

use std::collections::BTreeMap;

use tacita_oram::faults::{Fault, plant};
use tacita_oram::geometry::Geometry;
use tacita_oram::record::Operation;

use super::proxy::Trace;
use super::world::{World, id};

const STORES: u8 = 24;
const BLOCKS: u64 = 200;
const QUERIES: u64 = 50;

fn geometry() -> Geometry {
    Geometry::new(512, 16, 4, 400).unwrap()
}

/// Which blocks are read, one after the other.
type Workload = fn(u64) -> u64;

const WORKLOADS: [(&str, Workload); 4] = [
    ("odd blocks", |n| 2 * n + 1),
    ("even blocks", |n| 2 * n),
    ("one block", |_| 7),
    ("blocks that are not there", |n| 1000 + n),
];

/// What each of many stores saw of each workload, which all find it as it was filled.
async fn seen<const N: usize>(workloads: [Workload; N]) -> [Vec<Trace>; N] {
    let mut traces = [(); N].map(|()| Vec::new());
    for store in 0..STORES {
        let filled = World::called([store; 16], geometry(), 0).await;
        filled.prepare(BLOCKS).await;
        for (workload, traces) in workloads.iter().zip(&mut traces) {
            let world = filled.copied().await;
            let trace = world.watch();
            let client = world.open().await.unwrap();
            for n in 0..QUERIES {
                client.query(id(workload(n)), Operation::Read).await.unwrap();
            }
            drop(client);
            traces.push(std::mem::take(&mut *trace.lock().unwrap()));
        }
    }
    traces
}

/// By how many standard deviations the squares of these counts are more than of counts that chance gives.
fn excess(counts: &[u32]) -> f64 {
    let all: u32 = counts.iter().sum();
    let mean = f64::from(all) / counts.len() as f64;
    let squares: f64 = counts.iter().map(|count| (f64::from(*count) - mean).powi(2) / mean).sum();
    let freedom = counts.len() as f64 - 1.0;
    (squares - freedom) / (2.0 * freedom).sqrt()
}

/// How much each value tells of the next, in standard deviations of what chance gives.
fn serial(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let product = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>();
    product / square * count.sqrt()
}

/// Pages as places in their filters, 0 to 1, of filters that have several.
fn places(trace: &Trace) -> Vec<f64> {
    let pages = |generation| f64::from(geometry().shape(generation).pages);
    let of_many = trace.pages.iter().filter(|(generation, _)| pages(*generation) > 1.0);
    of_many.map(|(generation, page)| (f64::from(*page) + 0.5) / pages(*generation)).collect()
}

/// What chance would not give, if anything.
fn pattern(traces: &[Trace]) -> Option<String> {
    // Far beyond what chance does to a few hundred statistics, and far below what a fault does.
    const FAR: f64 = 6.0;
    let labels: Vec<_> = traces.iter().flat_map(|trace| &trace.labels).collect();
    for at in 0..16 {
        let mut counts = [0; 256];
        for (_, label) in &labels {
            counts[usize::from(label[at])] += 1;
        }
        if excess(&counts) > FAR {
            return Some(format!("byte {at} of labels: {counts:?}"));
        }
    }
    let mut pages: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (generation, page) in traces.iter().flat_map(|trace| &trace.pages) {
        let of = geometry().shape(*generation).pages;
        pages.entry(of).or_insert_with(|| vec![0; of as usize])[*page as usize] += 1;
    }
    for (of, counts) in pages.iter().filter(|(of, _)| **of > 1) {
        if excess(counts).abs() > FAR {
            return Some(format!("pages of filters that have {of}: {counts:?}"));
        }
    }
    let numbers: Vec<f64> = labels
        .iter()
        .map(|(_, label)| f64::from(u16::from_be_bytes([label[0], label[1]])))
        .collect();
    let places: Vec<f64> = traces.iter().flat_map(places).collect();
    for (what, values) in [("labels", numbers), ("pages", places)] {
        if serial(&values).abs() > FAR {
            return Some(format!("each of the {what} tells of the next"));
        }
    }
    None
}

/// What a trace looks like to who tells workloads apart.
fn features(trace: &Trace) -> Vec<f64> {
    let places = places(trace);
    let mut features = vec![0.0; 12];
    for place in &places {
        features[(place * 8.0) as usize] += 1.0 / places.len() as f64;
    }
    for (_, label) in &trace.labels {
        features[8 + usize::from(label[0] >> 6)] += 1.0 / trace.labels.len() as f64;
    }
    features
}

/// How many of 100 traces are taken for what they are by who knows others of both kinds.
fn guessed(one: &[Trace], other: &[Trace]) -> f64 {
    let kinds = [one, other].map(|traces| traces.iter().map(features).collect::<Vec<_>>());
    let mean = |known: &[Vec<f64>]| -> Vec<f64> {
        (0..12).map(|n| known.iter().map(|f| f[n]).sum::<f64>() / known.len() as f64).collect()
    };
    let half = kinds[0].len() / 2;
    let means = [mean(&kinds[0][..half]), mean(&kinds[1][..half])];
    let distance =
        |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let mut right = 0;
    for (kind, traces) in kinds.iter().enumerate() {
        for trace in &traces[half..] {
            right += u32::from(distance(trace, &means[kind]) < distance(trace, &means[1 - kind]));
        }
    }
    100.0 * f64::from(right) / (2.0 * half as f64)
}

/// Three standard deviations of guesses by chance.
fn three_sigma() -> f64 {
    300.0 * 0.5 / f64::from(STORES).sqrt()
}

#[tokio::test(start_paused = true)]
async fn what_looks_random_is_even_and_tells_nothing() {
    let [first, others @ ..] = seen(WORKLOADS.map(|(_, workload)| workload)).await;
    assert_eq!(pattern(&first), None);
    for ((name, _), traces) in WORKLOADS[1..].iter().zip(&others) {
        assert_eq!(pattern(traces), None, "{name}");
        let guessed = guessed(&first, traces);
        assert!((guessed - 50.0).abs() < three_sigma(), "{name}: {guessed}% are guessed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_tells_of_numbers_is_noticed() {
    let _planted = plant(Fault::FilterByNumber);
    let [odd, even] = seen([WORKLOADS[0].1, WORKLOADS[1].1]).await;
    assert!(pattern(&even).is_some());
    let guessed = guessed(&odd, &even);
    assert!(guessed > 50.0 + three_sigma(), "{guessed}% are guessed");
}
