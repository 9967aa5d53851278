//! A connection for requests that can be repeated: when it is lost there is another one.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::{Connect, Patience};
use crate::build::Objects;
use crate::error::{Error, Kind, Result};
use crate::geometry::Generation;
use crate::link::{Connection, Options};
use crate::object::Object;
use crate::wire::{Answer, NAMES_MAX, Request};

/// A connection that is made when it is needed.
pub(super) struct Line {
    connect: Arc<dyn Connect>,
    patience: Patience,
    current: Mutex<Option<Connection>>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl Line {
    pub(super) fn new(connect: Arc<dyn Connect>, patience: Patience) -> Self {
        Self { connect, patience, current: Mutex::default() }
    }

    /// Makes the connection, which is needed soon: what keeps it from being made is told now.
    pub(super) async fn begin(&self) -> Result<()> {
        self.connection().await.map(drop)
    }

    async fn connection(&self) -> Result<Connection> {
        let mut current = self.current.lock().await;
        if let Some(connection) = current.as_ref().filter(|current| current.lost().is_none()) {
            return Ok(connection.clone());
        }
        let stream = self.connect.connect().await?;
        let (connection, _) = Connection::open(stream, options(&self.patience), |_| ()).await?;
        *current = Some(connection.clone());
        Ok(connection)
    }

    /// Asks until there is an answer: the same again and again.
    pub(super) async fn call(&self, request: Request) -> Result<Answer> {
        self.repeat(async |connection| Connection::expect(connection.call(request.clone()).await?))
            .await
    }

    /// All names that begin so.
    pub(super) async fn names(&self, prefix: &str) -> Result<Vec<Object>> {
        let mut all = Vec::new();
        loop {
            let after = all.last().copied();
            let answer = self.call(Request::List { prefix: prefix.to_owned(), after }).await?;
            let Answer::Names(names) = answer else {
                return Err(Error::new(Kind::Protocol, "the server answers something else"));
            };
            all.extend(&names);
            if names.len() < NAMES_MAX {
                return Ok(all);
            }
        }
    }

    async fn repeat<T, F: Future<Output = Result<T>>>(
        &self,
        mut ask: impl FnMut(Connection) -> F,
    ) -> Result<T> {
        loop {
            let tried = match self.connection().await {
                Ok(connection) => ask(connection).await,
                Err(error) => Err(error),
            };
            match tried {
                Err(error) if error.kind().may_pass() => {}
                other => return other,
            }
            sleep(self.patience.again).await;
        }
    }
}

pub(super) fn options(patience: &Patience) -> Options {
    Options { time_out: patience.query, ..Options::default() }
}

#[async_trait]
impl Objects for Line {
    async fn get(&self, object: Object, offset: u64, len: u64) -> Result<Bytes> {
        let got = self.repeat(async |connection: Connection| {
            connection.get(object, offset..offset + len).await
        });
        let bytes = got.await?.ok_or_else(|| {
            Error::new(Kind::Hostile, format!("the server does not have {object}, which was kept"))
        })?;
        if bytes.len() as u64 != len {
            return Err(Error::new(Kind::Hostile, format!("{object} is shorter than it was")));
        }
        Ok(bytes)
    }

    async fn put(&self, object: Object, bytes: Bytes) -> Result<()> {
        self.repeat(async |connection: Connection| connection.put(object, bytes.clone()).await)
            .await?;
        Ok(())
    }

    async fn delete(&self, object: Object) -> Result<()> {
        self.call(Request::Delete { object }).await?;
        Ok(())
    }

    async fn made(&self, generation: Generation) -> Result<HashSet<Object>> {
        Ok(self.names(&format!("{generation}/")).await?.into_iter().collect())
    }
}
