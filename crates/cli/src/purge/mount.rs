//! `tacita purge mount`.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value;
use tacita_clock::{Clock, System};
use tacita_daemon::Interrupts;
use tacita_daemon::control::{Control, Identity, Reply, Request, Service};
use tacita_purge::spool::SPOOL_NAME;
use tacita_purge::{OnFailure, Overlay, OverlayOptions, Policy, parse_rules};
use tacita_vfs::Posix;
use tacita_vfs::fuse::{Mount, MountOptions, mount};

use super::of_purge;
use crate::arguments::{OnFailureName, PurgeMount};
use crate::exit::{self, Failure, Outcome};
use crate::output::{self, shown_name};
use crate::status;

/// What can be done where nothing can be mounted.
const WITHOUT_FUSE: &str = "without FUSE, `tacita purge file PATH` purges single files";

/// What can be done where programs use what was deleted.
const IN_USE: &str = "end them (`fuser -v LOWER/.tacita-purge/*` names them), and mount it again: the next mount \
                      purges what is left";

/// How long who uses a deleted file is waited for, and between two looks.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_STEP: Duration = Duration::from_millis(50);

/// What a running mount consists of.
struct Started {
    mount: Mount,
    posix: Arc<Posix<Overlay>>,
    control: Control,
}

pub(super) fn run(arguments: &PurgeMount) -> Outcome<()> {
    check_places(&arguments.lower, &arguments.dir)?;
    tacita_daemon::serve(arguments.foreground, || start(arguments), run_until_purged)
}

/// Refuses a mount that would contain itself.
fn check_places(lower: &Path, dir: &Path) -> Outcome<()> {
    let real = |path: &Path| path.canonicalize().map_err(|e| unreachable_place(path, &e));
    let (lower_real, dir_real) = (real(lower)?, real(dir)?);
    if !lower_real.is_dir() {
        return Err(Failure::usage(format!("{}: not a folder", shown_name(lower)))
            .with_remedy("`tacita purge file PATH` purges a single file"));
    }
    if lower_real.components().any(|part| part.as_os_str() == SPOOL_NAME) {
        let cause = format!("{}: what a mount has not purged yet lies there", shown_name(lower));
        return Err(Failure::usage(cause).with_remedy("mount the folder above it"));
    }
    let nested = lower_real.starts_with(&dir_real) || dir_real.starts_with(&lower_real);
    if nested && lower_real != dir_real {
        let cause =
            format!("{} and {}: one contains the other", shown_name(lower), shown_name(dir));
        return Err(Failure::usage(cause).with_remedy(
            "mount it beside, or on the folder itself: `tacita purge mount DIR DIR`",
        ));
    }
    Ok(())
}

/// Why a folder cannot be reached.
fn unreachable_place(path: &Path, e: &std::io::Error) -> Failure {
    if e.kind() == std::io::ErrorKind::NotConnected {
        let cause = format!("{}: a mount whose daemon has died", shown_name(path));
        return Failure::new(exit::BUSY, cause).with_remedy("`tacita umount DIR` clears it");
    }
    let error = tacita_purge::Error::from_io(e, shown_name(path));
    of_purge(&error)
}

/// A file that an option names, and that is of no use.
fn of_option(path: &Path, error: &dyn std::fmt::Display, remedy: &str) -> Failure {
    Failure::usage(format!("{}: {error}", shown_name(path))).with_remedy(remedy)
}

fn run_until_purged(started: Started) -> Outcome<()> {
    let Started { mount, posix, control } = started;
    mount.wait_for_good(|served| {
        drop(control);
        let served = served.map_err(|e| exit::of_serving(&e));
        // A file that was closed in the last moment.
        let purged = served.and_then(|()| purge_all(posix.file_system()));
        // This ends its threads and marks the spool as clean.
        drop(posix);
        purged
    })
}

/// Purges all that can be. Who has a deleted file open below is waited for as long as who uses a mount.
fn purge_all(overlay: &Overlay) -> Outcome<()> {
    let begin = System.monotonic();
    loop {
        overlay.finish().map_err(|e| of_purge(&e))?;
        let count = overlay.in_use();
        if count == 0 {
            return Ok(());
        }
        if System.elapsed(begin) >= PATIENCE {
            let cause = format!(
                "it is unmounted, but {count} deleted files are not purged: programs have them open in \
                 LOWER"
            );
            return Err(Failure::new(exit::BUSY, cause).with_remedy(IN_USE));
        }
        System.wait(PATIENCE_STEP);
    }
}

/// What a mount is asked from outside.
struct Mounted(Weak<Posix<Overlay>>);

impl Service for Mounted {
    fn status(&self) -> Value {
        self.0.upgrade().map_or(Value::Null, |posix| posix.file_system().status())
    }

    fn serve(&self, request: &Request, reply: Reply) {
        let Some(posix) = self.0.upgrade() else { return };
        match request.word.as_str() {
            "sync" => reply.answer(status::synced(posix.sync_mapped())),
            "finish" => {
                let done = posix.file_system().finish();
                reply.answer(done.map(|()| Value::Null).map_err(|e| of_purge(&e)));
            }
            _ => reply.unknown(request),
        }
    }
}

