//! Each planted fault must be seen in the raw image, or in a verdict that claims too much.

use std::sync::atomic::{AtomicBool, Ordering};

use tacita_purge::faults::{Fault, plant};
use tacita_purge::{Overlay, Part, Removal, RemovalOptions};
use tacita_testkit::skip_without_fuse;
use tacita_vfs::{FileSystem, Reserve};

use crate::acts::{Act, fill};
use crate::image::{Fs, Image, turn};
use crate::overlay::{Mounted, options};

/// Takes the faults out again, also if the test fails.
struct Planted;

impl Planted {
    fn new(faults: &[Fault]) -> Self {
        plant(faults);
        Self
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        plant(&[]);
    }
}

/// Whether content or names of `act` are left after it happened under faults.
fn is_left(fs: Fs, act: Act, faults: &[Fault]) -> Option<bool> {
    let image = Image::new("faults", fs)?;
    act.prepare(&image.dir(), "m");
    image.remount();
    let planted = Planted::new(faults);
    let mounted = Mounted::new(&image, options("clear", false));
    assert!(act.happen(&mounted.dir, "m"), "{act:?} does not happen on {fs:?}");
    mounted.end();
    drop(planted);
    image.unmount();
    let marks = act.marks("m");
    let content = act.loses_content() && image.count(&marks.lost) > 0;
    let names = act.loses_name() && fs.clears_names() && image.count(&marks.name) > 0;
    Some(content || names)
}

#[test]
fn every_hook_left_out_is_caught() {
    let _turn = turn();
    if skip_without_fuse("every_hook_left_out_is_caught") {
        return;
    }
    let hooks = [
        (Fault::UnlinkUnhooked, Act::Unlink, Fs::Ext4),
        (Fault::UnlinkUnhooked, Act::LastLink, Fs::Ext4),
        (Fault::CloseUnhooked, Act::OpenUnlinked, Fs::Ext4),
        (Fault::ReplaceUnhooked, Act::RenameOver, Fs::Ext4),
        (Fault::EmptyUnhooked, Act::Empty, Fs::Ext4),
        (Fault::TruncateUnhooked, Act::Truncate, Fs::Ext4),
        (Fault::PunchUnhooked, Act::Punch, Fs::Ext4),
        (Fault::ZeroUnhooked, Act::Zero, Fs::Ext4),
        (Fault::SetAttributeUnhooked, Act::SetLargeAttribute, Fs::Ext4),
        (Fault::RemoveAttributeUnhooked, Act::RemoveLargeAttribute, Fs::Ext4),
        (Fault::AttributesUnhooked, Act::LargeAttributes, Fs::Ext4),
        (Fault::DirectoryUnhooked, Act::EmptyTree, Fs::Ext4),
        (Fault::DirectoryUnhooked, Act::EmptyTree, Fs::Ext4Plain),
        (Fault::JournalStays, Act::Unlink, Fs::Ext4),
        (Fault::JournalStays, Act::Unlink, Fs::Ext4Journaled),
    ];
    for (fault, act, fs) in hooks {
        let Some(without) = is_left(fs, act, &[]) else { return };
        assert!(!without, "{act:?} on {fs:?} leaves something without any fault");
        assert_eq!(is_left(fs, act, &[fault]), Some(true), "{fault:?} is not caught by {act:?}");
    }
    // Looking at a folder on the device has it written there, too.
    let both = [Fault::UnflushedDirectory, Fault::FoldersUnseen];
    assert_eq!(is_left(Fs::Ext4Plain, Act::EmptyTree, &both), Some(true), "{both:?}");
}

/// How many of the verdicts on some deleted files hold, and whether a name of theirs is left in the
/// image, where the journal is the only place for it.
fn held_and_left(fs: Fs, by_path: bool, faults: &[Fault]) -> Option<((usize, usize), bool)> {
    let image = Image::new("a_journal_that_is_left_is_told", fs)?;
    let names: Vec<String> =
        (0..20).map(|number| format!("secretname-Journal-{number}-")).collect();
    for name in &names {
        std::fs::write(image.dir().join(name), fill("LOST-Journal-m-", 4 << 10)).unwrap();
    }
    image.remount();
    let planted = Planted::new(faults);
    let verdicts: Vec<serde_json::Value> = if by_path {
        let mut removal = Removal::new(RemovalOptions::default());
        for name in &names {
            removal.purge(&image.dir().join(name));
        }
        removal.finish().iter().map(tacita_purge::Verdict::json).collect()
    } else {
        let mounted = Mounted::new(&image, options("clear", false));
        for name in &names {
            std::fs::remove_file(mounted.dir.join(name)).unwrap();
        }
        mounted.overlay().finish().unwrap();
        let status = mounted.overlay().status();
        mounted.end();
        status["last"].as_array().unwrap().clone()
    };
    drop(planted);
    image.unmount();
    for verdict in &verdicts {
        let is_left = verdict["journal"]["left"].is_string();
        assert_eq!(verdict["holds"] == true, verdict["journal"] == "done", "{verdict:#}");
        assert!(is_left || verdict["journal"] == "done", "{verdict:#}");
    }
    let held = verdicts.iter().filter(|verdict| verdict["holds"] == true).count();
    Some(((held, verdicts.len()), image.count("secretname-Journal-") > 0))
}

