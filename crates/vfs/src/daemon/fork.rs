//! Going into the background.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::{Error, Kind, Result};

/// Length of the exit code ahead of the text.
const CODE_LEN_BYTES: usize = 4;

/// What the parent says when the child ended without a word.
const CODE_DIED: i32 = 1;

/// Why the child did not come to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Code to exit with.
    pub code: i32,
    /// What to print.
    pub text: String,
}

/// On which side of the fork the caller is.
#[derive(Debug)]
pub enum Daemonised {
    /// The process that was started: the child serves, or could not.
    Parent(std::result::Result<(), Failure>),
    /// The process in the background, which reports once.
    Child(Reporter),
}

/// Tells the parent how it went. Dropped without a word it reports a failure.
#[derive(Debug)]
pub struct Reporter {
    pipe: File,
}

impl Reporter {
    /// The mount is there: leaves the working folder and the terminal, and lets the parent go.
    ///
    /// # Errors
    /// [`Kind::Io`]; the parent then reports a failure.
    pub fn mounted(mut self) -> Result<()> {
        let leave = || -> io::Result<()> {
            std::env::set_current_dir("/")?;
            let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
            rustix::stdio::dup2_stdin(&null)?;
            rustix::stdio::dup2_stdout(&null)?;
            rustix::stdio::dup2_stderr(&null)?;
            Ok(())
        };
        leave().map_err(cannot)?;
        self.pipe.write_all(&0_i32.to_le_bytes()).map_err(cannot)
    }

    /// It did not come to a mount: the parent exits with `code`, which is not 0, and prints `text`.
    ///
    /// # Errors
    /// [`Kind::Io`]; the parent then reports a failure of its own.
    pub fn failed(mut self, code: i32, text: &str) -> Result<()> {
        let mut message = code.to_le_bytes().to_vec();
        message.extend_from_slice(text.as_bytes());
        self.pipe.write_all(&message).map_err(cannot)
    }
}

/// Splits off a process in the background, in a session of its own. To be called before any
/// thread is started. The parent comes back when the child has reported.
///
/// # Errors
/// [`Kind::Busy`] if there are other threads; [`Kind::Io`].
pub fn daemonise() -> Result<Daemonised> {
    let threads = fs::read_dir("/proc/self/task").map_err(cannot)?.count();
    if threads != 1 {
        return Err(Error::new(
            Kind::Busy,
            "cannot go into the background: threads are running already",
        ));
    }
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| cannot(e.into()))?;
    // JUSTIFICATION: no safe wrapper of fork exists, for it is only sound in a single thread.
    // SAFETY: this process has one thread, as was just counted, so the child inherits no lock that
    // nobody is left to release.
    #[allow(unsafe_code)]
    let child = unsafe { libc::fork() };
    match child {
        0 => {
            drop(reader);
            rustix::process::setsid().map_err(|e| cannot(e.into()))?;
            Ok(Daemonised::Child(Reporter { pipe: File::from(writer) }))
        }
        pid if pid > 0 => {
            drop(writer);
            Ok(Daemonised::Parent(listen(File::from(reader))))
        }
        _ => Err(cannot(io::Error::last_os_error())),
    }
}

fn listen(mut pipe: File) -> std::result::Result<(), Failure> {
    let mut message = Vec::new();
    let heard = pipe.read_to_end(&mut message);
    let Some((code, text)) = message.split_first_chunk::<CODE_LEN_BYTES>() else {
        let text = match heard {
            Ok(_) => "the process in the background ended before it served".to_owned(),
            Err(e) => format!("the process in the background is not heard: {e}"),
        };
        return Err(Failure { code: CODE_DIED, text });
    };
    match i32::from_le_bytes(*code) {
        0 => Ok(()),
        code => Err(Failure { code, text: String::from_utf8_lossy(text).into_owned() }),
    }
}

fn cannot(e: io::Error) -> Error {
    Error::new(Kind::Io, format!("cannot go into the background: {e}")).because(e)
}
