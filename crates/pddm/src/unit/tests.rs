use super::*;
use crate::geometry::Parameters;
use crate::keys::unit_sealing;

fn key(n: u8) -> Key {
    Key::take(&mut [n; 32])
}

fn geometry(public_slots: u32, hidden_slots: u32, classes: u32) -> Geometry {
    let parameters = Parameters { public_slots, hidden_slots, classes, ..Parameters::default() };
    Geometry::new(parameters, 1 << 16).unwrap()
}

fn slots(count: usize, first: u32) -> Slots {
    Slots {
        ids: (first..).take(count).collect(),
        ids_before: (first + 1000..).take(count).collect(),
        tags: (0..count).map(|i| [u8::try_from(i).unwrap() + 1; TAG_LEN]).collect(),
    }
}

fn sealed(geometry: &Geometry, salt: &Salt, head: &Head) -> Box<Block> {
    let mut block = Box::new([0x5a; BLOCK_LEN]);
    for level in geometry.levels().skip(1) {
        let master = key(u8::try_from(level.index()).unwrap() + 10);
        let mut sealing = unit_sealing(&master, salt);
        let mut part = HiddenPart::new(geometry, &mut block);
        let first = 100 * u32::try_from(level.index()).unwrap();
        part.put_slots(level, &slots(geometry.slot_count(level), first), &mut sealing);
        part.put_cell(level, &[u8::try_from(level.index()).unwrap(); CELL_LEN]);
    }
    seal_header(geometry, salt, head, &mut unit_sealing(&key(1), salt), &mut block);
    block
}

fn head(geometry: &Geometry) -> Head {
    Head {
        seq: Seq(70),
        durable: Seq(60),
        replay_from: Seq(50),
        sweep_until: Seq(75),
        previous: [4; 32],
        mac: [5; 32],
        slots: slots(geometry.slot_count(Level::PUBLIC), 7),
    }
}

#[test]
fn every_shape_of_header_holds_what_was_put_in() {
    for (public, hidden, classes) in
        [(20, 11, 1), (20, 11, 3), (1, 62, 15), (62, 1, 1), (48, 15, 15), (4, 3, 2)]
    {
        let geometry = geometry(public, hidden, classes);
        let salt = [9; 32];
        let head = head(&geometry);
        let block = sealed(&geometry, &salt, &head);
        let header = Header::open(&geometry, &key(1), &block).unwrap();
        assert_eq!((header.salt, &header.head), (salt, &head));
        for level in geometry.levels().skip(1) {
            let n = u8::try_from(level.index()).unwrap();
            let want = slots(geometry.slot_count(level), 100 * u32::from(n));
            assert_eq!(header.hidden(&geometry, level, &key(n + 10)), Some(want));
            assert_eq!(header.hidden(&geometry, level, &key(n + 11)), None);
            assert_eq!(header.cell(&geometry, level), &[n; CELL_LEN]);
        }
    }
}

#[test]
fn any_changed_byte_is_noticed() {
    let geometry = geometry(20, 11, 2);
    let block = sealed(&geometry, &[9; 32], &head(&geometry));
    for at in 0..BLOCK_LEN {
        let mut damaged = block.clone();
        damaged[at] ^= 1;
        assert!(Header::open(&geometry, &key(1), &damaged).is_none(), "byte {at}");
    }
    assert!(Header::open(&geometry, &key(2), &block).is_none());
}
