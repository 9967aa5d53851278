//! The end of whoever asks.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use serde_json::{Value, json};
use tacita_clock::{Clock, System};

use super::paths::path_of_json;
use super::peer::Peer;
use super::protocol::{ANSWER_LEN_MAX_BYTES, Request};
use super::server::{record_of, socket_name};
use crate::process_state::{is_killed, state_of};
use crate::runtime_folder::{folders_below, folders_of_all, users};
use crate::voice::shown_name;
use crate::{Error, Failure, Kind, Mount, Result, Watch, exit, mounts};

/// How long a daemon has to take a connection, and for its status while it is looked for.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often is looked whether a daemon that lets wait can answer at all.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A process that is traced counts as stopped if it has not gone on for so many looks.
const TRACED_LOOKS: u32 = 20;

/// Pause between those.
const TRACED_STEP: Duration = Duration::from_millis(10);

/// The flags of a socket that listens, in the kernel's table.
const LISTENING: &str = "00010000";

/// What a daemon has said last.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Facts, whether or not it was done.
    pub facts: Value,
    /// Why it was not done.
    pub failure: Option<Failure>,
}

/// A connection to a daemon, for one request.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// Whether there was room for it among those who wait to be answered.
    is_taken: bool,
    daemon: Option<OwnedFd>,
    pid: Option<Pid>,
    socket: PathBuf,
}

impl Client {
    /// Finds the daemon of `target`: the folder or socket that it serves at, or the image, device or
    /// folder that it serves. A mount is found from other mount namespaces and by other paths, too.
    ///
    /// # Errors
    /// [`Kind::NotServed`] if there is none, or none that this user may ask; [`Kind::NoAnswer`] if one
    /// that may be it does not say what it serves.
    pub fn find(target: &Path) -> Result<Self> {
        let full = full_path(target)
            .map_err(|e| Error::new(Kind::NotServed, format!("{}: {e}", shown_name(target))))?;
        // Whoever looks at the folder itself waits for a daemon that may not answer, and even root may
        // not look into what other users mount for themselves.
        let mounter = mounted_by(|mount| mount.place == full);
        if let Some(client) = Self::by_name(&full, mounter) {
            return Ok(client);
        }
        let wanted = Wanted::of(&full);
        let owner = mounter.or_else(|| wanted.mounter()).or(wanted.owner);
        if let Some(client) = Self::by_name(&full, owner) {
            return Ok(client);
        }
        wanted.find(owner, &format!("{}: ", shown_name(target)))
    }

    /// All daemons that this user may ask, each once: for root those of all users.
    pub fn all() -> impl Iterator<Item = Self> {
        let users = if geteuid().is_root() { users() } else { Vec::new() };
        sockets_of_all(&users).into_iter().filter_map(|socket| Self::connect(&socket).ok())
    }

    /// The daemon that serves at that folder or socket, if it is this user's, or for root that of
    /// whoever has mounted it, without a look at the folder.
    pub fn serving_at(target: &Path) -> Option<Self> {
        let full = full_path(target).ok()?;
        let mounter = mounted_by(|mount| mount.place == full);
        Self::by_name(&full, mounter)
    }

    fn by_name(full: &Path, owner: Option<u32>) -> Option<Self> {
        let name = socket_name(full);
        let mut sockets =
            folders_of_all(owner.as_slice()).into_iter().map(|folder| folder.join(&name));
        sockets.find_map(|socket| Self::connect(&socket).ok())
    }

    /// Finds the daemon of a mounted file system by its number, as in `0:42`.
    ///
    /// # Errors
    /// As [`Client::find`].
    pub fn of_mount(device: &str) -> Result<Self> {
        let device = Some(device.to_owned());
        let wanted = Wanted { path: None, device, source: None, owner: None };
        wanted.find(wanted.mounter(), "")
    }

    fn connect(socket: &Path) -> std::io::Result<Self> {
        Self::connect_within(PATIENCE, socket)
    }

