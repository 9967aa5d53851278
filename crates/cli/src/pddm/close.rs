//! `tacita pddm close`: what waits on hidden volumes is swept onto the device or dropped, as its owner
//! says; the same is asked and done whether there is any.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, pidfd_open};
use serde_json::{Value, json};

use super::control::{connect, request};
use crate::arguments::Rest;
use crate::exit::{self, Failure, Outcome};
use crate::output;

/// What is done with what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Sweep,
    Drop,
}

pub(super) fn run(front: &Path, rest: Rest, json: bool) -> Outcome<()> {
    let wish = match (rest.sweep, rest.drop) {
        (true, _) => Wish::Sweep,
        (_, true) => Wish::Drop,
        _ if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() => {
            match ask(front)? {
                Some(wish) => wish,
                None => return Ok(()),
            }
        }
        _ => {
            return Err(Failure::usage("nobody says what to do with hidden data that waits")
                .with_remedy("--sweep writes it to the device, --drop does not"));
        }
    };
    end(connect(front)?, wish, json)
}

/// Ends a session as is wished, and waits for the end of the daemon.
pub(super) fn end(mut stream: UnixStream, wish: Wish, json: bool) -> Outcome<()> {
    let daemon = daemon(&stream);
    let word = if wish == Wish::Sweep { "sweep" } else { "drop" };
    stream.write_all(format!("close {word}\n").as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let ended = ended(&reply, json);
    if ended.as_ref().err().is_none_or(|failure| failure.code != exit::BUSY)
        && let Some(daemon) = daemon
    {
        // Its last words come a moment before the device is free.
        let _ = poll(&mut [PollFd::new(&daemon, PollFlags::IN)], None);
    }
    ended
}

/// The process at the other end.
fn daemon(stream: &UnixStream) -> Option<OwnedFd> {
    pidfd_open(socket_peercred(stream).ok()?.pid, PidfdFlags::empty()).ok()
}

/// How it ended, in the daemon's last words.
fn ended(reply: &str, json: bool) -> Outcome<()> {
    let last: Option<Value> = reply.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let Some(last) = last else {
        return Err(Failure::new(exit::DEVICE, "the daemon ended without a word")
            .with_remedy("what was flushed is on the device; open it again"));
    };
    let dropped = &last["dropped"];
    let volumes = dropped.as_array().into_iter().flatten();
    let lines = volumes
        .map(|volume| format!("{}: {} blocks were dropped\n", volume["name"], volume["blocks"]));
    // For the eyes of whoever is at the terminal, and for nobody's log.
    let text: String = lines.filter(|_| std::io::stdout().is_terminal()).collect();
    output::facts(json, &json!({ "dropped": dropped }), &text)?;
    match (last["code"].as_u64(), last["failure"].as_str()) {
        (_, None) => Ok(()),
        (code, Some(text)) => {
            let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::DEVICE);
            Err(Failure::new(code, text))
        }
    }
}

/// Says what waits, and asks; `None` to stay open.
fn ask(front: &Path) -> Outcome<Option<Wish>> {
    let reply: Value = serde_json::from_str(&request(front, "hidden\n")?).unwrap_or_default();
    for volume in reply["volumes"].as_array().into_iter().flatten() {
        output::print(&format!(
            "{}: {} blocks wait\n",
            volume["name"].as_str().unwrap_or_default(),
            volume["waiting_blocks"]
        ))?;
    }
    output::print("Hidden data that waits: [s]weep it onto the device, [d]rop it, or stay open? ")?;
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(match line.trim() {
        "s" | "sweep" => Some(Wish::Sweep),
        "d" | "drop" => Some(Wish::Drop),
        _ => None,
    })
}
