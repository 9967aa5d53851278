//! `tacita status`, and asking daemons in general.

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde_json::{Value, json};
use tacita_clock::{Clock, System};
use tacita_daemon::control::{Client, Request, path_of_json};
use tacita_daemon::{Kind, Mount, mounts, with_causes};

use crate::arguments::LogLevel;
use crate::exit::{self, Failure, Outcome};
use crate::output::{self, shown_name};
use crate::pddm::PUBLIC;

/// The daemon of a mount, socket, image or device.
pub(crate) fn daemon_of(target: &Path) -> Outcome<Client> {
    Client::find(at(target)).map_err(|e| match e.kind() {
        Kind::NotServed if is_dead(target) => {
            let cause = format!("{}: a mount whose daemon has died", shown_name(target));
            Failure::usage(cause)
                .with_remedy("`tacita umount DIR` clears it: what was synced is there")
        }
        Kind::NotServed => Failure::usage(shown_name(e.to_string())).with_remedy(
            "give the folder or socket that it serves at, as the user who started it or as root; \
             `tacita status` lists what is served",
        ),
        _ => e.into(),
    })
}

/// Whether it is a mount that nobody serves any more.
fn is_dead(target: &Path) -> bool {
    target.metadata().is_err_and(|e| e.kind() == ErrorKind::NotConnected)
}

/// Refuses what would wait for ever, a look at a folder whose daemon has been stopped, or at what is in it.
pub(crate) fn looked_at(path: &Path) -> Outcome<()> {
    all_looked_at(&[path])?;
    let stopped = Client::serving_at(path).and_then(|client| client.stopped());
    stopped.map_or(Ok(()), Err)
}

/// The same of all that is below such folders, as the paths are written.
pub(crate) fn all_looked_at(paths: &[impl AsRef<Path>]) -> Outcome<()> {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return Ok(()) };
    let full = paths.iter().filter_map(|path| std::path::absolute(path).ok());
    let full: Vec<PathBuf> = full.collect();
    let is_around = |mounted: &Mount| {
        mounted.kind.starts_with("fuse.tacita-")
            && full.iter().any(|path| path.starts_with(&mounted.place))
    };
    let mut daemons =
        mounts(&table).filter(is_around).filter_map(|mounted| Client::serving_at(&mounted.place));
    daemons.find_map(|client| client.stopped()).map_or(Ok(()), Err)
}

/// Whether it is a folder. Even root may not look at what another user has mounted: it is one if it is served.
pub(crate) fn is_folder(target: &Path) -> bool {
    let found = target.metadata().map(|found| found.is_dir());
    found.unwrap_or_else(|_| Client::serving_at(target).is_some())
}

/// A socket as its clients name it, `unix:PATH`, is the path.
fn at(target: &Path) -> &Path {
    let path = target.as_os_str().as_bytes().strip_prefix(b"unix:").map(OsStr::from_bytes);
    path.filter(|path| !path.is_empty() && !target.exists()).map_or(target, Path::new)
}

/// Asks a daemon for what needs no progress.
pub(crate) fn ask(client: Client, word: &str, arguments: Value) -> Outcome<Value> {
    client.ask(&Request::new(word, arguments), &mut |_| ())?.result()
}

/// How a daemon answers who has asked for a sync.
pub(crate) fn synced(done: tacita_vfs::Result<()>) -> Outcome<Value> {
    let code = |e: &tacita_vfs::Error| match e.kind() {
        tacita_vfs::Kind::NoSpace | tacita_vfs::Kind::Quota => exit::NO_SPACE,
        _ => exit::DEVICE,
    };
    done.map(|()| Value::Null).map_err(|e| {
        let text = format!("not everything is on the medium: {}", with_causes(&e));
        exit::refused(code(&e), text, &e)
            .or_remedy("see to what it lies on; what the last sync without failure had is there")
    })
}

/// `tacita sync`.
pub(crate) fn sync(target: &Path) -> Outcome<()> {
    let daemon = daemon_of(target)?;
    daemon.stopped().map_or(Ok(()), Err)?;
    // The daemon waits for what the kernel begins to hand over here; what failed then, the kernel tells afterwards.
    let begun = hand_over_mapped(target);
    daemon.anew().sync()?;
    begun.and_then(|()| hand_over_mapped(target))
}

/// Has the kernel hand over what programs have changed in shared mappings: no daemon knows of that before.
/// Nobody may be seen to wait for a hidden volume, so of an open PD-DM device only for its public one.
/// Where whoever asks may not enter the mount, the daemon has it handed over alone.
///
/// # Errors
/// What could not be written since somebody was last told of such a failure.
fn hand_over_mapped(target: &Path) -> Outcome<()> {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return Ok(()) };
    let Ok(place) = target.canonicalize() else { return Ok(()) };
    let on_top = mounts(&table).rfind(|mounted| mounted.place == place);
    let handed_over = match on_top.map(|mounted| mounted.kind).as_deref() {
        Some("fuse.tacita-pddm") => File::open(place.join(PUBLIC)).map(|file| file.sync_all()),
        Some(kind) if kind.starts_with("fuse.tacita-") => {
            File::open(&place).map(|dir| Ok(rustix::fs::syncfs(&dir)?))
        }
        _ => return Ok(()),
    };
    let Ok(Err(error)) = handed_over else { return Ok(()) };
    let kind =
        tacita_vfs::Kind::from_errno(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
    let text = "not all that was changed in mappings could be written";
    synced(Err(tacita_vfs::Error::new(kind, text).because(error))).map(drop)
}

