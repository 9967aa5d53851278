//! The end of whoever asks: a connection to one daemon, and what it answers.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;
use tacita_clock::{Clock, System};

use super::peer::Peer;
use super::protocol::{ANSWER_LEN_MAX_BYTES, Request};
use super::server::{record_of, socket_of};
use super::silence::{does_not_answer, if_killed, if_stopped};
use crate::process_state::listener;
use crate::voice::shown_name;
use crate::{Ending, Failure, Watch, exit};

/// How long a daemon has to take a connection, and for its status while it is looked for.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often is looked whether a daemon that lets wait can answer at all.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often is looked whether a daemon has come to its end.
const END_STEP: Duration = Duration::from_millis(10);

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
    pub(super) pid: Option<Pid>,
    socket: PathBuf,
}

/// Why nothing was answered.
#[derive(Debug)]
pub enum Unanswered {
    /// It has ended, and all went well.
    Done,
    /// It has ended, and somebody else was told how.
    Ended(Failure),
    /// It has ended with this, or does not answer.
    Failed(Failure),
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<NoAnswer> for Unanswered {
    fn from(why: NoAnswer) -> Self {
        Self::Failed(why.into())
    }
}

impl Client {
    /// The daemon whose end is watched, if it can be asked.
    pub fn of_watched(watch: &Watch) -> Option<Self> {
        Self::connect(&socket_of(watch.record())).ok()
    }

