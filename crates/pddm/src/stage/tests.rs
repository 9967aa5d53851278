use super::*;

fn buffers() -> Arc<Buffers> {
    Arc::new(Buffers::new(AlignedBuf::on_line))
}

fn block(n: u8) -> Content {
    Content::of_blocks(&[n; BLOCK_LEN], &buffers()).next().expect("one block")
}

fn holds(stage: &Stage, id: u32) -> Option<u8> {
    stage.get(id).map(|staged| match staged {
        Staged::Content(content) => content[0],
        Staged::Zeros => 0,
    })
}

fn settle(stage: &mut Stage, id: u32) {
    let Some(Staged::Content(content)) = stage.get(id) else { panic!("it is there") };
    let content = content.clone();
    stage.settle(id, &content);
}

fn drop_all(stage: &mut Stage, mut range: Range<u32>) {
    stage.drop_first(&mut range, usize::MAX);
    assert!(range.is_empty());
}

fn takes(stage: &mut Stage) -> Option<(u32, u8)> {
    match stage.take()? {
        Taken::Block(id, content) => Some((id, content[0])),
        Taken::Page(page) => Some((page, u8::MAX)),
    }
}

#[test]
fn what_waits_is_taken_in_order_and_stays_readable() {
    let mut stage = Stage::after(0);
    stage.put(5, block(1));
    stage.put(6, block(2));
    stage.put(5, block(3));
    assert_eq!(stage.waiting(), 2);
    assert_eq!(takes(&mut stage), Some((5, 3)));
    assert_eq!(holds(&stage, 5), Some(3));
    stage.put(5, block(4));
    settle(&mut stage, 5);
    assert_eq!(holds(&stage, 5), Some(4), "it waits");
    assert_eq!(takes(&mut stage), Some((6, 2)));
    assert_eq!(takes(&mut stage), Some((5, 4)));
    settle(&mut stage, 5);
    settle(&mut stage, 6);
    assert_eq!((holds(&stage, 5), takes(&mut stage), stage.waiting()), (None, None, 0));
}

#[test]
fn blocks_that_were_written_together_are_each_their_own() {
    let mut stage = Stage::after(0);
    let bytes: Vec<u8> = [1, 2, 3].iter().flat_map(|n| [*n; BLOCK_LEN]).collect();
    (5..)
        .zip(Content::of_blocks(&bytes, &buffers()))
        .for_each(|(id, content)| stage.put(id, content));
    assert_eq!([5, 6, 7].map(|id| holds(&stage, id)), [Some(1), Some(2), Some(3)]);
    assert_eq!([takes(&mut stage), takes(&mut stage)], [Some((5, 1)), Some((6, 2))]);
    let other = Content::of_blocks(&bytes, &buffers()).nth(1).expect("three blocks");
    stage.settle(6, &other);
    assert_eq!(holds(&stage, 6), Some(2), "an equal one is another");
    settle(&mut stage, 6);
    assert_eq!([5, 6, 7].map(|id| holds(&stage, id)), [Some(1), None, Some(3)]);
}

#[test]
fn what_waits_begins_with_a_line_of_the_cache() {
    let buffers = buffers();
    for count in [1, 3, 160] {
        let bytes = vec![1; count * BLOCK_LEN];
        let contents: Vec<Content> = Content::of_blocks(&bytes, &buffers).collect();
        let begins = |content: &Content| content.as_ptr().align_offset(AlignedBuf::LINE_BYTES) == 0;
        assert!(contents.len() == count && contents.iter().all(begins));
    }
}

#[test]
fn an_epoch_leaves_before_the_next() {
    let mut stage = Stage::after(7);
    stage.put(1, block(1));
    stage.put(2, block(2));
    assert_eq!(stage.close_epoch(), 8);
    assert_eq!(stage.close_epoch(), 8, "nothing has come");
    stage.put(1, block(11));
    assert_eq!((stage.complete(), stage.waiting(), holds(&stage, 1)), (7, 3, Some(11)));
    assert_eq!([takes(&mut stage), takes(&mut stage)], [Some((1, 1)), Some((2, 2))]);
    assert_eq!((stage.complete(), holds(&stage, 1)), (8, Some(11)));
    assert_eq!(takes(&mut stage), Some((1, 11)));
    assert_eq!(stage.complete(), 9);
    // What comes now is of another epoch than what has left.
    stage.put(3, block(3));
    assert_eq!((stage.complete(), stage.close_epoch()), (9, 10));
}

#[test]
fn what_is_dropped_leaves_before_what_was_written_after() {
    let mut stage = Stage::after(0);
    stage.put(4, block(1));
    stage.close_epoch();
    stage.put(5, block(2));
    drop_all(&mut stage, 0..9);
    assert_eq!([holds(&stage, 4), holds(&stage, 5), holds(&stage, 9)], [Some(0), Some(0), None]);
    stage.put(5, block(3));
    assert_eq!(holds(&stage, 5), Some(3));
    assert_eq!(stage.take_drops(9), None, "the first epoch has not left");
    assert_eq!(takes(&mut stage), Some((4, 1)));
    assert_eq!(takes(&mut stage), None, "first what was dropped");
    assert_eq!(stage.take_drops(6), Some(0..6));
    stage.forget_taken(4);
    stage.put_page(0);
    assert_eq!(stage.complete(), 0);
    assert_eq!((stage.take_drops(6), stage.take_drops(6)), (Some(6..9), None));
    assert_eq!((takes(&mut stage), stage.complete()), (Some((0, u8::MAX)), 1));
    assert_eq!((takes(&mut stage), stage.complete()), (Some((5, 3)), 2));
    assert_eq!((holds(&stage, 4), holds(&stage, 5)), (None, Some(3)));
}

