//! Runs by path that are to end while they are at work: what is not finished is kept under its name,
//! and no verdict says more than was done.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tacita_clock::Cancellation;
use tacita_purge::faults::{Fault, Step, at_each_step, plant};
use tacita_purge::{Content, Kind, Part, Removal, RemovalOptions, Verdict};

use crate::acts::fill;
use crate::image::{Fs, Image, turn};

const LOST: &str = "LOST-Interrupted-m-";
const NAME: &str = "secretname-Interrupted-m-";

/// Several times what is written at once.
const LEN: u64 = 1 << 20;

/// What a run has come to.
struct Ended {
    verdicts: Vec<Verdict>,
    failure: Option<Kind>,
    is_cut_short: bool,
}

/// Purges paths in a run that is to end when it comes by a step for the `times`-th time.
fn end_at(paths: &[&Path], (step, times): (Step, usize), faults: &[Fault]) -> Ended {
    let ending = Cancellation::default();
    let cancelled = ending.clone();
    let seen = std::sync::atomic::AtomicUsize::new(0);
    plant(faults);
    at_each_step(move |now| {
        if now == step && seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1 == times {
            cancelled.cancel();
        }
    });
    let options = RemovalOptions { recursive: true, stop: ending, ..RemovalOptions::default() };
    let mut removal = Removal::new(RemovalOptions { method: "d".parse().unwrap(), ..options });
    for path in paths {
        removal.purge(path);
    }
    let verdicts = removal.finish();
    at_each_step(|_| ());
    plant(&[]);
    Ended { verdicts, failure: removal.failure(), is_cut_short: removal.is_cut_short() }
}

fn entries(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "lost+found");
    names.sort();
    names
}

#[test]
fn what_is_not_finished_keeps_its_name() {
    let _turn = turn();
    let test = "what_is_not_finished_keeps_its_name";
    for fs in [Fs::Ext4, Fs::Ext4Journaled, Fs::Ext4Plain, Fs::Xfs] {
        // How much is written over the second file by then: nothing, the half of a pass, or one.
        for (step, times, least, most) in [
            (Step::Found, 2, 0, 0),
            (Step::HalfPass, 2, LEN / 2, LEN),
            (Step::FirstPass, 2, LEN, LEN),
        ] {
            let Some(image) = Image::new(test, fs) else { break };
            let [one, two, three] =
                ["one", "two", "three"].map(|name| image.dir().join(format!("{NAME}{name}")));
            // The witness looks for what is gone: nobody else is to have it.
            for (path, text) in [(&one, LOST), (&two, "LOST-Second-m-"), (&three, "KEPT-Third-m-")]
            {
                fs::write(path, fill(text, LEN)).unwrap();
            }
            image.remount();
            let inode = fs::metadata(&two).unwrap().ino();
            let ended = end_at(&[&one, &two, &three], (step, times), &[]);
            let what = format!("{fs:?}, {step:?}: {:#?}", ended.verdicts);
            assert!(ended.is_cut_short && ended.failure == Some(Kind::Interrupted), "{what}");
            let [first, second, third] = &ended.verdicts[..] else { panic!("{what}") };
            assert!(first.removed && !one.exists(), "{what}");
            assert!(matches!(first.name, Part::Done) || fs == Fs::Xfs, "{what}");
            // There a journal is, and it is not erased.
            assert_eq!(matches!(first.journal, Part::Left(_)), fs != Fs::Ext4Plain, "{what}");
            assert_eq!(first.holds(), fs == Fs::Ext4Plain, "{what}");
            for (verdict, range) in [(second, least..=most), (third, 0..=0)] {
                assert!(matches!(verdict.content, Content::Kept(_)) && !verdict.removed, "{what}");
                assert!(range.contains(&verdict.overwritten), "{what}");
            }
            assert_eq!((second.inode, second.size), (Some(inode), Some(LEN)), "{what}");
            assert_eq!(fs::metadata(&two).unwrap().ino(), inode, "{what}");
            assert_eq!(fs::read(&three).unwrap(), fill("KEPT-Third-m-", LEN), "{what}");
            assert_eq!(entries(&image.dir()).len(), 2, "and under no other name: {what}");
        }
    }
}

/// A folder stays with what is left in it, and its verdict stands for that.
#[test]
fn a_folder_that_is_not_finished_stays() {
    let _turn = turn();
    let test = "a_folder_that_is_not_finished_stays";
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    let top = image.dir().join("top");
    for folder in ["a", "b"] {
        fs::create_dir_all(top.join(folder)).unwrap();
        for number in 0..10 {
            fs::write(top.join(format!("{folder}/{NAME}{number}")), fill(LOST, 5000)).unwrap();
        }
    }
    image.remount();
    let ended = end_at(&[&top], (Step::HalfPass, 15), &[]);
    assert!(ended.is_cut_short, "{:#?}", ended.verdicts);
    let removed = ended.verdicts.iter().filter(|verdict| verdict.removed).count();
    // The folder that is empty by then, the one that is not, and the one above.
    assert_eq!((removed, ended.verdicts.len()), (14, 18), "{:#?}", ended.verdicts);
    assert!(entries(&top.join("a")).is_empty());
    let left: Vec<String> = (4..10).map(|number| format!("{NAME}{number}")).collect();
    assert_eq!(entries(&top.join("b")), left);
    let again = end_at(&[&top], (Step::HalfPass, usize::MAX), &[]);
    assert!(again.verdicts.iter().all(Verdict::holds), "{:#?}", again.verdicts);
    image.unmount();
    assert_eq!((image.count(LOST), image.count(NAME)), (0, 0));
}

#[test]
fn runs_that_do_not_end_well_are_caught() {
    let _turn = turn();
    let test = "runs_that_do_not_end_well_are_caught";
    let is_kept = |fault: Option<Fault>| {
        let image = Image::new(test, Fs::Ext4)?;
        let path = image.dir().join("file");
        fs::write(&path, fill(LOST, LEN)).unwrap();
        image.remount();
        let ended = end_at(&[&path], (Step::HalfPass, 1), fault.as_slice());
        Some((path.exists(), ended.is_cut_short))
    };
    let Some(without) = is_kept(None) else { return };
    assert_eq!(without, (true, true));
    assert_eq!(is_kept(Some(Fault::AsideStays)), Some((false, true)));
    assert_eq!(is_kept(Some(Fault::StopUnheeded)), Some((false, false)));
}

#[test]
fn a_file_that_is_not_finished_has_all_of_its_names() {
    let _turn = turn();
    let test = "a_file_that_is_not_finished_has_all_of_its_names";
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    let names = ["one", "two"].map(|name| image.dir().join(format!("{NAME}{name}")));
    fs::write(&names[0], fill(LOST, LEN)).unwrap();
    fs::hard_link(&names[0], &names[1]).unwrap();
    image.remount();
    let ended = end_at(&[&names[0], &names[1]], (Step::HalfPass, 1), &[]);
    assert!(ended.is_cut_short);
    assert_eq!((ended.failure, ended.verdicts.len()), (Some(Kind::Interrupted), 2));
    let kept = |verdict: &Verdict| matches!(&verdict.content, Content::Kept(why) if why.contains("written over"));
    assert!(ended.verdicts.iter().all(kept), "{:?}", ended.verdicts);
    assert_eq!(entries(&image.dir()), ["one", "two"].map(|name| format!("{NAME}{name}")));
}