fn start(arguments: &PurgeMount) -> Outcome<Started> {
    let interrupts = Interrupts::watch()?;
    // Permissions of new files are the callers', whose masks are applied already.
    rustix::process::umask(rustix::fs::Mode::empty());
    let lower = arguments.lower.canonicalize();
    let overlay = open(arguments)?;
    if overlay.pending() > 0 && !arguments.asynchronous {
        output::say(&format!(
            "tacita: {}: {} files that an earlier mount has left are not purged yet\n  see `tacita \
             purge status DIR` for the reasons",
            shown_name(&arguments.lower),
            overlay.pending()
        ));
    }
    if let Some(keeper) = overlay.lower().keeps_copies() {
        output::say(&format!(
            "tacita: {}: {keeper} of what is overwritten\n  what must not be found there needs \
             encryption, and keys that are destroyed",
            shown_name(&arguments.lower)
        ));
    }
    let given = |name: &str| arguments.options.iter().flat_map(|o| o.split(',')).any(|o| o == name);
    let mount_options = MountOptions {
        read_only: given("ro"),
        fs_name: MountOptions::source(&std::path::absolute(&arguments.lower)?, "tacita-purge"),
        subtype: "tacita-purge".to_owned(),
        passthrough: !arguments.no_passthrough,
        callers_room: given("allow_other"),
        extra: arguments.options.clone(),
        // The overlay keeps its own time.
        sync_interval: Duration::ZERO,
        ..MountOptions::default()
    };
    let posix = Arc::new(Posix::new(overlay, Arc::new(System)));
    let mut mount = mount(Arc::clone(&posix), &arguments.dir, &mount_options)
        .map_err(|e| exit::of_mounting(&e, WITHOUT_FUSE))?;
    mount.heed(interrupts).map_err(|e| exit::of_mount(&e))?;
    let identity = Identity {
        system: "purge",
        at: mount.dir().to_owned(),
        device: mount.device().cloned(),
        // By its path another folder could be meant, where the mount lies on LOWER itself.
        source: lower.ok().filter(|lower| lower != mount.dir()),
    };
    let control = Control::start(identity, Arc::new(Mounted(Arc::downgrade(&posix))))?;
    Ok(Started { mount, posix, control })
}

fn open(arguments: &PurgeMount) -> Outcome<Overlay> {
    let rules = match &arguments.rules {
        None => Vec::new(),
        Some(path) => {
            let bytes = output::read(path)
                .map_err(|e| of_option(path, &e, "give --rules a file that can be read"))?;
            let text = String::from_utf8(bytes)
                .map_err(|e| of_option(path, &e, "write the rules in UTF-8"))?;
            let remedy = "a rule is a line: PATTERN [MIN..MAX] METHOD, or `off` for a method";
            parse_rules(&text).map_err(|e| of_option(path, &e, remedy))?
        }
    };
    let report = match &arguments.report {
        None => None,
        Some(path) => {
            let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            let remedy = "give --report a file that can be written";
            Some(opened.map_err(|e| of_option(path, &e, remedy))?)
        }
    };
    let policy = Policy {
        method: arguments.method.clone(),
        marked_only: arguments.marked_only,
        rules,
        on_failure: match arguments.on_failure {
            OnFailureName::Fail => OnFailure::Fail,
            OnFailureName::Warn => OnFailure::Warn,
        },
    };
    let options = OverlayOptions {
        policy,
        asynchronous: arguments.asynchronous,
        epoch: Duration::from_secs(arguments.epoch),
        passthrough: !arguments.no_passthrough,
        anyway: arguments.anyway,
        opaque_links: arguments.opaque_links,
        report,
        ..OverlayOptions::default()
    };
    let lower =
        File::open(&arguments.lower).map_err(|e| unreachable_place(&arguments.lower, &e))?;
    let path_only = rustix::fs::openat(
        OwnedFd::from(lower),
        ".",
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .map_err(|e| unreachable_place(&arguments.lower, &e.into()))?;
    Overlay::open_root(path_only, options).map_err(|e| {
        let failure = of_purge(&e);
        Failure { cause: format!("{}: {}", shown_name(&arguments.lower), failure.cause), ..failure }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_contain_itself_or_is_a_spool_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [lower, inside, beside] = ["lower", "lower/inside", "beside"].map(|name| {
            let dir = folder.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            dir
        });
        let spool = lower.join(SPOOL_NAME);
        let records = spool.join("records");
        std::fs::create_dir_all(&records).unwrap();
        for (lower, dir) in [(&lower, &beside), (&lower, &lower), (&inside, &beside)] {
            check_places(lower, dir).unwrap();
        }
        for (lower, dir) in [
            (&lower, &inside),
            (&inside, &lower),
            (&spool, &beside),
            (&spool, &spool),
            (&records, &beside),
        ] {
            assert_eq!(check_places(lower, dir).unwrap_err().code, exit::USAGE);
        }
    }
}