    /// When as many wait to be taken as can, the next waits even for that: so long for a daemon that is
    /// busy, and not at all for one that has been stopped, which takes nobody.
    fn connect_within(patience: Duration, socket: &Path) -> std::io::Result<Self> {
        let stream =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&stream, Timeout::Send, Some(patience))?;
        let (stream, socket) = (UnixStream::from(stream), socket.to_owned());
        let mut client = Self { stream, is_taken: false, daemon: None, pid: None, socket };
        client.stream.set_nonblocking(true)?;
        client.knock()?;
        client.stream.set_nonblocking(false)?;
        if !client.is_taken {
            client.pid = listener(&client.socket);
            if client.stopped().is_none() {
                client.knock()?;
            }
        }
        Ok(client)
    }

    /// Has the daemon take this connection, if it has room for one.
    fn knock(&mut self) -> std::io::Result<()> {
        match connect(&self.stream, &SocketAddrUnix::new(&self.socket)?) {
            Err(Errno::AGAIN) => return Ok(()),
            done => done?,
        }
        self.is_taken = true;
        self.pid = Peer::of(&self.stream)?.pid;
        self.daemon = self.pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(())
    }

    /// Waits until the daemon has taken this connection.
    fn be_taken(&mut self) -> std::result::Result<(), NoAnswer> {
        loop {
            if let Some(stopped) = self.stopped() {
                return Err(NoAnswer::Late(stopped));
            }
            if self.is_taken {
                return Ok(());
            }
            self.knock()?;
        }
    }

    /// The number of its process, where that can be seen.
    pub fn process(&self) -> Option<i32> {
        self.pid.map(Pid::as_raw_pid)
    }

    /// That it cannot answer, if it has been stopped by a signal: [`exit::BUSY`].
    pub fn stopped(&self) -> Option<Failure> {
        self.pid.filter(|pid| is_stopped(*pid)).map(has_been_stopped)
    }

    /// What it serves and what it says; waits for two seconds at most.
    ///
    /// # Errors
    /// [`exit::BUSY`] if it is there and does not say so by then; else it has ended, or refuses.
    pub fn status(self) -> std::result::Result<Value, Failure> {
        if let Some(stopped) = self.stopped() {
            return Err(stopped);
        }
        let silent = does_not_answer(self.pid);
        if !self.is_taken {
            return Err(silent);
        }
        let late = || Some(silent.clone());
        self.exchange(PATIENCE, &Request::plain("status"), &mut |_| (), &late)?.result()
    }

    /// Asks, and hears how far it has come until it is done.
    ///
    /// # Errors
    /// [`exit::DEVICE`] if the daemon ends without a word; [`exit::BUSY`] if it has been stopped by
    /// a signal, so that it does not answer before it goes on, or killed, and is not gone yet.
    pub fn ask(
        mut self,
        request: &Request,
        progress: &mut dyn FnMut(&Value),
    ) -> std::result::Result<Answer, Failure> {
        self.be_taken()?;
        let pid = self.pid;
        let late = || {
            let stopped = pid.filter(|pid| is_stopped(*pid)).map(has_been_stopped);
            stopped.or_else(|| pid.filter(|pid| is_killed(*pid)).map(has_been_killed))
        };
        Ok(self.exchange(LOOK_EVERY, request, progress, &late)?)
    }

    /// As [`Client::ask`], and waits for the end of the daemon, unless it goes on because it is busy. The
    /// failure that it ends with is then told, and no more on record.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn ask_to_stop(mut self, request: &Request) -> std::result::Result<Answer, Failure> {
        self.be_taken()?;
        let (daemon, socket) = (self.daemon.take(), self.socket.clone());
        let answer = self.ask(request, &mut |_| ())?;
        let goes_on = answer.failure.as_ref().is_some_and(|f| f.code == exit::BUSY);
        if let Some(daemon) = daemon.filter(|_| !goes_on) {
            // Its last words come a moment before what it served is free.
            let _ = poll(&mut [PollFd::new(&daemon, PollFlags::IN)], None);
            if let Ok(Some(watch)) = Watch::of(record_of(&socket)) {
                let _ = watch.ending();
            }
        }
        Ok(answer)
    }

    /// `late` decides, whenever nothing has come for so long, whether that is why there is no answer.
    fn exchange(
        mut self,
        patience: Duration,
        request: &Request,
        progress: &mut dyn FnMut(&Value),
        late: &dyn Fn() -> Option<Failure>,
    ) -> std::result::Result<Answer, NoAnswer> {
        self.stream.set_read_timeout(Some(patience))?;
        match self.stream.write_all(request.line().as_bytes()) {
            // Who has no time for more says so before it hears what is wanted, and hangs up.
            Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            written => written?,
        }
        let mut reader = BufReader::new(self.stream).take(0);
        loop {
            let mut line = Vec::new();
            reader.set_limit(ANSWER_LEN_MAX_BYTES);
            // What had come before nothing came stays in the line.
            while let Err(error) = reader.read_until(b'\n', &mut line) {
                match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                        late().map_or(Ok(()), |why| Err(NoAnswer::Late(why)))?;
                    }
                    _ => return Err(error.into()),
                }
            }
            if line.is_empty() {
                return Err(std::io::Error::other("it ended without an answer").into());
            }
            let value: Value = serde_json::from_slice(&line).map_err(std::io::Error::from)?;
            let Some(facts) = value.get("progress") else {
                let failure = Failure::from_json(&value["failure"]);
                return Ok(Answer { facts: value["facts"].clone(), failure });
            };
            progress(facts);
        }
    }
}

