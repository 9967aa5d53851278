//! `tacita pddm open`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tacita_block::{Access, BlockDevice};
use tacita_nbd::{Export, Listener, Server};
use tacita_pddm::{Heartbeat, HiddenFlush, Level, Options, Session, Unlock};
use tacita_secret::Password;
use tacita_vfs::daemon::{Daemonised, Reporter, daemonise};
use tacita_vfs::fuse::{Interrupts, Mount, MountOptions, mount, run_until_unmounted};
use tacita_vfs::{DeviceFiles, Posix, SystemClock};

use super::control::Control;
use super::{failure, name_of, open_device};
use crate::arguments::{HiddenFlushName, Pddm as Command};
use crate::exit::{self, Failure, Outcome};

/// How long clients have to take their last answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Said whenever no hidden volume is opened, and there may be one or not.
const PUBLIC_ONLY: &str = "tacita: only the public volume is open: writing to it destroys what \
                           hidden volumes hold, if there are any";

/// What serves.
enum Serving {
    Nbd(Server),
    Fuse(Mount),
}

pub(super) fn run(command: &Command) -> Outcome<()> {
    let Command::Open { password, foreground, .. } = command else {
        unreachable!("called for open");
    };
    // Asked for while there is a terminal.
    let password = password.read("Password")?;
    if *foreground {
        return serve(command, &password, None);
    }
    match daemonise().map_err(|e| exit::of_mount(&e))? {
        Daemonised::Parent(Ok(())) => Ok(()),
        Daemonised::Parent(Err(failure)) => {
            Err(Failure::new(u8::try_from(failure.code).unwrap_or(exit::DEVICE), failure.text))
        }
        Daemonised::Child(reporter) => serve(command, &password, Some(reporter)),
    }
}

fn serve(command: &Command, password: &Password, reporter: Option<Reporter>) -> Outcome<()> {
    match start(command, password) {
        Ok(open) => {
            if let Some(reporter) = reporter {
                reporter.mounted().map_err(|e| exit::of_mount(&e))?;
            }
            open.run()
        }
        Err(failure) => match reporter {
            None => Err(failure),
            Some(reporter) => {
                // The parent prints it.
                let _ = reporter.failed(failure.code.into(), &failure.text());
                std::process::exit(failure.code.into())
            }
        },
    }
}

/// An open device and what serves it.
struct Open {
    session: Arc<Session>,
    heartbeat: Option<Heartbeat>,
    control: Control,
    serving: Serving,
    interrupts: Interrupts,
    read_only: bool,
}

fn start(command: &Command, password: &Password) -> Outcome<Open> {
    let Command::Open {
        device: path,
        front,
        read_only,
        public_only,
        search,
        hidden_flush,
        queue,
        ..
    } = command
    else {
        unreachable!("called for open");
    };
    keep_memory_private();
    let signals = [Signal::HUP, Signal::INT, Signal::TERM].map(Signal::as_raw);
    let interrupts = Interrupts::watch(&signals).map_err(|e| exit::of_mount(&e))?;
    let access = if *read_only { Access::ReadOnly } else { Access::ReadWrite };
    let device = open_device(path, access)?;
    let options = Options {
        read_only: *read_only,
        public_only: *public_only,
        search: *search,
        hidden_flush: match hidden_flush {
            HiddenFlushName::Ordered => HiddenFlush::Ordered,
            HiddenFlushName::Durable => HiddenFlush::Durable,
        },
        queue_bytes: *queue,
        ..Options::default()
    };
    let session = Session::open(&device, Unlock::Password(password), options);
    let session = Arc::new(session.map_err(|e| failure(path, &e))?);
    let volumes = session.volumes();
    if volumes.len() == 1 && !read_only {
        eprintln!("{PUBLIC_ONLY}");
    }
    let named = volumes.into_iter().map(|volume| {
        let device: Arc<dyn BlockDevice> = Arc::new(volume.clone());
        (name_of(volume.level()), device)
    });
    let (serving, place) = match (&front.nbd, &front.fuse) {
        (Some(socket), _) => {
            let exports =
                named.map(|(name, device)| Export::new(name, device).read_only(*read_only));
            let listener = Listener::unix(socket).map_err(|e| of_nbd(socket, &e))?;
            let server = Server::start(exports.collect(), vec![listener]);
            (Serving::Nbd(server.map_err(|e| of_nbd(socket, &e))?), socket)
        }
        (None, Some(dir)) => {
            let files = DeviceFiles::new(named.map(|(name, device)| (name.into(), device)));
            let files = files.map_err(|e| exit::of_mount(&e))?.waiting(|name| name != "public");
            let mount_options = MountOptions {
                read_only: *read_only,
                fs_name: "tacita-pddm".to_owned(),
                subtype: "pddm".to_owned(),
                ..DeviceFiles::mount_options()
            };
            let posix = Arc::new(Posix::new(files, SystemClock));
            let mount = mount(posix, dir, &mount_options).map_err(|e| exit::of_mount(&e))?;
            (Serving::Fuse(mount), dir)
        }
        (None, None) => unreachable!("one of them is given"),
    };
    let control = Control::start(place, Arc::clone(&session))?;
    let heartbeat = if *read_only { None } else { Heartbeat::start(Arc::clone(&session)) };
    Ok(Open { session, heartbeat, control, serving, interrupts, read_only: *read_only })
}

impl Open {
    /// Serves until it is to stop; then everything public is made durable.
    fn run(self) -> Outcome<()> {
        let Self { session, heartbeat, control, serving, interrupts, read_only } = self;
        let served = match serving {
            Serving::Nbd(server) => {
                interrupts.wait();
                session.cut_hidden(true);
                server.stop(PATIENCE);
                Ok(())
            }
            Serving::Fuse(mount) => {
                run_until_unmounted(mount, interrupts).map_err(|e| exit::of_mount(&e))
            }
        };
        drop(heartbeat);
        session.cut_hidden(true);
        let failed = |e: tacita_pddm::Error| Failure::new(exit::DEVICE, e.to_string());
        let swept = if control.serves_no_more() && !read_only {
            session.sweep(&mut |_, _| true).map(drop).map_err(failed)
        } else {
            Ok(())
        };
        let dropped = dropped(&session);
        let ended = served.and(swept).and(session.close().map_err(failed));
        control.finish(&ended, &dropped);
        ended
    }
}

/// What waits on hidden volumes and goes with the session.
fn dropped(session: &Session) -> Value {
    let volumes = session.volumes().into_iter().filter(|volume| volume.level() != Level::PUBLIC);
    let waiting = volumes.map(|volume| (name_of(volume.level()), volume.waiting_blocks()));
    let waiting = waiting.filter(|(_, blocks)| *blocks > 0);
    let waiting = waiting.map(|(name, blocks)| json!({ "name": name, "blocks": blocks }));
    waiting.collect()
}

/// No core dumps, and no looking from other processes of the same user.
fn keep_memory_private() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    // Where the system refuses, it is as it was.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

fn of_nbd(socket: &Path, error: &tacita_nbd::Error) -> Failure {
    let code = match error.kind() {
        tacita_nbd::Kind::Busy => exit::BUSY,
        tacita_nbd::Kind::Invalid | tacita_nbd::Kind::Exists => exit::USAGE,
        _ => exit::DEVICE,
    };
    let text = error.to_string();
    let name = socket.display().to_string();
    let failure =
        Failure::new(code, if text.contains(&name) { text } else { format!("{name}: {text}") });
    if code == exit::BUSY {
        return failure.with_remedy("`tacita pddm close SOCKET` first, or give another socket");
    }
    failure
}
