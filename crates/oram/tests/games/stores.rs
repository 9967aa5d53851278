//! The same games over stores that last, in their own time: a folder, and Redis.

use std::sync::Arc;

use tacita_oram::blob::{BlobStore, FolderStore, RedisStore};

use super::crashes::{geometry, have_one_history};
use super::redis_server::{DURABLE, redis};
use super::world::World;

async fn have_one_history_over(store: Arc<dyn BlobStore>) {
    have_one_history(11, &World::over(store, geometry(), 2).await, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_block_has_one_history_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = FolderStore::open(folder.path().join("store")).unwrap();
    have_one_history_over(Arc::new(store)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_block_has_one_history_in_redis() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = redis(folder.path(), &DURABLE) else { return };
    let store = RedisStore::open(&server.url, "games").await.unwrap();
    have_one_history_over(Arc::new(store)).await;
}
