//! `tacita dnefs mount`.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::process::{getgid, getuid};
use serde_json::{Value, json};
use tacita_clock::{System, Worker};
use tacita_daemon::Interrupts;
use tacita_daemon::control::{Control, Identity, Reply, Request, Service};
use tacita_dnefs::{Dnefs, Kind, Policy, Protection, PurgeScope, make_ephemeral, read_superblock};
use tacita_flash::Volume;
use tacita_vfs::Posix;
use tacita_vfs::fuse::{Mount, MountOptions, can_mount, mount};

use super::chip::Chip;
use super::receipts;
use crate::arguments::{Dnefs as Command, PurgeScopeName};
use crate::exit::{self, Failure, Outcome};
use crate::keys::warn_of_swap;
use crate::output::shown_name;
use crate::status;

/// Everything is on the medium after so long.
const SYNC_EVERY: Duration = Duration::from_secs(5);

/// What a mount consists of.
struct Serving {
    posix: Arc<Posix<Dnefs>>,
    mount: Mount,
    /// None where nothing is written.
    purger: Option<Worker>,
    _control: Control,
}

pub(super) fn run(command: &Command) -> Outcome<()> {
    let Command::Mount { volume, foreground, ephemeral, .. } = command else {
        unreachable!("called for mount");
    };
    tacita_daemon::serve(
        *foreground,
        || start(command),
        |serving: Serving| {
            let Serving { posix, mount, purger, _control } = serving;
            mount.wait_for_good(|served| {
                let served = served.map_err(|e| exit::of_serving(&e));
                drop(purger);
                let fs = posix.file_system();
                if fs.is_read_only() {
                    return served;
                }
                // Nothing is written any more: the last purge.
                let closed = fs.close().map_err(|e| of_purge(volume, &e, "mount it again"));
                let ended = served.and(closed.map(drop));
                let ended = if *ephemeral { ended.map_err(but_gone) } else { ended };
                ended.and(receipts::complete(!fs.was_incomplete()))
            })
        },
    )
}

/// The volume, to whoever asks by where it is mounted.
fn asked() -> &'static Path {
    Path::new("the volume")
}

/// A purge that has failed; `again` is how it is done again.
fn of_purge(volume: &Path, error: &tacita_dnefs::Error, again: &str) -> Failure {
    let failure = exit::of_dnefs(volume, error);
    let first = match (error.kind(), failure.code) {
        (Kind::Device | Kind::Poisoned, exit::DEVICE) => "see to what the volume lies on",
        (Kind::Device, exit::NO_SPACE) => "make room in the file system of the volume's file",
        _ => return failure,
    };
    failure.with_remedy(format!("what was deleted may still be decrypted: {first}, and {again}"))
}

/// The end of an ephemeral mount that has failed: its keys are gone with it, whatever is on the medium.
fn but_gone(failure: Failure) -> Failure {
    match failure.code {
        exit::DEVICE | exit::NO_SPACE => failure.with_remedy(format!(
            "nothing that was in it can be decrypted, for its keys are gone; {}",
            exit::MEDIUM
        )),
        _ => failure,
    }
}

/// What a mount is asked from outside.
struct Mounted {
    posix: Weak<Posix<Dnefs>>,
    scope: PurgeScope,
}

impl Service for Mounted {
    fn status(&self) -> Value {
        let Some(posix) = self.posix.upgrade() else { return Value::Null };
        let usage = posix.file_system().usage();
        json!({
            "epoch": usage.epoch,
            "nodes": usage.nodes,
            "bytes": usage.bytes,
            "bytes_used": usage.bytes_used,
            "blocks_collected": usage.collected,
            "keys": usage.keys,
            "keys_fresh": usage.keys_fresh,
            "keys_to_purge": usage.keys_waiting,
            "bytes_to_purge": posix.file_system().bytes_waiting(),
            "nodes_lost": posix.file_system().lost_nodes(),
            "read_only": posix.file_system().is_read_only(),
        })
    }

