//! Where passwords come from: a file, a descriptor, or the terminal; never an argument.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, Signal, getpid, pidfd_getfd, pidfd_open};
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tacita_daemon::BeforeEnd;
use tacita_secret::Password;

use crate::exit::{self, Failure, Outcome};
use crate::output::shown_name;

/// Longest password in bytes.
const LEN_MAX: u64 = 4096;

/// Where one password comes from.
#[derive(Debug, Args)]
pub(crate) struct From {
    /// Read the password from the first line of this file
    #[arg(long, value_name = "FILE", conflicts_with = "password_fd")]
    password_file: Option<PathBuf>,
    /// Read the password from the first line of this open file descriptor
    #[arg(long, value_name = "N")]
    password_fd: Option<u32>,
}

impl From {
    /// Whether it comes from elsewhere than the terminal.
    pub(crate) const fn is_given(&self) -> bool {
        self.password_file.is_some() || self.password_fd.is_some()
    }

    /// The password.
    pub(crate) fn read(&self, prompt: &str) -> Outcome<Password> {
        match (&self.password_file, self.password_fd) {
            (Some(file), _) => first_line(file),
            (None, Some(number)) => first_line_of(opened(number), &format!("descriptor {number}")),
            (None, None) => ask(prompt),
        }
    }

    /// A new password: on a terminal it is asked for twice.
    pub(crate) fn read_new(&self, prompt: &str) -> Outcome<Password> {
        if self.is_given() { self.read(prompt) } else { ask_twice(prompt) }
    }
}

/// What becomes of a password.
#[derive(Debug, Args)]
pub(crate) struct Change {
    /// Read the new password from the first line of this file
    #[arg(long, value_name = "FILE", conflicts_with = "remove")]
    new_password_file: Option<PathBuf>,
    /// Take the password away: whoever has what it protects can read it then
    #[arg(long)]
    remove: bool,
}

impl Change {
    /// The new password, if there is to be one; on a terminal it is asked for twice.
    pub(crate) fn read(&self) -> Outcome<Option<Password>> {
        let new = match &self.new_password_file {
            _ if self.remove => return Ok(None),
            Some(file) => first_line(file)?,
            None => ask_twice("new password")?,
        };
        not_empty(new).map(Some)
    }
}

/// The same password; an empty one is refused.
pub(crate) fn not_empty(password: Password) -> Outcome<Password> {
    if password.is_empty() {
        let failure = Failure::usage("the password is empty");
        return Err(failure.with_remedy("give another one, or none at all"));
    }
    Ok(password)
}

/// The first line of a file, without its end.
pub(crate) fn first_line(path: &Path) -> Outcome<Password> {
    first_line_of(File::open(path), &shown_name(path))
}

/// What an open descriptor is of. Opened by its name it is read from its beginning, by every command that is given
/// it; but neither a socket can be opened, nor what another user has opened for this one.
fn opened(number: u32) -> std::io::Result<File> {
    let by_name = File::open(format!("/proc/self/fd/{number}"));
    by_name.or_else(|_| match (number, i32::try_from(number)) {
        // Some containers let nobody take descriptors by number.
        (0, _) => Ok(fcntl_dupfd_cloexec(stdin(), 0)?.into()),
        (_, Ok(number)) => {
            let own = pidfd_open(getpid(), PidfdFlags::empty())?;
            Ok(pidfd_getfd(own, number, PidfdGetfdFlags::empty())?.into())
        }
        (_, Err(_)) => Err(Errno::BADF.into()),
    })
}

fn first_line_of(file: std::io::Result<File>, name: &str) -> Outcome<Password> {
    let failed = |e: std::io::Error| {
        let text = format!("cannot read a password from {name}: {e}");
        let failure = exit::refused(exit::USAGE, text, &e);
        if failure.code != exit::USAGE {
            return failure;
        }
        failure.with_remedy("give a readable file whose first line is the password")
    };
    let mut line = Vec::with_capacity(128);
    BufReader::new(file.map_err(failed)?.take(LEN_MAX + 1))
        .read_until(b'\n', &mut line)
        .map_err(failed)?;
    if line.ends_with(b"\n") {
        line.pop();
    }
    whole(Password::new(line), name, "a first line of ")
}

