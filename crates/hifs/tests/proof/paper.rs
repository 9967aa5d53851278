//! Reproduction: the drawn layouts of figures 5 and 6, and the defects of the printed procedures.

use tacita_hifs::placement::{
    Cell, Delete, HashTable, LayoutA, LayoutB, Owner, Piece, Procedures, Shape, oracle,
};
use tacita_testkit::history::Rng;

const SHAPE: Shape = Shape { groups: 2, cells_per_group: 4 };

/// The hashes of the design note, section 1.7: h(f) and h(f||g) of each file.
const FILES: [(u64, u64, &[u64]); 3] =
    [(2, 2, &[18, 7, 24]), (3, 4, &[15, 8, 13]), (4, 3, &[20, 17])];

/// Key `file.bucket` with the figure's hashes; `by_user` takes the home from the user (layout C),
/// `by_file` ranks by the file (layout B).
fn key(file: u32, bucket: u32, by_user: bool, by_file: bool) -> Piece {
    let (file_hash, user_hash, bucket_hashes) = FILES[file as usize - 1];
    let home = if by_user { user_hash } else { file_hash } % 2;
    Piece {
        owner: file.into(),
        bucket,
        order: 0,
        envelope: 0,
        home: u32::try_from(home).unwrap(),
        hash: if by_file { file_hash } else { bucket_hashes[bucket as usize] },
    }
}

fn show(table: &HashTable<'_>) -> String {
    let cell = |cell: &Option<Piece>| match cell {
        Some(key) => format!("{}.{}", key.owner, key.bucket),
        None => "--".into(),
    };
    let groups: Vec<String> = table
        .cells()
        .chunks(4)
        .map(|group| group.iter().map(cell).collect::<Vec<_>>().join(" "))
        .collect();
    groups.join(" | ")
}

fn insert_all(table: &mut HashTable<'_>, keys: &[(u32, u32)], by_user: bool, by_file: bool) {
    for (file, bucket) in keys {
        let key = key(*file, *bucket, by_user, by_file);
        let landed = table.insert(key).unwrap();
        assert_eq!(table.search(&key), Some(landed), "INSERT tells where the new key is");
    }
}

const FIRST: [(u32, u32); 8] = [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (1, 2), (3, 1)];
const SECOND: [(u32, u32); 8] = [(3, 0), (2, 0), (2, 1), (2, 2), (1, 2), (3, 1), (1, 0), (1, 1)];

#[test]
fn figure_5_step_by_step() {
    let layout = LayoutA { shape: SHAPE };
    let mut table = HashTable::new(&layout);
    let steps: [(&[(u32, u32)], &str); 5] = [
        (&FIRST[..2], "-- -- 1.0 1.1 | -- -- -- --"),
        (&FIRST[2..5], "-- -- 1.0 1.1 | 2.1 2.2 -- 2.0"),
        (&FIRST[5..6], "3.0 -- 1.0 1.1 | 2.1 2.2 -- 2.0"),
        (&FIRST[6..7], "1.2 3.0 1.0 1.1 | 2.1 2.2 -- 2.0"),
        (&FIRST[7..], "1.2 3.0 1.0 3.1 | 2.1 2.2 1.1 2.0"),
    ];
    for (keys, drawn) in steps {
        insert_all(&mut table, keys, false, false);
        assert_eq!(show(&table), drawn);
    }
    let mut other = HashTable::new(&layout);
    insert_all(&mut other, &SECOND, false, false);
    assert_eq!(show(&other), show(&table), "figure 5(b) ends as 5(a)");
    assert!(other.delete(&key(3, 0, false, false), Delete::Repaired));
    assert_eq!(show(&other), "1.2 3.1 1.0 1.1 | 2.1 2.2 -- 2.0");
    assert!(other.delete(&key(3, 1, false, false), Delete::Repaired));
    assert_eq!(show(&other), "1.2 -- 1.0 1.1 | 2.1 2.2 -- 2.0", "figure 5(d) ends as 5(c)");
}

#[test]
fn figure_6_layouts_b_and_c() {
    let b = LayoutB { shape: SHAPE };
    let mut table = HashTable::new(&b);
    insert_all(&mut table, &FIRST, false, true);
    assert_eq!(show(&table), "3.0 3.1 1.0 1.1 | 2.0 2.1 2.2 1.2");
    // Layout C differs from A in the home only, which the key carries.
    let c = LayoutA { shape: SHAPE };
    let mut table = HashTable::new(&c);
    insert_all(&mut table, &SECOND, true, false);
    assert_eq!(show(&table), "1.2 2.2 1.0 2.0 | 3.0 3.1 2.1 1.1");
}

fn table_after(layout: &dyn Procedures, keys: &[Piece], kept: usize, how: Delete) -> (bool, bool) {
    let mut table = HashTable::new(layout);
    for key in keys {
        table.insert(*key).unwrap();
    }
    for key in &keys[kept..] {
        table.delete(key, how);
    }
    let want = oracle(layout, keys[..kept].iter().copied());
    let is_canonical = table.cells().iter().enumerate().all(|(i, held)| {
        let cell = Cell(u32::try_from(i).unwrap());
        held.map(|key| (key.owner, key.bucket)) == want.get(&cell).copied()
    });
    let finds_all = keys[..kept].iter().all(|key| table.search(key).is_some());
    (is_canonical, finds_all)
}

/// The repaired DELETE always gives the canonical table; the printed one loses live keys.
#[test]
fn printed_delete_fails_and_the_repaired_one_does_not() {
    let (mut not_canonical, mut lost, mut games) = (0, 0, 0);
    for (groups, load) in [(2, 50), (3, 70), (8, 85), (8, 95)] {
        let shape = Shape { groups, cells_per_group: 16 };
        let layouts: [&dyn Procedures; 2] = [&LayoutA { shape }, &LayoutB { shape }];
        for seed in 0..60 {
            let layout = layouts[seed % 2];
            let mut rng = Rng::new(seed as u64);
            let kept = (groups * 16 * load / 100) as usize;
            let extra = ((groups * 16) as usize - kept).min(kept / 4 + 1);
            let ids: Vec<u128> =
                (0..400).map(|_| u128::from(rng.next()) << 64 | u128::from(rng.next())).collect();
            let mut keys: Vec<Piece> = (0..kept + extra)
                .map(|n| {
                    let owner = Owner { id: ids[n / 4], home: 0 };
                    layout.piece(&owner, u32::try_from(n % 4).unwrap(), 0, 0)
                })
                .collect();
            rng.shuffle(&mut keys);
            assert_eq!(table_after(layout, &keys, kept, Delete::Repaired), (true, true));
            let (is_canonical, finds_all) = table_after(layout, &keys, kept, Delete::Printed);
            not_canonical += u32::from(!is_canonical);
            lost += u32::from(!finds_all);
            games += 1;
        }
    }
    assert!(not_canonical * 2 > games, "printed DELETE: {not_canonical} of {games} not canonical");
    assert!(lost > 0, "printed DELETE loses keys");
}
