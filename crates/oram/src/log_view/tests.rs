use super::*;
use tacita_secret::Key;

const BLOCK_LEN: usize = 512;

struct Game {
    view: LogView,
    salts: u64,
}

impl Game {
    fn new(capacity: u64) -> Self {
        let geometry = Geometry::new(512, 16, 2, capacity).unwrap();
        let keys = Keys::new(&Key::take(&mut [1; 32]), &[2; 16]);
        let past = Past::none(&keys);
        let mut view = LogView::new(keys, geometry, past);
        view.opened(0, 0).unwrap();
        Self { view, salts: 0 }
    }

    fn push(&mut self, id: u8, operation: Operation) -> u64 {
        let (seen, head) = (self.view.records(), self.view.head());
        self.salts += 1;
        let mut salt = [0; 16];
        salt[..8].copy_from_slice(&self.salts.to_le_bytes());
        let record = Record { request: salt, id: [id; 32], operation, seen, head };
        let sealed = record.seal(&self.view.keys, salt, BLOCK_LEN);
        self.view.push(&sealed).unwrap();
        seen
    }

    /// As if the store had nothing but what this log wrote.
    fn settle(&mut self, sequence: u64) {
        let found = match self.view.target(sequence) {
            Some(_) => Found::Block(None),
            None => Found::Nothing,
        };
        self.view.found_here(sequence, found).unwrap();
    }
}

fn block(content: u8) -> Bytes {
    Bytes::from(vec![content; BLOCK_LEN])
}

#[test]
fn a_query_after_another_for_the_same_block_looks_for_nothing() {
    let mut game = Game::new(100);
    let first = game.push(1, Operation::Write(block(5)));
    let second = game.push(1, Operation::Read);
    let other = game.push(2, Operation::Read);
    let dummy = game.push(2, Operation::Dummy);
    assert_eq!(game.view.target(first), Some([1; 32]));
    assert_eq!(game.view.target(second), None);
    assert_eq!(game.view.target(other), Some([2; 32]));
    assert_eq!(game.view.target(dummy), None);
    // Results come in any order; outcomes in that of the log.
    game.settle(second);
    assert_eq!(game.view.outcome(second), None);
    game.settle(first);
    assert_eq!(game.view.outcome(first), Some(Outcome::Was(None)));
    assert_eq!(game.view.outcome(second), Some(Outcome::Was(Some(block(5)))));
}

#[test]
fn compare_and_write_writes_if_the_block_is_what_was_expected() {
    let mut game = Game::new(100);
    let compare = |expected, new| Operation::CompareAndWrite { expected, new };
    let queries = [
        game.push(1, compare(Some(digest_of(&block(1))), block(2))),
        game.push(1, compare(None, block(3))),
        game.push(1, compare(None, block(4))),
        game.push(1, compare(Some(digest_of(&block(3))), block(5))),
        game.push(1, Operation::Free),
        game.push(1, Operation::Read),
    ];
    for query in queries {
        game.settle(query);
    }
    let compared = |written, was| Some(Outcome::Compared { written, was });
    let was = |block| Some(Outcome::Was(block));
    assert_eq!(game.view.outcome(queries[0]), compared(false, None));
    assert_eq!(game.view.outcome(queries[1]), compared(true, None));
    assert_eq!(game.view.outcome(queries[2]), compared(false, Some(block(3))));
    assert_eq!(game.view.outcome(queries[3]), compared(true, Some(block(3))));
    assert_eq!(game.view.outcome(queries[4]), was(Some(block(5))));
    assert_eq!(game.view.outcome(queries[5]), was(None));
}

#[test]
fn a_full_store_takes_no_new_blocks_and_still_changes_old_ones() {
    let mut game = Game::new(2);
    for id in 0..16 {
        let query = game.push(id, Operation::Write(block(1)));
        game.settle(query);
    }
    game.view.opened(1, 16).unwrap();
    let new = game.push(99, Operation::Write(block(2)));
    let old = game.push(3, Operation::Write(block(2)));
    game.settle(new);
    game.settle(old);
    assert_eq!(game.view.outcome(new), Some(Outcome::Full));
    assert_eq!(game.view.outcome(old), Some(Outcome::Was(Some(block(1)))));
    assert_eq!(game.view.change(0), 16);
}

#[test]
fn a_batch_has_each_block_once_as_the_period_left_it() {
    let mut game = Game::new(100);
    for id in 0..16 {
        let query = game.push(id % 5, Operation::Write(block(id)));
        game.settle(query);
    }
    assert!(game.view.is_settled(0));
    let mut batch = game.view.batch(0).unwrap();
    batch.sort_by_key(|item| item.id);
    let last: Vec<_> =
        batch.iter().map(|item| (item.id[0], item.block.as_ref().unwrap()[0])).collect();
    assert_eq!(last, [(0, 15), (1, 11), (2, 12), (3, 13), (4, 14)]);
    assert_eq!(game.view.change(0), 5);
}

