//! `tacita hifs mount`.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tacita_block::Access;
use tacita_clock::System;
use tacita_daemon::Interrupts;
use tacita_daemon::control::{Control, Identity, Reply, Request, Service, path_to_json};
use tacita_hifs::{Hifs, OpenOptions, Recovery, Sync};
use tacita_vfs::fuse::{Mount, MountOptions, mount};
use tacita_vfs::{FileSystem, Posix};

use crate::arguments::SyncName;
use crate::exit::{self, Outcome};
use crate::output::{self, shown_name};
use crate::status;

/// What can be done where nothing can be mounted.
const WITHOUT_FUSE: &str = "without FUSE, `tacita hifs unpack IMAGE FOLDER` and `tacita hifs pack \
                            FOLDER IMAGE` take files out and put them in";
/// A commit is made also when nothing has been changed for so long.
const QUIET: Duration = Duration::from_millis(500);

pub(super) fn run(
    image: &Path,
    dir: &Path,
    sync: (SyncName, Duration),
    foreground: bool,
    options: &[String],
) -> Outcome<()> {
    let start = || start(image, dir, sync, options);
    tacita_daemon::serve(foreground, start, |(mount, _control)| {
        mount.wait_for_good(|served| served.map_err(|e| exit::of_serving(&e)))
    })
}

/// What a mount is asked from outside.
struct Mounted(Weak<Posix<Hifs>>);

impl Service for Mounted {
    fn status(&self) -> Value {
        let Some(posix) = self.0.upgrade() else { return Value::Null };
        let hifs = posix.file_system();
        let Ok(stats) = hifs.stats() else { return Value::Null };
        json!({
            "block_bytes": stats.block_len_bytes,
            "blocks": stats.blocks,
            "blocks_free": stats.blocks_free,
            "files": stats.files,
            "files_free": stats.files_free,
            "read_only": hifs.is_read_only(),
            "waits_for_commit": !posix.is_synced(),
            "in_the_way": hifs.in_the_way().iter().map(|path| path_to_json(path)).collect::<Value>(),
        })
    }

    fn serve(&self, request: &Request, reply: Reply) {
        let Some(posix) = self.0.upgrade() else { return };
        match request.word.as_str() {
            "sync" => reply.answer(status::synced(posix.sync_mapped())),
            _ => reply.unknown(request),
        }
    }
}

fn start(
    image: &Path,
    dir: &Path,
    sync: (SyncName, Duration),
    options: &[String],
) -> Outcome<(Mount, Control)> {
    let given = |name: &str| options.iter().flat_map(|o| o.split(',')).any(|o| o == name);
    let read_only = given("ro");
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let open_options = OpenOptions {
        sync: match sync.0 {
            SyncName::Strict => Sync::Strict,
            SyncName::Durable => Sync::Durable,
        },
        ..OpenOptions::default()
    };
    let interrupts = Interrupts::watch()?;
    let hifs = super::open(image, access, open_options, true)?;
    if hifs.recovery() != Recovery::Clean {
        let what = match hifs.recovery() {
            Recovery::Finished => "finished",
            _ => "erased",
        };
        output::say(&format!(
            "tacita: {}: an interrupted commit has been {what}",
            shown_name(image)
        ));
    }
    let mount_options = MountOptions {
        read_only: hifs.is_read_only(),
        fs_name: MountOptions::source(&std::path::absolute(image)?, "tacita-hifs"),
        subtype: "tacita-hifs".to_owned(),
        extra: options.to_vec(),
        sync_interval: sync.1,
        sync_when_quiet: Some(QUIET),
        ..MountOptions::default()
    };
    let posix = Arc::new(Posix::new(hifs, Arc::new(System)));
    let service = Arc::new(Mounted(Arc::downgrade(&posix)));
    let mut mount =
        mount(posix, dir, &mount_options).map_err(|e| exit::of_mounting(&e, WITHOUT_FUSE))?;
    mount.heed(interrupts).map_err(|e| exit::of_mount(&e))?;
    let identity = Identity {
        system: "hifs",
        at: mount.dir().to_owned(),
        device: mount.device().cloned(),
        source: image.canonicalize().ok(),
    };
    let control = Control::start(identity, service)?;
    Ok((mount, control))
}
