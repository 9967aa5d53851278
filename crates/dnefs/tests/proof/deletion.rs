//! Deletion, judged by the audit: raw dumps before and after, every window of the later one tried as a
//! key.

use std::ffi::OsStr;
use std::sync::Arc;

use tacita_clock::System;
use tacita_dnefs::{Dnefs, PurgeScope, format};
use tacita_dnefs_audit::{Report, audit};
use tacita_flash::emulator::Damage;
use tacita_flash::{Behaviour, Emulator, EraseMode, Leb, Volume};
use tacita_testkit::search;
use tacita_vfs::posix::{Caller, RenameMode};
use tacita_vfs::{
    Change, Exchange, FileSystem, FileType, Kind, Link, NewNode, NodeId, Posix, Reserve, Stamps,
    Target, Timestamp, XattrMode,
};

use crate::volumes::{chip, dump, fresh, open, options, volume};

const NOW: Timestamp = Timestamp { secs: 1, nanos: 2 };

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

fn new(kind: FileType) -> NewNode {
    NewNode::new(kind, 0o600, NOW)
}

pub(crate) fn make(fs: &Dnefs, text: &str, content: &[u8]) -> NodeId {
    let (node, _) = fs.create(fs.root(), name(text), &new(FileType::File)).unwrap();
    fs.write(node, 0, content, Stamps::NONE).unwrap();
    node
}

pub(crate) fn remove(fs: &Dnefs, text: &str) {
    let (node, _) = fs.lookup(fs.root(), name(text)).unwrap();
    let link = Link { dir: fs.root(), name: name(text), node };
    if fs.remove(link, NOW).unwrap() == 0 {
        fs.unlinked(node, &|| false).unwrap();
        fs.forget(node);
    }
}

type Deletion = fn(&Dnefs, NodeId);

/// Every way to delete something of `victim`.
const WAYS: [(&str, Deletion); 8] = [
    ("overwrite", |fs, node| fs.write(node, 100, &[9; 5000], Stamps::NONE).unwrap()),
    ("truncate", |fs, node| {
        fs.change(node, &Change { size: Some(1000), ..Change::default() }).unwrap();
    }),
    ("punch", |fs, node| fs.reserve(node, 1000..9000, Reserve::Punch).unwrap()),
    ("unlink", |fs, _| remove(fs, "victim")),
    ("rename over", |fs, node| {
        let other = make(fs, "other", b"new");
        let from = Link { dir: fs.root(), name: name("other"), node: other };
        let to = Target { dir: fs.root(), name: name("victim"), node: Some(node) };
        assert_eq!(fs.rename(from, to, Exchange::No, NOW).unwrap(), 0);
        fs.forget(node);
    }),
    ("set attribute", |fs, node| {
        fs.set_xattr(node, name("user.secret"), b"other", XattrMode::Any).unwrap();
    }),
    ("remove attribute", |fs, node| fs.remove_xattr(node, name("user.secret")).unwrap()),
    ("remove directory", |fs, _| remove(fs, "folder")),
];

/// A volume with something to delete, and with other files around it.
fn prepared(seed: u64) -> (Arc<Emulator>, Dnefs, NodeId) {
    prepared_in(seed, |_| ())
}

/// The same, in a root directory that something is done with first.
fn prepared_in(seed: u64, first: impl Fn(&Dnefs)) -> (Arc<Emulator>, Dnefs, NodeId) {
    let chip = fresh(64, seed);
    let fs = open(&chip);
    first(&fs);
    make(&fs, "before", &[1; 3000]);
    let victim = make(&fs, "victim", &[7; 12_000]);
    fs.set_xattr(victim, name("user.secret"), b"a secret value", XattrMode::Any).unwrap();
    fs.create(fs.root(), name("folder"), &new(FileType::Directory)).unwrap();
    make(&fs, "after", &[2; 3000]);
    (chip, fs, victim)
}

fn judge(before: &[u8], after: &[u8]) -> Report {
    let report = audit(before, after, &[], &|_, _| ()).unwrap();
    assert_eq!((&report.undecided, report.key_pages_sealed), (&None, 0));
    assert!(report.in_use > 0 && report.key_pages > 0 && report.windows > after.len() as u64 / 2);
    report
}

#[test]
fn what_was_deleted_in_any_way_is_gone_after_a_purge_and_not_before() {
    game();
}

