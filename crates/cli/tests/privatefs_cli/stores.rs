//! The same over stores in Redis and in a bucket.

use std::slice;

use tacita_oram::blob::{RedisStore, S3Access, S3Store};
use tacita_testkit::env_number;
use tacita_testkit::s3_server::{BUCKET, KEY_ID, S3Server, SECRET};

use crate::bench::Bench;
use crate::killed::renames;
use crate::programs::{ten_files, ten_files_are_there};
use crate::traces::which_file_has_no_shape_at;
use crate::two::through_an_engine;

#[path = "../../../oram/tests/support/redis_server.rs"]
mod redis_server;

fn writes_and_reads(bench: &mut Bench) {
    bench.make(8192, 256);
    let dir = bench.mount("SERVER", "");
    ten_files(&dir);
    bench.umount(&dir);
    bench.mount_at(&dir, "SERVER", "");
    ten_files_are_there(&dir);
    bench.umount(&dir);
    bench.check("SERVER");
}

#[test]
fn a_file_system_in_redis() {
    let test = "a_file_system_in_redis";
    let folder = tempfile::tempdir().unwrap();
    let Some(redis) = redis_server::redis(folder.path(), &redis_server::DURABLE) else { return };
    let store = format!("{}#files", redis.url);
    let Some(mut bench) = Bench::at(test, Some(&store), &[]) else { return };
    writes_and_reads(&mut bench);
    renames(&mut bench, env_number("TACITA_KILLS", 2));
    through_an_engine(&mut bench);
}

#[test]
fn which_file_is_used_has_no_shape_in_redis_either() {
    let folder = tempfile::tempdir().unwrap();
    let Some(redis) = &redis_server::redis(folder.path(), &redis_server::DURABLE) else { return };
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
    writes_and_reads(&mut bench);
    renames(&mut bench, env_number("TACITA_KILLS", 1));
    // What takes long here.
    if std::env::var_os("TACITA_KILLS").is_some() {
        through_an_engine(&mut bench);
        drop(bench);
        let access = S3Access {
            key_id: KEY_ID.into(),
            secret: SECRET.into(),
            session_token: None,
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
