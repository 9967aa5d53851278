//! A world: a device, its passwords, what is hidden on it, and what its owner runs.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tacita_testkit::{MountGuard, Watchdog};

/// How long a seed of a story may take. Each password is seconds of a processor, and by hand there are
/// more worlds and more to judge.
pub(crate) fn time_max() -> Duration {
    if by_hand() { Duration::from_hours(1) } else { Duration::from_mins(20) }
}

/// What is hidden in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    Nothing,
    /// So many volumes, open and never used.
    Idle(usize),
    /// So many, written and flushed at the same time as the public one.
    Busy(usize),
    /// Two, of which all know the first: the second is written and flushed beside it.
    Above,
}

impl Hidden {
    pub(crate) const fn volumes(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Idle(count) | Self::Busy(count) => count,
            Self::Above => 2,
        }
    }

    /// The names of the volumes that somebody uses in secret.
    pub(crate) fn busy(self) -> &'static [&'static str] {
        match self {
            Self::Busy(count) => &["hidden", "hidden2"][..count],
            Self::Above => &["hidden2"],
            _ => &[],
        }
    }
}

/// How a device is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Nbd,
    Folder,
}

pub(crate) struct World {
    pub(crate) hidden: Hidden,
    endpoint: Endpoint,
    folder: tempfile::TempDir,
    guard: Option<MountGuard>,
    /// Exit codes and words of public commands.
    pub(crate) said: Vec<String>,
    /// Copies of the device, by their paths.
    pub(crate) copies: Vec<String>,
}

/// A device that is served, and hidden clients at work.
pub(crate) struct Open {
    /// The daemon, or what traces it.
    pub(crate) daemon: Child,
    pub(crate) clients: Vec<Child>,
}

impl World {
    pub(crate) fn new(hidden: Hidden, endpoint: Endpoint) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["public", "hidden", "hidden2", "new", "other"] {
            fs::write(folder.path().join(name), format!("the {name} password\n")).unwrap();
        }
        let guard = (endpoint == Endpoint::Folder).then(|| MountGuard::new().unwrap());
        Self { hidden, endpoint, folder, guard, said: Vec::new(), copies: Vec::new() }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The password that its owner uses.
    pub(crate) fn own(&self) -> String {
        self.path(["public", "hidden", "hidden2"][self.hidden.volumes()])
    }

    /// The socket or folder.
    pub(crate) fn endpoint(&self) -> String {
        match &self.guard {
            Some(guard) => guard.path().to_str().unwrap().to_owned(),
            None => self.path("socket"),
        }
    }

    pub(crate) fn run(arguments: &[&str]) -> Output {
        Self::run_under(&[], arguments)
    }

    /// Runs a command under another that traces it.
    pub(crate) fn run_under(tracer: &[&str], arguments: &[&str]) -> Output {
        command(tracer).args(arguments).output().unwrap()
    }

    /// A public command: what it says is what the adversary sees.
    pub(crate) fn public(&mut self, arguments: &[&str]) -> Option<i32> {
        let output = Self::run(arguments);
        let code = output.status.code();
        self.heard(arguments[0], &output);
        code
    }

    /// Something said in public.
    pub(crate) fn heard(&mut self, what: &str, output: &Output) {
        let text = |bytes: &[u8]| self.anywhere(&String::from_utf8_lossy(bytes));
        let (code, out, err) = (output.status.code(), text(&output.stdout), text(&output.stderr));
        self.said.push(format!("{what} {code:?}\n{out}{err}"));
    }

    pub(crate) fn init(&mut self, device: &str) {
        self.init_of(device, "12M");
    }

    pub(crate) fn init_of(&mut self, device: &str, size: &str) {
        let public = self.path("public");
        let hidden: Vec<String> =
            ["hidden", "hidden2"][..self.hidden.volumes()].iter().map(|n| self.path(n)).collect();
        let mut arguments = vec!["init", device, "--size", size, "--classes", "2"];
        arguments.extend(["--heartbeat", "0", "--password-file", &public]);
        for file in &hidden {
            arguments.extend(["--hidden-password-file", file]);
        }
        self.public(&arguments);
    }

    /// What all its daemons have said, as a log of the machine keeps it.
    pub(crate) fn log(&self) -> String {
        self.anywhere(&fs::read_to_string(self.path("log")).unwrap_or_default())
    }

