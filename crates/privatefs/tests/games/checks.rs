//! What a check finds beside others' work, and of files that are as long as can be.

use tacita_privatefs::{PrivateFs, check};
use tacita_testkit::by_name;
use tacita_vfs::{Change, Exchange, FileSystem, FileType, NewNode, NodeId, Timestamp};

use crate::world::World;

fn make(fs: &PrivateFs, dir: NodeId, kind: FileType, name: &str) -> NodeId {
    let new = NewNode::new(kind, 0o700, Timestamp::default());
    fs.create(dir, name.as_ref(), &new).unwrap().0
}

/// Files are replaced, deleted, given names and moved with their directories when some of them have been looked at.
#[test]
fn what_others_change_while_it_is_checked_is_not_wrong() {
    const FILES: usize = 12;
    const DIRS: usize = 6;
    let now = Timestamp::default();
    for when in 1..=FILES as u64 {
        let world = World::new();
        let (fs, _) = world.mount(when);
        let root = fs.root();
        for number in 0..FILES {
            make(&fs, root, FileType::File, &format!("file{number}"));
        }
        for number in 0..DIRS {
            let dir = make(&fs, root, FileType::Directory, &format!("dir{number}"));
            make(&fs, dir, FileType::Directory, "sub");
            make(&fs, dir, FileType::File, "in");
        }
        fs.sync().unwrap();
        let change = || {
            for number in 0..FILES {
                let name = format!("file{number}");
                match number % 3 {
                    0 => {
                        make(&fs, root, FileType::File, "new");
                        let (from, to) = ((root, "new".as_ref()), (root, name.as_ref()));
                        let other = by_name::rename(&fs, from, to, Exchange::No, now).unwrap();
                        fs.forget(other.unwrap());
                    }
                    1 => fs.forget(by_name::remove(&fs, root, name.as_ref(), now).unwrap()),
                    _ => {
                        let node = fs.lookup(root, name.as_ref()).unwrap().0;
                        fs.link(node, root, format!("also{number}").as_ref(), now).unwrap();
                    }
                }
            }
            let dir = |number: usize| fs.lookup(root, format!("dir{number}").as_ref()).unwrap().0;
            for number in (0..DIRS).step_by(2) {
                let (from, to) =
                    ((dir(number), "sub".as_ref()), (dir(number + 1), "moved".as_ref()));
                by_name::rename(&fs, from, to, Exchange::No, now).unwrap();
                fs.forget(by_name::remove(&fs, dir(number), "in".as_ref(), now).unwrap());
                let name = format!("dir{number}");
                fs.forget(by_name::remove(&fs, root, name.as_ref(), now).unwrap());
            }
            fs.sync().unwrap();
        };
        let mut is_changed = false;
        let found = check(&fs, true, &mut |files| {
            if files >= when && !std::mem::replace(&mut is_changed, true) {
                change();
            }
        });
        assert_eq!(found.unwrap().wrong, Vec::<String>::new(), "after {when} files");
        fs.close().unwrap();
        world.check("changed");
    }
}

/// A few empty files of the greatest length have more bytes than can be counted.
#[test]
fn files_may_be_as_long_as_can_be() {
    let world = World::new();
    let (fs, _) = world.mount(1);
    let change = Change { size: Some(1 << 60), ..Change::default() };
    for number in 0..20 {
        let node = make(&fs, fs.root(), FileType::File, &format!("file{number}"));
        fs.change(node, &change).unwrap();
    }
    let found = check(&fs, true, &mut |_| ()).unwrap();
    assert_eq!((found.bytes, found.wrong), (u64::MAX, Vec::new()));
    fs.close().unwrap();
}
