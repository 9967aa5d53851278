//! Journals that cannot be looked at, or not even be erased: each verdict says so.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tacita_purge::faults::{Fault, plant};
use tacita_purge::{Removal, RemovalOptions, Suitability, Verdict};
use tacita_testkit::skip_without_fuse;

use crate::acts::fill;
use crate::image::{Fs, Image, count_in, turn};
use crate::overlay::{Mounted, options};
use tacita_testkit::system;

/// What the verdicts say of it.
const UNSEEN: &str = "it was erased, but it lies where this could not be verified";

const NAME: &str = "secretname-Elsewhere-";
const TRUNCATED: &str = "LOST-Truncated-m-";

/// A journal on a device of its own.
struct JournalDevice {
    folder: tempfile::TempDir,
    device: String,
}

impl JournalDevice {
    /// One of 8 MiB; `None` where this machine cannot, which is said.
    fn new(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: {test}: not root");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("tacita-purge-").tempdir().unwrap();
        let path = folder.path().join("journal");
        File::create(&path).unwrap().set_len(8 << 20).unwrap();
        let image = path.to_str().unwrap();
        let attached = system("losetup", &["--find", "--show", image]);
        let device = attached.inspect_err(|why| eprintln!("SKIPPED: {test}: {why}")).ok()?;
        let journal = Self { folder, device: device.trim().to_owned() };
        system("mke2fs", &["-q", "-F", "-b", "4096", "-O", "journal_dev", &journal.device])
            .unwrap();
        Some(journal)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    /// How often a text is in it.
    fn count(&self, text: &str) -> usize {
        system("blockdev", &["--flushbufs", &self.device]).unwrap();
        count_in(&self.path(), text)
    }
}

impl Drop for JournalDevice {
    fn drop(&mut self) {
        let _ = system("losetup", &["--detach", &self.device]);
    }
}

/// The verdict on content that a file loses by being truncated, under faults.
fn truncated(image: &Image, faults: &[Fault]) -> Value {
    let path = image.dir().join("truncated");
    fs::write(&path, fill(TRUNCATED, 64 << 10)).unwrap();
    image.remount();
    plant(faults);
    let mounted = Mounted::new(image, options("clear", false));
    let file = File::options().write(true).open(mounted.dir.join("truncated")).unwrap();
    file.set_len(0).unwrap();
    drop(file);
    mounted.overlay().finish().unwrap();
    let status = mounted.overlay().status();
    mounted.end();
    plant(&[]);
    let [verdict] = &status["last"].as_array().unwrap()[..] else { panic!("{status:#}") };
    assert_eq!(verdict["content"], "verified in place", "{verdict:#}");
    verdict.clone()
}

/// The verdicts on some files that are deleted under faults.
fn deleted(image: &Image, by_path: bool, faults: &[Fault]) -> Vec<Value> {
    let names: Vec<String> = (0..20).map(|number| format!("{NAME}{number}-")).collect();
    let make = |dir: &Path| {
        for name in &names {
            fs::write(dir.join(name), fill("LOST-Elsewhere-m-", 4 << 10)).unwrap();
        }
    };
    make(&image.dir());
    image.remount();
    plant(faults);
    let verdicts = if by_path {
        let mut removal = Removal::new(RemovalOptions::default());
        for name in &names {
            removal.purge(&image.dir().join(name));
        }
        removal.finish().iter().map(Verdict::json).collect()
    } else {
        let mounted = Mounted::new(image, options("clear", false));
        for name in &names {
            fs::remove_file(mounted.dir.join(name)).unwrap();
        }
        mounted.overlay().finish().unwrap();
        let status = mounted.overlay().status();
        mounted.end();
        status["last"].as_array().unwrap().clone()
    };
    plant(&[]);
    assert!(!verdicts.is_empty());
    verdicts
}

/// No verdict may hold where the journal has not been looked at.
fn check(image: &Image, by_path: bool) {
    for verdict in deleted(image, by_path, &[]) {
        assert_eq!(verdict["journal"]["left"], UNSEEN, "{verdict:#}");
        assert_eq!(verdict["holds"], false, "{verdict:#}");
    }
    let claimed = deleted(image, by_path, &[Fault::JournalUnseen]);
    let claims = |verdict: &Value| verdict["journal"] == "done";
    assert!(claimed.iter().all(claims), "without looking it would be claimed: {claimed:#?}");
}

#[test]
fn a_journal_on_another_device_is_not_claimed() {
    let _turn = turn();
    let test = "a_journal_on_another_device_is_not_claimed";
    if skip_without_fuse(test) {
        return;
    }
    for by_path in [false, true] {
        let Some(journal) = JournalDevice::new(test) else { return };
        let place = format!("device={}", journal.device);
        let Some(image) = Image::with(test, Fs::Ext4, &["-J", &place]) else { return };
        check(&image, by_path);
        image.unmount();
        // It has been erased all the same, and would hold names otherwise.
        assert_eq!((journal.count(NAME), image.count(NAME)), (0, 0), "by path {by_path}");
        image.mount();
        deleted(&image, by_path, &[Fault::JournalStays]);
        image.unmount();
        assert!(journal.count(NAME) > 0, "nothing was in it, so its erasure shows nothing");
    }
}

/// Where descriptors of groups lie with their groups, inodes are not found on the device.
#[test]
fn a_journal_that_is_not_found_is_not_claimed() {
    let _turn = turn();
    let test = "a_journal_that_is_not_found_is_not_claimed";
    if skip_without_fuse(test) {
        return;
    }
    for by_path in [false, true] {
        let more = ["-O", "meta_bg,^resize_inode"];
        let Some(image) = Image::with(test, Fs::Ext4, &more) else { return };
        check(&image, by_path);
        image.unmount();
        assert_eq!(image.count(NAME), 0, "by path {by_path}");
    }
}

/// An area for fast commits is left alone, and so is the rest of that journal: the probe says so,
/// and so does each verdict. There is reason to: names are found.
#[test]
fn a_journal_with_an_area_for_fast_commits_is_not_claimed() {
    let _turn = turn();
    let test = "a_journal_with_an_area_for_fast_commits_is_not_claimed";
    if skip_without_fuse(test) {
        return;
    }
    for by_path in [false, true] {
        let Some(image) = Image::new(test, Fs::Ext4FastCommit) else { return };
        let probed = Suitability::of(&image.dir()).unwrap();
        assert_eq!(probed.json()["fast_commits"], true);
        assert!(probed.text().contains("fast commits"), "{}", probed.text());
        for verdict in deleted(&image, by_path, &[]) {
            let left = verdict["journal"]["left"].as_str().unwrap();
            assert!(left.contains("an area for fast commits"), "{verdict:#}");
            assert!(verdict["name"]["left"].is_string(), "{verdict:#}");
            assert_eq!(verdict["holds"], false, "{verdict:#}");
        }
        let claimed = deleted(&image, by_path, &[Fault::FastCommitsUntold]);
        let claims = |verdict: &Value| verdict["journal"] == "done";
        image.unmount();
        assert!(claimed.iter().all(claims) && image.count(NAME) > 0, "{claimed:#?}");
        image.mount();
    }
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    assert_eq!(Suitability::of(&image.dir()).unwrap().json()["fast_commits"], false);
}

/// Truncated content has passed through the journal with `data=journal` alone. Where such a journal cannot be
/// looked at, or is not erased, the verdict says so; anywhere else it is none of its business.
#[test]
fn a_truncation_is_judged_by_its_journal_only_where_that_had_the_content() {
    let _turn = turn();
    let test = "a_truncation_is_judged_by_its_journal_only_where_that_had_the_content";
    if skip_without_fuse(test) {
        return;
    }
    for (features, why, fault) in [
        ("meta_bg,^resize_inode", UNSEEN, Fault::JournalUnseen),
        ("fast_commit", "an area for fast commits", Fault::FastCommitsUntold),
    ] {
        let more = ["-O", features];
        let Some(image) = Image::with(test, Fs::Ext4, &more) else { return };
        let verdict = truncated(&image, &[]);
        assert_eq!((&verdict["holds"], &verdict["journal"]), (&true.into(), &"none".into()));
        image.unmount();
        assert_eq!(image.count(TRUNCATED), 0, "{features}");
        drop(image);

        let Some(image) = Image::with(test, Fs::Ext4Journaled, &more) else { return };
        let verdict = truncated(&image, &[]);
        let left = verdict["journal"]["left"].as_str().unwrap_or_default();
        assert!(left.contains(why) && verdict["holds"] == false, "{features}: {verdict:#}");
        let claimed = truncated(&image, &[fault]);
        assert_eq!(claimed["holds"], true, "without looking it would be claimed: {claimed:#}");
        image.unmount_and_ask();
    }
}