pub(crate) fn game() {
    for (seed, (way, delete)) in (0..).zip(WAYS) {
        let (chip, fs, victim) = prepared(seed);
        fs.purge(PurgeScope::Deleted).unwrap();
        let before = dump(&chip);
        delete(&fs, victim);
        fs.sync().unwrap();
        assert!(fs.keys_waiting() > 0, "{way}");
        let unpurged = dump(&chip);
        let report = fs.purge(PurgeScope::Deleted).unwrap();
        assert!(report.keys > 0, "{way}");
        let after = judge(&before, &dump(&chip));
        assert!(after.holds() && after.deleted > 0, "{way}: {after:?}");
        // The same question of a dump from between deletion and purge, with the checkpoint of later.
        let mixed: Vec<u8> = [unpurged, dump(&chip)].concat();
        let report = judge(&before, &mixed);
        assert!(!report.recoverable.is_empty(), "{way}: the audit finds what is there");
    }
}

#[test]
fn what_is_sensitive_is_gone_when_the_call_returns() {
    sensitive_game();
}

pub(crate) fn sensitive_game() {
    let sensitive = name("user.dnefs.sensitive");
    for (seed, (way, delete)) in (0..).zip(WAYS) {
        let (chip, fs, victim) = prepared_in(seed, |fs| {
            fs.set_xattr(fs.root(), sensitive, b"1", XattrMode::Any).unwrap();
        });
        assert_eq!(fs.xattr(victim, sensitive).unwrap(), b"1", "it is inherited");
        fs.purge(PurgeScope::Deleted).unwrap();
        let before = dump(&chip);
        delete(&fs, victim);
        if way == "overwrite" {
            fs.sync_node(victim).unwrap();
        }
        let after = judge(&before, &dump(&chip));
        assert!(after.holds() && after.deleted > 0, "{way}: {after:?}");
        assert_eq!(fs.keys_waiting(), 0, "{way}");
    }
}

/// A name in a sensitive directory is of that, whatever it is the name of.
#[test]
fn names_in_a_sensitive_directory_are_gone_when_the_call_returns() {
    for (seed, way) in ["unlink", "link", "out", "over", "exchange"].into_iter().enumerate() {
        let (chip, fs, _) = prepared(seed as u64);
        let (root, dir) = (fs.root(), name("folder"));
        make(&fs, "other", &[3; 3000]);
        let posix = Posix::new(fs, Arc::new(System));
        let (dir, _) = posix.lookup(root, dir).unwrap();
        let (victim, _) = posix.lookup(root, name("victim")).unwrap();
        posix.link(victim, dir, name("secret-link")).unwrap();
        let rename = |from, to, mode| _ = posix.rename(Caller::default(), from, to, mode).unwrap();
        let unlink = |named| _ = posix.unlink(Caller::default(), dir, name(named)).unwrap();
        let (secret, other) = ((dir, name("secret")), (root, name("other")));
        rename((root, name("after")), secret, RenameMode::Replace);
        let fs = posix.file_system();
        fs.set_xattr(dir, name("user.dnefs.sensitive"), b"1", XattrMode::Any).unwrap();
        fs.purge(PurgeScope::Deleted).unwrap();
        let before = dump(&chip);
        let epoch = posix.file_system().usage().epoch;
        match way {
            "unlink" => unlink("secret"),
            "link" => unlink("secret-link"),
            "out" => rename(secret, (root, name("out")), RenameMode::Replace),
            "over" => rename(other, secret, RenameMode::Replace),
            _ => rename(other, secret, RenameMode::Exchange),
        }
        assert!(posix.file_system().usage().epoch > epoch, "{way}: nothing is purged");
        let after = judge(&before, &dump(&chip));
        assert!(after.holds() && after.deleted > 0, "{way}: {after:?}");
    }
}

/// By the rules above the seam, as in a mount, and while the kernel still knows the directory.
#[test]
fn a_sensitive_directory_is_gone_when_the_call_returns() {
    for is_replaced in [false, true] {
        let (chip, fs, _) = prepared_in(0, |fs| {
            fs.set_xattr(fs.root(), name("user.dnefs.sensitive"), b"1", XattrMode::Any).unwrap();
        });
        let (root, caller) = (fs.root(), Caller::default());
        let posix = Posix::new(fs, Arc::new(System));
        posix.mkdir(caller, root, name("other"), 0o700).unwrap();
        posix.file_system().purge(PurgeScope::Deleted).unwrap();
        let before = dump(&chip);
        let (folder, _) = posix.lookup(root, name("folder")).unwrap();
        if is_replaced {
            let (from, to) = ((root, name("other")), (root, name("folder")));
            posix.rename(caller, from, to, RenameMode::Replace).unwrap();
        } else {
            posix.rmdir(caller, root, name("folder")).unwrap();
        }
        let after = judge(&before, &dump(&chip));
        assert!(after.holds() && after.deleted > 0, "{after:?}");
        assert!(!posix.file_system().has_inode(folder.0), "its inode is deleted");
        assert_eq!(posix.file_system().keys_waiting(), 0);
        assert_eq!(posix.attr(folder).unwrap().nlink, 0);
        posix.forget(folder, 1);
    }
}

