//! What all benchmarks share: values and the files that keep them, rounds, reports and verdicts, and
//! the programs of the machine.

pub(crate) mod content;
pub(crate) mod fio;
mod plot;
pub(crate) mod promise;
pub(crate) mod provenance;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod results;
pub(crate) mod rounds;
pub(crate) mod runner;
pub(crate) mod statistics;
mod table;
