//! Blobs as values of a Redis server, which has to make each write durable before it answers.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisError};
use tokio::sync::Mutex;

use super::{BlobStore, Put, Swap, within};
use crate::error::{Error, Kind, Result};
use crate::object::Object;

/// How long the server may take to answer, and to be connected to.
const PATIENCE: Duration = Duration::from_secs(20);
/// Keys that the server looks at in one step of a listing.
const SCAN_COUNT: u32 = 1000;
/// Makes ARGV[3] the root if it is ARGV[2] (ARGV[1] is "1"), or if there is none. Returns the root that
/// there is otherwise, or nothing.
const SWAP: &str = "
local now = redis.call('GET', KEYS[1])
if (ARGV[1] == '1' and now == ARGV[2]) or (ARGV[1] == '0' and not now) then
    redis.call('SET', KEYS[1], ARGV[3])
    return {1}
end
if now then return {0, now} else return {0} end
";

/// A store in a Redis server, under keys that begin with a name.
pub struct RedisStore {
    client: Client,
    name: String,
    /// Shared by all that is asked; opened anew after a failure.
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl RedisStore {
    /// Opens the store called `name` on the server at `url`: `redis://HOST:PORT/DATABASE` or `unix:PATH`.
    ///
    /// # Errors
    /// [`Kind::Parameters`] if the URL is none or the name has other characters than `a-z`, `0-9` and `-`;
    /// [`Kind::Storage`] if the server cannot be reached, or does not make writes durable before it
    /// answers, or may drop values when memory is short: the text names the setting.
    pub async fn open(url: &str, name: &str) -> Result<Self> {
        let is_name = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if name.is_empty() || !name.bytes().all(is_name) {
            let what = "a store in Redis is called by a-z, 0-9 and -";
            return Err(Error::new(Kind::Parameters, what));
        }
        // The library knows absolute paths alone. It is not repeated with what may be a password.
        let path = url.strip_prefix("unix:").filter(|path| !path.starts_with('/'));
        let absolute = path.and_then(|path| std::path::absolute(path).ok());
        let url = absolute.map_or(url.to_owned(), |path| format!("unix:{}", path.display()));
        let client = Client::open(url)
            .map_err(|e| Error::new(Kind::Parameters, format!("this is no URL of Redis: {e}")))?;
        let store = Self { client, name: name.to_owned(), connection: Mutex::default() };
        store.expect("appendonly", "yes").await?;
        store.expect("appendfsync", "always").await?;
        store.expect("maxmemory-policy", "noeviction").await?;
        Ok(store)
    }

    /// The root that says who serves this store, in the same place.
    pub(crate) fn served(&self) -> Self {
        let name = format!("{}:served", self.name);
        Self { client: self.client.clone(), name, connection: Mutex::default() }
    }

    /// Sees to it that a setting of the server is as it has to be.
    async fn expect(&self, setting: &str, wanted: &str) -> Result<()> {
        let asked = redis::cmd("CONFIG").arg("GET").arg(setting).to_owned();
        let told: Vec<String> = self.ask("look at settings", &asked).await?;
        let value = told.get(1).map_or("unknown", String::as_str);
        if value == wanted {
            return Ok(());
        }
        let what = format!("the Redis server has {setting} {value}; it has to be {wanted}");
        Err(Error::new(Kind::Storage, what))
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.name)
    }

    async fn connection(&self) -> std::result::Result<MultiplexedConnection, RedisError> {
        let mut kept = self.connection.lock().await;
        if let Some(connection) = &*kept {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(kept.insert(connection).clone())
    }

    async fn ask<T: FromRedisValue>(&self, operation: &str, asked: &redis::Cmd) -> Result<T> {
        let answer = match self.connection().await {
            Ok(mut connection) => asked.query_async(&mut connection).await,
            Err(error) => Err(error),
        };
        self.judge(operation, answer).await
    }

    async fn judge<T>(
        &self,
        operation: &str,
        answer: std::result::Result<T, RedisError>,
    ) -> Result<T> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => {
                // It may not be of use any more.
                *self.connection.lock().await = None;
                let text = format!("Redis, {operation}: {error}");
                match error.code() {
                    Some("OOM") => Err(Error::of_full_storage(text)),
                    _ => Err(Error::new(Kind::Storage, text)),
                }
            }
        }
    }
}

