//! File systems, times every way to lose something, times manners and methods.

use tacita_testkit::skip_without_fuse;

use crate::acts::{ALL, Act};
use crate::image::{Fs, Image, all, turn};
use crate::overlay::{Mounted, options};

/// The methods of every run, and those of a long one.
fn methods() -> &'static [&'static str] {
    if all() { &["c", "e", "h", "clear"] } else { &["e", "clear"] }
}

/// Makes everything that is to be lost, in a mount of its own as forensic tools like it.
pub(crate) fn prepare(image: &Image, methods: &[&str]) {
    for method in methods {
        let dir = image.dir().join(format!("for-{method}"));
        std::fs::create_dir(&dir).unwrap();
        for act in ALL {
            act.prepare(&dir, method);
        }
    }
    image.remount();
    let tally = image.tally();
    for method in methods {
        for act in ALL.into_iter().filter(|act| act.loses_content()) {
            assert!(tally.contains_key(&act.marks(method).lost), "{act:?}: nothing to lose");
        }
    }
}

/// Nothing lost is found, and nothing kept is missing.
pub(crate) fn examine(image: &Image, acts: &[(Act, String)]) {
    let tally = image.tally();
    let count = |mark: &str| tally.get(mark).copied().unwrap_or(0);
    for (act, method) in acts {
        let marks = act.marks(method);
        let place = format!("{:?}, {act:?}, {method}", image.fs);
        if act.loses_content() && expects_content(image.fs, *act) {
            assert_eq!(count(&marks.lost), 0, "content is left: {place}");
        }
        if act.loses_name() && image.fs.clears_names() {
            assert_eq!(count(&marks.name), 0, "a name is left: {place}");
        }
        if act.keeps_content() {
            assert!(count(&marks.kept) > 0, "hurt: {place}");
        }
    }
}

/// Attributes and targets of links stay in a journal that is not erased: in XFS's log, and where
/// there is an area for fast commits.
fn expects_content(fs: Fs, act: Act) -> bool {
    use Act::*;
    !matches!(fs, Fs::Xfs | Fs::Ext4FastCommit)
        || !matches!(
            act,
            Symlink
                | SetAttribute
                | RemoveAttribute
                | Attributes
                | LargeAttributes
                | SetLargeAttribute
                | RemoveLargeAttribute
        )
}

fn purged(test: &str, fs: Fs, asynchronous: bool, methods: &[&str]) {
    // What differs from ext4 by little comes in the long run only.
    let few = matches!(
        (fs, asynchronous),
        (Fs::Ext3 | Fs::Ext4Writeback | Fs::Ext4Casefold, _)
            | (Fs::Ext4EaInode | Fs::Ext4Bigalloc | Fs::Ext4FastCommit, true)
    );
    if few && !all() {
        return;
    }
    let _turn = turn();
    if skip_without_fuse(test) {
        return;
    }
    let Some(image) = Image::new(test, fs) else { return };
    prepare(&image, methods);
    let mut done = Vec::new();
    for method in methods {
        let mounted = Mounted::new(&image, options(method, asynchronous));
        let dir = mounted.dir.join(format!("for-{method}"));
        for act in ALL {
            if act.happen(&dir, method) {
                done.push((act, (*method).to_owned()));
            }
        }
        let status = mounted.overlay().status();
        assert_eq!(status["not_in_place"], 0, "{status:#}");
        assert_eq!(status["kept"], 0, "{status:#}");
        mounted.end();
    }
    image.unmount();
    examine(&image, &done);
    check_with_fsck(&image);
}

pub(crate) fn check_with_fsck(image: &Image) {
    let path = image.path();
    let path = path.to_str().unwrap();
    let checked = match image.fs {
        Fs::Xfs => tacita_testkit::system("xfs_repair", &["-n", path]),
        _ => tacita_testkit::system("e2fsck", &["-f", "-n", path]),
    };
    checked.unwrap();
}

/// The same without purging must show the loss, or the search would prove nothing.
fn lost_without_purge(test: &str, fs: Fs) {
    let _turn = turn();
    let Some(image) = Image::new(test, fs) else { return };
    prepare(&image, &["rm"]);
    let dir = image.dir().join("for-rm");
    let mut done = Vec::new();
    for act in ALL {
        if act.happen(&dir, "rm") {
            done.push(act);
        }
    }
    image.unmount();
    let tally = image.tally();
    let found = |act: Act| tally.contains_key(&act.marks("rm").lost);
    for act in done {
        // What the file system clears by itself, or reuses for what is made next, may be gone.
        let sure = !matches!(
            act,
            Act::Symlink
                | Act::SetAttribute
                | Act::RemoveAttribute
                | Act::Attributes
                | Act::SetLargeAttribute
        );
        if act.loses_content() && sure {
            assert!(found(act), "{fs:?}, {act:?}: plainly lost, and not to be found?");
        }
    }
    assert!(tally.contains_key(&Act::Tree.marks("rm").name), "names are not to be found?");
}

macro_rules! games {
    ($($name:ident: $fs:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn at_once() {
                purged(concat!(stringify!($name), "::at_once"), $fs, false, methods());
            }

            #[test]
            fn in_the_background() {
                let name = concat!(stringify!($name), "::in_the_background");
                purged(name, $fs, true, methods());
            }

            #[test]
            fn without_purge_it_is_found() {
                let name = concat!(stringify!($name), "::without_purge_it_is_found");
                lost_without_purge(name, $fs);
            }
        }
    )*};
}

games! {
    ext2: Fs::Ext2;
    ext3: Fs::Ext3;
    ext4: Fs::Ext4;
    ext4_data_journal: Fs::Ext4Journaled;
    ext4_writeback: Fs::Ext4Writeback;
    ext4_without_journal: Fs::Ext4Plain;
    ext4_with_inodes_of_values: Fs::Ext4EaInode;
    ext4_with_content_in_inodes: Fs::Ext4Inline;
    ext4_with_clusters: Fs::Ext4Bigalloc;
    ext4_with_clusters_of_small_blocks: Fs::Ext4BigallocSmall;
    ext4_with_folded_names: Fs::Ext4Casefold;
    ext4_with_fast_commits: Fs::Ext4FastCommit;
    xfs: Fs::Xfs;
}

#[test]
fn without_passthrough() {
    let test = "without_passthrough";
    let _turn = turn();
    if skip_without_fuse(test) {
        return;
    }
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    prepare(&image, &["clear"]);
    let options = tacita_purge::OverlayOptions { passthrough: false, ..options("clear", false) };
    let mounted = Mounted::new(&image, options);
    let dir = mounted.dir.join("for-clear");
    let done = ALL.into_iter().filter(|act| act.happen(&dir, "clear"));
    let done: Vec<(Act, String)> = done.map(|act| (act, "clear".to_owned())).collect();
    mounted.end();
    image.unmount();
    examine(&image, &done);
}