#[test]
fn being_sensitive_is_an_attribute_that_can_be_taken_away() {
    let (chip, fs, victim) = prepared(0);
    let sensitive = name("user.dnefs.sensitive");
    let kind = |done: tacita_vfs::Result<()>| done.unwrap_err().kind();
    let set = |value: &[u8], mode| fs.set_xattr(victim, sensitive, value, mode);
    assert_eq!(fs.xattr(victim, sensitive).unwrap_err().kind(), Kind::NoAttribute);
    assert_eq!(kind(set(b"1", XattrMode::Replace)), Kind::NoAttribute);
    assert_eq!(kind(set(b"yes", XattrMode::Any)), Kind::Invalid);
    set(b"1", XattrMode::Create).unwrap();
    assert_eq!(kind(set(b"1", XattrMode::Create)), Kind::Exists);
    fs.close().unwrap();
    drop(fs);
    let fs = open(&chip);
    let (victim, _) = fs.lookup(fs.root(), name("victim")).unwrap();
    assert!(fs.xattrs(victim).unwrap().contains(&sensitive.to_owned()));
    assert_eq!(fs.inode_flags(victim).unwrap(), 0, "no flag that chattr shows");
    fs.set_inode_flags(victim, 0x40).unwrap();
    for immutable_or_append_only in [0x10, 0x20] {
        let refused = fs.set_inode_flags(victim, 0x40 | immutable_or_append_only);
        assert_eq!(kind(refused), Kind::Unsupported, "nobody would honour it");
    }
    assert_eq!(fs.inode_flags(victim).unwrap(), 0x40);
    assert_eq!(fs.xattr(victim, sensitive).unwrap(), b"1");
    fs.remove_xattr(victim, sensitive).unwrap();
    assert_eq!(fs.xattrs(victim).unwrap(), [name("user.secret")]);
    fs.reserve(victim, 0..9000, Reserve::Punch).unwrap();
    assert!(fs.keys_waiting() > 0, "nothing is purged for it any more");
}

#[test]
fn programs_ask_for_a_purge_by_an_attribute_of_the_root() {
    let purge = name("user.dnefs.purge");
    for (seed, value) in [(0, b"deleted".as_slice()), (1, b"all")] {
        let (chip, fs, victim) = prepared(seed);
        fs.purge(PurgeScope::Deleted).unwrap();
        let before = dump(&chip);
        remove(&fs, "victim");
        fs.set_xattr(fs.root(), purge, value, XattrMode::Any).unwrap();
        assert!(judge(&before, &dump(&chip)).holds());
        assert_eq!(fs.receipts().unwrap().last().unwrap().of_all, value == b"all");
        assert_eq!(fs.xattr(fs.root(), purge).unwrap_err().kind(), Kind::NoAttribute);
        let set =
            |node, value| fs.set_xattr(node, purge, value, XattrMode::Any).unwrap_err().kind();
        assert_eq!(set(fs.root(), b"1"), Kind::Invalid);
        let (other, _) = fs.lookup(fs.root(), name("before")).unwrap();
        assert_eq!(set(other, b"all"), Kind::Unsupported);
        assert_ne!(other, victim);
    }
}

#[test]
fn an_unmounted_volume_holds_no_key_that_it_does_not_need() {
    for seed in 0..3 {
        let (chip, fs, _) = prepared(seed);
        let before = dump(&chip);
        for name in ["victim", "folder", "before"] {
            remove(&fs, name);
        }
        fs.close().unwrap();
        let after = dump(&chip);
        assert!(judge(&before, &after).holds());
        drop(fs);
        let fs = open(&chip);
        assert!(fs.lookup(fs.root(), name("after")).is_ok());
        assert!(fs.lookup(fs.root(), name("victim")).is_err());
    }
}

#[test]
fn what_an_unclean_end_left_is_gone_after_the_next_mount() {
    for seed in 0..3 {
        let (chip, fs, _) = prepared(seed);
        let before = dump(&chip);
        remove(&fs, "victim");
        fs.sync().unwrap();
        make(&fs, "never", &[3; 9000]);
        drop(fs);
        let chip = Arc::new(chip.power_on().unwrap());
        let fs = open(&chip);
        assert!(judge(&before, &dump(&chip)).holds());
        assert!(fs.lookup(fs.root(), name("victim")).is_err());
    }
}

