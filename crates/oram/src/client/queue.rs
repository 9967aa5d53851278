//! The connection on which this client appends and follows the log. When it is lost, there is another one,
//! which goes on where the view ends.

use std::cmp::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::sleep;

use super::line::options;
use super::{Access, Shared, State};
use crate::error::{Error, Kind, Result};
use crate::link::{Connection, Event};
use crate::root::Root;
use crate::wire::{Answer, Push, Refusal, Request};

#[derive(Debug)]
pub(super) struct Queue {
    current: watch::Sender<Option<Connection>>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { current: watch::Sender::new(None) }
    }

    /// Leaves the connection.
    pub(super) fn end(&self) {
        self.current.send_replace(None);
    }

    /// Whether there is a connection: others find that this client is there.
    pub(super) fn is_there(&self) -> bool {
        self.current.borrow().is_some()
    }

    /// The connection, if there is one.
    pub(super) fn current(&self) -> Option<Connection> {
        self.current.borrow().clone()
    }

    /// The connection, as soon as there is one.
    pub(super) async fn connection(&self) -> Connection {
        let mut current = self.current.subscribe();
        let there = current.wait_for(Option::is_some).await.expect("the sender is here");
        there.clone().expect("there is one")
    }
}

/// Keeps a connection, until the client is gone.
pub(super) async fn keep(shared: Weak<Shared>) {
    let mut is_first = true;
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let again = strong.surroundings.patience.again;
        let lost = Arc::new(tokio::sync::Notify::new());
        match connect(&strong, lost.clone(), is_first).await {
            Ok(connection) => {
                is_first = false;
                strong.queue.current.send_replace(Some(connection));
                strong.changed.notify_waiters();
                drop(strong);
                lost.notified().await;
                let Some(strong) = shared.upgrade() else { return };
                strong.queue.current.send_replace(None);
            }
            Err(error) if error.kind().may_pass() => drop(strong),
            // This machine has no more open files, or the server's storage fails: for a while, for neither was
            // so before.
            Err(error) if !is_first && error.kind() == Kind::Storage => {
                strong.lock().trouble = Some(error);
                drop(strong);
            }
            Err(error) => return strong.fail(error),
        }
        sleep(again).await;
    }
}

async fn connect(
    shared: &Arc<Shared>,
    lost: Arc<tokio::sync::Notify>,
    is_first: bool,
) -> Result<Connection> {
    let stream = shared.surroundings.connect.connect().await?;
    let weak = Arc::downgrade(shared);
    let handler = move |event| {
        let is_lost = matches!(event, Event::Lost(_));
        if let Some(shared) = weak.upgrade() {
            shared.take(event);
        }
        if is_lost {
            lost.notify_one();
        }
    };
    let options = options(&shared.surroundings.patience);
    let (connection, welcome) = Connection::open(stream, options, handler).await?;
    shared.verify(welcome.root.as_ref())?;
    let (record, result) = {
        let state = shared.lock();
        (state.view.records(), state.view.settled())
    };
    if welcome.records < record {
        return Err(Error::new(
            Kind::RolledBack,
            "the server has fewer records than before: it was set back",
        ));
    }
    let follows = connection.call(Request::Follow { record, result }).await?;
    if follows == Answer::Refused(Refusal::Absent) && shared.is_left_behind(record).await {
        return Err(shared.fail_left_behind());
    }
    Connection::expect(follows)?;
    // At first there is nothing that this client has found.
    if !is_first {
        shared.store_again(&connection).await?;
    }
    Ok(connection)
}

impl Shared {
    /// The root is that of this store still, and nobody has taken it over.
    fn verify(&self, root: Option<&Bytes>) -> Result<()> {
        let other = || Error::new(Kind::Hostile, "the server shows another store than before");
        let (root, mac) = Root::decode(root.ok_or_else(other)?)?;
        if self.keys.root_mac(&root.tagged()) != mac || root.store_id != self.root.store_id {
            return Err(other());
        }
        if self.surroundings.access == Access::Look {
            return Ok(());
        }
        match root.fence.cmp(&self.root.fence) {
            Ordering::Equal => Ok(()),
            Ordering::Greater => {
                Err(Error::new(Kind::Busy, "another client has taken the store over"))
            }
            // Fences never fall.
            Ordering::Less => Err(Error::new(
                Kind::RolledBack,
                "the server shows the store as it was before this client had it: it was set back",
            )),
        }
    }

    /// Stores all results that the server may have lost, as it keeps them in memory for a period. Queries wait for
    /// this: none of the results waits for the server to have the one before.
    async fn store_again(&self, connection: &Connection) -> Result<()> {
        let (from, to) = {
            let state = self.lock();
            let period = state.period().saturating_sub(2);
            (period * self.geometry.period(), state.view.records())
        };
        let mut under_way = Vec::new();
        for sequence in from..to {
            let salt = self.salt()?;
            let Some(result) = self.lock().view.sealed_result(sequence, salt) else { continue };
            let request = Request::Store { sequence, result: Bytes::from(result) };
            under_way.push(connection.begin(request).await?);
        }
        for pending in under_way {
            Connection::expect(pending.answer().await?)?;
        }
        Ok(())
    }

    /// What happens on the connection, in its order.
    fn take(&self, event: Event) {
        let taken = self.change(|state| match event {
            Event::Appended { sequence, record }
            | Event::Push(Push::Record { sequence, record }) => state.appended(sequence, &record),
            Event::Push(Push::Result { sequence, result }) => state.view.found(sequence, &result),
            Event::Lost(_) => Ok(()),
        });
        if let Err(error) = taken {
            self.fail(error);
        }
    }

    /// Keeps a result, on whichever connection there is.
    pub(super) async fn store(&self, sequence: u64, result: Bytes) -> Result<()> {
        loop {
            let connection = self.queue.connection().await;
            let request = Request::Store { sequence, result: result.clone() };
            match connection.call(request).await {
                Ok(Answer::Kept { .. }) => return Ok(()),
                Ok(other) => {
                    Connection::expect(other)?;
                }
                Err(error) if error.kind() == Kind::Unreachable => {}
                Err(error) => return Err(error),
            }
            sleep(self.surroundings.patience.again).await;
        }
    }
}

impl State {
    fn appended(&mut self, sequence: u64, record: &[u8]) -> Result<()> {
        if sequence < self.view.records() {
            return Ok(());
        }
        if sequence > self.view.records() {
            return Err(Error::new(Kind::Hostile, "the server leaves out records of the log"));
        }
        self.view.push(record).map(|_| ())
    }
}
