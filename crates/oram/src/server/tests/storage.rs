//! Restarts, and storage that fails.

use super::*;

/// All that a new client is told, from the beginning on.
async fn history(server: &Server, records: usize, results: usize) -> Vec<(u64, &'static str)> {
    let mut client = Client::following(server).await;
    let all = client.told_many(records + results).await;
    // Nothing more is to come.
    client.call(Request::Root).await;
    assert!(client.events.try_recv().is_err());
    all
}

fn told(records: u64, results: impl Iterator<Item = u64>) -> Vec<(u64, &'static str)> {
    (0..records).map(|n| (n, "record")).chain(results.map(|n| (n, "result"))).collect()
}

/// Records are there after a restart, and results of complete periods; the others are stored again.
#[tokio::test]
async fn a_restart_keeps_what_was_answered() {
    let (_, store) = made(4).await;
    let first = server(&store).await;
    let client = Client::of(&first, None).await;
    fill(&client, PERIOD + 3).await;
    for sequence in 0..PERIOD + 2 {
        client.store(sequence).await;
    }
    let all = told(PERIOD + 3, 0..PERIOD + 2);
    assert_eq!(history(&first, 19, 18).await, all);
    // Until it is there it is told from memory.
    while store.len(Object::Results { period: 0 }).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(history(&first, 19, 18).await, all);
    client.session.abort();
    drop((first, client));
    let second = server(&store).await;
    assert_eq!(history(&second, 19, 16).await, told(PERIOD + 3, 0..PERIOD));
    let client = Client::of(&second, None).await;
    assert_eq!((client.welcome.records, client.welcome.period), (PERIOD + 3, 2));
    assert_eq!(client.store(PERIOD).await, Answer::Kept { created: true });
    assert_eq!(client.store(0).await, Answer::Kept { created: false });
    assert_eq!(client.append(0).await, appended(PERIOD + 3));
}

/// Who was away for long is told from the store.
#[tokio::test]
async fn old_records_are_told_from_the_store() {
    let (_, store) = made(6).await;
    let server = server(&store).await;
    let client = Client::of(&server, None).await;
    for period in 0..5 {
        for n in 0..PERIOD {
            while client.append(0).await != appended(period * PERIOD + n) {
                tokio::task::yield_now().await;
            }
            client.store(period * PERIOD + n).await;
        }
    }
    assert_eq!(history(&server, 80, 80).await, told(80, 0..80));
    let mut late = Client::of(&server, None).await;
    late.follow(70, 75).await;
    let expected: Vec<_> = told(80, 75..80).split_off(70);
    assert_eq!(late.told_many(15).await, expected);
}

/// The server dies while a record is on its way to the store: it is there or not, and what was
/// answered is.
#[tokio::test]
async fn killed_in_mid_write() {
    for is_written in [false, true] {
        let (memory, store) = made(2).await;
        let first = server(&store).await;
        let client = Client::of(&first, None).await;
        fill(&client, 3).await;
        store.operations();
        store.hold();
        let append = Request::Append { fence: 0, record: record(9) };
        let pending = client.connection.begin(append).await.unwrap();
        while !store.operations().contains(&"put log/0000000000000003".to_owned()) {
            tokio::task::yield_now().await;
        }
        client.session.abort();
        drop(first);
        if is_written {
            memory.put_if_absent(Object::Log { first: 3 }, record(9)).await.unwrap();
        }
        assert!(pending.answer().await.is_err());
        store.release();
        let second = server(&store).await;
        let count = if is_written { 4 } else { 3 };
        assert_eq!(history(&second, count, 0).await, told(count as u64, 0..0));
        let client = Client::of(&second, None).await;
        assert_eq!(client.append(1).await, appended(count as u64));
    }
}

/// A write whose success is not told is not done twice.
#[tokio::test(start_paused = true)]
async fn failures_of_the_store_are_tried_again() {
    for mishap in [Mishap::Fails, Mishap::FailsAfterwards] {
        let (memory, store) = made(1).await;
        let server = server(&store).await;
        let mut client = Client::following(&server).await;
        store.operations();
        // The look for the manifest goes well.
        store.next([None, Some(mishap), Some(mishap)]);
        assert_eq!(client.append(1).await, appended(0));
        assert_eq!(client.told().await, (0, "own"));
        assert_eq!(memory.list("log/").await.unwrap(), [Object::Log { first: 0 }]);
        assert_eq!(client.append(2).await, appended(1));
    }
}

/// A store that fails for long refuses; a record that it has kept all the same comes before the next.
#[tokio::test(start_paused = true)]
async fn a_refused_record_may_be_there() {
    for (mishap, next) in [(Mishap::Fails, 0), (Mishap::FailsAfterwards, 1)] {
        let (_, store) = made(1).await;
        let server = server(&store).await;
        let mut client = Client::following(&server).await;
        store.next([None, Some(mishap)]);
        store.next(std::iter::repeat_n(Some(Mishap::Fails), 5));
        assert_eq!(client.append(1).await, Answer::Refused(Refusal::Storage));
        assert_eq!(client.append(2).await, appended(next));
        let mut expected = vec![(next, "own")];
        if next == 1 {
            expected.insert(0, (0, "record"));
        }
        assert_eq!(client.told_many(expected.len()).await, expected);
    }
}