/// Of two volumes an audit says nothing, whichever comes first, nor of what is no dump at all.
#[test]
fn dumps_of_different_volumes_are_not_judged() {
    let [one, two] = [0, 0].map(|seed| {
        let (chip, fs, _) = prepared(seed);
        fs.close().unwrap();
        dump(&chip)
    });
    for (before, after) in [(&one, &two), (&two, &one)] {
        let report = audit(before, after, &[], &|_, _| ()).unwrap();
        assert!(!report.holds() && report.recoverable.is_empty(), "{report:?}");
        assert_eq!(report.undecided.as_deref(), Some("the dumps are of different volumes"));
    }
    assert!(judge(&one, &one).holds());
    for before in [&[][..], b"a key, or a text", &[0; 10_000]] {
        let report = audit(before, &one, &[], &|_, _| ()).unwrap();
        assert!(!report.holds() && report.recoverable.is_empty(), "{report:?}");
        let why = report.undecided.as_deref();
        assert_eq!(why, Some("no superblock was found in the earlier dump"));
    }
    // Another volume may have been in the same place.
    let both = [&one[..], &two].concat();
    let why = audit(&one, &both, &[], &|_, _| ()).unwrap().undecided;
    assert_ne!(why.as_deref(), Some("the dumps are of different volumes"));
}

/// What is missing of a dump, at its end or where the chip could not be read, may be a key, or a node that a key
/// belongs to: nothing is said to be gone then.
#[test]
fn dumps_of_which_something_is_missing_are_not_judged() {
    let (chip, fs, _) = prepared(0);
    fs.sync().unwrap();
    let before = dump(&chip);
    remove(&fs, "victim");
    fs.close().unwrap();
    let after = dump(&chip);
    assert!(judge(&before, &after).holds());
    let undecided = |before: &[u8], after: &[u8]| {
        let report = audit(before, after, &[], &|_, _| ()).unwrap();
        assert!(!report.holds(), "{report:?}");
        // What is found is told, whatever is missing.
        report.undecided.unwrap_or_default()
    };
    for end in (1..8).map(|eighth| after.len() / 8 * eighth).chain([after.len() - 512]) {
        let reasons = ["not whole", "no whole checkpoint"];
        let is_told = |why: &str| why.is_empty() || reasons.iter().any(|part| why.contains(part));
        let why = undecided(&before, &after[..end]);
        assert!(is_told(&why), "{end}: {why}");
        let why = undecided(&before[..end], &after);
        assert!(is_told(&why) || why.contains("no superblock"), "{end}: {why}");
    }
    let half = after.len() / 2;
    assert!(undecided(&before[..half], &after[..half]).contains("not whole"));
    let (mut zeros, erased) = (0, [0xff; 512]);
    for page in
        (0..after.len() / 512).filter(|page| after[page * 512..][..512] != erased).step_by(7)
    {
        let mut unread = after.clone();
        unread[page * 512..][..512].fill(0);
        zeros += u32::from(undecided(&before, &unread).contains("zeros"));
        zeros += u32::from(undecided(&unread, &after).contains("zeros"));
    }
    assert!(zeros > 20, "{zeros}");
}

/// Two dumps that are given the wrong way round would show that nothing was deleted.
#[test]
fn dumps_the_wrong_way_round_are_not_judged() {
    let (chip, fs, _) = prepared(0);
    fs.sync().unwrap();
    let before = dump(&chip);
    remove(&fs, "victim");
    fs.close().unwrap();
    let after = dump(&chip);
    assert!(judge(&before, &after).holds());
    let report = audit(&after, &before, &[], &|_, _| ()).unwrap();
    assert!(!report.holds(), "{report:?}");
    let why = report.undecided.as_deref();
    assert_eq!(why, Some("the earlier dump is newer than the later one"));
}

/// A block that goes bad in the purge of a mount may keep keys: its receipt tells of it.
#[test]
fn a_block_that_goes_bad_in_a_mount_is_told_of() {
    let mut told = 0;
    for block in 0..64 {
        let (chip, fs, _) = prepared(1);
        remove(&fs, "victim");
        fs.sync().unwrap();
        drop(fs);
        let chip = Arc::new(chip.power_on().unwrap());
        chip.damage(Damage::EraseFails { block });
        let opened = Dnefs::open(volume(&chip), None, Arc::new(tacita_clock::System));
        let Ok(fs) = opened else { continue };
        if !chip.wear()[block as usize].is_bad {
            continue;
        }
        let first = *fs.receipts().unwrap().last().unwrap();
        assert_eq!((first.bad_before, first.bad_after), (0, 1), "block {block}");
        let second = fs.close().unwrap();
        assert_eq!((second.bad_before, second.bad_after), (1, 1), "it is told once");
        assert!(fs.was_incomplete(), "block {block}");
        told += 1;
    }
    assert!(told > 1, "{told} blocks went bad");
}

