//! Mounts a file system in memory, for conformance tools:
//! `memory_mount DIR [--path-ino] [--daemon] [--writeback] [--threads N] [--size BYTES]
//! [--fail-sync] [--slow-sync MILLISECONDS] [--hold-writes] [--private]`.

use std::process::ExitCode;
use std::sync::Arc;

use tacita_clock::System;
use tacita_daemon::{Failure, Interrupts};
use tacita_testkit::{InoScheme, MemoryFs};
use tacita_vfs::Posix;
use tacita_vfs::fuse::{Mount, MountOptions, mount};
use tacita_vfs::posix::{Caller, SetAttr};

struct Arguments {
    dir: String,
    scheme: InoScheme,
    daemon: bool,
    size_max_bytes: Option<u64>,
    fail_sync: bool,
    sync_ms: u64,
    hold_writes: bool,
    options: MountOptions,
}

fn arguments() -> Option<Arguments> {
    let mut dir = None;
    let mut scheme = InoScheme::Node;
    let mut daemon = false;
    let mut size_max_bytes = None;
    let mut fail_sync = false;
    let mut sync_ms = 0;
    let mut hold_writes = false;
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
            "--slow-sync" => sync_ms = given.next()?.parse().ok()?,
            "--hold-writes" => hold_writes = true,
            "--private" => options.allow_other = false,
            "--writeback" => options.writeback_cache = true,
            "--threads" => options.threads = given.next()?.parse().ok()?,
            "--size" => size_max_bytes = Some(given.next()?.parse().ok()?),
            _ if dir.is_none() && !argument.starts_with('-') => dir = Some(argument),
            _ => return None,
        }
    }
    let dir = dir?;
    Some(Arguments {
        dir,
        scheme,
        daemon,
        size_max_bytes,
        fail_sync,
        sync_ms,
        hold_writes,
        options,
    })
}

/// Whoever mounts may write.
fn give_root_to_caller(posix: &Posix<MemoryFs>) -> tacita_vfs::Result<()> {
    let owner = SetAttr {
        uid: Some(rustix::process::geteuid().as_raw()),
        gid: Some(rustix::process::getegid().as_raw()),
        ..SetAttr::default()
    };
    let root = posix.root();
    posix.change(Caller::default(), root, &owner).map(drop)
}

/// What a failure is to whoever started this.
fn failure(e: &tacita_vfs::Error) -> Failure {
    Failure::new(tacita_daemon::exit::NOT_HERE, e.to_string())
}

fn start(arguments: &Arguments) -> std::result::Result<Mount, Failure> {
    let fs = MemoryFs::new(arguments.scheme, arguments.size_max_bytes);
    fs.fail_syncs(arguments.fail_sync);
    fs.slow_syncs(arguments.sync_ms);
    fs.hold_writes(arguments.hold_writes);
    let posix = Arc::new(Posix::new(fs, Arc::new(System)));
    let interrupts = Interrupts::watch()?;
    give_root_to_caller(&posix).map_err(|e| failure(&e))?;
    let mut mount = mount(posix, &arguments.dir, &arguments.options).map_err(|e| failure(&e))?;
    mount.heed(interrupts).map_err(|e| failure(&e))?;
    Ok(mount)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!(
            "memory_mount DIR [--path-ino] [--daemon] [--writeback] [--threads N] [--size N]"
        );
        return ExitCode::from(2);
    };
    let run = |mount: Mount| {
        mount.wait_for_good(|served| {
            served.map_err(|e| Failure::new(tacita_daemon::exit::WRONG, e.to_string()))
        })
    };
    match tacita_daemon::serve(!arguments.daemon, || start(&arguments), run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{}", failure.text());
            ExitCode::from(failure.code)
        }
    }
}