/// Why there was no answer.
enum NoAnswer {
    /// The daemon is there, and says nothing: why.
    Late(Failure),
    /// The connection ended, or what came is none.
    Ended(std::io::Error),
}

impl From<NoAnswer> for Failure {
    fn from(error: NoAnswer) -> Self {
        match error {
            NoAnswer::Late(why) => why,
            NoAnswer::Ended(error) => {
                Self::new(exit::DEVICE, format!("the daemon does not answer: {error}")).with_remedy(
                    "what was flushed is on the medium; its last messages are in the system's log",
                )
            }
        }
    }
}

impl From<std::io::Error> for NoAnswer {
    fn from(error: std::io::Error) -> Self {
        Self::Ended(error)
    }
}

impl Answer {
    /// The facts, or why it was not done.
    ///
    /// # Errors
    /// The daemon's.
    pub fn result(self) -> std::result::Result<Value, Failure> {
        match self.failure {
            None => Ok(self.facts),
            Some(failure) => Err(failure),
        }
    }
}

/// The process that listens at a socket, as far as this user may see.
fn listener(socket: &Path) -> Option<Pid> {
    let table = fs::read_to_string("/proc/net/unix").ok()?;
    let socket = socket.to_str()?;
    // Connections that wait to be taken have its name as well.
    let inode = table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(3) == Some(&LISTENING) && line.ends_with(&format!(" {socket}"));
        fields.get(6).filter(|_| is_it).map(ToString::to_string)
    });
    let open = PathBuf::from(format!("socket:[{}]", inode?));
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids =
        processes.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.find(|pid| has_open(*pid, &open) == Some(true))
}

/// Whether a process has it open, by this name; `None` if this user may not look. Nothing of the process
/// is waited for: to look at a file itself might be.
fn has_open(pid: Pid, name: &Path) -> Option<bool> {
    let open = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).ok()?;
    Some(
        open.flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|path| path == name),
    )
}

/// Whether a process has been stopped, by a signal or a debugger, so that it does nothing before
/// somebody lets it go on. Whoever traces it (`strace`) stops it for a moment at each of its calls.
fn is_stopped(pid: Pid) -> bool {
    match state_of(pid) {
        Some('T') => true,
        Some('t') => (0..TRACED_LOOKS).all(|_| {
            System.wait(TRACED_STEP);
            matches!(state_of(pid), Some('T' | 't'))
        }),
        _ => false,
    }
}

fn has_been_stopped(pid: Pid) -> Failure {
    let number = pid.as_raw_nonzero();
    let text = format!("process {number}, the daemon, has been stopped");
    Failure::new(exit::BUSY, text).with_remedy(format!("`kill -CONT {number}`"))
}

fn has_been_killed(pid: Pid) -> Failure {
    let number = pid.as_raw_nonzero();
    let text = format!("process {number}, the daemon, has been killed, and is not gone yet");
    Failure::new(exit::BUSY, text)
        .with_remedy("`tacita umount` takes away from it what it waits for in the kernel")
}

fn does_not_answer(pid: Option<Pid>) -> Failure {
    if let Some(killed) = pid.filter(|pid| is_killed(*pid)) {
        return has_been_killed(killed);
    }
    let number = pid.map_or_else(String::new, |pid| format!(" {}", pid.as_raw_nonzero()));
    Failure::new(exit::BUSY, format!("process{number}, a daemon, does not say what it serves"))
        .with_remedy(
            "do it again when it has done what keeps it; its messages are in the system's log \
             (`journalctl -t tacita`)",
        )
}

