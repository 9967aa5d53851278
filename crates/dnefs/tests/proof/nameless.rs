//! What has lost its last name, and what is still known of it by its number: the kernel forgets numbers when
//! it likes, and opens files by them that have no name.

use std::ffi::OsStr;
use std::sync::Arc;

use tacita_clock::System;
use tacita_dnefs::{Dnefs, PurgeScope};
use tacita_dnefs_audit::audit;
use tacita_vfs::posix::{Caller, OpenMode, WriteMode};
use tacita_vfs::{FileSystem, Link, NodeId, Posix, Stamps, Timestamp, XattrMode};

use crate::deletion::make;
use crate::volumes::{dump, fresh, open};

const NOW: Timestamp = Timestamp { secs: 1, nanos: 2 };

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

/// How a purge is asked for.
type Asking = fn(&Posix<Dnefs>);

const WAYS: [(&str, Asking); 2] = [
    ("the attribute", |posix| {
        let root = posix.root();
        let (caller, purge) = (Caller::default(), name("user.dnefs.purge"));
        posix.set_xattr(caller, root, purge, b"deleted", XattrMode::Any).unwrap();
    }),
    ("the command", |posix| {
        posix.sync().unwrap();
        posix.file_system().purge(PurgeScope::Deleted).unwrap();
    }),
];

/// A file with an attribute, closed, and a link; the kernel knows the numbers of both.
fn file_and_link(posix: &Posix<Dnefs>) -> [NodeId; 2] {
    let (root, caller) = (posix.root(), Caller::default());
    let writing = OpenMode { write: true, ..OpenMode::default() };
    let (file, _, handle, _) =
        posix.create(caller, root, name("file"), 0o600, writing, true).unwrap();
    posix.write(handle, 0, &[7; 12_000], WriteMode::Privileged).unwrap();
    posix.release(handle).unwrap();
    posix.set_xattr(caller, file, name("user.secret"), b"a secret value", XattrMode::Any).unwrap();
    let (link, _) = posix.symlink(caller, root, name("link"), name("a secret target")).unwrap();
    [file, link]
}

#[test]
fn what_nobody_has_open_is_purged_before_the_kernel_forgets_its_number() {
    for (way, ask) in WAYS {
        let chip = fresh(64, 0);
        let posix = Posix::new(open(&chip), Arc::new(System));
        let nodes = file_and_link(&posix);
        ask(&posix);
        let before = dump(&chip);
        for text in ["file", "link"] {
            posix.unlink(Caller::default(), posix.root(), name(text)).unwrap();
        }
        ask(&posix);
        let after = audit(&before, &dump(&chip), &[], &|_, _| ()).unwrap();
        // Two inodes, two names, three nodes of content, a value.
        assert!(after.holds() && after.deleted >= 8, "{way}: {after:?}");
        let fs = posix.file_system();
        assert!(nodes.iter().all(|node| !fs.has_inode(node.0)), "{way}");
        assert!(nodes.iter().all(|node| fs.xattrs(*node).unwrap().is_empty()), "{way}");
        for node in nodes {
            posix.forget(node, 1);
        }
        assert_eq!((fs.keys_waiting(), fs.is_sound()), (0, true), "{way}");
    }
}

/// A program that holds it by its number alone opens it once more, and writes; then the power goes.
#[test]
fn what_is_written_of_it_later_is_gone_after_a_power_cut_too() {
    for sensitive in [b"0", b"1"] {
        let chip = fresh(64, 0);
        let fs = open(&chip);
        make(&fs, "other", &[1; 3000]);
        let victim = make(&fs, "victim", &[7; 12_000]);
        let attribute = name("user.dnefs.sensitive");
        fs.set_xattr(victim, attribute, sensitive, XattrMode::Any).unwrap();
        let link = Link { dir: fs.root(), name: name("victim"), node: victim };
        assert_eq!(fs.remove(link, NOW).unwrap(), 0);
        fs.unlinked(victim, &|| false).unwrap();
        fs.unused(victim);
        fs.write(victim, 0, &[9; 9000], Stamps::NONE).unwrap();
        fs.purge(PurgeScope::Deleted).unwrap();
        drop(fs);
        let chip = Arc::new(chip.power_on().unwrap());
        let fs = open(&chip);
        assert!(!fs.has_inode(victim.0));
        let receipts = fs.receipts().unwrap().len() as u64;
        // The root, a file, its name, its content.
        assert_eq!(fs.usage().nodes - receipts, 4, "something is left that nobody can delete");
    }
}
