//! What a process does and has open, as the kernel says.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;
use tacita_clock::{Clock, System};

/// A process that is traced counts as stopped if it has not gone on for so many looks.
const TRACED_LOOKS: u32 = 20;

/// Pause between those.
const TRACED_STEP: Duration = Duration::from_millis(10);

/// The flags of a socket that listens, in the kernel's table.
const LISTENING: &str = "00010000";

/// Where the number of threads stands, counted from the state.
const THREADS_AT: usize = 17;

/// The state of a process, as the kernel writes it.
fn state_of(pid: Pid) -> Option<char> {
    facts_of(pid)?.chars().next()
}

/// Whether a process has been stopped, by a signal or a debugger, so that it does nothing before
/// somebody lets it go on. Whoever traces it (`strace`) stops it for a moment at each of its calls.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    match state_of(pid) {
        Some('T') => true,
        Some('t') => (0..TRACED_LOOKS).all(|_| {
            System.wait(TRACED_STEP);
            matches!(state_of(pid), Some('T' | 't'))
        }),
        _ => false,
    }
}

/// Whether a process has been killed, and lives on in threads alone that wait in the kernel, as they may for
/// an answer that only the process itself could give.
pub(crate) fn is_killed(pid: Pid) -> bool {
    let threads = |facts: &str| facts.split(' ').nth(THREADS_AT)?.parse().ok();
    facts_of(pid).is_some_and(|facts| {
        facts.starts_with('Z') && threads(&facts).is_some_and(|threads: u32| threads > 1)
    })
}

/// What the kernel writes from the state on.
fn facts_of(pid: Pid) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name before the state is in parentheses, and may hold any.
    Some(status.rsplit_once(") ")?.1.to_owned())
}

/// The process that listens at a socket, as far as this user may see.
pub(crate) fn listener(socket: &Path) -> Option<Pid> {
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
    Some(what_is_open(pid)?.any(|(_, path)| path == name))
}

/// The same, beside its standard streams: they are where it says something, and not what it serves.
pub(crate) fn has_opened(pid: Pid, name: &Path) -> Option<bool> {
    let is_stream = |number: &OsStr| ["0", "1", "2"].iter().any(|stream| number == *stream);
    Some(what_is_open(pid)?.any(|(number, path)| path == name && !is_stream(&number)))
}

/// What a process has open, and under which numbers.
fn what_is_open(pid: Pid) -> Option<impl Iterator<Item = (OsString, PathBuf)>> {
    let open = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).ok()?;
    Some(
        open.flatten()
            .filter_map(|entry| Some((entry.file_name(), fs::read_link(entry.path()).ok()?))),
    )
}

/// The numbers of the FUSE file systems that a process serves or has served, as in `0:42`; `None` if that cannot
/// be seen, as before Linux 6.13.
pub(crate) fn fuse_devices(pid: Pid) -> Option<Vec<String>> {
    let told_of = PathBuf::from(format!("/proc/{}/fdinfo", pid.as_raw_nonzero()));
    let channels = what_is_open(pid)?.filter(|(_, path)| path == Path::new("/dev/fuse"));
    channels
        .map(|(number, _)| {
            let told = fs::read_to_string(told_of.join(number)).ok()?;
            let number = told.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
            Some(format!("0:{}", number.trim()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    /// Set in the process that [`a_process_lives_on_in_its_threads`] looks at.
    const IS_LOOKED_AT: &str = "TACITA_TEST_IS_LOOKED_AT";

    extern "C" fn end_of_this_thread(_: libc::c_int) {
        // JUSTIFICATION: nothing else ends the thread that a process began with, and leaves the others.
        // SAFETY: what it owns is not given back, and nobody asks for it.
        #[allow(unsafe_code)]
        unsafe {
            libc::syscall(libc::SYS_exit, 0);
        }
    }

    /// Ends the thread that this process began with, and then all of it when nobody writes to it any more.
    fn live_on_in_a_thread() {
        let process = rustix::process::getpid().as_raw_nonzero().get();
        // JUSTIFICATION: see there.
        // SAFETY: the handler makes a call of the system alone, and the signal is for the process's first
        // thread.
        #[allow(unsafe_code)]
        unsafe {
            libc::signal(libc::SIGUSR1, end_of_this_thread as *const () as libc::sighandler_t);
            libc::syscall(libc::SYS_tgkill, process, process, libc::SIGUSR1);
        }
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        std::process::exit(0);
    }

    /// As one that was killed, and cannot end yet.
    #[test]
    fn a_process_lives_on_in_its_threads() {
        if std::env::var_os(IS_LOOKED_AT).is_some() {
            live_on_in_a_thread();
        }
        let name = "process_state::tests::a_process_lives_on_in_its_threads";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact"])
            .env(IS_LOOKED_AT, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        while state_of(pid) != Some('Z') {
            std::thread::yield_now();
        }
        assert!(is_killed(pid) && !is_stopped(pid));
        assert!(!is_killed(rustix::process::getpid()), "this one has threads, and lives");
        // The last thread ends with what it waits for, and then only its number is left.
        drop(child.stdin.take());
        while is_killed(pid) {
            std::thread::yield_now();
        }
        assert_eq!(state_of(pid), Some('Z'));
        child.wait().unwrap();
    }
}