/// A block that goes bad between an unmount and the next mount, as when UBI attaches a chip: the next
/// receipt tells of it.
#[test]
fn a_block_that_goes_bad_while_nothing_is_mounted_is_told_of() {
    let mut told = 0;
    for block in 0..64 {
        let (chip, fs, _) = prepared(1);
        fs.close().unwrap();
        drop(fs);
        chip.damage(Damage::EraseFails { block });
        let last = Leb(chip.geometry().lebs - 1);
        chip.map(last).unwrap();
        chip.unmap(last).unwrap();
        chip.flush_erases().unwrap();
        if !chip.wear()[block as usize].is_bad {
            continue;
        }
        // What the flash reports begins anew.
        let chip = Arc::new(chip.power_on().unwrap());
        let fs = open(&chip);
        let receipt = fs.purge(PurgeScope::Deleted).unwrap();
        assert_eq!((receipt.bad_before, receipt.bad_after), (0, 1), "block {block}");
        assert!(fs.was_incomplete(), "block {block}");
        let second = fs.close().unwrap();
        assert_eq!((second.bad_before, second.bad_after), (1, 1), "it is told once");
        drop(fs);
        let fs = open(&chip);
        assert!(fs.close().unwrap().is_complete() && !fs.was_incomplete());
        told += 1;
    }
    assert!(told > 0, "no block went bad");
}

#[test]
fn a_block_that_goes_bad_in_a_format_is_told_of() {
    let mut told = 0;
    for block in 0..64 {
        let (chip, fs, _) = prepared(1);
        drop(fs);
        chip.damage(Damage::EraseFails { block });
        let report = format(&volume(&chip), &options(1), None).unwrap();
        let is_bad = u32::from(chip.wear()[block as usize].is_bad);
        assert_eq!((report.bad_before, report.bad_after), (0, is_bad), "block {block}");
        told += is_bad;
    }
    assert!(told > 5, "{told} blocks went bad");
}

/// Who saw the medium before a purge of all knows no key that will be used.
#[test]
fn a_purge_of_all_replaces_unused_keys_too() {
    unused_game();
}

pub(crate) fn unused_game() {
    let (chip, fs, _) = prepared(0);
    fs.purge(PurgeScope::Deleted).unwrap();
    let before = dump(&chip);
    fs.purge(PurgeScope::All).unwrap();
    // The checkpoint that began the purge is of the epoch before.
    let checkpoint = audit(&dump(&chip), &before, &[], &|_, _| ()).unwrap();
    make(&fs, "later", &[8; 9000]);
    fs.sync().unwrap();
    let later = audit(&dump(&chip), &before, &[], &|_, _| ()).unwrap();
    assert!(later.newer > checkpoint.newer);
    assert_eq!(later.newer_known, checkpoint.newer_known, "keys were known before");
}

/// Content, names and values of attributes are nowhere in a dump, whatever was deleted or not.
#[test]
fn nothing_stands_in_a_dump_in_clear() {
    clear_game();
}

pub(crate) fn clear_game() {
    for seed in 0..3 {
        for erase_mode in [EraseMode::Eager, EraseMode::Lazy, EraseMode::Never] {
            let behaviour = Behaviour { erase_mode, ..Behaviour::default() };
            let chip =
                Emulator::in_memory(&tacita_flash::EmulatorOptions { behaviour, ..chip(200) });
            let chip = Arc::new(chip.unwrap());
            format(&volume(&chip), &options(seed), None).unwrap();
            let fs = open(&chip);
            let marker = b"MARKER-of-content";
            let node = make(&fs, "NAME-MARKER-of-a-file", &marker.repeat(300));
            let secret = name("user.MARKER-of-an-attribute");
            fs.set_xattr(node, secret, &marker.repeat(9), XattrMode::Any).unwrap();
            let mut link = new(FileType::Symlink);
            link.target = "MARKER-of-a-target".into();
            fs.create(fs.root(), name("link"), &link).unwrap();
            fs.purge(PurgeScope::All).unwrap();
            remove(&fs, "NAME-MARKER-of-a-file");
            fs.close().unwrap();
            let dump = dump(&chip);
            // What all have, and long enough not to be there by chance.
            let found = search::holds(&dump, "MARKER-of-");
            assert!(!found, "{erase_mode:?}");
        }
    }
}