#[async_trait]
impl BlobStore for RedisStore {
    async fn get(&self, object: Object, ranges: &[Range<u64>]) -> Result<Option<Vec<Bytes>>> {
        let key = self.key(&object.to_string());
        let mut pipe = redis::pipe();
        look(&mut pipe, &key);
        for range in ranges.iter().filter(|range| range.start < range.end) {
            // Places beyond what Redis numbers are refused below, by the length.
            let place = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
            pipe.cmd("GETRANGE").arg(&key).arg(place(range.start)).arg(place(range.end - 1));
        }
        look(&mut pipe, &key);
        let answer = match self.connection().await {
            Ok(mut connection) => pipe.query_async(&mut connection).await,
            Err(error) => Err(error),
        };
        let values: Vec<redis::Value> = self.judge("read", answer).await?;
        let (before, values) = values.split_at_checked(LOOK).ok_or_else(|| strange("read"))?;
        let (values, after) = values
            .split_at_checked(values.len().saturating_sub(LOOK))
            .ok_or_else(|| strange("read"))?;
        let Some(len) = seen([before, after])? else { return Ok(None) };
        let mut values = values.iter();
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            let wanted = within(object, range, len)?;
            if wanted.is_empty() {
                parts.push(Bytes::new());
                continue;
            }
            let part = match values.next() {
                Some(redis::Value::BulkString(bytes)) if bytes.len() == wanted.len() => {
                    Bytes::copy_from_slice(bytes)
                }
                _ => return Err(strange("read")),
            };
            parts.push(part);
        }
        Ok(Some(parts))
    }

    async fn len(&self, object: Object) -> Result<Option<u64>> {
        let key = self.key(&object.to_string());
        let mut pipe = redis::pipe();
        look(&mut pipe, &key);
        look(&mut pipe, &key);
        let answer = match self.connection().await {
            Ok(mut connection) => pipe.query_async(&mut connection).await,
            Err(error) => Err(error),
        };
        let values: Vec<redis::Value> = self.judge("look", answer).await?;
        let (before, after) = values.split_at_checked(LOOK).ok_or_else(|| strange("look"))?;
        seen([before, after])
    }

    async fn put_if_absent(&self, object: Object, bytes: Bytes) -> Result<Put> {
        let key = self.key(&object.to_string());
        let asked = redis::cmd("SET").arg(key).arg(&bytes[..]).arg("NX").to_owned();
        let set: Option<String> = self.ask("write", &asked).await?;
        Ok(if set.is_some() { Put::Created } else { Put::Exists })
    }

    async fn delete(&self, object: Object) -> Result<()> {
        let asked = redis::cmd("DEL").arg(self.key(&object.to_string())).to_owned();
        self.ask::<u64>("remove", &asked).await.map(|_| ())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let begin = self.key("");
        // Prefixes of names have no character with a meaning of its own in a pattern; others match none.
        let is_prefix = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'/');
        if !prefix.bytes().all(is_prefix) {
            return Ok(Vec::new());
        }
        let (mut cursor, mut names) = (0_u64, BTreeSet::new());
        loop {
            let mut asked = redis::cmd("SCAN");
            asked.arg(cursor).arg("MATCH").arg(format!("{begin}{prefix}*"));
            asked.arg("COUNT").arg(SCAN_COUNT);
            let (next, keys): (u64, Vec<Vec<u8>>) = self.ask("list", &asked).await?;
            let names_of = keys.iter().filter_map(|key| {
                std::str::from_utf8(key).ok()?.strip_prefix(&begin)?.parse::<Object>().ok()
            });
            names.extend(names_of);
            cursor = next;
            if cursor == 0 {
                return Ok(names.into_iter().collect());
            }
        }
    }

    async fn root(&self) -> Result<Option<Bytes>> {
        let asked = redis::cmd("GET").arg(self.key("root")).to_owned();
        let root: Option<Vec<u8>> = self.ask("read the root", &asked).await?;
        Ok(root.map(Bytes::from))
    }

    async fn swap_root(&self, expected: Option<Bytes>, new: Bytes) -> Result<Swap> {
        let mut asked = redis::cmd("EVAL");
        asked.arg(SWAP).arg(1).arg(self.key("root"));
        asked.arg(if expected.is_some() { "1" } else { "0" });
        asked.arg(&expected.unwrap_or_default()[..]).arg(&new[..]);
        let told: Vec<redis::Value> = self.ask("write the root", &asked).await?;
        match &told[..] {
            [redis::Value::Int(1)] => Ok(Swap::Swapped),
            [redis::Value::Int(0)] => Ok(Swap::Differs(None)),
            [redis::Value::Int(0), redis::Value::BulkString(now)] => {
                Ok(Swap::Differs(Some(Bytes::copy_from_slice(now))))
            }
            _ => Err(strange("write the root")),
        }
    }
}

impl fmt::Debug for RedisStore {
    /// Without the URL, which may have a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Answers to a look.
const LOOK: usize = 2;

/// Whether a value is there, and how long it is. What is asked between two looks is of one value, if both see
/// the same: values are never changed. A transaction would do as well, but a server that has no memory
/// left to write refuses those.
fn look(pipe: &mut redis::Pipeline, key: &str) {
    pipe.cmd("EXISTS").arg(key).cmd("STRLEN").arg(key);
}

/// The length of the value that all looks saw; `None` if one of them saw none.
fn seen(looks: [&[redis::Value]; 2]) -> Result<Option<u64>> {
    let looks = looks.map(|look| match look {
        [redis::Value::Int(0), _] => Some(None),
        [redis::Value::Int(1), redis::Value::Int(len)] => u64::try_from(*len).ok().map(Some),
        _ => None,
    });
    match looks {
        [Some(None), Some(_)] | [Some(_), Some(None)] => Ok(None),
        [Some(before), Some(after)] if before == after => Ok(before),
        _ => Err(strange("look")),
    }
}

fn strange(operation: &str) -> Error {
    Error::new(Kind::Storage, format!("Redis, {operation}: an answer to something else"))
}
