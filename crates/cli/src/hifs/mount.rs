//! `tacita hifs mount`.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use rustix::process::Signal;
use tacita_block::Access;
use tacita_hifs::{OpenOptions, Recovery, Sync};
use tacita_vfs::daemon::{Daemonised, Reporter, daemonise};
use tacita_vfs::fuse::{Interrupts, Mount, MountOptions, mount, run_until_unmounted};
use tacita_vfs::{Posix, SystemClock};

use crate::arguments::SyncName;
use crate::exit::{self, Failure, Outcome};

/// Threads beside those that keep all cores busy.
const COMMITTERS: usize = 4;
/// A commit is made also when nothing has been changed for so long.
const QUIET: Duration = Duration::from_millis(500);

pub(super) fn run(
    image: &Path,
    dir: &Path,
    sync: (SyncName, Duration),
    foreground: bool,
    options: &[String],
) -> Outcome<()> {
    let serve = |reporter: Option<Reporter>| serve(image, dir, sync, options, reporter);
    if foreground {
        return serve(None);
    }
    match daemonise().map_err(|e| exit::of_mount(&e))? {
        Daemonised::Parent(Ok(())) => Ok(()),
        Daemonised::Parent(Err(failure)) => {
            Err(Failure::new(u8::try_from(failure.code).unwrap_or(exit::DEVICE), failure.text))
        }
        Daemonised::Child(reporter) => serve(Some(reporter)),
    }
}

fn serve(
    image: &Path,
    dir: &Path,
    sync: (SyncName, Duration),
    options: &[String],
    reporter: Option<Reporter>,
) -> Outcome<()> {
    match (start(image, dir, sync, options), reporter) {
        (Ok((mount, interrupts)), reporter) => {
            if let Some(reporter) = reporter {
                reporter.mounted().map_err(|e| exit::of_mount(&e))?;
            }
            Ok(run_until_unmounted(mount, interrupts).map_err(|e| exit::of_mount(&e))?)
        }
        (Err(failure), None) => Err(failure),
        (Err(failure), Some(reporter)) => {
            // The parent prints it.
            let _ = reporter.failed(failure.code.into(), &failure.text());
            std::process::exit(failure.code.into())
        }
    }
}

fn start(
    image: &Path,
    dir: &Path,
    sync: (SyncName, Duration),
    options: &[String],
) -> Outcome<(Mount, Interrupts)> {
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
    let signals = [Signal::HUP, Signal::INT, Signal::TERM].map(Signal::as_raw);
    let interrupts = Interrupts::watch(&signals).map_err(|e| exit::of_mount(&e))?;
    let hifs = super::open(image, access, open_options)?;
    if hifs.recovery() != Recovery::Clean {
        let what = match hifs.recovery() {
            Recovery::Finished => "finished",
            _ => "erased",
        };
        eprintln!("tacita: {}: an interrupted commit has been {what}", image.display());
    }
    let mount_options = MountOptions {
        read_only: hifs.is_read_only(),
        fs_name: "tacita-hifs".to_owned(),
        subtype: "hifs".to_owned(),
        extra: options.to_vec(),
        // A commit keeps whoever asked for it waiting; others read on.
        threads: available_parallelism().map_or(1, NonZero::get) + COMMITTERS,
        sync_interval: sync.1,
        sync_when_quiet: Some(QUIET),
        ..MountOptions::default()
    };
    let posix = Arc::new(Posix::new(hifs, SystemClock));
    let mount = mount(posix, dir, &mount_options).map_err(|e| exit::of_mount(&e))?;
    Ok((mount, interrupts))
}
