//! The same over stores in Redis and in a bucket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::slice;

use tacita_oram::blob::{Credentials, Keys, Lease, Process, RedisStore, S3Access, S3Store};
use tacita_testkit::env_number;
use tacita_testkit::s3_server::{BUCKET, KEY_ID, S3Server, SECRET};

use crate::bench::Bench;
use crate::killed::renames;
use crate::programs::{ten_files, ten_files_are_there};
use crate::traces::which_file_has_no_shape_at;
use crate::two::through_an_engine;

#[path = "../../../oram/tests/support/redis_server.rs"]
mod redis_server;

use redis_server::{DURABLE, Redis, redis};

fn is_soak() -> bool {
    std::env::var_os("TACITA_KILLS").is_some()
}

/// A second server is refused, and the one after a crash need not wait.
fn has_one_server(bench: &Bench) {
    let refused = bench.ends("oram serve STORE --listen AT_ENGINE", 5);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("another server serves the store, process "), "{told}");
    bench.kill(&bench.path("server"));
    bench.serve();
    bench.ends(&format!("oram close {}", bench.path("server")), 0);
    bench.serve();
}

/// What whoever keeps the store may do: sets what says who serves it.
fn says_who_serves(redis: &Redis, name: &str, lease: &[u8]) {
    let mut stream = UnixStream::connect(redis.url.strip_prefix("unix:").unwrap()).unwrap();
    let key = format!("{name}:served:root");
    let (key_len, len) = (key.len(), lease.len());
    let asked = format!("*3\r\n$3\r\nSET\r\n${key_len}\r\n{key}\r\n${len}\r\n");
    stream.write_all(&[asked.as_bytes(), lease, b"\r\n"].concat()).unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
}

#[test]
fn a_server_whose_store_was_taken_over_ends() {
    let test = "a_server_whose_store_was_taken_over_ends";
    let folder = tempfile::tempdir().unwrap();
    let Some(redis) = redis(folder.path(), &DURABLE) else { return };
    let store = format!("{}#lost", redis.url);
    let Some(bench) = Bench::at(test, Some(&store), &[]) else { return };
    bench.ends("oram init STORE --key KEY --blocks 64 --period 16", 0);
    let mut serving = bench.command("oram serve STORE --listen SERVER --foreground");
    let mut serving = serving.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(serving.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().contains("is served at"));
    let process = Process { machine: [6; 16], number: 1, begun: 1 };
    let other = Lease { is_held: true, holder: [4; 16], beat: 1, process };
    says_who_serves(&redis, "lost", &other.encode());
    let told: Vec<_> = said.map(Result::unwrap).collect();
    assert!(told.concat().contains("another server has taken the store over"), "{told:?}");
    assert_eq!(serving.wait().unwrap().code(), Some(5));
    // Who waits for the end of the other one can be ended.
    let mut waiting = bench.command("oram serve STORE --listen SERVER --foreground");
    let mut waiting = waiting.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(waiting.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().contains("the store is taken over in 40 s"));
    let pid = rustix::process::Pid::from_child(&waiting);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(waiting.wait().unwrap().signal(), Some(15));
    // What is none is left alone, and the remedy named.
    says_who_serves(&redis, "lost", b"something else");
    let refused = bench.ends("oram serve STORE --listen SERVER", 4);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("remove it if no server is at work"), "{told}");
}

fn writes_and_reads(bench: &mut Bench, file_len: usize) {
    bench.make(8192, 256);
    let dir = bench.mount("SERVER", "");
    ten_files(&dir, file_len);
    bench.umount(&dir);
    has_one_server(bench);
    bench.mount_at(&dir, "SERVER", "");
    ten_files_are_there(&dir, file_len);
    bench.umount(&dir);
    bench.check("SERVER");
}

#[test]
fn a_file_system_in_redis() {
    let test = "a_file_system_in_redis";
    let folder = tempfile::tempdir().unwrap();
    let Some(redis) = redis(folder.path(), &DURABLE) else { return };
    let store = format!("{}#files", redis.url);
    let Some(mut bench) = Bench::at(test, Some(&store), &[]) else { return };
    writes_and_reads(&mut bench, 512 << 10);
    renames(&mut bench, env_number("TACITA_KILLS", 2));
    // What takes long: it waits for the turn of a mount that was killed, as over a folder.
    if is_soak() {
        through_an_engine(&mut bench);
    }
}

#[test]
fn which_file_is_used_has_no_shape_in_redis_either() {
    let folder = tempfile::tempdir().unwrap();
    let Some(redis) = &redis(folder.path(), &DURABLE) else { return };
    let store = |name| {
        let opened = async move { RedisStore::open(&redis.url, name).await.unwrap() };
        (format!("{}#{name}", redis.url), opened)
    };
    which_file_has_no_shape_at("in_redis", ["one", "two"].map(store), &[]);
}

#[test]
fn a_file_system_in_a_bucket() {
    let test = "a_file_system_in_a_bucket";
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = S3Server::start(test, folder.path()) else { return };
    let store = format!("s3://{BUCKET}/files");
    let endpoint = format!("http://{}", server.address());
    let Some(mut bench) = Bench::at(test, Some(&store), slice::from_ref(&endpoint)) else { return };
    // What takes long: moto takes its time for each block.
    writes_and_reads(&mut bench, if is_soak() { 512 << 10 } else { 128 << 10 });
    renames(&mut bench, env_number("TACITA_KILLS", 1));
    if is_soak() {
        through_an_engine(&mut bench);
        drop(bench);
        let access = S3Access {
            credentials: Credentials::Keys(Keys {
                key_id: KEY_ID.into(),
                secret: SECRET.into(),
                session_token: None,
            }),
            region: "us-east-1".into(),
            endpoint: Some(endpoint.clone()),
            roots: None,
        };
        let store = |name| {
            let store = format!("s3://{BUCKET}/{name}");
            let place = store.parse().unwrap();
            let access = &access;
            (store, async move { S3Store::open(&place, access).await.unwrap() })
        };
        which_file_has_no_shape_at("in_a_bucket", ["one", "two"].map(store), &[endpoint]);
    }
}