/// Neither is it guessed which period is open, nor is a root that cannot be read taken for none.
#[tokio::test]
async fn whoever_comes_while_storage_fails_is_told_so() {
    async fn comes(server: &Server) -> Result<u64> {
        let opened = Connection::open(connect(server).0, Options::default(), drop).await;
        opened.map(|(_, welcome)| welcome.period)
    }
    let fails = Some(Mishap::Fails);
    let (_, store) = made(2).await;
    let first = server(&store).await;
    store.next([None, fails]);
    assert_eq!(comes(&first).await.unwrap_err().kind(), Kind::Storage);
    // The root is known.
    store.next([fails]);
    assert_eq!(comes(&first).await.unwrap(), 1);
    let memory = Arc::new(MemoryStore::new());
    let store = Arc::new(FaultyStore::new(memory.clone()));
    let second = server(&store).await;
    assert_eq!(comes(&second).await.unwrap(), 0);
    memory.swap_root(None, root(0)).await.unwrap();
    store.next([fails]);
    assert_eq!(comes(&second).await.unwrap_err().kind(), Kind::Storage);
}

/// Of two servers on one store each appends behind the other.
#[tokio::test]
async fn two_servers_on_one_store() {
    let (memory, store) = made(1).await;
    let (one, other) = (server(&store).await, server(&store).await);
    let (a, mut b) = (Client::following(&one).await, Client::following(&other).await);
    fill(&a, 3).await;
    assert_eq!(b.append(7).await, appended(3));
    let told = b.told_many(4).await;
    assert_eq!(told, [(0, "record"), (1, "record"), (2, "record"), (3, "own")]);
    assert_eq!(memory.list("log/").await.unwrap().len(), 4);
}

/// A log with a hole, records of a wrong length, and a root that is none are named.
#[tokio::test]
async fn damaged_stores_are_not_served() {
    let put = async |objects: &[(u64, usize)]| {
        let (memory, store) = made(1).await;
        for (first, len) in objects {
            let bytes = vec![0; *len].into();
            memory.put_if_absent(Object::Log { first: *first }, bytes).await.unwrap();
        }
        Server::open(store, Limits::default()).await.map(|_| ()).map_err(|e| e.kind())
    };
    let len = geometry().record_len();
    assert_eq!(put(&[(0, len), (1, 2 * len)]).await, Ok(()));
    assert_eq!(put(&[(0, len), (2, len)]).await, Err(Kind::Storage));
    assert_eq!(put(&[(0, 2 * len), (1, len)]).await, Err(Kind::Storage));
    assert_eq!(put(&[(0, len), (1, len - 1)]).await, Err(Kind::Storage));
    assert_eq!(put(&[(0, len), (1, 0)]).await, Err(Kind::Storage));
    assert_eq!(put(&[(15, 2 * len)]).await, Err(Kind::Storage));
    let memory = Arc::new(MemoryStore::new());
    memory.swap_root(None, Bytes::from_static(b"something else")).await.unwrap();
    let opened = Server::open(memory, Limits::default()).await;
    assert_eq!(opened.unwrap_err().kind(), Kind::NotAStore);
}

/// Whatever an unreliable but honest store does, what was answered is there, once and in order.
#[tokio::test(start_paused = true)]
async fn an_unreliable_store_loses_nothing() {
    for seed in 0..20 {
        let (_, store) = made(8).await;
        let mishaps =
            [(Mishap::Fails, 150), (Mishap::FailsAfterwards, 150), (Mishap::Late(5 * MS), 200)];
        let mut known: Vec<(u64, u8)> = Vec::new();
        for round in 0..4 {
            store.plan(Plan::default());
            let opened = server(&store).await;
            let client = Client::of(&opened, None).await;
            store.plan(Plan { seed: seed * 10 + round, rates: mishaps.to_vec() });
            for n in 0..8 {
                let byte = u8::try_from(round * 8 + n).unwrap();
                if let Answer::Appended { sequence } = client.append(byte).await {
                    known.push((sequence, byte));
                    client.store(sequence).await;
                }
            }
            client.session.abort();
        }
        store.plan(Plan::default());
        let server = server(&store).await;
        let mut client = Client::following(&server).await;
        let records = client.call(Request::Root).await;
        assert_eq!(records, Answer::Root(root(0)));
        assert!(known.is_sorted_by(|a, b| a.0 < b.0), "seed {seed}");
        for sequence in 0..=known.last().unwrap().0 {
            let Event::Push(Push::Record { sequence: at, record }) =
                client.events.recv().await.unwrap()
            else {
                panic!("seed {seed}")
            };
            assert_eq!(at, sequence, "seed {seed}");
            if let Some((_, byte)) = known.iter().find(|(known, _)| *known == at) {
                assert_eq!(record[0], *byte, "seed {seed}");
            }
        }
    }
}

/// Whether what was answered is there after a restart, and is told in its order.
#[cfg(feature = "faults")]
async fn promises_are_kept() -> bool {
    let (_, store) = made(1).await;
    let first = server(&store).await;
    let (mut client, other) = (Client::following(&first).await, Client::of(&first, None).await);
    fill(&other, 3).await;
    assert_eq!(client.append(1).await, appended(3));
    let mut told = Vec::new();
    while let Ok(event) = client.events.try_recv() {
        told.push(event);
    }
    let is_in_order = matches!(told[..], [_, _, _, Event::Appended { sequence: 3, .. }]);
    client.session.abort();
    other.session.abort();
    drop(first);
    is_in_order && Client::of(&server(&store).await, None).await.welcome.records == 4
}

#[cfg(feature = "faults")]
#[tokio::test]
async fn broken_promises_are_noticed() {
    use crate::faults::{Fault, plant};
    assert!(promises_are_kept().await);
    for fault in [Fault::EarlyAnswer, Fault::OrderLost] {
        let _planted = plant(fault);
        assert!(!promises_are_kept().await, "{fault:?}");
    }
}