    /// What is said, wherever the world lies.
    fn anywhere(&self, text: &str) -> String {
        let text = text.replace(&self.endpoint(), "ENDPOINT");
        text.replace(self.path("").trim_end_matches('/'), "FOLDER")
    }

    /// Opens the device of the folder.
    pub(crate) fn open(&self, password: &str, more: &[&str]) -> Open {
        self.open_under(&[], &self.path("device"), password, more)
    }

    pub(crate) fn open_under(
        &self,
        tracer: &[&str],
        device: &str,
        password: &str,
        more: &[&str],
    ) -> Open {
        let endpoint = self.endpoint();
        let by = if self.endpoint == Endpoint::Nbd { "--nbd" } else { "--fuse" };
        let log = fs::File::options().append(true).create(true).open(self.path("log")).unwrap();
        let mut daemon = command(tracer)
            .args(["open", device, by, &endpoint, "--foreground", "--password-file", password])
            .args(more)
            .stdout(Stdio::null())
            .stderr(log)
            // Whatever becomes of the test, it must not outlive it by much.
            .process_group(0)
            .spawn()
            .unwrap();
        while Self::run(&["status", &endpoint]).status.code() != Some(0) {
            assert!(
                daemon.try_wait().unwrap().is_none(),
                "{:?} does not open: {}",
                self.hidden,
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Open { daemon, clients: Vec::new() }
    }

    /// Ends a session as its owner says.
    pub(crate) fn close(&mut self, open: Open, how: &str) {
        let endpoint = self.endpoint();
        self.public(&["close", how, &endpoint]);
        self.gone(open, true);
    }

    /// The daemon has ended, well or not, and hidden clients have nothing more to do.
    pub(crate) fn gone(&self, mut open: Open, well: bool) {
        assert_eq!(open.daemon.wait().unwrap().success(), well, "{:?}", self.hidden);
        open.clients.iter_mut().for_each(|client| _ = client.wait());
    }

    pub(crate) fn kill(mut open: Open) {
        open.daemon.kill().unwrap();
        open.daemon.wait().unwrap();
        open.clients.iter_mut().for_each(|client| _ = client.wait());
    }

    pub(crate) fn copy(&mut self) {
        self.copy_of(&self.path("device"));
    }

    pub(crate) fn copy_of(&mut self, device: &str) {
        let to = self.path(&format!("copy{}", self.copies.len()));
        fs::copy(device, &to).unwrap();
        self.copies.push(to);
    }
}

fn command(tracer: &[&str]) -> Command {
    let tacita = env!("CARGO_BIN_EXE_tacita");
    let mut command = match tracer {
        [] => Command::new(tacita),
        [program, options @ ..] => {
            let mut command = Command::new(program);
            command.args(options).arg(tacita);
            command
        }
    };
    command.arg("pddm").stdin(Stdio::null());
    command
}

/// Whether somebody plays all there is.
pub(crate) fn by_hand() -> bool {
    std::env::var_os("TACITA_WORLDS").is_some()
}

/// The same story in all worlds, side by side.
pub(crate) fn play(
    test: &str,
    endpoint: Endpoint,
    story: impl Fn(&mut World, u64) + Sync,
    judge: impl Fn(&[World], u64),
) {
    let all = [Hidden::Nothing, Hidden::Busy(1), Hidden::Idle(1), Hidden::Idle(2), Hidden::Busy(2)];
    play_in(&all, test, endpoint, story, judge);
}

/// The same in these worlds, of which the first two differ most.
pub(crate) fn play_in(
    kinds: &[Hidden],
    test: &str,
    endpoint: Endpoint,
    story: impl Fn(&mut World, u64) + Sync,
    judge: impl Fn(&[World], u64),
) {
    let (kinds, seeds) = match std::env::var("TACITA_WORLDS").ok().and_then(|n| n.parse().ok()) {
        None => (&kinds[..2], 1),
        Some(seeds) => (kinds, seeds),
    };
    for seed in 0..seeds {
        let _watchdog = Watchdog::start(test, time_max());
        let live = |kind: Hidden| {
            let mut world = World::new(kind, endpoint);
            story(&mut world, seed);
            world
        };
        let worlds: Vec<World> = std::thread::scope(|scope| {
            let live = &live;
            let threads: Vec<_> =
                kinds.iter().map(|kind| scope.spawn(move || live(*kind))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        judge(&worlds, seed);
    }
}
