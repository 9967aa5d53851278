//! Going into the background.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, setsid, waitpid};
use serde_json::{Value, json};

use crate::{Error, Failure, Kind, Result, exit, heap, service_manager, voice};

/// What the child sends when it serves: an object with this, the lines to be said then.
const SERVING: &str = "serving";

/// On which side of the fork the caller is.
#[derive(Debug)]
pub enum Daemonised {
    /// The process that was started: the child serves, or could not.
    Parent(std::result::Result<(), Failure>),
    /// The process in the background, which reports once.
    Child(Reporter),
}

/// Tells the parent how it went. Of one that is dropped without a word the parent reports a failure when the
/// process has ended.
#[derive(Debug)]
pub struct Reporter {
    pipe: File,
    /// What takes the place of the terminal: opened before anything serves, if there is such a thing.
    null: Option<File>,
    inherited: Vec<Inherited>,
}

impl Reporter {
    /// Leaves the working folder, the terminal and whatever files it was started with.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub fn leave(&mut self) -> Result<()> {
        let mut leave = || -> io::Result<()> {
            std::env::set_current_dir("/")?;
            let null = self.null.take().map_or_else(null_device, Ok)?;
            rustix::stdio::dup2_stdin(&null)?;
            rustix::stdio::dup2_stdout(&null)?;
            rustix::stdio::dup2_stderr(&null)?;
            voice::leave_terminal();
            self.inherited.drain(..).for_each(Inherited::close);
            Ok(())
        };
        leave().map_err(cannot)
    }

    /// It serves: the parent says what is to be said then ([`voice::say_when_serving`]), and ends.
    ///
    /// # Errors
    /// [`Kind::Io`]; the parent then reports a failure.
    pub fn serving(mut self) -> Result<()> {
        let told = json!({ SERVING: voice::what_serves() });
        self.pipe.write_all(told.to_string().as_bytes()).map_err(cannot)
    }

    /// It did not come to serve: the parent ends with this failure.
    ///
    /// # Errors
    /// [`Kind::Io`]; the parent then reports a failure of its own.
    pub fn failed(mut self, failure: &Failure) -> Result<()> {
        self.pipe.write_all(failure.json().to_string().as_bytes()).map_err(cannot)
    }
}

/// Starts something and serves it to its end, in the background unless `foreground`: then this
/// returns in the process that was started when the other one serves, or could not. Whoever waits for one in
/// the foreground is told when it serves (`sd_notify(3)`).
///
/// # Errors
/// Those of `start` and of `run`; in the background the latter are for the other process alone.
pub fn serve<S>(
    foreground: bool,
    start: impl FnOnce() -> std::result::Result<S, Failure>,
    run: impl FnOnce(S) -> std::result::Result<(), Failure>,
) -> std::result::Result<(), Failure> {
    heap::make_ready()?;
    if foreground {
        let started = start()?;
        for line in voice::what_serves() {
            voice::say(&line);
        }
        service_manager::tell_ready();
        return run(started);
    }
    let mut reporter = match daemonise()? {
        Daemonised::Parent(done) => return done,
        Daemonised::Child(reporter) => reporter,
    };
    let begun = start().and_then(|started| {
        reporter.leave()?;
        Ok(started)
    });
    match begun {
        Ok(started) => {
            reporter.serving()?;
            run(started).inspect_err(|failure| {
                // Nobody may be there to unmount, and to hear of it.
                log::error!("ended with exit code {}{}", failure.code, failure.text_for_log());
            })
        }
        Err(failure) => {
            // The parent prints it.
            let _ = reporter.failed(&failure);
            std::process::exit(failure.code.into())
        }
    }
}

/// Splits off a process in the background, in a session of its own. To be called before any
/// thread is started. The parent comes back when the child has reported.
///
/// # Errors
/// [`Kind::Busy`] if there are other threads; [`Kind::NoProcesses`]; [`Kind::Io`].
pub fn daemonise() -> Result<Daemonised> {
    let threads = fs::read_dir("/proc/self/task").map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            Error::new(Kind::NoProcesses, "cannot go into the background: /proc is not mounted")
        }
        _ => cannot(e),
    })?;
    let threads = threads.count();
    if threads != 1 {
        return Err(Error::new(
            Kind::Busy,
            "cannot go into the background: threads are running already",
        ));
    }
    let inherited = Inherited::all().map_err(cannot)?;
    let null = match null_device() {
        // Where there are no devices, what is begun may lack more than that, and says it.
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        opened => Some(opened.map_err(cannot)?),
    };
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| cannot(e.into()))?;
    // JUSTIFICATION: no safe wrapper of fork exists, for it is only sound in a single thread.
    // SAFETY: this process has one thread, as was just counted, so the child inherits no lock that
    // nobody is left to release.
    #[allow(unsafe_code)]
    let child = unsafe { libc::fork() };
    match child {
        0 => {
            drop(reader);
            setsid().map_err(|e| cannot(e.into()))?;
            Ok(Daemonised::Child(Reporter { pipe: File::from(writer), null, inherited }))
        }
        pid if pid > 0 => {
            drop(writer);
            let child = Pid::from_raw(pid).expect("it is above zero");
            Ok(Daemonised::Parent(listen(File::from(reader), child)))
        }
        _ => Err(cannot(io::Error::last_os_error())),
    }
}