pub(crate) fn run(target: &Path, log: Option<LogLevel>, json: bool) -> Outcome<()> {
    if let Some(level) = log {
        ask(daemon_of(target)?, "log", json!({ "level": level.word() }))?;
    }
    let status = ask(daemon_of(target)?, "status", Value::Null)?;
    output::facts(json, &status, &text(&status))
}

/// `tacita status` of nothing: what all daemons serve, the oldest first.
pub(crate) fn all(json: bool) -> Outcome<()> {
    let (mut daemons, mut stopped, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    let mut unknown = Vec::new();
    for client in Client::all() {
        let pid = client.process();
        if let Some(failure) = client.stopped() {
            stopped.extend(pid);
            unknown.push(failure);
            continue;
        }
        match client.status() {
            Ok(status) => daemons.push(status),
            Err(failure) if failure.code == exit::BUSY => {
                silent.push(pid);
                unknown.push(failure);
            }
            // It has ended meanwhile, and serves nothing.
            Err(_) => {}
        }
    }
    daemons.sort_by_key(|status| (status["since"].as_u64(), status["pid"].as_u64()));
    let text = text_of_all(&daemons, &unknown);
    let facts = json!({ "daemons": daemons, "stopped": stopped, "silent": silent });
    output::facts(json, &facts, &text)
}

/// `unknown` is why daemons that are there do not say what they serve.
fn text_of_all(daemons: &[Value], unknown: &[Failure]) -> String {
    let mut text = String::new();
    for status in daemons {
        let [system, at, source] = ["system", "at", "source"].map(|key| word(status, key));
        let since = ago(status["since"].as_u64().unwrap_or(0));
        let _ = writeln!(text, "{system} on {at}, of {source}: process {}, {since}", status["pid"]);
    }
    for failure in unknown {
        let _ = writeln!(text, "{}", failure.text());
    }
    if text.is_empty() { "nothing is served by a daemon of this user\n".to_owned() } else { text }
}

/// A word or path of what a daemon says.
fn word(status: &Value, key: &str) -> String {
    path_of_json(&status[key]).map_or_else(|| "-".to_owned(), |path| shown_name(&path))
}

fn text(status: &Value) -> String {
    let word = |key: &str| word(status, key);
    let mut text = String::new();
    let _ = writeln!(text, "{} on {}", word("system"), word("at"));
    let _ = writeln!(text, "{:18} {}", "source", word("source"));
    let _ = writeln!(text, "{:18} {}", "process", status["pid"]);
    let _ = writeln!(text, "{:18} {}", "since", ago(status["since"].as_u64().unwrap_or(0)));
    text += &output::lines(&status["facts"]);
    let messages = status["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    if messages.is_empty() {
        text += "no messages\n";
    }
    for message in messages {
        let times = match message["count"].as_u64() {
            None | Some(1) => String::new(),
            Some(count) => format!(" ({count} times)"),
        };
        let _ = writeln!(
            text,
            "{}: {}: {}{times}",
            ago(message["at"].as_u64().unwrap_or(0)),
            message["level"].as_str().unwrap_or_default(),
            message["text"].as_str().unwrap_or_default(),
        );
    }
    text
}

/// How long ago a time is that is counted in seconds since 1970.
fn ago(at: u64) -> String {
    let seconds = System.unix_seconds().saturating_sub(at);
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_is_not_nobody() {
        let stopped = Failure::new(exit::BUSY, "process 3 is stopped").with_remedy("kill -CONT 3");
        let silent = Failure::new(exit::BUSY, "process 7 says nothing");
        let text = text_of_all(&[], &[stopped, silent]);
        assert_eq!(text, "process 3 is stopped\n  kill -CONT 3\nprocess 7 says nothing\n");
        assert!(text_of_all(&[], &[]).contains("nothing is served"));
    }

    #[test]
    fn a_socket_is_named_as_its_clients_name_it() {
        for (named, meant) in [("unix:/run/x", "/run/x"), ("/run/x", "/run/x"), ("unix:", "unix:")]
        {
            assert_eq!(at(Path::new(named)), Path::new(meant));
        }
    }

    #[test]
    fn all_that_is_told_is_shown() {
        let status = json!({
            "system": "hifs", "at": "/mnt", "source": "/x\n.img", "pid": 7, "since": 0,
            "facts": { "blocks_free": 9, "read_only": false },
            "messages": [{ "at": 0, "level": "error", "text": "write: it broke", "count": 3 }],
        });
        let text = text(&status);
        for wanted in
            ["hifs on /mnt", "/x\\u{a}.img", "blocks free        9", "write: it broke (3 times)"]
        {
            assert!(text.contains(wanted), "{wanted} is missing in {text}");
        }
    }
}
