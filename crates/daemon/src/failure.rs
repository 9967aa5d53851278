//! Why a command or request ends without having done its work: what is wrong, what can be done, and
//! the exit code. A daemon hands them to whoever started or asked it, so they are the same there.

use std::error::Error;
use std::io;

use rustix::io::Errno;
use serde_json::{Value, json};

use crate::voice::shown_name;

/// Exit codes. The table is docs/cli.md's.
pub mod exit {
    /// Done.
    pub const DONE: u8 = 0;
    /// What was to be checked is wrong.
    pub const WRONG: u8 = 1;
    /// Usage.
    pub const USAGE: u8 = 2;
    /// Wrong password, or no such volume.
    pub const NO_VOLUME: u8 = 3;
    /// The device or image cannot be read or written.
    pub const DEVICE: u8 = 4;
    /// Mounted or locked.
    pub const BUSY: u8 = 5;
    /// No space.
    pub const NO_SPACE: u8 = 6;
    /// Not possible here.
    pub const NOT_HERE: u8 = 7;

    /// Ended by that signal, as a shell says it of a process that a signal has ended.
    pub const fn of_signal(number: i32) -> u8 {
        128 + number.to_le_bytes()[0]
    }
}

/// What an error says, and then what has caused it, as far as that is not said yet.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        // Some end in an end of line, as programs do that were run.
        let said = said.trim();
        if !text.contains(said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

/// What makes memory, as far as that can be said.
const MEMORY: &str =
    "raise the limit (`ulimit -v`, MemoryMax= or LimitAS= of a service), or end other programs";

/// What makes a place for what tells of a daemon.
const PRIVATE_FOLDERS: &str = "a daemon is recorded in /run/tacita (root's), /run/user/UID/tacita or \
                               /tmp/tacita-UID: let one of them be made and written by this user, and by \
                               nobody else";

/// What can be done where the system refuses, if that follows from how it does.
fn remedy_of(refusal: &io::Error) -> Option<&'static str> {
    // None of these has a kind of its own.
    match refusal.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => {
            return Some("raise the limit of open files (`ulimit -n`, LimitNOFILE= of a service)");
        }
        Some(Errno::LOOP) => return Some("check the path"),
        Some(Errno::AGAIN) => {
            return Some(
                "no process or thread is to be had: end other programs, or raise the limit of processes \
                 (`ulimit -u`, TasksMax= or LimitNPROC= of a service) or of memory (`ulimit -v`, LimitAS=)",
            );
        }
        _ => {}
    }
    let is_of_a_name =
        matches!(refusal.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied);
    if is_of_a_name && is_gone(&std::env::current_dir()) {
        return Some("the folder that this was called in is gone: go to another one (`cd`)");
    }
    Some(match refusal.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename => {
            "check the path"
        }
        io::ErrorKind::IsADirectory => "name a file, not a folder",
        // It is not the system that refuses: what is there may be a trap that somebody has set.
        io::ErrorKind::PermissionDenied if refusal.get_ref().is_some() => {
            "remove what is there, or name another file"
        }
        io::ErrorKind::PermissionDenied => remedy_where_refused(),
        io::ErrorKind::ReadOnlyFilesystem => "`mount -o remount,rw` makes it writable",
        io::ErrorKind::StorageFull => "make room there",
        io::ErrorKind::QuotaExceeded => "make room there, or have the quota raised",
        io::ErrorKind::OutOfMemory => MEMORY,
        io::ErrorKind::FileTooLarge => {
            "the file system there, or a limit (`ulimit -f`), lets no file be so long"
        }
        io::ErrorKind::ExecutableFileBusy => {
            "a program runs from it, or the kernel swaps to it: end that first (`swapoff`)"
        }
        _ => return None,
    })
}

/// Whether the present folder is there no more, by what was said when it was asked for: anything else
/// that keeps it from being told says nothing of it.
fn is_gone(present: &io::Result<std::path::PathBuf>) -> bool {
    present.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
}

/// What can be done where something is not permitted.
pub fn remedy_where_refused() -> &'static str {
    remedy_of_user(rustix::process::geteuid().is_root())
}

const fn remedy_of_user(is_root: bool) -> &'static str {
    if is_root {
        "root is refused, too: see whether the device is set read-only (`blockdev --getro`), the file or \
         folder may not be changed (`lsattr`), or a container or security module forbids it"
    } else {
        "run it as root, or as a user who may read and write there"
    }
}

