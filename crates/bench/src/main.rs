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
mod promises;
mod purge;
mod ram_limit;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use tacita_daemon::voice::shown_name;

use arguments::{Arguments, Command};
use harness::promise::{Promise, lines};
use harness::record::Record;
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
    let scratch = &arguments.scratch;
    let tell = |name: &str, records: &[Record], promises: fn(&[Record]) -> Vec<Promise>| {
        report(records, &origin, out, name)?;
        print!("{}", lines(&promises(records)));
        anyhow::Ok(())
    };
    match &arguments.command {
        Command::Hifs(options) => {
            tell("hifs", &hifs::run(options, scratch)?, hifs::targets::promises)?;
        }
        Command::Model(options) => report(&model::run(options)?, &origin, out, "model")?,
        Command::Mount(options) => {
            tell("mount", &mount_cost::run(options, scratch)?, hifs::targets::promises)?;
        }
        Command::Ram(options) => {
            tell("ram", &ram_limit::run(options, scratch)?, hifs::targets::promises)?;
        }
        Command::Purge(options) => tell("purge", &purge::run(options, scratch)?, purge::promises)?,
        Command::Deleting(options) => {
            tell("deleting", &purge::deleting::run(options, scratch)?, purge::deleting::promises)?;
        }
        Command::Nbd(options) => tell("nbd", &nbd::run(options, scratch)?, nbd::promises)?,
        Command::Pddm(options) => {
            let records = pddm::run(options, scratch)?;
            tell("pddm", &records, pddm::promises)?;
            print!("{}", pddm::beside_the_paper(&records));
        }
        Command::PddmModel(options) => {
            let records = pddm::on_a_disk(options.size)?;
            report(&records, &origin, out, "pddm-model")?;
            print!("{}", pddm::beside_the_paper(&records));
        }
        Command::Dnefs(options) => {
            let mut records = Vec::new();
            for part in &options.parts {
                let found = dnefs::run(part, options, scratch)?;
                report(&found, &origin, out, &format!("dnefs-{part}"))?;
                records.extend(found);
            }
            print!("{}", lines(&dnefs::targets::promises(&records)));
            print!("{}", dnefs::targets::beside_the_paper(&records));
        }
        Command::Everyday(options) => {
            report(&everyday::run(options, scratch)?, &origin, out, "everyday")?;
        }
        Command::Fist(options) => fist::report_all(options, arguments, &origin)?,
        Command::Oram(options) => {
            let mut records = Vec::new();
            for part in &options.parts {
                let found = oram::run(part, options, scratch)?;
                report(&found, &origin, out, &format!("oram-{part}"))?;
                records.extend(found);
            }
            print!("{}", lines(&oram::targets::promises(&records)));
        }
        Command::Privatefs(options) => privatefs::report_all(options, arguments, &origin)?,
        Command::Promises => print!("{}", promises::of_all(out)?),
        Command::Plot => ["hifs", "model"].iter().try_for_each(|name| redraw(out, name))?,
    }
    Ok(())
}