    pub(super) fn connect(socket: &Path) -> std::io::Result<Self> {
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
        let address = SocketAddrUnix::new(&self.socket)?;
        // Whoever is stopped while it waits, as by Ctrl-Z, is interrupted when it goes on.
        match retry_on_intr(|| connect(&self.stream, &address)) {
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
        if_stopped(self.pid)
    }

    /// Whether it has been killed, and is not gone yet: it will never answer.
    pub fn is_killed(&self) -> bool {
        if_killed(self.pid).is_some()
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
        let end = Some(System.monotonic() + PATIENCE);
        self.exchange((PATIENCE, end), &Request::plain("status"), &mut |_| (), &late)?.result()
    }

    /// The last that it has said, if it has said it since `then` (seconds since 1970), and not when it began: what
    /// it waits for, where it could tell.
    pub fn said_since(self, then: u64) -> Option<String> {
        last_said(&self.status().ok()?, then).map(shown_name)
    }

    /// The same daemon, for who has kept it waiting: it hears nobody who says nothing for two seconds. If it takes
    /// nobody any more, what it has said to that is not the answer.
    #[must_use]
    pub fn anew(mut self) -> Self {
        Self::connect(&self.socket).unwrap_or_else(|_| {
            let _ = self.stream.set_nonblocking(true);
            let _ = std::io::copy(&mut self.stream, &mut std::io::sink());
            let _ = self.stream.set_nonblocking(false);
            self
        })
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
        Ok(self.exchange((LOOK_EVERY, None), request, progress, &|| cannot_answer(pid))?)
    }

    /// Has it put everything on the medium. One that ends meanwhile does so at its end, and what it says of that
    /// is the answer: whoever else waits for it hears the same.
    ///
    /// # Errors
    /// As [`Client::ask`], and the daemon's.
    pub fn sync(self) -> std::result::Result<(), Failure> {
        match self.ask_until_its_end(&Request::plain("sync")) {
            Ok(answer) => answer.result().map(drop),
            Err(Unanswered::Done) => Ok(()),
            Err(Unanswered::Ended(why) | Unanswered::Failed(why)) => Err(why),
        }
    }

    /// As [`Client::ask`], of one that may end meanwhile.
    ///
    /// # Errors
    /// How it ended, and as [`Client::ask`].
    pub fn ask_until_its_end(
        mut self,
        request: &Request,
    ) -> std::result::Result<Answer, Unanswered> {
        self.be_taken()?;
        let (pid, record) = (self.pid, Watch::of(record_of(&self.socket)));
        let asked = self.exchange((LOOK_EVERY, None), request, &mut |_| (), &|| cannot_answer(pid));
        let (Err(NoAnswer::Ended(_)), Ok(record)) = (&asked, record) else {
            return Ok(asked?);
        };
        let Some(watch) = record else {
            return asked.map_err(|why| Unanswered::Ended(why.into()));
        };
        loop {
            match watch.ending().map_err(Failure::from)? {
                Some(Ending::Done) => return Err(Unanswered::Done),
                Some(Ending::Failed(told)) => return Err(Unanswered::Failed(told)),
                Some(Ending::Died) => return Ok(asked?),
                None => cannot_answer(pid).map_or(Ok(()), Err)?,
            }
            System.wait(END_STEP);
        }
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

    /// `late` decides, whenever nothing has come for so long, or the end is there, whether that is why there is no
    /// answer.
    fn exchange(
        mut self,
        (patience, end): (Duration, Option<Duration>),
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
        let mut reader = BufReader::new(Until { stream: self.stream, end }).take(0);
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

/// What comes until the end: who says a little now and then would else be heard for ever.
struct Until {
    stream: UnixStream,
    end: Option<Duration>,
}

impl Read for Until {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if let Some(end) = self.end {
            let left = end.saturating_sub(System.monotonic());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
        }
        self.stream.read(buf)
    }
}

/// Why a daemon that lets wait cannot answer.
fn cannot_answer(pid: Option<Pid>) -> Option<Failure> {
    if_stopped(pid).or_else(|| if_killed(pid))
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

/// The last message of a status, if it was said since `then` and not when the daemon began.
fn last_said(status: &Value, then: u64) -> Option<&str> {
    let last = status["messages"].as_array()?.last()?;
    let (at, begun) = (last["at"].as_u64()?, status["since"].as_u64()?);
    last["text"].as_str().filter(|_| at >= then && at > begun)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::process::Command;
    use std::sync::mpsc::channel;

    use rustix::process::Signal;
    use serde_json::json;

    use super::*;
    use crate::ServingLock;
    use crate::control::silence::has_been_stopped;
    use crate::process_state::is_stopped;

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

    /// A daemon that hears what is asked, and ends as is told without an answer, a moment later.
    fn asked_while_it_ends<T>(
        name: &str,
        end: impl FnOnce(ServingLock) + Send + 'static,
        ask: impl FnOnce(Client, &Path) -> T,
    ) -> T {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap().join(name);
        let lock = ServingLock::take(&at).unwrap();
        let watch = Watch::open(&at, None).unwrap().unwrap();
        let socket = socket_of(watch.record());
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            BufReader::new(&stream).read_until(b'\n', &mut Vec::new()).unwrap();
            drop(stream);
            System.wait(END_STEP * 3);
            end(lock);
        });
        let asked = ask(Client::of_watched(&watch).unwrap(), watch.record());
        daemon.join().unwrap();
        std::fs::remove_file(&socket).unwrap();
        asked
    }

    fn synced_while_it_ends(
        name: &str,
        end: impl FnOnce(ServingLock) + Send + 'static,
    ) -> Option<Failure> {
        asked_while_it_ends(name, end, |client, _| client.sync().err())
    }

    /// As of a sync for which the kernel has much to hand over before.
    #[test]
    fn what_is_said_to_who_has_said_nothing_is_no_answer() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let late = Failure::new(exit::BUSY, "nothing was asked for in time").json();
        let hang_up = || {
            let (mut stream, _) = listener.accept().unwrap();
            writeln!(stream, "{}", serde_json::json!({ "facts": null, "failure": late })).unwrap();
        };
        let ask = |client: Client| client.ask(&Request::plain("sync"), &mut |_| ());
        let client = Client::connect(&socket).unwrap();
        hang_up();
        let answered = std::thread::scope(|threads| {
            threads.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                BufReader::new(&stream).read_until(b'\n', &mut Vec::new()).unwrap();
                stream.write_all(b"{\"facts\":7,\"failure\":null}\n").unwrap();
            });
            ask(client.anew()).unwrap().result()
        });
        assert_eq!(answered, Ok(7.into()));
        // It has ended meanwhile, and how it ended is to be looked for.
        let client = Client::connect(&socket).unwrap();
        hang_up();
        drop(listener);
        let client = client.anew();
        assert_eq!(ask(client).unwrap_err().code, exit::DEVICE);
    }