/// What is looked for: the file system that a folder belongs to, or the file that is served.
struct Wanted {
    path: Option<PathBuf>,
    device: Option<String>,
    source: Option<(u64, u64)>,
    /// Whose it is.
    owner: Option<u32>,
}

impl Wanted {
    fn of(target: &Path) -> Self {
        let found = fs::metadata(target).ok();
        let device = found.as_ref().filter(|found| found.is_dir()).map(|found| {
            let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
            format!("{major}:{minor}")
        });
        Self {
            path: Some(target.to_owned()),
            device,
            source: found.as_ref().map(|found| (found.dev(), found.ino())),
            owner: found.map(|found| found.uid()),
        }
    }

    /// Who has mounted the file system that it is in. Nobody else is believed to serve that.
    fn mounter(&self) -> Option<u32> {
        let device = self.device.as_ref()?;
        mounted_by(|mount| mount.device == *device)
    }

    /// Asks all daemons that can be reached what they serve, each once. `what` names it in errors.
    fn find(&self, owner: Option<u32>, what: &str) -> Result<Client> {
        let mut silent = None;
        let believed = sockets_of_all(owner.as_slice()).into_iter().map(|socket| (socket, true));
        let others = std::iter::once_with(|| self.others()).flatten().map(|socket| (socket, false));
        for (socket, is_believed) in believed.chain(others) {
            // Who has ended meanwhile serves nothing.
            let Ok(client) = Client::connect(&socket) else { continue };
            let pid = client.pid;
            if !is_believed && self.has_opened(pid) != Some(true) {
                continue;
            }
            let is_it = match client.status() {
                Ok(status) => self.is(&status),
                Err(why) if why.code == exit::BUSY => self.seen_in(pid).unwrap_or_else(|| {
                    silent.get_or_insert(why);
                    false
                }),
                Err(_) => false,
            };
            if is_it && let Ok(client) = Client::connect(&socket) {
                return Ok(client);
            }
        }
        Err(match silent {
            Some(why) => {
                let text = format!("{what}whether it is served cannot be said: {}", why.cause);
                Error::new(Kind::NoAnswer, text)
            }
            None => {
                Error::new(Kind::NotServed, format!("{what}not served by a daemon of this user"))
            }
        })
    }

    /// Where else root asks, for a file may be served by whoever may open it: daemons of all users, which
    /// are believed if they have it open.
    fn others(&self) -> Vec<PathBuf> {
        let is_file = self.path.is_some() && self.device.is_none();
        if is_file && geteuid().is_root() { sockets_of_all(&users()) } else { Vec::new() }
    }

    /// Whether it is a daemon that does not say what it serves, as far as that can be seen from outside:
    /// what it has open, not what it has mounted.
    fn seen_in(&self, pid: Option<Pid>) -> Option<bool> {
        self.has_opened(pid).filter(|is_open| *is_open || !self.is_mounted())
    }

    /// Whether a process has it open; `None` if that cannot be seen.
    fn has_opened(&self, pid: Option<Pid>) -> Option<bool> {
        match &self.path {
            Some(path) => has_open(pid?, path),
            None => Some(false),
        }
    }

    /// Whether what is looked for is in something that a daemon of some system has mounted.
    fn is_mounted(&self) -> bool {
        let Some(device) = &self.device else { return false };
        let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let is_it = |row: Mount| row.device == *device && row.kind.starts_with("fuse.tacita");
        // By its number alone a mount is looked for that this namespace need not have any more.
        self.path.is_none() || mounts(&table).any(is_it)
    }

    fn is(&self, status: &Value) -> bool {
        let same_device = self.device.as_deref().is_some_and(|d| status["device"] == json!(d));
        let source = path_of_json(&status["source"]).and_then(|path| fs::metadata(path).ok());
        let source = source.map(|found| (found.dev(), found.ino()));
        same_device || source.is_some() && source == self.source
    }
}

/// The canonical path of something of which at least the folder is there: a socket may be gone, and
/// a mount whose daemon is dead has no attributes.
fn full_path(target: &Path) -> std::io::Result<PathBuf> {
    match (target.canonicalize(), target.parent(), target.file_name()) {
        (Err(_), Some(folder), Some(name)) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            Ok(folder.canonicalize()?.join(name))
        }
        (full, ..) => full,
    }
}