    fn serve(&self, request: &Request, reply: Reply) {
        let Some(posix) = self.posix.upgrade() else { return };
        let read_only = posix.file_system().is_read_only();
        let purge = || {
            status::synced(posix.sync_mapped())?;
            if read_only {
                return Err(Failure::new(
                    exit::DEVICE,
                    "it is mounted for reading: nothing is purged",
                )
                .with_remedy("unmount it, and mount it without `-o ro`"));
            }
            let fs = posix.file_system();
            fs.purge(self.scope).map_err(|e| {
                let again = if fs.has_stopped() { "mount it again" } else { "purge again" };
                of_purge(asked(), &e, again)
            })
        };
        let is_closing = || posix.file_system().is_closing();
        match request.word.as_str() {
            "sync" if read_only => reply.answer(status::synced(posix.sync_mapped())),
            // Everything is on the medium, and what was deleted is purged.
            "sync" if !is_closing() => {
                let done = purge().and_then(|receipt| {
                    receipts::complete(receipt.is_complete())?;
                    Ok(receipts::facts(&receipt))
                });
                if done.is_ok() || !is_closing() {
                    reply.answer(done);
                }
            }
            // Whoever hears nothing waits for the end of the unmount, which tells.
            "sync" => {}
            "purge" if !is_closing() => reply.answer(match purge() {
                Err(_) if is_closing() => Err(receipts::being_unmounted()),
                purged => purged.map(|receipt| receipts::facts(&receipt)),
            }),
            "purge" => reply.answer(Err(receipts::being_unmounted())),
            "receipts" => {
                let found = posix.file_system().receipts().map_err(|e| exit::of_dnefs(asked(), &e));
                reply.answer(found.map(|found| receipts::list(&found)));
            }
            _ => reply.unknown(request),
        }
    }
}

fn start(command: &Command) -> Outcome<Serving> {
    let Command::Mount { volume: path, dir, from, options, ephemeral, force, .. } = command else {
        unreachable!("called for mount");
    };
    let (policy, scope) = policy(command);
    let interrupts = Interrupts::watch()?;
    let read_only = options.iter().flat_map(|o| o.split(',')).any(|o| o == "ro");
    if read_only && *ephemeral {
        return Err(Failure::usage(
            "an ephemeral mount begins empty: with `-o ro` it would stay so",
        )
        .with_remedy("leave out one of them"));
    }
    let chip = if read_only {
        Chip::open_read_only(path)?
    } else if *ephemeral {
        Chip::open(path)?
    } else {
        Chip::open_or(path, "mount it for reading: `-o ro`")?
    };
    let volume = chip.volume();
    let mount_options = MountOptions {
        read_only,
        fs_name: MountOptions::source(&std::path::absolute(path)?, "tacita-dnefs"),
        subtype: "tacita-dnefs".to_owned(),
        extra: options.clone(),
        sync_interval: SYNC_EVERY,
        ..MountOptions::default()
    };
    let dnefs = if *ephemeral {
        begin(path, volume, (dir, &mount_options), *force)?
    } else {
        let password = super::password(path, &*volume, from)?;
        let open = if read_only { Dnefs::open_read_only } else { Dnefs::open };
        open(volume, password.as_ref(), Arc::new(System)).map_err(|e| exit::of_dnefs(path, &e))?
    };
    warn_of_swap();
    if dnefs.lost_nodes() > 0 {
        log::error!(
            "{}: {} nodes written shortly before a crash are lost, for they, or their keys, are damaged",
            shown_name(path),
            dnefs.lost_nodes()
        );
    }
    let due = dnefs.due_by(&policy);
    let posix = Arc::new(Posix::new(dnefs, Arc::new(System)));
    let mut mounted =
        mount(Arc::clone(&posix), dir, &mount_options).map_err(|e| exit::of_mount(&e))?;
    mounted.heed(interrupts).map_err(|e| exit::of_mount(&e))?;
    let service = Arc::new(Mounted { posix: Arc::downgrade(&posix), scope });
    let identity = Identity {
        system: "dnefs",
        at: mounted.dir().to_owned(),
        device: mounted.device().cloned(),
        source: path.canonicalize().ok(),
    };
    let weak = Arc::downgrade(&posix);
    let purge = move || purge_by_policy(&weak, scope);
    let purger = (!read_only)
        .then(|| Worker::start("dnefs-purge", Arc::new(System), due, policy.every, purge))
        .transpose()?;
    let control = Control::start(identity, service)?;
    Ok(Serving { posix, mount: mounted, purger, _control: control })
}

