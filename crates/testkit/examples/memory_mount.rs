//! Mounts a file system in memory, for conformance tools:
//! `memory_mount DIR [--path-ino] [--daemon] [--writeback] [--threads N] [--size BYTES]
//! [--fail-sync] [--private]`.

use std::process::ExitCode;
use std::sync::Arc;

use tacita_testkit::{InoScheme, MemoryFs};
use tacita_vfs::daemon::{Daemonised, Reporter, daemonise};
use tacita_vfs::fuse::{Interrupts, MountOptions, mount, run_until_unmounted};
use tacita_vfs::posix::{Caller, SetAttr};
use tacita_vfs::{Posix, Result, SystemClock};

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

struct Arguments {
    dir: String,
    scheme: InoScheme,
    daemon: bool,
    size_max_bytes: Option<u64>,
    fail_sync: bool,
    options: MountOptions,
}

fn arguments() -> Option<Arguments> {
    let mut dir = None;
    let mut scheme = InoScheme::Node;
    let mut daemon = false;
    let mut size_max_bytes = None;
    let mut fail_sync = false;
    let mut options = MountOptions {
        allow_other: true,
        fs_name: "memory".to_owned(),
        extra: vec!["dev,suid".to_owned()],
        ..MountOptions::default()
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--path-ino" => scheme = InoScheme::Path,
            "--daemon" => daemon = true,
            "--fail-sync" => fail_sync = true,
            "--private" => options.allow_other = false,
            "--writeback" => options.writeback_cache = true,
            "--threads" => options.threads = given.next()?.parse().ok()?,
            "--size" => size_max_bytes = Some(given.next()?.parse().ok()?),
            _ if dir.is_none() && !argument.starts_with('-') => dir = Some(argument),
            _ => return None,
        }
    }
    Some(Arguments { dir: dir?, scheme, daemon, size_max_bytes, fail_sync, options })
}

/// Whoever mounts may write.
fn give_root_to_caller(posix: &Posix<MemoryFs>) -> Result<()> {
    let owner = SetAttr {
        uid: Some(rustix::process::geteuid().as_raw()),
        gid: Some(rustix::process::getegid().as_raw()),
        ..SetAttr::default()
    };
    let root = posix.root();
    posix.change(Caller::default(), root, &owner).map(drop)
}

fn serve(arguments: &Arguments, reporter: Option<Reporter>) -> ExitCode {
    let fs = MemoryFs::new(arguments.scheme, arguments.size_max_bytes);
    fs.fail_syncs(arguments.fail_sync);
    let posix = Arc::new(Posix::new(fs, SystemClock));
    let started = Interrupts::watch(&[SIGHUP, SIGINT, SIGTERM]).and_then(|interrupts| {
        give_root_to_caller(&posix)?;
        let mount = mount(posix, &arguments.dir, &arguments.options)?;
        Ok((mount, interrupts))
    });
    let (mount, interrupts) = match started {
        Ok(started) => started,
        Err(e) => {
            match reporter {
                Some(reporter) => drop(reporter.failed(7, &e.to_string())),
                None => eprintln!("{e}"),
            }
            return ExitCode::from(7);
        }
    };
    if let Some(reporter) = reporter
        && let Err(e) = reporter.mounted()
    {
        eprintln!("{e}");
        return ExitCode::FAILURE;
    }
    match run_until_unmounted(mount, interrupts) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!(
            "memory_mount DIR [--path-ino] [--daemon] [--writeback] [--threads N] [--size N]"
        );
        return ExitCode::from(2);
    };
    if !arguments.daemon {
        return serve(&arguments, None);
    }
    match daemonise() {
        Ok(Daemonised::Child(reporter)) => serve(&arguments, Some(reporter)),
        Ok(Daemonised::Parent(Ok(()))) => ExitCode::SUCCESS,
        Ok(Daemonised::Parent(Err(failure))) => {
            eprintln!("{}", failure.text);
            ExitCode::from(u8::try_from(failure.code).unwrap_or(1))
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
