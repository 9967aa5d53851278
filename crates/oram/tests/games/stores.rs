//! The same games over stores that last, in their own time: a folder, Redis, and a bucket.

use std::sync::Arc;

use tacita_oram::blob::{BlobStore, Credentials, FolderStore, Keys, RedisStore, S3Access, S3Store};
use tacita_testkit::s3_server::{BUCKET, KEY_ID, S3Server, SECRET};

use super::crashes::{geometry, have_one_history};
use super::redis_server::{DURABLE, redis};
use super::world::World;

/// `haste`: as in the game.
async fn have_one_history_over(store: Arc<dyn BlobStore>, haste: u64) {
    have_one_history(11, &World::over(store, geometry(), 2).await, haste).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_block_has_one_history_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = FolderStore::open(folder.path().join("store")).unwrap();
    have_one_history_over(Arc::new(store), 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_block_has_one_history_in_redis() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = redis(folder.path(), &DURABLE) else { return };
    let store = RedisStore::open(&server.url, "games").await.unwrap();
    have_one_history_over(Arc::new(store), 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_block_has_one_history_in_a_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let test = "every_block_has_one_history_in_a_bucket";
    let Some(server) = S3Server::start(test, folder.path()) else { return };
    let access = S3Access {
        credentials: Credentials::Keys(Keys {
            key_id: KEY_ID.into(),
            secret: SECRET.into(),
            session_token: None,
        }),
        region: "us-east-1".into(),
        endpoint: Some(format!("http://{}", server.address())),
        roots: None,
    };
    let place = format!("s3://{BUCKET}/games").parse().unwrap();
    let store = S3Store::open(&place, &access).await.unwrap();
    // Slower than the others: with as much haste little would end.
    have_one_history_over(Arc::new(store), 4).await;
}