/// A file that the process was started with, besides the standard ones: it would keep a file system
/// busy, or a lock held, for as long as the daemon serves.
#[derive(Debug, PartialEq, Eq)]
struct Inherited {
    descriptor: RawFd,
    device: u64,
    inode: u64,
}

impl Inherited {
    /// All of them. What this program opens by itself is closed on exec, which those were not.
    fn all() -> io::Result<Vec<Self>> {
        let names = fs::read_dir("/proc/self/fd")?.map(|entry| Ok(entry?.file_name()));
        let names = names.collect::<io::Result<Vec<_>>>()?;
        let numbers = names.iter().filter_map(|name| name.to_str()?.parse().ok());
        Ok(numbers.filter(|number| *number > 2).filter_map(Self::at).collect())
    }

    /// The one with that number, if there is one.
    fn at(descriptor: RawFd) -> Option<Self> {
        let told = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
        let flags = told.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
        if OFlags::from_bits_retain(flags).contains(OFlags::CLOEXEC) {
            return None;
        }
        let file = fs::metadata(format!("/proc/self/fd/{descriptor}")).ok()?;
        Some(Self { descriptor, device: file.dev(), inode: file.ino() })
    }

    /// Closes it, unless its number has been given to something else.
    fn close(self) {
        if Self::at(self.descriptor).as_ref() == Some(&self) {
            // JUSTIFICATION: whoever started this process opened it, so nothing here owns it.
            // SAFETY: it is open, is no file that this program has opened (those are closed on exec),
            // and nobody uses it any more: what was read from it has been read.
            #[allow(unsafe_code)]
            unsafe {
                rustix::io::close(self.descriptor);
            }
        }
    }
}

fn listen(mut pipe: File, child: Pid) -> std::result::Result<(), Failure> {
    let mut message = Vec::new();
    let heard = pipe.read_to_end(&mut message);
    let sent: Option<Value> = serde_json::from_slice(&message).ok();
    if let Some(lines) = sent.as_ref().and_then(|sent| sent[SERVING].as_array()) {
        lines.iter().filter_map(Value::as_str).for_each(voice::say);
        return Ok(());
    }
    Err(sent.and_then(|value| Failure::from_json(&value)).unwrap_or_else(|| {
        let text = match heard {
            Ok(_) => "the process in the background ended before it was ready".to_owned(),
            Err(e) => format!("the process in the background does not answer: {e}"),
        };
        if heap::is_limited() && has_aborted(child) {
            return Failure::no_memory(format!("{text}: out of memory"));
        }
        Failure::new(exit::DEVICE, text)
            .with_remedy("the system's log may say more; `--foreground` shows what it says itself")
    }))
}

/// Whether a process that has let go of its pipe ends by SIGABRT, as who asks for memory and gets none does.
fn has_aborted(child: Pid) -> bool {
    let ended = waitpid(Some(child), WaitOptions::empty());
    let signal = ended.ok().flatten().and_then(|(_, status)| status.terminating_signal());
    signal == Some(libc::SIGABRT)
}

fn null_device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/null")
}

fn cannot(e: io::Error) -> Error {
    Error::from_io("cannot go into the background", e)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn of_one_that_aborts_where_addresses_are_limited_memory_is_named() {
        let now = getrlimit(Resource::As);
        // More than there is to be had.
        let limit = Rlimit { current: now.current.or(Some(1 << 46)), ..now };
        setrlimit(Resource::As, limit).unwrap();
        let told = |end: &str| {
            let mut child = Command::new("sh");
            child.args(["-c", &format!("ulimit -c 0; {end}")]).stdout(Stdio::piped());
            let mut child = child.spawn().unwrap();
            let pipe = OwnedFd::from(child.stdout.take().unwrap());
            let failure = listen(File::from(pipe), Pid::from_child(&child)).unwrap_err();
            // It has been waited for.
            assert!(child.wait().is_err());
            failure
        };
        let aborted = told("kill -ABRT $$");
        assert_eq!(aborted.code, exit::NOT_HERE);
        assert!(aborted.remedy.unwrap().contains("`ulimit -v`"));
        for end in ["exit 3", "kill -KILL $$"] {
            assert_eq!(told(end).code, exit::DEVICE, "{end}");
        }
    }
}