/// Whoever builds it late, when others have gone on, hears so.
#[test]
fn a_batch_that_is_forgotten_is_none() {
    let mut game = Game::new(100);
    for _ in 0..3 * 16 {
        let sequence = game.push(1, Operation::Read);
        game.settle(sequence);
        let records = game.view.records();
        if records.is_multiple_of(16) {
            game.view.opened(records / 16, 0).unwrap();
        }
    }
    assert!(game.view.is_settled(0) && game.view.batch(0).is_some());
    game.view.forget_before(1);
    assert!(game.view.is_settled(0) && game.view.batch(0).is_none());
    assert!(game.view.batch(1).is_some());
}

#[test]
fn what_came_too_late_or_twice_does_nothing() {
    let mut game = Game::new(100);
    let record = Record {
        request: [9; 16],
        id: [1; 32],
        operation: Operation::Write(block(1)),
        seen: 0,
        head: game.view.head(),
    };
    let sealed = record.seal(&game.view.keys, [8; 16], BLOCK_LEN);
    game.view.push(&sealed).unwrap();
    game.view.push(&sealed).unwrap();
    game.settle(0);
    game.settle(1);
    assert_eq!(game.view.outcome(0), Some(Outcome::Was(None)));
    assert_eq!(game.view.outcome(1), Some(Outcome::Void));
    for _ in 2..32 {
        let query = game.push(7, Operation::Dummy);
        game.settle(query);
    }
    game.view.opened(1, 0).unwrap();
    game.view.opened(2, 0).unwrap();
    game.view.push(&sealed).unwrap();
    game.settle(32);
    assert_eq!(game.view.outcome(32), Some(Outcome::Void));
}

#[test]
fn an_author_who_has_seen_another_log_is_noticed() {
    let mut game = Game::new(100);
    game.push(1, Operation::Read);
    let record = Record {
        request: [9; 16],
        id: [1; 32],
        operation: Operation::Read,
        seen: 1,
        head: [0; 32],
    };
    let sealed = record.seal(&game.view.keys, [8; 16], BLOCK_LEN);
    assert_eq!(game.view.push(&sealed).unwrap_err().kind(), Kind::Hostile);
    #[cfg(feature = "faults")]
    {
        let _planted = crate::faults::plant(crate::faults::Fault::ChainUnchecked);
        game.view.push(&sealed).expect("whoever does not compare does not notice");
    }
}

#[test]
fn what_is_forgotten_is_no_predecessor() {
    let mut game = Game::new(100);
    for period in 0..4 {
        if period > 0 {
            game.view.opened(period, 0).unwrap();
        }
        for id in 0..16 {
            let query = game.push(id, Operation::Read);
            // In the period after, the log of the one before lives still.
            assert_eq!(game.view.target(query).is_some(), period == 0);
            game.settle(query);
        }
    }
    game.view.forget_before(3);
    assert_eq!(game.view.records(), 64);
    game.view.opened(4, 0).unwrap();
    game.view.opened(5, 0).unwrap();
    for _ in 0..16 {
        let query = game.push(77, Operation::Dummy);
        game.settle(query);
    }
    // Two periods later it does not.
    let query = game.push(3, Operation::Read);
    assert!(game.view.target(query).is_some());
    assert!(game.view.head_after(48).is_some() && game.view.head_after(47).is_none());
}

/// What has settled is counted at once, over the ends of periods, and what is forgotten by its manifest.
#[test]
fn present_blocks_are_counted_up_to_the_last_that_has_settled() {
    let mut game = Game::new(100);
    for n in 0..16 {
        let query = game.push(n, Operation::Write(block(n)));
        assert_eq!(game.view.present(), Some(u64::from(n)));
        game.settle(query);
    }
    game.view.opened(1, 0).unwrap();
    for n in 0..10 {
        let query = game.push(n, Operation::Free);
        game.settle(query);
    }
    let unsettled = game.push(10, Operation::Free);
    assert_eq!(game.view.present(), Some(6));
    game.settle(unsettled);
    assert_eq!(game.view.present(), Some(5));
    for n in 0..5 {
        let query = game.push(20 + n, Operation::Write(block(n)));
        game.settle(query);
    }
    game.view.opened(2, 16).unwrap();
    game.view.forget_before(1);
    assert_eq!(game.view.present(), Some(10));
}
