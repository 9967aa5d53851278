//! Commands of the machine, every wait bounded.

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, anyhow, bail};
use tacita_daemon::voice::shown_name;

/// How often a wait looks; short against all that is timed by it.
const POLL: Duration = Duration::from_millis(2);

/// How long a killed process may take to go.
const KILL_LIMIT: Duration = Duration::from_secs(10);

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on SIGINT and SIGTERM end the run at the next step, so that mounts are undone.
pub(crate) fn stop_on_signals() -> Result<()> {
    let stop = STOP.get_or_init(Arc::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(stop)).context("cannot handle signals")?;
    }
    Ok(())
}

/// An error if a signal asked the run to end.
pub(crate) fn check_stop() -> Result<()> {
    match STOP.get() {
        Some(stop) if stop.load(Ordering::Relaxed) => bail!("stopped by a signal"),
        _ => Ok(()),
    }
}

/// The binary `tacita` that the variable `TACITA_BIN` names, or the one beside this program.
pub(crate) fn tacita() -> Result<PathBuf> {
    let program = match env::var_os("TACITA_BIN") {
        Some(path) => PathBuf::from(path),
        None => env::current_exe()?.with_file_name("tacita"),
    };
    if !program.is_file() {
        bail!(
            "no tacita at {}: build it (cargo build --release -p tacita-cli) or set TACITA_BIN",
            shown_name(&program)
        );
    }
    Ok(program)
}

/// A binary `tacita` that encrypts nothing on DNEFS, which `TACITA_UNENCRYPTED_BIN` names.
pub(crate) fn unencrypted_tacita() -> Result<PathBuf> {
    let program = env::var_os("TACITA_UNENCRYPTED_BIN").map(PathBuf::from);
    program.filter(|program| program.is_file()).context(
        "no tacita without encryption: build it (RUSTFLAGS=\"--cfg tacita_unencrypted\" cargo build \
         --release -p tacita-cli --target-dir target/unencrypted) and set TACITA_UNENCRYPTED_BIN",
    )
}

/// Runs a command to its end and gives its stdout; kills it when `limit` is over.
///
/// # Errors
/// If it cannot start, takes too long or fails; with the end of its stderr.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<String> {
    let name = shown_name(command.get_program());
    // Files, not pipes: a daemon left behind would keep a pipe open, and a full one would block.
    let mut stdout = tempfile::tempfile()?;
    let mut stderr = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let ended = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)) | Err(_));
    if wait_until(limit, || ended(&mut child)).is_err() {
        child.kill().ok();
        let gone = wait_until(KILL_LIMIT, || ended(&mut child));
        let fate = if gone.is_ok() { "killed" } else { "stuck" };
        bail!("{name} (process {}) took longer than {limit:?}: {fate}", child.id());
    }
    let status = child.wait()?;
    let output = whole(&mut stdout)?;
    if !status.success() {
        let complaint = format!("{output}{}", whole(&mut stderr)?);
        let last = complaint.trim().lines().last().unwrap_or("");
        return Err(anyhow!("{name} failed ({status}): {}", shown_name(last)));
    }
    Ok(output)
}

fn whole(file: &mut fs::File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits until something holds.
///
/// # Errors
/// If it does not within `limit`.
pub(crate) fn wait_until(limit: Duration, mut holds: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > limit {
            bail!("waited longer than {limit:?}");
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// Does some file work; when `limit` is over, kills the daemon that it waits for, if any.
///
/// A file system that hangs then fails the work instead of stopping the run.
pub(crate) fn guarded<R>(daemon: Option<u32>, limit: Duration, work: impl FnOnce() -> R) -> R {
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let timeout = std::sync::mpsc::RecvTimeoutError::Timeout;
            if is_done.recv_timeout(limit) == Err(timeout) {
                eprintln!("nothing for {limit:?}: the daemon is killed");
                kill(daemon);
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// Kills a daemon of this run; `None` is nobody.
pub(crate) fn kill(daemon: Option<u32>) {
    let pid = daemon.and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
    if let Some(pid) = pid {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
    }
}

/// Process that was started with `argument` among its arguments, other than this one.
pub(crate) fn process_with(argument: &Path) -> Option<u32> {
    let wanted = argument.to_string_lossy();
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let cmdline = fs::read(entry.path().join("cmdline")).ok()?;
        let mut arguments = cmdline.split(|&b| b == 0);
        let found = arguments.any(|a| a == wanted.as_bytes());
        (found && pid != std::process::id() && is_running(pid)).then_some(pid)
    })
}

/// Whether a process is there and not just waiting to be reaped.
pub(crate) fn is_running(pid: u32) -> bool {
    status_field(pid, "State").is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// A line of `/proc/PID/status`, such as `VmRSS`.
pub(crate) fn status_field(pid: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned());
    status.lines().find_map(field)
}

/// Drops the machine's page cache, dentries and inodes; `false` if that is not allowed.
pub(crate) fn drop_caches() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// Drops what the machine's page cache has of one file, which is synced first; `false` if that is
/// not allowed.
pub(crate) fn drop_pages(path: &Path) -> bool {
    let drop = || -> Result<()> {
        let file = fs::File::open(path)?;
        file.sync_all()?;
        Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
    };
    drop().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_failure_are_told() {
        let limit = Duration::from_secs(10);
        let output = run(Command::new("echo").arg("hello"), limit).unwrap();
        assert_eq!(output, "hello\n");
        let error = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"]), limit);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("why") && text.contains('3'), "{text}");
    }

    #[test]
    fn the_daemon_of_work_that_hangs_is_killed() {
        let mut daemon = Command::new("sleep").arg("600").spawn().unwrap();
        let limit = Duration::from_millis(50);
        assert_eq!(guarded(Some(daemon.id()), Duration::from_mins(1), || 1), 1);
        assert!(daemon.try_wait().unwrap().is_none());
        let status = guarded(Some(daemon.id()), limit, || daemon.wait().unwrap());
        assert!(!status.success());
    }

    #[test]
    fn what_takes_too_long_is_killed() {
        let error = run(Command::new("sleep").arg("600"), Duration::from_millis(50));
        assert!(error.unwrap_err().to_string().contains("killed"));
    }
}
