//! The threads of the library that serve a mount: whether they can be had, and whether they are there.
//!
//! The library hands back a session before its threads have what they need, and each takes a buffer
//! without which it ends the process. So what they take is tried before anything is mounted, where a
//! refusal is an error, and a mount is handed out when all of them wait for requests.

use std::fs;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread::{self, Builder};
use std::time::Duration;

use fuser::BackgroundSession;
use tacita_clock::{Clock, System};

/// What a thread of the library takes for a request: its longest write, and what goes with it.
const BUFFER_LEN_BYTES: usize = (16 << 20) + 4096;

/// Threads that come with those that serve: the library's that waits for them, the one that speaks to the
/// kernel of caches, the one that syncs, and the one that catches up.
const BESIDE: usize = 4;

/// How long it takes to look again.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// Looks whether so many threads that serve can have what they take, all of them at once.
///
/// Threads like them are there meanwhile, for each may begin a heap, which stays for those that come
/// after it: as many of these as there is room for, and the buffers beside them.
pub(super) fn can_be_had(count: usize) -> io::Result<()> {
    let (here, heard) = channel();
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let closed = gate.lock();
        for _ in 0..count + BESIDE {
            let (here, gate) = (here.clone(), &gate);
            Builder::new().spawn_scoped(scope, move || {
                let _ = here.send(());
                drop(gate.lock());
            })?;
        }
        heard.iter().take(count + BESIDE).for_each(drop);
        // The first request is taken before they are there.
        let taken = Vec::<u8>::new().try_reserve_exact((count + 1) * BUFFER_LEN_BYTES);
        drop(closed);
        taken.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))
    })
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
    for thread in fs::read_dir("/proc/self/task")? {
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