    /// Whoever unmounts is told, and what was said is no more on record.
    #[test]
    fn how_it_ended_may_have_been_told_to_somebody_else() {
        let ask = |client: Client, record: &Path| {
            std::fs::remove_file(record).unwrap();
            client.ask_until_its_end(&Request::plain("purge"))
        };
        let asked = asked_while_it_ends("told", drop, ask);
        assert!(matches!(asked, Err(Unanswered::Ended(_))), "{asked:?}");
        let ask = |client: Client, _: &Path| client.ask_until_its_end(&Request::plain("purge"));
        let asked = asked_while_it_ends("heard", |mut lock| lock.finish(None), ask);
        assert!(matches!(asked, Err(Unanswered::Done)), "{asked:?}");
    }

    /// What it says of its end is the answer.
    #[test]
    fn who_syncs_what_ends_hears_how_it_ended() {
        let full = || Failure::new(exit::NO_SPACE, "the disk is full");
        assert_eq!(synced_while_it_ends("done", |mut lock| lock.finish(None)), None);
        let failed = synced_while_it_ends("failed", move |mut lock| lock.finish(Some(&full())));
        assert_eq!(failed, Some(full()));
        let died = synced_while_it_ends("died", drop).unwrap();
        assert_eq!(died.code, exit::DEVICE, "{}", died.cause);
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

    /// Any user can have root wait who looks for all daemons.
    #[test]
    fn who_says_a_little_now_and_then_is_not_heard_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        for said in ["{\"progress\":0}\n", " "] {
            let client = Client::connect(&socket).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let daemon = std::thread::spawn(move || {
                BufReader::new(&stream).read_until(b'\n', &mut Vec::new()).unwrap();
                // Ten times as long as it is heard, at most.
                let mut rest = 10 * PATIENCE.as_millis() / END_STEP.as_millis();
                while rest > 0 && stream.write_all(said.as_bytes()).is_ok() {
                    System.wait(END_STEP);
                    rest -= 1;
                }
                rest
            });
            assert_eq!(client.status().unwrap_err().code, exit::BUSY);
            assert_ne!(daemon.join().unwrap(), 0);
        }
    }

    /// Ctrl-Z, and on again.
    #[test]
    fn who_waits_may_be_stopped_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let (_server, socket) = listening(folder.path(), 0);
        let _taken = Client::connect(&socket).unwrap();
        let stops = format!(
            "for n in 1 2 3 4 5; do sleep 0.1; kill -STOP {0}; sleep 0.1; kill -CONT {0}; done",
            std::process::id()
        );
        let mut child = Command::new("sh").args(["-c", &stops]).spawn().unwrap();
        let client = Client::connect(&socket).unwrap();
        assert!(!client.is_taken);
        assert!(child.wait().unwrap().success());
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
    fn what_was_said_when_it_began_is_not_what_it_waits_for() {
        let status = |said| json!({ "since": 100, "messages": [{ "at": said, "text": "x" }] });
        for (said, then, is_told) in
            [(99, 50, false), (100, 50, false), (101, 50, true), (101, 102, false)]
        {
            assert_eq!(last_said(&status(said), then).is_some(), is_told, "{said} {then}");
        }
        assert_eq!(last_said(&json!({ "since": 100, "messages": [] }), 0), None);
    }
}