/// The last epoch in which each block was dropped, one by one, while ranges leave in any order.
#[test]
fn dropped_blocks_are_found_however_their_ranges_lie() {
    const BLOCKS: u32 = 24;
    let mut rng = tacita_testkit::history::Rng::new(5);
    for _ in 0..300 {
        let (mut dropped, mut epochs, mut epoch) = (Dropped::default(), [None; BLOCKS as usize], 1);
        for _ in 0..40 {
            let mut number = |below| u32::try_from(rng.below(below)).expect("a small number");
            let start = number(u64::from(BLOCKS));
            let range = start..BLOCKS.min(start + 1 + number(8));
            let (of, own) = (u64::from(number(3)), range.start as usize..range.end as usize);
            if number(2) == 0 {
                epoch += of / 2;
                dropped.put(range.clone(), epoch);
                epochs[own.clone()].fill(Some(epoch));
            } else {
                let leaves = epoch.saturating_sub(of);
                dropped.take(&range, leaves);
                let left = epochs[own.clone()].iter_mut().filter(|held| **held == Some(leaves));
                left.for_each(|held| *held = None);
            }
            assert!((0..BLOCKS).map(|id| dropped.epoch_of(id)).eq(epochs), "{dropped:?}");
            let covered = epochs[own.clone()].iter().all(|held| *held == Some(epoch));
            assert_eq!(dropped.covers(&range, epoch), covered);
            assert_eq!(dropped.has_any(&range), epochs[own].iter().any(Option::is_some));
        }
    }
}

/// Whoever else needs the stage gets it between them.
#[test]
fn few_of_many_that_wait_are_dropped_at_once() {
    let mut stage = Stage::after(0);
    (0..20).for_each(|id| stage.put(id * 3, block(1)));
    stage.close_epoch();
    stage.put(9, block(2));
    let mut left = 1..1000;
    let mut gone = Vec::new();
    while !left.is_empty() {
        let at_once = stage.drop_first(&mut left, 8);
        gone.push((at_once.iter().map(|content| content[0]).collect::<Vec<_>>(), left.start));
    }
    // Those of an epoch that is closed leave before.
    assert_eq!(gone, [(vec![2], 27), (vec![], 51), (vec![], 1000)]);
    assert_eq!((stage.waiting(), stage.drops.len()), (21, 1));
    assert!((1..60).all(|id| holds(&stage, id) == Some(0)));
    assert_eq!((holds(&stage, 0), holds(&stage, 1000)), (Some(1), None));
}

#[test]
fn what_is_dropped_again_and_again_takes_no_more_room() {
    let mut stage = Stage::after(0);
    for _ in 0..3 {
        for range in [0..9, 20..30, 9..12, 2..11] {
            drop_all(&mut stage, range);
        }
    }
    assert_eq!(stage.waiting(), 3);
    // What has been written since is dropped anew, and so is what was dropped in an earlier epoch.
    stage.put(3, block(1));
    drop_all(&mut stage, 2..4);
    assert_eq!((stage.waiting(), holds(&stage, 3)), (4, Some(0)));
    stage.close_epoch();
    drop_all(&mut stage, 2..4);
    assert_eq!(stage.waiting(), 5);
    let drops: Vec<_> = std::iter::from_fn(|| stage.take_drops(100)).collect();
    assert_eq!(drops, [0..9, 20..30, 9..12, 2..4, 2..4]);
    assert_eq!((stage.waiting(), holds(&stage, 3), stage.complete()), (0, None, 2));
}

/// Pages leave in an order of their own: a crash between two of them must not show a later epoch alone.
#[test]
fn pages_tell_of_an_epoch_before_the_next_is_dropped() {
    let mut stage = Stage::after(0);
    for range in [5000..5001, 1..2] {
        drop_all(&mut stage, range);
        stage.close_epoch();
    }
    assert_eq!(stage.take_drops(9), Some(5000..5001));
    stage.put_page(4);
    assert_eq!((stage.next_drop(), stage.take_drops(9), stage.complete()), (None, None, 0));
    assert_eq!(takes(&mut stage), Some((4, u8::MAX)));
    assert_eq!((stage.complete(), stage.take_drops(9)), (1, Some(1..2)));
}

#[test]
fn what_is_staged_is_told_by_block() {
    let mut stage = Stage::after(0);
    let held = |stage: &Stage, ids| {
        let held = stage.held(ids).into_iter();
        held.map(|(id, content)| (id, content.map(|content| content[0]))).collect::<Vec<_>>()
    };
    assert_eq!(held(&stage, 0..9), []);
    drop_all(&mut stage, 2..4);
    stage.put(3, block(5));
    stage.put(7, block(6));
    assert_eq!(held(&stage, 0..9), [(2, None), (3, Some(5)), (7, Some(6))]);
    assert_eq!([held(&stage, 0..2), held(&stage, 4..7), held(&stage, 8..9)], [[], [], []]);
    assert_eq!(held(&stage, 3..8), [(3, Some(5)), (7, Some(6))]);
}
