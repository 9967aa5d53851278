//! Sensitive files on flash whose erases fail for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tacita_clock::System;
use tacita_dnefs::{Dnefs, PurgeScope};
use tacita_dnefs_audit::audit;
use tacita_flash::{Emulator, EraseReport, Error, Geometry, Kind, Leb, Result, Volume};
use tacita_vfs::posix::{Caller, RenameMode};
use tacita_vfs::{FileSystem, Posix, Stamps, XattrMode};

use crate::deletion::make;
use crate::volumes::{dump, fresh};

/// A volume whose erases fail when they are told to.
#[derive(Debug)]
struct Failing {
    chip: Arc<Emulator>,
    erases_fail: AtomicBool,
}

impl Volume for Failing {
    fn geometry(&self) -> Geometry {
        self.chip.geometry()
    }

    fn read(&self, leb: Leb, offset: u32, buf: &mut [u8]) -> Result<()> {
        self.chip.read(leb, offset, buf)
    }

    fn append(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<()> {
        self.chip.append(leb, offset, data)
    }

    fn change(&self, leb: Leb, data: &[u8]) -> Result<()> {
        self.chip.change(leb, data)
    }

    fn map(&self, leb: Leb) -> Result<()> {
        self.chip.map(leb)
    }

    fn unmap(&self, leb: Leb) -> Result<()> {
        self.chip.unmap(leb)
    }

    fn is_mapped(&self, leb: Leb) -> Result<bool> {
        self.chip.is_mapped(leb)
    }

    fn sync(&self) -> Result<()> {
        self.chip.sync()
    }

    fn flush_erases(&self) -> Result<EraseReport> {
        if self.erases_fail.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Io, "nothing can be erased"));
        }
        self.chip.flush_erases()
    }
}

/// A new volume on a chip that erases nothing when it is told so.
fn new_volume() -> (Arc<Emulator>, Arc<Failing>, Dnefs) {
    let chip = fresh(64, 0);
    let flash = Arc::new(Failing { chip: Arc::clone(&chip), erases_fail: AtomicBool::new(false) });
    let volume: Arc<dyn Volume> = Arc::<Failing>::clone(&flash);
    let fs = Dnefs::open(volume, None, Arc::new(System)).unwrap();
    (chip, flash, fs)
}

/// An `fsync` that could not purge what was overwritten leaves that to the next one.
#[test]
fn what_an_fsync_could_not_purge_the_next_one_does() {
    let (chip, flash, fs) = new_volume();
    let victim = make(&fs, "victim", &[7; 12_000]);
    fs.set_xattr(victim, "user.dnefs.sensitive".as_ref(), b"1", XattrMode::Any).unwrap();
    fs.purge(PurgeScope::Deleted).unwrap();
    let before = dump(&chip);
    fs.write(victim, 0, &[9; 5000], Stamps::NONE).unwrap();
    flash.erases_fail.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        fs.sync_node(victim).unwrap_err();
    }
    assert!(fs.keys_waiting() > 0);
    flash.erases_fail.store(false, Ordering::Relaxed);
    fs.sync_node(victim).unwrap();
    assert_eq!(fs.keys_waiting(), 0);
    let report = audit(&before, &dump(&chip), &[], &|_, _| ()).unwrap();
    assert!(report.holds() && report.deleted > 0, "{report:?}");
    let epoch = fs.usage().epoch;
    fs.sync_node(victim).unwrap();
    assert_eq!(fs.usage().epoch, epoch, "nothing is left to purge");
}

/// What has overwritten it has closed it, and the kernel has forgotten its number; another program opens it.
#[test]
fn what_was_overwritten_is_purged_by_the_fsync_of_whoever_comes_later() {
    let (chip, flash, fs) = new_volume();
    let victim = make(&fs, "victim", &[7; 12_000]);
    let other = make(&fs, "other", &[1; 3000]);
    fs.set_xattr(victim, "user.dnefs.sensitive".as_ref(), b"1", XattrMode::Any).unwrap();
    fs.purge(PurgeScope::Deleted).unwrap();
    let before = dump(&chip);
    fs.write(victim, 0, &[9; 5000], Stamps::NONE).unwrap();
    fs.evict(victim);
    fs.sync_node(other).unwrap();
    assert!(fs.keys_waiting() > 0, "the other one is not sensitive");
    flash.erases_fail.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        fs.sync_node(victim).unwrap_err();
        fs.evict(victim);
    }
    flash.erases_fail.store(false, Ordering::Relaxed);
    fs.sync_node(victim).unwrap();
    assert_eq!(fs.keys_waiting(), 0);
    let report = audit(&before, &dump(&chip), &[], &|_, _| ()).unwrap();
    assert!(report.holds() && report.deleted > 0, "{report:?}");
    let epoch = fs.usage().epoch;
    fs.write(other, 0, &[2; 3000], Stamps::NONE).unwrap();
    fs.sync_node(victim).unwrap();
    assert_eq!(fs.usage().epoch, epoch, "nothing is left of it to purge");
}

/// Whether what is put in its place is sensitive, what was replaced, or both: what could not be purged then
/// goes with a later purge.
#[test]
fn what_was_replaced_and_could_not_be_purged_goes_later() {
    for sensitive in [&["old", "new"][..], &["old"], &["new"]] {
        let (chip, flash, fs) = new_volume();
        let root = fs.root();
        for (text, content) in [("old", &[7; 12_000]), ("new", &[9; 12_000])] {
            let node = make(&fs, text, content);
            if sensitive.contains(&text) {
                fs.set_xattr(node, "user.dnefs.sensitive".as_ref(), b"1", XattrMode::Any).unwrap();
            }
        }
        let posix = Posix::new(fs, Arc::new(System));
        let fs = posix.file_system();
        fs.purge(PurgeScope::Deleted).unwrap();
        let before = dump(&chip);
        let [(old, _), (new, _)] = ["old", "new"].map(|n| posix.lookup(root, n.as_ref()).unwrap());
        flash.erases_fail.store(true, Ordering::Relaxed);
        let (from, to) = ((root, "new".as_ref()), (root, "old".as_ref()));
        posix.rename(Caller::default(), from, to, RenameMode::Replace).unwrap_err();
        assert_eq!(posix.lookup(root, "old".as_ref()).unwrap().0, new, "{sensitive:?}");
        flash.erases_fail.store(false, Ordering::Relaxed);
        posix.forget(old, 1);
        fs.purge(PurgeScope::Deleted).unwrap();
        let report = audit(&before, &dump(&chip), &[], &|_, _| ()).unwrap();
        // Two names, an inode, three nodes of content.
        assert!(report.holds() && report.deleted >= 6, "{sensitive:?}: {report:?}");
        assert!(!fs.has_inode(old.0) && fs.is_sound(), "{sensitive:?}");
    }
}
