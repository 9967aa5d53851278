//! What holds for every store: for tests of them.

use std::slice::from_ref;
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{BlobStore, Put, ROOT_LEN_MAX, Swap};
use crate::error::Kind;
use crate::geometry::Generation;
use crate::object::Object;

/// Writers at the same time.
const WRITERS: u8 = 8;

/// Tries everything that the seam promises. `open` opens one and the same store, empty at first.
///
/// # Panics
/// Where the store breaks a promise.
pub async fn check(open: impl AsyncFn() -> Arc<dyn BlobStore>) {
    let (store, other) = (open().await, open().await);
    nothing_is_there(&*store).await;
    blobs_are_written_once(&*store, &*other).await;
    ranges_are_cut(&*store).await;
    names_are_listed(&*store, &*other).await;
    large_blobs(&*store, &*other).await;
    one_writer_creates(&open).await;
    roots_are_swapped(&*store, &*other).await;
    one_swap_wins(&open).await;
    what_is_deleted_is_gone(&*store, &*other).await;
}

async fn nothing_is_there(store: &dyn BlobStore) {
    let object = Object::Results { period: 77 };
    assert_eq!(value(store.get(object, from_ref(&(0..1))).await), None);
    assert_eq!(value(store.len(object).await), None);
    value(store.delete(object).await);
    assert_eq!(value(store.list("").await), []);
    assert_eq!(value(store.root().await), None);
}

async fn blobs_are_written_once(store: &dyn BlobStore, other: &dyn BlobStore) {
    for (object, bytes) in [
        (Object::Log { first: 1 }, Bytes::from_static(b"a record")),
        (Object::Manifest { period: 0 }, Bytes::new()),
    ] {
        let len = bytes.len() as u64;
        assert_eq!(value(store.put_if_absent(object, bytes.clone()).await), Put::Created);
        let second = Bytes::from_static(b"something else");
        for again in [store, other] {
            assert_eq!(value(again.put_if_absent(object, second.clone()).await), Put::Exists);
            assert_eq!(value(again.len(object).await), Some(len));
            assert_eq!(whole(again, object).await, bytes);
        }
    }
}

async fn ranges_are_cut(store: &dyn BlobStore) {
    let object = Object::Results { period: 3 };
    let bytes: Vec<u8> = (0..=255).collect();
    value(store.put_if_absent(object, bytes.clone().into()).await);
    let ranges = [0..256, 5..5, 200..256, 0..1, 100..150, 256..256];
    let parts = value(store.get(object, &ranges).await).expect("it is there");
    assert_eq!(parts.len(), ranges.len());
    for (part, range) in parts.iter().zip(ranges) {
        let range = usize::try_from(range.start).expect("it is small")
            ..usize::try_from(range.end).expect("it is small");
        assert_eq!(*part, bytes[range]);
    }
    assert_eq!(value(store.get(object, &[]).await), Some(Vec::new()));
    for beyond in [0..257, 256..257, 300..301, u64::MAX - 1..u64::MAX] {
        let result = store.get(object, &[0..1, beyond.clone()]).await;
        let error = result.expect_err("it ends behind the blob");
        assert_eq!(error.kind(), Kind::Storage, "{beyond:?}");
    }
}

async fn names_are_listed(store: &dyn BlobStore, other: &dyn BlobStore) {
    let generation = |level, number| Generation { level, number };
    let mut all = vec![
        Object::Items { generation: generation(1, 2), bucket: 3 },
        Object::Items { generation: generation(12, 2), bucket: u32::MAX },
        Object::Filter { generation: generation(1, 2), part: 0 },
        Object::Cells { generation: generation(2, u64::MAX), chunk: 9 },
        Object::Entries { generation: generation(2, 3), bucket: 9 },
        Object::Log { first: u64::MAX },
    ];
    for object in &all {
        let bytes = Bytes::from(object.to_string());
        assert_eq!(value(store.put_if_absent(*object, bytes.clone()).await), Put::Created);
        assert_eq!(whole(other, *object).await, bytes);
    }
    all.extend([
        Object::Log { first: 1 },
        Object::Manifest { period: 0 },
        Object::Results { period: 3 },
    ]);
    all.sort_unstable();
    for prefix in
        ["", "log/", "log", "generation/01-", "generation/01-0000000000000002/items-", "x"]
    {
        let mut names = value(other.list(prefix).await);
        names.sort_unstable();
        let expected = all.iter().filter(|object| object.to_string().starts_with(prefix));
        assert_eq!(names, expected.copied().collect::<Vec<_>>(), "{prefix}");
    }
}