/// The same password; one that is too long is refused, for of a file whatever begins like it would do as well.
fn whole(password: Password, whose: &str, what: &str) -> Outcome<Password> {
    if password.len() as u64 <= LEN_MAX {
        return Ok(password);
    }
    let text = format!("{whose}: {what}more than {LEN_MAX} bytes");
    Err(Failure::usage(text).with_remedy("give a password that is shorter"))
}

/// Asks on the terminal.
pub(crate) fn ask(prompt: &str) -> Outcome<Password> {
    let quiet = Quiet::terminal()?;
    let asked = rpassword::prompt_password(format!("{prompt}: "));
    drop(quiet);
    let text = asked.map_err(|e| match e.kind() {
        ErrorKind::Interrupted => {
            Failure::new(exit::of_signal(Signal::INT.as_raw()), "interrupted")
        }
        // Ctrl-D.
        ErrorKind::UnexpectedEof => Failure::usage("no password was typed")
            .with_remedy("begin again, and end it with Enter: nothing has changed"),
        _ => Failure::usage(format!("cannot ask for the password: no terminal ({e})"))
            .with_remedy("use --password-file or --password-fd"),
    })?;
    typed(text)
}

/// What was typed. Whatever is no UTF-8 has become one and the same character, and may have taken others
/// with it: other passwords would open what this one does, and the same bytes in a file would not.
fn typed(text: String) -> Outcome<Password> {
    let is_understood = !text.contains(char::REPLACEMENT_CHARACTER);
    let password = whole(Password::new(text.into_bytes()), "what was typed", "")?;
    if is_understood {
        return Ok(password);
    }
    let failure = Failure::usage("what was typed is not UTF-8: it would be another password");
    Err(failure.with_remedy("use a terminal that sends UTF-8, or --password-file"))
}

/// A terminal that does not show what is typed. Whoever sees the question may answer at once, so it is so before:
/// else the first keys would be shown, and of a long password the terminal, which takes lines of 4095 bytes, would drop
/// the rest.
struct Quiet {
    terminal: File,
    before: Termios,
    _before_end: BeforeEnd,
}

impl Quiet {
    /// A signal that ends the program while it asks leaves the terminal as it is now: what is typed is shown, and
    /// Ctrl-C is a signal. `None` if there is no terminal.
    fn terminal() -> Outcome<Option<Self>> {
        let Ok(terminal) = File::open("/dev/tty") else { return Ok(None) };
        let Ok(before) = tcgetattr(&terminal) else { return Ok(None) };
        let (also, modes) = (terminal.try_clone()?, before.clone());
        let restore = move || _ = tcsetattr(&also, OptionalActions::Now, &modes);
        let before_end = BeforeEnd::new(restore)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        let _ = tcsetattr(&terminal, OptionalActions::Now, &quiet);
        Ok(Some(Self { terminal, before, _before_end: before_end }))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

/// Asks twice, so that a slip of the finger is noticed.
pub(crate) fn ask_twice(prompt: &str) -> Outcome<Password> {
    let (first, second) = (ask(prompt)?, ask(&format!("{prompt}, again"))?);
    if first == second {
        return Ok(first);
    }
    Err(Failure::usage("the two passwords differ").with_remedy("begin again: nothing has changed"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A service hands a socket over, and `su` and containers what another user has opened.
    #[test]
    fn what_cannot_be_opened_anew_is_read_as_it_is() {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(b"of a socket\nand more").unwrap();
        let number = u32::try_from(other.as_raw_fd()).unwrap();
        let password = first_line_of(opened(number), "descriptor").unwrap();
        assert!(password == Password::new(b"of a socket".to_vec()));
        for nobodys in [1 << 30, u32::MAX] {
            assert_eq!(opened(nobodys).unwrap_err().raw_os_error(), Some(9));
        }
    }

    /// The beginning of a longer one would open what it opens.
    #[test]
    fn a_password_is_whole_or_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let long = vec![b'p'; 4097];
        for end in ["", "\nsecond line"] {
            std::fs::write(file.path(), [&long, end.as_bytes()].concat()).unwrap();
            assert_eq!(first_line(file.path()).unwrap_err().code, exit::USAGE);
            std::fs::write(file.path(), [&long[1..], end.as_bytes()].concat()).unwrap();
            assert!(first_line(file.path()).unwrap() == Password::new(long[1..].to_vec()));
        }
        assert_eq!(first_line(Path::new("/dev/zero")).unwrap_err().code, exit::USAGE);
    }
}
