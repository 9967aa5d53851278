//! `tacita privatefs mount`.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tacita_clock::System;
use tacita_daemon::Interrupts;
use tacita_daemon::control::{Control, Identity, Reply, Request, Service};
use tacita_privatefs::blocks::Oblivious;
use tacita_privatefs::{Background, Kind, Options, PrivateFs};
use tacita_vfs::Posix;
use tacita_vfs::fuse::{Mount, MountOptions, mount};

use super::{Opened, failure, is_shared, open, patience};
use crate::arguments::PrivateFsMount as Command;
use crate::exit::{self, Outcome};
use crate::keys::warn_of_swap;
use crate::status;

/// Threads that serve requests: those that wait for the store keep others from nothing.
const THREADS: std::ops::RangeInclusive<usize> = 4..=64;

/// What a mount consists of.
struct Serving {
    // Before what it shows: whoever cannot go into the background lets go of all this.
    mount: Mount,
    background: Background,
    opened: Opened,
    _control: Control,
}

pub(super) fn run(command: &Command) -> Outcome<()> {
    tacita_daemon::serve(
        command.foreground,
        || start(command),
        |serving: Serving| {
            let Serving { mount, background, opened, _control } = serving;
            mount.wait_for_good(|served| {
                let fs = &opened.fs;
                let served = served.map_err(|e| exit::of_serving(&e));
                let is_durable = served.is_ok() && fs.waiting() == 0;
                let closed = match fs.close() {
                    // What is left is this mount's place, which others take away.
                    Err(e) if is_durable && e.kind() == Kind::TimedOut => {
                        log::warn!(
                            "{e}: all that was written is durable; the mount is not signed off"
                        );
                        Ok(())
                    }
                    closed => closed.map_err(|e| failure(&e)),
                };
                drop(background);
                drop(opened);
                served.and(closed)
            })
        },
    )
}

/// What a mount is asked from outside.
struct Mounted {
    posix: Weak<Posix<PrivateFs>>,
    fs: PrivateFs,
    blocks: Arc<Oblivious>,
    read_only: bool,
}

impl Service for Mounted {
    fn status(&self) -> Value {
        let failure = self.fs.failure().map(|failure| failure.to_string());
        let of_store = || self.blocks.failure().map(|failure| failure.to_string());
        json!({
            "operations": self.fs.operations(),
            "blocks_to_commit": self.fs.waiting(),
            "has_turn": self.fs.has_turn(),
            "read_only": self.read_only,
            "failure": failure.or_else(of_store),
        })
    }

    fn serve(&self, request: &Request, reply: Reply) {
        let Some(posix) = self.posix.upgrade() else { return };
        match request.word.as_str() {
            "sync" => reply.answer(status::synced(posix.sync_mapped())),
            _ => reply.unknown(request),
        }
    }
}

fn start(command: &Command) -> Outcome<Serving> {
    let Command { at, dir, clients, pad, rate, read_ahead, latency, sync_every, options, .. } =
        command;
    let given = |name: &str| options.iter().flat_map(|o| o.split(',')).any(|o| o == name);
    let interrupts = Interrupts::watch()?;
    let (blocks, key) = open(at, *clients, *rate, *latency)?;
    let is_shared = is_shared(at);
    let read_only = given("ro");
    let own = Options {
        pad: *pad,
        shared: is_shared,
        read_only,
        read_ahead: u64::from(*read_ahead),
        frees_by_itself: *sync_every > 0,
        patience_away: patience(at),
        ..Options::default()
    };
    let opened = Opened::new(blocks, &key, &own)?;
    let fs = &opened.fs;
    warn_of_swap();
    let background = Background::start(fs)?;
    let mut mount_options = MountOptions {
        read_only,
        fs_name: MountOptions::source(Path::new(&at.address.to_string()), "tacita-privatefs"),
        subtype: "tacita-privatefs".to_owned(),
        extra: options.clone(),
        threads: usize::from(*clients).clamp(*THREADS.start(), *THREADS.end()),
        sync_interval: Duration::from_secs(u64::from(*sync_every)),
        ..MountOptions::default()
    };
    if is_shared || *pad {
        // Others change it, too; or every operation is to be seen.
        mount_options.ttl = Duration::ZERO;
    }
    let posix = Arc::new(Posix::new(fs.clone(), Arc::new(System)));
    let mounted = mount(Arc::clone(&posix), dir, &mount_options).and_then(|mut mounted| {
        mounted.heed(interrupts)?;
        Ok(mounted)
    });
    let mounted = mounted.map_err(|e| exit::of_mount(&e))?;
    let posix = Arc::downgrade(&posix);
    let blocks = Arc::clone(&opened.blocks);
    let service = Arc::new(Mounted { posix, fs: fs.clone(), blocks, read_only });
    let identity = Identity {
        system: "privatefs",
        at: mounted.dir().to_owned(),
        device: mounted.device().cloned(),
        source: None,
    };
    let control = Control::start(identity, service)?;
    Ok(Serving { mount: mounted, background, opened, _control: control })
}
