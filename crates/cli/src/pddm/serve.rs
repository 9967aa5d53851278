//! `tacita pddm open`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use serde_json::{Value, json};
use tacita_block::Access;
use tacita_daemon::Interrupts;
use tacita_daemon::control::{Control, Identity};
use tacita_pddm::{Heartbeat, HiddenFlush, Level, Options, Session, Unlock};
use tacita_secret::Password;

use super::control::{Ending, Opened, of_session};
use super::serving::{Call, Serving};
use super::{failure, name_of, open_device_or};
use crate::arguments::{HiddenFlushName, Pddm as Command};
use crate::exit::Outcome;
use crate::keys::warn_of_swap;
use crate::output;

/// Said to whoever is at a terminal whenever no hidden volume is opened, and there may be one or not.
/// Nobody's log may have it: it would be missing there whenever one was open.
const PUBLIC_ONLY: &str = "tacita: only the public volume is open: writing to it destroys what \
                           hidden volumes hold, if there are any";

pub(super) fn run(command: &Command) -> Outcome<()> {
    let Command::Open { password, foreground, .. } = command else {
        unreachable!("called for open");
    };
    // Asked for while there is a terminal.
    let password = password.read("Password")?;
    tacita_daemon::serve(*foreground, || start(command, &password), Open::run)
}

/// An open device and what serves it.
struct Open {
    session: Arc<Session>,
    heartbeat: Option<Heartbeat>,
    control: Control,
    ending: Arc<Ending>,
    serving: Serving,
    calls: Receiver<Call>,
    endpoint: PathBuf,
    read_only: bool,
}

fn start(command: &Command, password: &Password) -> Outcome<Open> {
    let Command::Open {
        device: path,
        endpoint,
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
    // No looking from other processes of the same user. Where the system refuses, it is as it was.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let mut interrupts = Interrupts::watch()?;
    let access = if *read_only { Access::ReadOnly } else { Access::ReadWrite };
    let device = open_device_or(path, access, "open it for reading: `--read-only`")?;
    let options = Options {
        read_only: *read_only,
        public_only: *public_only,
        search: *search,
        hidden_flush: match hidden_flush {
            HiddenFlushName::Ordered => HiddenFlush::Ordered,
            HiddenFlushName::Durable => HiddenFlush::Durable,
        },
        queue_bytes: *queue,
        failed: Some(|why| {
            log::error!("nothing is written any more ({why}): mend that, close, and open again");
        }),
        ..Options::default()
    };
    let (caller, calls) = channel();
    let session = Session::open(&device, Unlock::Password(password), options);
    let session = Arc::new(session.map_err(|e| failure(path, &e))?);
    warn_of_swap();
    let volumes = session.volumes();
    let is_public_alone = volumes.len() == 1;
    let (serving, endpoint) = Serving::start(volumes, endpoint, *read_only, &caller)?;
    let signalled = caller.clone();
    std::thread::Builder::new().name("tacita-signals".to_owned()).spawn(move || {
        while interrupts.wait() {
            let _ = signalled.send(Call::Signal);
        }
    })?;
    let ending = Arc::<Ending>::default();
    let opened = Opened {
        session: Arc::clone(&session),
        ending: Arc::clone(&ending),
        calls: caller,
        hand_over_public: Box::new(serving.hands_over()),
    };
    let identity = Identity {
        system: "pddm",
        at: endpoint.canonicalize()?,
        device: serving.device(),
        source: path.canonicalize().ok(),
    };
    let control = Control::start(identity, Arc::new(opened))?;
    if is_public_alone && !read_only && std::io::stderr().is_terminal() {
        output::say_when_serving(PUBLIC_ONLY);
    }
    let heartbeat = if *read_only {
        None
    } else {
        Heartbeat::start(Arc::clone(&session)).map_err(|e| failure(path, &e))?
    };
    let read_only = *read_only;
    Ok(Open { session, heartbeat, control, ending, serving, calls, endpoint, read_only })
}

impl Open {
    /// Serves until it is to stop; then everything public is made durable.
    fn run(self) -> Outcome<()> {
        let Self { session, heartbeat, control, ending, serving, calls, endpoint, read_only } =
            self;
        let (mut unmounted, mut signals) = (false, 0);
        for call in &calls {
            if call == Call::Close && !ending.is_asked_for() {
                // It was refused together with one before.
                continue;
            }
            unmounted = call == Call::Unmounted;
            signals += u32::from(call == Call::Signal);
            // Who signals twice means it.
            if unmounted || signals > 1 {
                break;
            }
            let Some(why) = serving.hindrance(&endpoint) else { break };
            ending.refuse(&why);
        }
        ending.begin();
        // Hidden clients go first, then the heartbeat, then all others.
        session.close_hidden();
        drop(heartbeat);
        let failed = |e: tacita_pddm::Error| of_session(&(&e).into());
        let mut left = Value::Null;
        let ended = serving.stop(unmounted, |served| {
            let swept = if ending.settle_sweep() && !read_only {
                session.sweep_whole(&mut |_, _| true).map(drop).map_err(failed)
            } else {
                Ok(())
            };
            left = dropped(&session);
            served.and(swept).and(session.close().map_err(failed))
        });
        drop(control);
        ending.await_sweeps();
        ending.tell(&ended, &left);
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