/// That the call which erases the journal succeeds is no reason for a verdict to hold.
#[test]
fn a_journal_that_is_left_is_told() {
    let _turn = turn();
    if skip_without_fuse("a_journal_that_is_left_is_told") {
        return;
    }
    // Where the journal lies is told by extents, or by numbers of blocks.
    for (fs, by_path) in [(Fs::Ext4, false), (Fs::Ext4, true), (Fs::Ext3, true)] {
        let Some((without, left)) = held_and_left(fs, by_path, &[]) else { return };
        assert!(without.0 == without.1 && without.1 > 0 && !left, "{fs:?}: {without:?}");
        let stays = held_and_left(fs, by_path, &[Fault::JournalStays]).unwrap();
        assert!(stays.0.0 == 0 && stays.1, "{fs:?}: told {stays:?}");
        let unseen = [Fault::JournalStays, Fault::JournalUnseen];
        let unseen = held_and_left(fs, by_path, &unseen).unwrap();
        assert!(unseen.0.0 == unseen.0.1 && unseen.1, "{fs:?}: not looking is caught: {unseen:?}");
    }
}

/// Others write to the file system meanwhile, and so into the journal: that is no trace.
#[test]
fn a_journal_in_use_is_not_taken_for_one_that_is_left() {
    let _turn = turn();
    let test = "a_journal_in_use_is_not_taken_for_one_that_is_left";
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    let busy = image.dir().join("busy");
    std::fs::create_dir(&busy).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let file = std::fs::File::create(busy.join("file")).unwrap();
                file.sync_all().unwrap();
                std::fs::remove_file(busy.join("file")).unwrap();
            }
        });
        for round in 0..20 {
            let path = image.dir().join(format!("secretname-Busy-{round}-"));
            std::fs::write(&path, fill("LOST-Busy-m-", 4 << 10)).unwrap();
            let mut removal = Removal::new(RemovalOptions::default());
            removal.purge(&path);
            let verdicts = removal.finish();
            let is_done = verdicts.iter().all(|verdict| verdict.journal == Part::Done);
            if !is_done {
                stop.store(true, Ordering::Relaxed);
            }
            assert!(is_done, "{verdicts:#?}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// The kernel hands no such request to a mount; whoever uses the seam can make one.
#[test]
fn collapsing_unhooked_is_caught() {
    let _turn = turn();
    let left = |faults: &[Fault]| {
        let image = Image::new("collapsing_unhooked_is_caught", Fs::Ext4)?;
        let path = image.dir().join("file");
        let lost = "LOST-Collapse-m-";
        let mut content = fill(lost, 16 << 10);
        content.extend(fill("KEPT-Collapse-m-", 8 << 10));
        std::fs::write(&path, &content).unwrap();
        image.remount();
        let planted = Planted::new(faults);
        let overlay = Overlay::open(&image.dir(), options("clear", false)).unwrap();
        let (node, _) = overlay.lookup(overlay.root(), "file".as_ref()).unwrap();
        overlay.reserve(node, 0..16 << 10, Reserve::Collapse).unwrap();
        overlay.sync().unwrap();
        drop(overlay);
        drop(planted);
        assert_eq!(std::fs::read(&path).unwrap(), &content[16 << 10..]);
        image.unmount();
        Some(image.count(lost))
    };
    let Some(without) = left(&[]) else { return };
    assert_eq!(without, 0);
    assert!(left(&[Fault::CollapseUnhooked]).unwrap() > 0);
}

/// A pass that never left the cache must not be called verified; reading back through the cache
/// would do so.
#[test]
fn verification_through_the_cache_is_caught() {
    let _turn = turn();
    let test = "verification_through_the_cache_is_caught";
    if skip_without_fuse(test) {
        return;
    }
    let judged = |faults: &[Fault]| {
        let image = Image::new(test, Fs::Ext4)?;
        Act::Unlink.prepare(&image.dir(), "m");
        image.remount();
        // The device as it is at the moment of the verdict: the cache is not part of it.
        let planted = Planted::new(faults);
        let mounted = Mounted::new(&image, options("clear", false));
        assert!(Act::Unlink.happen(&mounted.dir, "m"));
        let verified = mounted.overlay().status()["verified"].as_u64().unwrap();
        mounted.end();
        drop(planted);
        Some((verified, image.count(&Act::Unlink.marks("m").lost)))
    };
    let Some((verified, left)) = judged(&[]) else { return };
    assert_eq!((verified, left), (1, 0));
    let (verified, _) = judged(&[Fault::UnflushedPass]).unwrap();
    let (claimed, _) = judged(&[Fault::UnflushedPass, Fault::CachedVerification]).unwrap();
    assert_eq!(verified, 0, "verified without a flush: what was seen was not the device");
    assert_eq!(claimed, 1, "the cache shows what was written");
}