/// The exit code that a refusal has, whatever was asked for.
fn code_of(refusal: &io::Error) -> Option<u8> {
    let errno = refusal.raw_os_error().map(Errno::from_raw_os_error);
    if let Some(Errno::MFILE | Errno::NFILE) = errno {
        return Some(exit::NOT_HERE);
    }
    match refusal.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(exit::NO_SPACE),
        io::ErrorKind::OutOfMemory => Some(exit::NOT_HERE),
        _ => None,
    }
}

/// The refusal of the system that an error is or comes from.
pub fn refusal_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(refusal) = error.downcast_ref() {
            return Some(refusal);
        }
        next = error.source();
    }
    None
}

/// What can be done about the refusal of the system that an error is or comes from.
pub fn remedy_for(error: &(dyn Error + 'static)) -> Option<&'static str> {
    remedy_of(refusal_of(error)?)
}

/// The exit code of the refusal of the system that an error is or comes from, if that follows from how it
/// refuses: no room, no memory, no more open files.
pub fn code_for(error: &(dyn Error + 'static)) -> Option<u8> {
    code_of(refusal_of(error)?)
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Failure {
    /// Exit code: see [`exit`].
    pub code: u8,
    /// What is wrong, and where.
    pub cause: String,
    /// What can be done.
    pub remedy: Option<String>,
}

impl Failure {
    /// A failure without a remedy yet.
    pub fn new(code: u8, cause: impl Into<String>) -> Self {
        Self { code, cause: cause.into(), remedy: None }
    }

    /// A command or request that makes no sense.
    pub fn usage(cause: impl Into<String>) -> Self {
        Self::new(exit::USAGE, cause)
    }

    /// There is less memory than is needed.
    pub fn no_memory(cause: impl Into<String>) -> Self {
        Self::new(exit::NOT_HERE, cause).with_remedy(MEMORY)
    }

    /// The same with what can be done.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// The same with what can be done, if nothing is known yet.
    #[must_use]
    pub fn or_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy.get_or_insert_with(|| remedy.into());
        self
    }

    /// What the system's log may hold of it, behind a code: how the system has refused, and what can be done.
    /// The cause's own words may name files and places.
    pub(crate) fn text_for_log(&self) -> String {
        let (_, refusal) = self.cause.rsplit_once("(os error ").unwrap_or_default();
        let number = refusal.split_once(')').and_then(|(number, _)| number.parse().ok());
        let refusal = number.map(|number| io::Error::from_raw_os_error(number).to_string());
        let parts = [refusal, self.remedy.clone()];
        parts.into_iter().flatten().fold(String::new(), |text, part| text + ": " + &part)
    }

    /// The text for stderr, without the program's name.
    pub fn text(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{}\n  {remedy}", self.cause),
            None => self.cause.clone(),
        }
    }

    /// As it is sent: `code`, `cause`, `remedy`.
    pub(crate) fn json(&self) -> Value {
        json!({ "code": self.code, "cause": self.cause, "remedy": self.remedy })
    }

    /// The counterpart of [`Failure::json`]; `None` if this is none.
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let code = u8::try_from(value["code"].as_u64()?).ok()?;
        let cause = value["cause"].as_str()?.to_owned();
        Some(Self { code, cause, remedy: value["remedy"].as_str().map(str::to_owned) })
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let code = code_of(&error).unwrap_or(exit::DEVICE);
        let remedy = remedy_of(&error).map(str::to_owned);
        Self { remedy, ..Self::new(code, error.to_string()) }
    }
}

impl From<crate::Error> for Failure {
    fn from(error: crate::Error) -> Self {
        Self::from(&error)
    }
}

impl From<&crate::Error> for Failure {
    fn from(error: &crate::Error) -> Self {
        let code = match error.kind() {
            crate::Kind::Busy | crate::Kind::NoAnswer => exit::BUSY,
            crate::Kind::NoPlace | crate::Kind::NoProcesses => exit::NOT_HERE,
            crate::Kind::NotServed | crate::Kind::Io => exit::DEVICE,
        };
        let remedy = match error.kind() {
            crate::Kind::Busy => "`tacita umount DIR` first, or name another place",
            crate::Kind::NotServed => "as the user who started it, or root: is it there still?",
            crate::Kind::NoAnswer => {
                "do it again when it answers: one that has been stopped goes on by `kill -CONT`"
            }
            crate::Kind::NoPlace => PRIVATE_FOLDERS,
            crate::Kind::NoProcesses => "`mount -t proc proc /proc` shows processes there",
            crate::Kind::Io => "see to the cause, and do it again",
        };
        let remedy =
            remedy_for(error).filter(|_| error.kind() != crate::Kind::NoPlace).unwrap_or(remedy);
        let cause = shown_name(error.to_string());
        Self::new(code_for(error).unwrap_or(code), cause).with_remedy(remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_system_has_a_remedy() {
        let refused = |kind: io::ErrorKind| Failure::from(io::Error::from(kind)).remedy;
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory] {
            assert_eq!(refused(kind).as_deref(), Some("check the path"));
        }
        let links = io::Error::from_raw_os_error(Errno::LOOP.raw_os_error());
        assert_eq!(Failure::from(links).remedy.as_deref(), Some("check the path"));
        assert!(refused(io::ErrorKind::IsADirectory).unwrap().contains("file"));
        assert!(refused(io::ErrorKind::QuotaExceeded).unwrap().contains("quota"));
        assert!(refused(io::ErrorKind::PermissionDenied).unwrap().contains("root"));
        assert_eq!(refused(io::ErrorKind::UnexpectedEof), None);
        let deep = io::Error::other(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(remedy_for(&deep), None);
        let ours = crate::Error::from_io("the lock", io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(remedy_for(&ours), Some("check the path"));
        assert!(Failure::from(crate::Error::new(crate::Kind::Busy, "the lock")).remedy.is_some());
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Told(&'static str, #[source] io::Error);

    #[test]
    fn what_is_said_already_is_not_said_again() {
        let told = |text| with_causes(&Told(text, io::Error::other("helper: no such user\n")));
        assert_eq!(
            told("cannot mount: helper: no such user"),
            "cannot mount: helper: no such user"
        );
        assert_eq!(told("cannot mount"), "cannot mount: helper: no such user");
    }

    #[test]
    fn root_is_not_told_to_become_root() {
        assert!(remedy_of_user(false).starts_with("run it as root"));
        let of_root = remedy_of_user(true);
        assert!(!of_root.contains("run it as") && of_root.contains("read-only"), "{of_root}");
        let refused = Failure::from(io::Error::from(io::ErrorKind::PermissionDenied)).remedy;
        assert_eq!(refused.as_deref(), Some(remedy_where_refused()));
    }

    #[test]
    fn a_folder_that_cannot_be_told_is_not_gone() {
        let refused = |kind: io::ErrorKind| is_gone(&Err(kind.into()));
        assert!(refused(io::ErrorKind::NotFound));
        assert!(!refused(io::ErrorKind::PermissionDenied) && !refused(io::ErrorKind::OutOfMemory));
        assert!(!is_gone(&Ok("/".into())));
    }

    #[test]
    fn what_a_process_may_not_have_is_not_possible_here() {
        let code = |errno: Errno| {
            let refusal = || io::Error::from_raw_os_error(errno.raw_os_error());
            let ours = Failure::from(crate::Error::from_io("the lock", refusal()));
            assert_eq!(ours.code, Failure::from(refusal()).code);
            ours.code
        };
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert_eq!(code(errno), exit::NOT_HERE);
        }
        assert_eq!((code(Errno::NOSPC), code(Errno::IO)), (exit::NO_SPACE, exit::DEVICE));
        assert_eq!(code(Errno::DQUOT), exit::NO_SPACE);
    }

    #[test]
    fn a_log_hears_of_no_file_and_no_place() {
        let failure = Failure::usage("cannot write /a at byte 7: File too large (os error 27)");
        let wanted = ": File too large (os error 27): give it another place";
        let remedy = "give it another place";
        assert_eq!(failure.with_remedy(remedy).text_for_log(), wanted);
        let failure = Failure::usage("/a: 7 blocks are left (os error x)").with_remedy(remedy);
        assert_eq!(failure.text_for_log(), ": give it another place");
        assert_eq!(Failure::usage("/a: at byte 7").text_for_log(), "");
    }

    #[test]
    fn a_remedy_that_is_known_stays() {
        let failure = Failure::usage("x").or_remedy("first").or_remedy("second");
        assert_eq!(failure.remedy.as_deref(), Some("first"));
    }
}
