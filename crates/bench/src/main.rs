//! `tacita-bench`: measures file systems side by side, and draws the papers' figures.
//!
//! Every number comes from a real mount made by the `tacita` binary or a peer, or from the disk
//! model's virtual clock. Results go to stdout and to CSV; plots are drawn from the CSV alone.

#![allow(clippy::disallowed_methods, reason = "it measures on the clock of the machine")]

mod arguments;
mod dnefs;
mod everyday;
mod fist;
mod harness;
mod hifs;
mod model;
mod mount_cost;
mod nbd;
mod oram;
mod pddm;
mod privatefs;
mod purge;
mod ram_limit;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use tacita_daemon::voice::shown_name;

use arguments::{Arguments, Command};
use harness::report::{redraw, report};
use harness::{provenance, runner};

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tacita-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    runner::stop_on_signals()?;
    let out = &arguments.out;
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", shown_name(out)))?;
    let origin = provenance::of_this_machine(&arguments.scratch);
    match &arguments.command {
        Command::Hifs(options) => {
            let records = hifs::run(options, &arguments.scratch)?;
            report(&records, &origin, out, "results")?;
            print!("{}", hifs::targets::verdicts(&records));
        }
        Command::Model(options) => report(&model::run(options)?, &origin, out, "model")?,
        Command::Mount(options) => {
            let records = mount_cost::run(options, &arguments.scratch)?;
            report(&records, &origin, out, "mount")?;
            print!("{}", hifs::targets::mount_verdicts(&records));
        }
        Command::Ram(options) => {
            let records = ram_limit::run(options, &arguments.scratch)?;
            report(&records, &origin, out, "ram")?;
            print!("{}", hifs::targets::verdicts(&records));
        }
        Command::Purge(options) => {
            report(&purge::run(options, &arguments.scratch)?, &origin, out, "purge")?;
        }
        Command::Deleting(options) => {
            report(&purge::deleting::run(options, &arguments.scratch)?, &origin, out, "deleting")?;
        }
        Command::Nbd(options) => {
            let records = nbd::run(options, &arguments.scratch)?;
            report(&records, &origin, out, "nbd")?;
            print!("{}", nbd::verdicts("tacita-file", &records));
        }
        Command::Pddm(options) => {
            let records = pddm::run(options, &arguments.scratch)?;
            report(&records, &origin, out, "pddm")?;
            print!("{}", pddm::verdicts(&records));
        }
        Command::PddmModel(options) => {
            let records = pddm::on_a_disk(options.size)?;
            report(&records, &origin, out, "pddm-model")?;
            print!("{}", pddm::beside_the_paper(&records));
        }
        Command::Dnefs(options) => {
            let mut records = Vec::new();
            for part in &options.parts {
                let found = dnefs::run(part, options, &arguments.scratch)?;
                report(&found, &origin, out, &format!("dnefs-{part}"))?;
                records.extend(found);
            }
            print!("{}", dnefs::targets::verdicts(&records));
            print!("{}", dnefs::targets::beside_the_paper(&records));
        }
        Command::Everyday(options) => {
            report(&everyday::run(options, &arguments.scratch)?, &origin, out, "everyday")?;
        }
        Command::Fist(options) => fist::report_all(options, arguments, &origin)?,
        Command::Oram(options) => {
            let mut records = Vec::new();
            for part in &options.parts {
                let found = oram::run(part, options, &arguments.scratch)?;
                report(&found, &origin, out, &format!("oram-{part}"))?;
                records.extend(found);
            }
            print!("{}", oram::targets::verdicts(&records));
        }
        Command::Privatefs(options) => privatefs::report_all(options, arguments, &origin)?,
        Command::Plot => ["results", "model"].iter().try_for_each(|name| redraw(out, name))?,
    }
    Ok(())
}
