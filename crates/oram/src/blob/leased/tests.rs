use super::*;
use crate::blob::memory::Held;
use crate::blob::{FaultyStore, MemoryStore, Mishap, Plan};
#[cfg(feature = "faults")]
use crate::faults::plant;

const BLOB: Object = Object::Log { first: 0 };

/// A store that servers can reach, and what says who serves it.
struct Place {
    store: Arc<FaultyStore>,
    memory: Arc<MemoryStore>,
}

/// The way of one server to what says so.
struct Server {
    leased: Arc<Leased>,
    cell: Arc<FaultyStore>,
}

impl Place {
    fn new() -> Self {
        Self { store: Arc::new(FaultyStore::new(Arc::default())), memory: Arc::default() }
    }

    /// A server on the machine of this number.
    async fn serve(&self, machine: u8) -> Result<Server> {
        let process = Process { machine: [machine; 16], number: 1, begun: 1 };
        self.serve_as(process).await
    }

    async fn serve_as(&self, process: Process) -> Result<Server> {
        let cell = Arc::new(FaultyStore::new(self.memory.clone()));
        let leased = Leased::take_as(self.store.clone(), cell.clone(), process).await?;
        Ok(Server { leased, cell })
    }

    fn lease(&self) -> Lease {
        Lease::decode(&self.memory.snapshot().root.unwrap()).unwrap()
    }
}

impl Server {
    async fn works(&self) -> bool {
        match self.leased.len(BLOB).await {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), Kind::Busy);
                false
            }
        }
    }

    fn is_lost(&self) -> bool {
        matches!(*self.leased.right.borrow(), Right::Lost(_))
    }

    /// It does not say any more that it is there, though it is.
    fn is_cut_off(&self) {
        self.cell.plan(Plan { seed: 0, rates: vec![(Mishap::Fails, 1000)] });
    }
}

async fn refused(place: &Place, machine: u8) -> Error {
    let error = place.serve(machine).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy);
    error
}

#[tokio::test(start_paused = true)]
async fn one_after_the_other() {
    let place = Place::new();
    for machine in 1..4 {
        let begun = Instant::now();
        let server = place.serve(machine).await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(server.works().await);
        sleep(TERM * 3).await;
        assert!(server.works().await);
        server.leased.give_back().await;
        assert!(!server.works().await);
        assert!(!place.lease().is_held && !server.is_lost());
    }
}

/// Whoever empties the place is no other server.
#[tokio::test(start_paused = true)]
async fn a_place_that_was_emptied_is_told_as_such() {
    let place = Place::new();
    let server = place.serve(1).await.unwrap();
    place.memory.restore(Held::default());
    let lost = timeout(RENEW * 2, server.leased.lost()).await;
    assert_eq!(lost, Ok(Loss::Removed));
    let refused = server.leased.len(BLOB).await.unwrap_err();
    assert!(refused.to_string().contains("has been removed"), "{refused}");
    server.leased.give_back().await;
    assert_eq!(place.memory.snapshot().root, None, "it is not said again");
}

