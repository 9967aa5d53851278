//! What a server counts of itself, for whoever runs it. Clients' secrets are not among it: it has none.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::wire::{Refusal, Request};

/// Upper ends of the classes of latency, in microseconds.
const CLASSES_US: [u64; 6] = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Counts since the server began.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Connections that were taken.
    pub connections: Counter,
    /// Connections that have ended.
    pub connections_ended: Counter,
    /// Connections that were closed at once, for there were too many.
    pub connections_refused: Counter,
    /// TLS handshakes that failed or took too long.
    pub handshakes_failed: Counter,
    /// Bytes of requests.
    pub bytes_in: Counter,
    /// Bytes of answers and pushes.
    pub bytes_out: Counter,
    /// Records that were appended, by one query each.
    pub queries: Counter,
    /// Objects of records that were written: one for each commit.
    pub commits: Counter,
    /// Steps of lookups.
    pub fetches: Counter,
    /// Results that were kept.
    pub results: Counter,
    /// Records and results that were pushed to followers.
    pub pushes: Counter,
    /// Objects that clients put.
    pub objects: Counter,
    /// All other requests.
    pub other_requests: Counter,
    /// Requests that were refused, by reason: closed, fenced, absent, malformed, storage, overloaded, version.
    pub refusals: [Counter; 7],
    /// Labels that were found in memory, and that had to be read.
    pub labels: [Counter; 2],
    /// What reading from the store took.
    pub reads: Latency,
    /// What writing to the store took.
    pub writes: Latency,
    /// Operations of the store that failed.
    pub storage_failures: Counter,
}

/// Counts up.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// How long operations took.
#[derive(Debug, Default)]
pub struct Latency {
    classes: [Counter; CLASSES_US.len()],
    count: Counter,
    sum_us: Counter,
}

impl Counter {
    /// What it has counted.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

impl Latency {
    /// How many operations there were.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    pub(super) fn add(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.count.add(1);
        self.sum_us.add(took_us);
        if let Some(class) = CLASSES_US.iter().position(|end| took_us <= *end) {
            self.classes[class].add(1);
        }
    }

    fn render(&self, out: &mut String, operation: &str) {
        let name = "tacita_oram_storage_seconds";
        let mut below = 0;
        for (class, end_us) in self.classes.iter().zip(CLASSES_US) {
            below += class.get();
            let end = seconds(end_us);
            line(out, &format!("{name}_bucket{{operation=\"{operation}\",le=\"{end}\"}}"), below);
        }
        let count = self.count.get();
        line(out, &format!("{name}_bucket{{operation=\"{operation}\",le=\"+Inf\"}}"), count);
        let sum = seconds(self.sum_us.get());
        line(out, &format!("{name}_sum{{operation=\"{operation}\"}}"), sum);
        line(out, &format!("{name}_count{{operation=\"{operation}\"}}"), count);
    }
}

impl Metrics {
    pub(super) fn asked(&self, request: &Request) {
        match request {
            Request::Fetch { .. } => self.fetches.add(1),
            Request::Append { .. } | Request::Store { .. } | Request::Put { .. } => {}
            _ => self.other_requests.add(1),
        }
    }

    pub(super) fn refused(&self, refusal: Refusal) {
        self.refusals[place_of(refusal)].add(1);
    }

    /// All of it as Prometheus reads it.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let open = self.connections.get().saturating_sub(self.connections_ended.get());
        head(&mut out, "tacita_oram_connections", "gauge", "Connections that are open.");
        line(&mut out, "tacita_oram_connections", open);
        let counts: [(&str, &str, &Counter); 13] = [
            ("connections_total", "Connections that were taken.", &self.connections),
            ("connections_refused_total", "Connections too many.", &self.connections_refused),
            ("handshakes_failed_total", "TLS handshakes that failed.", &self.handshakes_failed),
            ("bytes_in_total", "Bytes of requests.", &self.bytes_in),
            ("bytes_out_total", "Bytes of answers and pushes.", &self.bytes_out),
            ("queries_total", "Records that were appended.", &self.queries),
            ("commits_total", "Objects of records that were written.", &self.commits),
            ("fetches_total", "Steps of lookups.", &self.fetches),
            ("results_total", "Results that were kept.", &self.results),
            ("pushes_total", "Records and results that were pushed.", &self.pushes),
            ("objects_total", "Objects that clients put.", &self.objects),
            ("other_requests_total", "Other requests.", &self.other_requests),
            ("storage_failures_total", "Failures of the store.", &self.storage_failures),
        ];
        for (name, about, counter) in counts {
            let name = format!("tacita_oram_{name}");
            head(&mut out, &name, "counter", about);
            line(&mut out, &name, counter.get());
        }
        let reasons =
            ["closed", "fenced", "absent", "malformed", "storage", "overloaded", "version"];
        head(&mut out, "tacita_oram_refusals_total", "counter", "Requests that were refused.");
        for (reason, counter) in reasons.iter().zip(&self.refusals) {
            let name = format!("tacita_oram_refusals_total{{reason=\"{reason}\"}}");
            line(&mut out, &name, counter.get());
        }
        head(&mut out, "tacita_oram_labels_total", "counter", "Indexes of labels looked into.");
        for (place, counter) in ["memory", "store"].iter().zip(&self.labels) {
            let name = format!("tacita_oram_labels_total{{from=\"{place}\"}}");
            line(&mut out, &name, counter.get());
        }
        let about = "What operations of the store took.";
        head(&mut out, "tacita_oram_storage_seconds", "histogram", about);
        self.reads.render(&mut out, "read");
        self.writes.render(&mut out, "write");
        out
    }
}

const fn place_of(refusal: Refusal) -> usize {
    match refusal {
        Refusal::PeriodClosed => 0,
        Refusal::Fenced => 1,
        Refusal::Absent => 2,
        Refusal::Malformed => 3,
        Refusal::Storage => 4,
        Refusal::Overloaded => 5,
        Refusal::Version => 6,
    }
}

fn head(out: &mut String, name: &str, kind: &str, about: &str) {
    writeln!(out, "# HELP {name} {about}\n# TYPE {name} {kind}").expect("strings take anything");
}

fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    writeln!(out, "{name} {value}").expect("strings take anything");
}

/// Microseconds as decimal seconds.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_told() {
        let metrics = Metrics::default();
        metrics.queries.add(3);
        metrics.refused(Refusal::Fenced);
        for us in [50, 5_000, 20_000_000] {
            metrics.reads.add(Duration::from_micros(us));
        }
        let text = metrics.render();
        for line in [
            "# TYPE tacita_oram_queries_total counter",
            "tacita_oram_queries_total 3",
            "tacita_oram_refusals_total{reason=\"fenced\"} 1",
            "tacita_oram_refusals_total{reason=\"closed\"} 0",
            "tacita_oram_storage_seconds_bucket{operation=\"read\",le=\"0.000100\"} 1",
            "tacita_oram_storage_seconds_bucket{operation=\"read\",le=\"0.010000\"} 2",
            "tacita_oram_storage_seconds_bucket{operation=\"read\",le=\"10.000000\"} 2",
            "tacita_oram_storage_seconds_bucket{operation=\"read\",le=\"+Inf\"} 3",
            "tacita_oram_storage_seconds_sum{operation=\"read\"} 20.005050",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }
}