/// Begins a file system whose keys are in memory.
fn begin(
    path: &Path,
    volume: Arc<dyn Volume>,
    (dir, options): (&Path, &MountOptions),
    force: bool,
) -> Outcome<Dnefs> {
    let of = |e: tacita_dnefs::Error| exit::of_dnefs(path, &e);
    let is_ephemeral =
        || read_superblock(&*volume).map(|found| found.protection == Protection::Memory);
    if !is_ephemeral().map_err(of)? {
        if !force {
            let text = format!("{}: --ephemeral destroys what the volume holds", shown_name(path));
            return Err(Failure::usage(text).with_remedy("give --force with it if that is wanted"));
        }
        // What the volume holds is destroyed for a mount, and not for a slip of the hand.
        can_mount(dir, options).map_err(|e| exit::of_mount(&e))?;
        let made = make_ephemeral(&*volume);
        let has_failed = made.is_err();
        super::create::told(path, made).map_err(|failure| {
            if has_failed { not_made(&failure, is_ephemeral().ok()) } else { failure }
        })?;
    }
    let owner = (getuid().as_raw(), getgid().as_raw());
    Dnefs::open_ephemeral(volume, owner, Arc::new(System)).map_err(of)
}

/// That making a volume ephemeral has failed; `is_ephemeral` is what it is now, as far as that can be seen.
fn not_made(failure: &Failure, is_ephemeral: Option<bool>) -> Failure {
    let (now, then) = match is_ephemeral {
        Some(false) => ("what it holds is not destroyed, and opens as before", "do this again"),
        Some(true) => (
            "no mount shows what it holds any more, but that is not erased yet",
            "mount it with --ephemeral, which erases that",
        ),
        None => ("whether what it holds is destroyed cannot be seen", "do this again"),
    };
    let first = failure.remedy.as_deref().unwrap_or(exit::MEDIUM);
    Failure::new(failure.code, format!("{}; {now}", failure.cause))
        .with_remedy(format!("{first}, and {then}"))
}

fn policy(command: &Command) -> (Policy, PurgeScope) {
    let Command::Mount { purge_every, purge_after_keys, purge_after_bytes, purge_scope, .. } =
        command
    else {
        unreachable!("called for mount");
    };
    let every = (*purge_every > 0).then(|| Duration::from_secs((*purge_every).into()));
    let scope = match purge_scope {
        PurgeScopeName::Deleted => PurgeScope::Deleted,
        PurgeScopeName::All => PurgeScope::All,
    };
    (Policy { every, after_keys: *purge_after_keys, after_bytes: *purge_after_bytes }, scope)
}

fn purge_by_policy(posix: &Weak<Posix<Dnefs>>, scope: PurgeScope) {
    let Some(posix) = posix.upgrade() else { return };
    let dnefs = posix.file_system();
    if dnefs.keys_waiting() == 0 {
        return;
    }
    match dnefs.purge(scope) {
        Ok(receipt) => {
            if let Err(failure) = receipts::complete(receipt.is_complete()) {
                let remedy = failure.remedy.as_deref().unwrap_or_default();
                log::error!("purge: {}: {remedy}", failure.cause);
            }
        }
        // That has been said where it happened, once.
        Err(e) if matches!(e.kind(), Kind::Device | Kind::Poisoned) => {}
        Err(e) => log::error!("purge: {e}: what was deleted may still be decrypted"),
    }
}
