use std::sync::Arc;

use super::*;

#[tokio::test]
async fn memory_conforms() {
    let store = Arc::new(MemoryStore::new());
    conformance::check(async || store.clone() as Arc<dyn BlobStore>).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/here");
    conformance::check(async || Arc::new(FolderStore::open(&path).unwrap()) as Arc<dyn BlobStore>)
        .await;
}

#[tokio::test]
async fn a_faulty_store_conforms_until_it_is_told() {
    let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
    conformance::check(async || store.clone() as Arc<dyn BlobStore>).await;
}

/// Each lie, where the suite or a reader sees it.
#[tokio::test(start_paused = true)]
async fn lies_are_told_as_planned() {
    let object = Object::Log { first: 0 };
    let bytes = Bytes::from_static(b"bytes!");
    let with = |mishap| {
        let store = FaultyStore::new(Arc::new(MemoryStore::new()));
        store.mark();
        store.next([Some(mishap)]);
        store
    };
    let get = async |store: &FaultyStore| {
        store
            .get(object, std::slice::from_ref(&(0..6)))
            .await
            .map(|parts| parts.map(|parts| parts[0].clone()))
    };
    for mishap in [Mishap::Fails, Mishap::FailsAfterwards] {
        let store = with(mishap);
        assert_eq!(
            store.put_if_absent(object, bytes.clone()).await.unwrap_err().kind(),
            Kind::Storage
        );
        let kept = (mishap == Mishap::FailsAfterwards).then(|| bytes.clone());
        assert_eq!(get(&store).await.unwrap(), kept);
    }
    for (mishap, kept) in [(Mishap::Lost, None), (Mishap::Altered, Some("bytds!".into()))] {
        let store = with(mishap);
        assert_eq!(store.put_if_absent(object, bytes.clone()).await.unwrap(), Put::Created);
        assert_eq!(get(&store).await.unwrap(), kept);
    }
    let store = with(Mishap::Torn);
    store.put_if_absent(object, bytes.clone()).await.unwrap();
    assert_eq!(store.len(object).await.unwrap(), Some(3));
    let store = with(Mishap::Late(std::time::Duration::from_secs(5)));
    let begun = tokio::time::Instant::now();
    store.put_if_absent(object, bytes.clone()).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 5);
    store.next([Some(Mishap::CreatedTwice), Some(Mishap::RolledBack), Some(Mishap::Altered)]);
    assert_eq!(store.put_if_absent(object, Bytes::new()).await.unwrap(), Put::Created);
    assert_eq!(get(&store).await.unwrap(), None, "as it was at the mark");
    assert_ne!(get(&store).await.unwrap(), Some(bytes.clone()));
    assert_eq!(get(&store).await.unwrap(), Some(bytes));
}