/// Who has mounted the file system in user space that is meant, as the mount table says.
fn mounted_by(is_it: impl Fn(&Mount) -> bool) -> Option<u32> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    mounts(&table).rev().filter(is_it).find_map(|mount| mounter(&mount))
}

/// The user who has mounted it, if it is a file system in user space.
fn mounter(mount: &Mount) -> Option<u32> {
    let mut options = mount.options_of_all.split(',');
    options.find_map(|option| option.strip_prefix("user_id="))?.parse().ok()
}

/// Where daemons that can be reached are asked, each once, in this view of the file system first.
fn sockets_of_all(owners: &[u32]) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    let mut is_new = |socket: &PathBuf| {
        fs::metadata(socket).is_ok_and(|found| seen.insert((found.dev(), found.ino())))
    };
    let elsewhere = other_views().into_iter().flat_map(|root| folders_below(&root, owners));
    let folders = folders_of_all(owners).into_iter().chain(elsewhere);
    folders.flat_map(|folder| sockets_in(&folder)).filter(|socket| is_new(socket)).collect()
}

fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    sockets.map(|entry| entry.path()).collect()
}

/// Views of the file system that differ from ours, of processes that this user may look into.
fn other_views() -> Vec<PathBuf> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let mut seen: HashSet<PathBuf> = namespace("self").into_iter().collect();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let pids = pids.filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    let new = pids.filter(|pid| namespace(pid).is_some_and(|namespace| seen.insert(namespace)));
    // A view of a process of another user could show us anything.
    let ours = new.filter(|pid| {
        geteuid().is_root()
            || fs::metadata(format!("/proc/{pid}"))
                .is_ok_and(|found| found.uid() == geteuid().as_raw())
    });
    ours.map(|pid| PathBuf::from(format!("/proc/{pid}/root"))).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc::channel;

    use rustix::process::Signal;

    use super::*;

    /// A socket in `folder` for which `backlog` and one more can wait, and where it is.
    fn listening(folder: &Path, backlog: i32) -> (OwnedFd, PathBuf) {
        let socket = folder.join("socket");
        let server =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::bind(&server, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        rustix::net::listen(&server, backlog).unwrap();
        (server, socket)
    }

    /// One that is waited for would let everybody wait who looks for any daemon.
    #[test]
    fn who_takes_nobody_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (_server, socket) = listening(folder.path(), 1);
        let clients = std::iter::repeat_with(|| Client::connect(&socket).unwrap());
        let waiting: Vec<_> = clients.take(8).take_while(|client| client.is_taken).collect();
        assert!((1..8).contains(&waiting.len()), "{} were taken", waiting.len());
        // It is there all the same, and that it says nothing is no answer.
        let next = Client::connect(&socket).unwrap();
        assert_eq!(next.process(), Some(std::process::id().cast_signed()));
        assert_eq!(next.status().unwrap_err().code, exit::BUSY);
    }

    /// Each search for any daemon would wait for it.
    #[test]
    fn who_has_been_stopped_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (server, socket) = listening(folder.path(), 0);
        let mut child = Command::new("sleep").arg("600").stdin(server).spawn().unwrap();
        let pid = Pid::from_child(&child);
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        while !is_stopped(pid) {
            std::thread::yield_now();
        }
        let (told, heard) = channel();
        std::thread::spawn(move || {
            let connect = || Client::connect_within(Duration::from_hours(1), &socket);
            let clients: Vec<_> = (0..8).map(|_| connect().unwrap()).collect();
            told.send(clients.last().unwrap().stopped()).unwrap();
        });
        let stopped = heard.recv_timeout(Duration::from_mins(2));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(stopped.expect("it is waited for"), Some(has_been_stopped(pid)));
    }

    #[test]
    fn a_mount_table_tells_who_has_mounted() {
        let of = |line: &[u8]| mounts(line).next().as_ref().and_then(mounter);
        let line = br"104 28 0:42 / /home/a rw,nosuid - fuse.x /a rw,user_id=1000,group_id=7";
        assert_eq!(of(line), Some(1000));
        assert_eq!(of(b"28 1 8:1 / /home/a rw - ext4 /dev/sda1 rw"), None);
    }
}
