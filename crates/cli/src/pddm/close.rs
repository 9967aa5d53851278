//! `tacita pddm close`: what waits on hidden volumes is swept onto the device or dropped, as its owner
//! says; the same is asked and done whether there is any.

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;

use serde_json::{Value, json};
use tacita_daemon::control::{Client, Request};

use super::control::connect;
use crate::arguments::Rest;
use crate::exit::{Failure, Outcome};
use crate::output;
use crate::status::ask as ask_daemon;

/// What is done with what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Sweep,
    Drop,
}

pub(super) fn run(endpoint: &Path, rest: Rest, json: bool) -> Outcome<()> {
    // Before anything is asked: there may be nobody to close. The daemon does not wait for who thinks it over.
    drop(connect(endpoint)?);
    let wish = match (rest.sweep, rest.drop) {
        (true, _) => Wish::Sweep,
        (_, true) => Wish::Drop,
        _ if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() => {
            match ask(endpoint)? {
                Some(wish) => wish,
                None => return Ok(()),
            }
        }
        _ => {
            return Err(Failure::usage(
                "hidden data may be queued, and neither --sweep nor --drop was given",
            )
            .with_remedy("--sweep writes it to the device first, --drop discards it"));
        }
    };
    end(connect(endpoint)?, wish, json)
}

/// Ends a session as is wished, and waits for the end of the daemon.
pub(super) fn end(daemon: Client, wish: Wish, json: bool) -> Outcome<()> {
    let word = if wish == Wish::Sweep { "sweep" } else { "drop" };
    let answer = daemon.ask_to_stop(&Request::new("stop", json!({ "rest": word })))?;
    let dropped = &answer.facts["dropped"];
    let volumes = dropped.as_array().into_iter().flatten();
    let lines = volumes
        .map(|volume| format!("{}: {} blocks were dropped\n", volume["name"], volume["blocks"]));
    // For the eyes of whoever is at the terminal, and for nobody's log.
    let text: String = lines.filter(|_| std::io::stdout().is_terminal()).collect();
    let heard = output::done(json, &json!({ "dropped": dropped }), &text);
    answer.result()?;
    heard
}

/// Says what waits, and asks; `None` to stay open.
fn ask(endpoint: &Path) -> Outcome<Option<Wish>> {
    let facts = ask_daemon(connect(endpoint)?, "hidden", Value::Null)?;
    for volume in facts["volumes"].as_array().into_iter().flatten() {
        output::print(&format!(
            "{}: {} blocks are queued\n",
            volume["name"].as_str().unwrap_or_default(),
            volume["waiting_blocks"]
        ))?;
    }
    output::print("Queued hidden data: [s]weep it onto the device, [d]rop it, or stay open? ")?;
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(match line.trim() {
        "s" | "sweep" => Some(Wish::Sweep),
        "d" | "drop" => Some(Wish::Drop),
        _ => None,
    })
}
