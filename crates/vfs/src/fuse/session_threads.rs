//! The threads of the library that serve a mount: whether they can be had, and whether they are there.
//!
//! The library hands back a session before its threads have what they need, and each takes a buffer
//! without which it ends the process. So what they take is tried before anything is mounted, where a
//! refusal is an error, and a mount is handed out when all of them wait for requests. What is tried is what
//! will be, since all threads share one heap where addresses are limited: `tacita_daemon::serve` sees to it.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread::{self, Builder};
use std::time::Duration;

use fuser::BackgroundSession;
use rustix::process::{Pid, geteuid};
use rustix::thread::gettid;
use tacita_clock::{Clock, System};

/// What a thread of the library takes for a request: its longest write, and what goes with it.
const BUFFER_LEN_BYTES: usize = (16 << 20) + 4096;

/// Threads that come with those that serve: the library's that waits for them, the one that speaks to the
/// kernel of caches, the one that syncs, and the one that catches up.
const BESIDE: usize = 4;

/// What comes when it is mounted: a thread for signals, one for requests, two of what is served; and, where
/// one of these is not to be had, the process by which an ordinary user takes the mount away again.
const AFTERWARDS: usize = 5;

/// Descriptors that come when it is mounted, beside one for each thread that serves: what it is looked by
/// whether they are there, a socket for requests, and what tells whether the kernel has let go of the mount.
const DESCRIPTORS: usize = 4;

/// What that process is heard by.
const DESCRIPTORS_OF_HELPER: usize = 5;

/// Where the kernel tells of the threads of this process.
const THREADS: &str = "/proc/self/task";

/// How often it is looked whether threads have gone.
const LOOKS_MAX: u32 = 10_000;

/// What serving takes besides: content that waits for a commit, and what is on its way. HIFS took 207 MiB
/// beside four programs that write, `PrivateFS` 192 MiB.
const ROOM_LEN_BYTES: usize = 256 << 20;

/// How long it takes to look again.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// Looks whether so many threads that serve can have what they take, all of them at once, and whether there
/// is room for what serving takes then. What comes when it is mounted is among it: a mount without that would
/// have to be taken away again, and by then not even that might be possible.
///
/// # Errors
/// [`io::ErrorKind::OutOfMemory`]; those of starting a thread, and of opening a file.
pub(super) fn can_be_had(count: usize) -> io::Result<()> {
    let helper = if geteuid().is_root() { 0 } else { DESCRIPTORS_OF_HELPER };
    let held = (0..count + DESCRIPTORS + helper).map(|_| File::open(THREADS));
    drop(held.collect::<io::Result<Vec<_>>>()?);
    // A stack takes less than a buffer: where there is room for these, it is not memory that a thread lacks.
    let is_room = || {
        // The first request is taken before they are there.
        let len_bytes = (count + 1) * BUFFER_LEN_BYTES + ROOM_LEN_BYTES;
        let taken = Vec::<u8>::new().try_reserve_exact(len_bytes);
        taken.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))
    };
    is_room()?;
    let all = count + BESIDE + AFTERWARDS;
    let (here, heard) = channel();
    let gate = Mutex::new(());
    let tried: Vec<Pid> = thread::scope(|scope| {
        let _closed = gate.lock();
        for _ in 0..all {
            let (here, gate) = (here.clone(), &gate);
            Builder::new().spawn_scoped(scope, move || {
                let _ = here.send(gettid());
                drop(gate.lock());
            })?;
        }
        let tried = heard.iter().take(all).collect();
        is_room().map(|()| tried)
    })?;
    // Until it is out of the table of processes a thread counts.
    let counts = |id: &Pid| Path::new(THREADS).join(id.to_string()).exists();
    let mut looks = 0..LOOKS_MAX;
    for id in tried {
        while counts(&id) && looks.next().is_some() {
            thread::yield_now();
        }
    }
    Ok(())
}

/// Waits until so many threads wait for requests, or the session has ended before.
///
/// # Errors
/// Those of looking: there may be no descriptor left for it, and then there is none to serve with.
pub(super) fn await_all(session: &BackgroundSession, count: usize) -> io::Result<()> {
    let mut starting: Vec<String> =
        (0..count).map(|number| format!("(fuser-{number}) S")).collect();
    while !session.guard.is_finished() {
        let threads = threads()?;
        starting.retain(|wanted| !threads.iter().any(|thread| thread.contains(wanted)));
        if starting.is_empty() {
            break;
        }
        System.wait(LOOK_PAUSE);
    }
    Ok(())
}

/// What the kernel says of each thread of this process: `(name) S` is in it of one that waits.
fn threads() -> io::Result<Vec<String>> {
    let mut threads = Vec::new();
    for thread in fs::read_dir(THREADS)? {
        match fs::read_to_string(thread?.path().join("stat")) {
            Ok(said) => threads.push(said),
            // It has ended meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(threads)
}
