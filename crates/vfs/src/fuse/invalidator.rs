//! Word to the kernel about caches that have become wrong.
//!
//! A worker of its own speaks to the kernel, never the thread that serves a request: the kernel
//! may wait for a page or for an inode that is on its way out, and both may wait for a request of
//! ours. Where a program must not see an answer before the caches are right, the worker gets the
//! reply to send afterwards.

use std::ffi::OsStr;
use std::fmt;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

use fuser::{INodeNo, Notifier};

/// Offset that stands for "attributes only".
const ATTRIBUTES_ONLY: i64 = -1;

/// An answer that is sent when the caches are right.
type Answer = Box<dyn FnOnce() + Send>;

/// What to do.
enum Notification {
    /// Drop the cached pages of a node from an offset on.
    Pages(u64, i64),
    /// Forget the attributes of nodes, then answer.
    Attributes(Vec<u64>, Answer),
    /// No more notifications follow.
    Stop,
}

/// Tells the kernel what to drop.
pub(super) struct Invalidator {
    notifications: Mutex<Sender<Notification>>,
    waiting: Mutex<Option<Receiver<Notification>>>,
    worker: OnceLock<Mutex<Option<JoinHandle<()>>>>,
    /// For what the worker must not wait for.
    notifier: OnceLock<Notifier>,
}

impl Invalidator {
    /// Notifications are kept until [`Invalidator::start`].
    pub(super) fn new() -> Self {
        let (notifications, waiting) = channel();
        Self {
            notifications: Mutex::new(notifications),
            waiting: Mutex::new(Some(waiting)),
            worker: OnceLock::new(),
            notifier: OnceLock::new(),
        }
    }

    /// Starts to pass notifications on.
    pub(super) fn start(&self, notifier: Notifier) -> std::io::Result<()> {
        self.notifier.get_or_init(|| notifier.clone());
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waiting) = waiting {
            let worker = Builder::new()
                .name("tacita-inval".to_owned())
                .spawn(move || work(&waiting, &notifier))?;
            self.worker.get_or_init(|| Mutex::new(Some(worker)));
        }
        Ok(())
    }

    /// The pages that a node has lost, by truncation or with its last name, are dropped soon.
    pub(super) fn pages(&self, number: u64, from: u64) {
        self.say(Notification::Pages(number, i64::try_from(from).unwrap_or(i64::MAX)));
    }

    /// Attributes of nodes are dropped, then the answer is sent.
    pub(super) fn attributes_then(
        &self,
        numbers: Vec<u64>,
        answer: impl FnOnce() + Send + 'static,
    ) {
        self.say(Notification::Attributes(numbers, Box::new(answer)));
    }

    /// Waits until what programs have changed in pages of a node is written, and drops the pages. To be called by
    /// nobody who serves requests: the kernel asks for the writing.
    pub(super) fn write_back(&self, number: u64) {
        if let Some(notifier) = self.notifier.get() {
            tell(notifier, number, 0);
        }
    }

    /// What a name of a directory stands for is asked for anew soon. For that the kernel waits until nobody changes
    /// the directory, and who does may wait for an answer of the worker: so a thread of its own tells it.
    pub(super) fn name(&self, dir: INodeNo, name: &OsStr) {
        let Some(notifier) = self.notifier.get().cloned() else { return };
        let name = name.to_owned();
        let told = Builder::new().name("tacita-name".to_owned()).spawn(move || {
            if let Err(e) = notifier.inval_entry(dir, &name) {
                log::debug!("the kernel was not told to drop a name: {e}");
            }
        });
        if let Err(e) = told {
            log::debug!("no thread to tell the kernel to drop a name: {e}");
        }
    }

    /// Ends the worker.
    pub(super) fn stop(&self) {
        self.say(Notification::Stop);
        let worker = self
            .worker
            .get()
            .and_then(|worker| worker.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(worker) = worker {
            // A panic there has been printed already, and the mount is over.
            let _ = worker.join();
        }
    }

    fn say(&self, notification: Notification) {
        let notifications = self.notifications.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(unheard) = notifications.send(notification)
            && let Notification::Attributes(_, answer) = unheard.0
        {
            answer();
        }
    }
}

impl fmt::Debug for Invalidator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invalidator").finish_non_exhaustive()
    }
}

fn work(notifications: &Receiver<Notification>, notifier: &Notifier) {
    while let Ok(notification) = notifications.recv() {
        match notification {
            Notification::Pages(number, from) => tell(notifier, number, from),
            Notification::Attributes(numbers, answer) => {
                for number in numbers {
                    tell(notifier, number, ATTRIBUTES_ONLY);
                }
                answer();
            }
            Notification::Stop => break,
        }
    }
}

fn tell(notifier: &Notifier, number: u64, offset: i64) {
    // The kernel may have forgotten the node or the mount may be over: nothing is cached then.
    if let Err(e) = notifier.inval_inode(INodeNo(number), offset, 0) {
        log::debug!("the kernel was not told to drop a node: {e}");
    }
}