async fn a_second_is_refused() {
    let place = Place::new();
    let first = place.serve(1).await.unwrap();
    let (begun, error) = (Instant::now(), refused(&place, 2).await);
    assert!(begun.elapsed() <= RENEW + LOOK);
    assert!(error.to_string().contains("on another machine"), "{error}");
    sleep(TERM * 3).await;
    assert!(first.works().await && !first.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_store_has_one_server() {
    a_second_is_refused().await;
}

#[cfg(feature = "faults")]
#[tokio::test(start_paused = true)]
#[should_panic = "called `Result::unwrap_err()` on an `Ok` value"]
async fn who_takes_it_nevertheless_is_noticed() {
    let _planted = plant(Fault::LeaseIgnored);
    a_second_is_refused().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_has_ended_is_not_waited_for() {
    let place = Place::new();
    let first = place.serve_as(Process::this()).await.unwrap();
    let error = refused(&place, 2).await.to_string();
    let named = format!("process {} of this machine", std::process::id());
    assert!(error.contains(&named), "{error}");
    drop(first);
    let place = Place::new();
    let ended = Process { begun: Process::this().begun + 1, ..Process::this() };
    drop(place.serve_as(ended).await.unwrap());
    let begun = Instant::now();
    assert!(place.serve(2).await.unwrap().works().await);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// A store was copied while it was served: nobody serves the copy.
#[tokio::test(start_paused = true)]
async fn a_copy_is_served_after_the_term() {
    let (place, copy) = (Place::new(), Place::new());
    let first = place.serve_as(Process::this()).await.unwrap();
    copy.memory.restore(place.memory.snapshot());
    let begun = Instant::now();
    let second = copy.serve_as(Process::this()).await.unwrap();
    assert!(begun.elapsed() >= TERM && second.works().await && first.works().await);
}

/// Two servers, of which the first is cut off from what says who serves, never work at the same time.
async fn one_at_a_time() {
    let place = Place::new();
    let first = place.serve(1).await.unwrap();
    sleep(TERM).await;
    first.is_cut_off();
    let takes = place.serve(2);
    tokio::pin!(takes);
    let begun = Instant::now();
    let mut worked = Duration::ZERO;
    let second = loop {
        tokio::select! {
            second = &mut takes => break second.unwrap(),
            () = sleep(LOOK / 4) => if first.works().await {
                worked = begun.elapsed();
            },
        }
    };
    assert!(begun.elapsed() >= TERM);
    assert!(!first.works().await, "two servers at work");
    assert!(worked <= HELD && worked + RENEW + LOOK >= HELD, "{worked:?}");
    assert!(second.works().await && !first.is_lost());
    // It hears of it when it can.
    first.cell.plan(Plan::default());
    let lost = timeout(LOOK * 2, first.leased.lost()).await;
    assert_eq!(lost, Ok(Loss::TakenOver));
    assert!(first.is_lost() && !first.works().await);
    sleep(TERM * 3).await;
    assert!(second.works().await && !second.is_lost());
    // There is nothing left that it could give back.
    first.leased.give_back().await;
    assert!(place.lease().is_held && second.works().await);
}

#[tokio::test(start_paused = true)]
async fn who_cannot_be_heard_of_stops_before_another_begins() {
    one_at_a_time().await;
}

#[cfg(feature = "faults")]
#[tokio::test(start_paused = true)]
#[should_panic = "two servers at work"]
async fn who_goes_on_unheard_is_noticed() {
    let _planted = plant(Fault::LeaseOutlived);
    one_at_a_time().await;
}

#[tokio::test(start_paused = true)]
async fn who_is_heard_of_again_in_time_goes_on() {
    let place = Place::new();
    let server = place.serve(1).await.unwrap();
    server.is_cut_off();
    sleep(HELD + LOOK).await;
    assert!(!server.works().await);
    server.cell.plan(Plan::default());
    sleep(LOOK * 2).await;
    assert!(server.works().await && !server.is_lost());
}

#[tokio::test(start_paused = true)]
async fn what_was_done_without_an_answer_is_found() {
    let place = Place::new();
    let server = place.serve(1).await.unwrap();
    for mishap in [Mishap::FailsAfterwards, Mishap::Fails, Mishap::Late(LOOK)] {
        server.cell.next([Some(mishap)]);
        let before = place.lease().beat;
        sleep(RENEW * 2).await;
        assert!(server.works().await && !server.is_lost(), "{mishap:?}");
        assert!(place.lease().beat > before);
    }
    refused(&place, 2).await;
}

#[tokio::test(start_paused = true)]
async fn it_is_given_back_when_nothing_is_under_way() {
    let place = Place::new();
    let leased = place.serve(1).await.unwrap().leased;
    place.store.hold();
    let (puts, gives) = (Arc::clone(&leased), Arc::clone(&leased));
    let putting = tokio::spawn(async move { puts.put_if_absent(BLOB, Bytes::new()).await });
    sleep(LOOK).await;
    let giving = tokio::spawn(async move { gives.give_back().await });
    sleep(LOOK).await;
    assert!(place.lease().is_held && !giving.is_finished());
    place.store.release();
    giving.await.unwrap();
    assert_eq!(putting.await.unwrap().unwrap(), Put::Created);
    assert!(!place.lease().is_held);
    assert_eq!(leased.len(BLOB).await.unwrap_err().kind(), Kind::Busy);
}

#[tokio::test(start_paused = true)]
async fn what_hangs_is_left_to_the_term() {
    let place = Place::new();
    let leased = place.serve(1).await.unwrap().leased;
    place.store.hold();
    let puts = Arc::clone(&leased);
    let putting = tokio::spawn(async move { puts.put_if_absent(BLOB, Bytes::new()).await });
    sleep(LOOK).await;
    leased.give_back().await;
    assert!(place.lease().is_held);
    place.store.release();
    let begun = Instant::now();
    let second = place.serve(2).await.unwrap();
    assert!(begun.elapsed() >= TERM && second.works().await);
    putting.abort();
}

#[tokio::test(start_paused = true)]
async fn the_sleep_of_a_machine_counts() {
    let (now, before) = (Instant::now(), slept());
    let right = Right::Until(now + HELD, before);
    assert!(right.is_there(now, before) && right.is_there(now + RENEW, before + RENEW));
    assert!(
        !right.is_there(now, before + HELD) && !right.is_there(now + RENEW, before + RENEW * 2)
    );
}

/// Two that came of one, as when a virtual machine is copied while it runs, are not taken for one.
#[tokio::test(start_paused = true)]
async fn who_was_doubled_is_found_out() {
    let place = Place::new();
    let server = place.serve(1).await.unwrap();
    let other = place.lease();
    let swapped = place.memory.swap_root(Some(other.bytes()), other.next().bytes()).await.unwrap();
    assert_eq!(swapped, Swap::Swapped);
    sleep(RENEW * 2).await;
    assert!(server.is_lost());
}

#[tokio::test(start_paused = true)]
async fn two_come_at_once() {
    let place = Place::new();
    let both = tokio::join!(place.serve(1), place.serve(2));
    let [one, other] = [both.0, both.1].map(|server| server.map(drop).map_err(|e| e.kind()));
    assert!([(Ok(()), Err(Kind::Busy)), (Err(Kind::Busy), Ok(()))].contains(&(one, other)));
}

#[tokio::test(start_paused = true)]
async fn something_else_is_left_alone() {
    let place = Place::new();
    let other = Bytes::from_static(b"the root of another store");
    place.memory.swap_root(None, other.clone()).await.unwrap();
    let error = place.serve(1).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), Kind::NotAStore);
    assert_eq!(place.memory.snapshot().root, Some(other));
}