async fn large_blobs(store: &dyn BlobStore, other: &dyn BlobStore) {
    let object = Object::Items { generation: Generation { level: 5, number: 1 }, bucket: 0 };
    let bytes: Bytes = (0..9_u32 << 18).flat_map(u32::to_le_bytes).collect();
    assert_eq!(value(store.put_if_absent(object, bytes.clone()).await), Put::Created);
    assert_eq!(whole(other, object).await, bytes);
    let far =
        value(other.get(object, from_ref(&((9 << 20) - 4..9 << 20))).await).expect("it is there");
    assert_eq!(far[0], ((9_u32 << 18) - 1).to_le_bytes()[..]);
}

/// Of several writers one is told that it has created the blob, and its bytes are there whole.
async fn one_writer_creates(open: &impl AsyncFn() -> Arc<dyn BlobStore>) {
    for period in 100..104 {
        let object = Object::Manifest { period };
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let store = open().await;
            writers.spawn(async move {
                let put = value(store.put_if_absent(object, vec![writer; 5000].into()).await);
                (writer, put, whole(&*store, object).await)
            });
        }
        let all = writers.join_all().await;
        let created: Vec<_> = all.iter().filter(|(_, put, _)| *put == Put::Created).collect();
        assert_eq!(created.len(), 1, "one of them creates it");
        assert!(all.iter().all(|(_, _, seen)| *seen == vec![created[0].0; 5000]));
    }
}

async fn roots_are_swapped(store: &dyn BlobStore, other: &dyn BlobStore) {
    let (first, second) = (Bytes::from_static(b"first"), Bytes::from(vec![2; ROOT_LEN_MAX]));
    let wrong = value(store.swap_root(Some(second.clone()), first.clone()).await);
    assert_eq!(wrong, Swap::Differs(None));
    assert_eq!(value(store.swap_root(None, first.clone()).await), Swap::Swapped);
    let late = value(other.swap_root(None, second.clone()).await);
    assert_eq!(late, Swap::Differs(Some(first.clone())));
    assert_eq!(value(other.root().await), Some(first.clone()));
    let swap = value(other.swap_root(Some(first.clone()), second.clone()).await);
    assert_eq!(swap, Swap::Swapped);
    let late = value(store.swap_root(Some(first), Bytes::from_static(b"third")).await);
    assert_eq!(late, Swap::Differs(Some(second.clone())));
    assert_eq!(value(store.root().await), Some(second));
    assert!(value(store.list("").await).iter().all(|object| object.to_string() != "root"));
}

async fn one_swap_wins(open: &impl AsyncFn() -> Arc<dyn BlobStore>) {
    for round in 0..4 {
        let now = value(open().await.root().await);
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (store, now) = (open().await, now.clone());
            writers.spawn(async move {
                let new = Bytes::from(vec![writer, round]);
                value(store.swap_root(now, new.clone()).await) == Swap::Swapped
            });
        }
        let won = writers.join_all().await.into_iter().filter(|won| *won).count();
        assert_eq!(won, 1, "one of them swaps it");
        assert_ne!(value(open().await.root().await), now);
    }
}

async fn what_is_deleted_is_gone(store: &dyn BlobStore, other: &dyn BlobStore) {
    let object = Object::Results { period: 3 };
    value(store.delete(object).await);
    for store in [store, other] {
        assert_eq!(value(store.len(object).await), None);
        assert_eq!(value(store.get(object, from_ref(&(0..1))).await), None);
        assert!(!value(store.list("results/").await).contains(&object));
        value(store.delete(object).await);
    }
    let again = Bytes::from_static(b"again");
    assert_eq!(value(other.put_if_absent(object, again.clone()).await), Put::Created);
    assert_eq!(whole(store, object).await, again);
}

async fn whole(store: &dyn BlobStore, object: Object) -> Bytes {
    let len = value(store.len(object).await).expect("it is there");
    let mut parts = value(store.get(object, from_ref(&(0..len))).await).expect("it is there");
    parts.remove(0)
}

fn value<T>(result: crate::Result<T>) -> T {
    result.expect("the store does what it is asked")
}
