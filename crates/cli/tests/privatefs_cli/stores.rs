//! The same over stores in Redis and in a bucket.

use tacita_testkit::s3_server::{BUCKET, S3Server};

use crate::bench::Bench;
use crate::programs::{ten_files, ten_files_are_there};

#[path = "../../../oram/tests/support/redis_server.rs"]
mod redis_server;

fn writes_and_reads(mut bench: Bench) {
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
    let Some(bench) = Bench::at(test, Some(&store), &[]) else { return };
    writes_and_reads(bench);
}

#[test]
fn a_file_system_in_a_bucket() {
    let test = "a_file_system_in_a_bucket";
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = S3Server::start(test, folder.path()) else { return };
    let store = format!("s3://{BUCKET}/files");
    let endpoint = format!("http://{}", server.address());
    let Some(bench) = Bench::at(test, Some(&store), &[endpoint]) else { return };
    writes_and_reads(bench);
}
