//! Judges that nobody here wrote: forensic tools on images before and after.

use std::fs;
use std::path::Path;

use tacita_testkit::skip_without_fuse;

use crate::acts::fill;
use crate::image::{Fs, Image, all, turn};
use crate::overlay::{Mounted, options};
use tacita_testkit::system;

const NAMES: [&str; 5] = ["1", "2", "3", "4", "5"];

/// Blocks of the journal that are looked at, each by a run of the tool.
const JOURNAL_BLOCKS: usize = 100;

fn path(dir: &Path, name: &str) -> std::path::PathBuf {
    dir.join(format!("dir/secretname-{name}.txt"))
}

fn mark(name: &str) -> String {
    format!("PURGEMARK-{name}-")
}

/// An image with five files, of which two have been deleted, plainly or under the overlay.
fn image(test: &str, purged: bool) -> Option<Image> {
    let image = Image::new(test, Fs::Ext4)?;
    fs::create_dir(image.dir().join("dir")).unwrap();
    for name in NAMES {
        fs::write(path(&image.dir(), name), fill(&mark(name), 20_000)).unwrap();
    }
    image.remount();
    fs::write(image.dir().join("touched"), "x").unwrap();
    if purged {
        let mounted = Mounted::new(&image, options("clear", false));
        for name in ["2", "3"] {
            fs::remove_file(path(&mounted.dir, name)).unwrap();
        }
        mounted.end();
    } else {
        for name in ["2", "3"] {
            fs::remove_file(path(&image.dir(), name)).unwrap();
        }
    }
    image.unmount();
    Some(image)
}

/// What a tool finds of the deleted files: `None` if it is not installed.
type Judge = fn(&Image, &Path) -> Option<(usize, usize)>;

fn tool(program: &str, arguments: &[&str]) -> Option<String> {
    match system(program, arguments) {
        Err(why) if why.contains("No such file or directory (os error 2)") => {
            eprintln!("SKIPPED: the judge {program}: not installed");
            None
        }
        // Some of them fail when they find nothing.
        Ok(text) | Err(text) => Some(text),
    }
}

fn occurrences(text: &str, of: &str) -> usize {
    text.matches(of).count()
}

fn found(text: &str) -> (usize, usize) {
    (
        occurrences(text, &mark("2")) + occurrences(text, &mark("3")),
        occurrences(text, "secretname-2") + occurrences(text, "secretname-3"),
    )
}

fn in_folder(folder: &Path) -> (usize, usize) {
    let text = system("grep", &["-r", "-a", "", folder.to_str().unwrap()]).unwrap_or_default();
    let listed = system("find", &[folder.to_str().unwrap()]).unwrap_or_default();
    (found(&text).0, found(&listed).1)
}

fn unallocated(image: &Image, _: &Path) -> Option<(usize, usize)> {
    tool("blkls", &[image.path().to_str().unwrap()]).map(|text| found(&text))
}

fn deleted_entries(image: &Image, _: &Path) -> Option<(usize, usize)> {
    tool("fls", &["-r", "-d", "-p", image.path().to_str().unwrap()]).map(|text| found(&text))
}

fn journal(image: &Image, _: &Path) -> Option<(usize, usize)> {
    let path = image.path();
    let path = path.to_str().unwrap();
    let list = tool("jls", &[path])?;
    let mut all = (0, 0);
    // A mount begins at the journal's first block; the raw searches of the matrix see all of it.
    let blocks = list.lines().filter(|line| line.contains("FS Block"));
    for line in blocks.take(JOURNAL_BLOCKS) {
        let Some((block, _)) = line.split_once(':') else { continue };
        let seen = found(&tool("jcat", &[path, block])?);
        all = (all.0 + seen.0, all.1 + seen.1);
    }
    Some(all)
}

fn recovered(image: &Image, out: &Path) -> Option<(usize, usize)> {
    tool("tsk_recover", &["-e", image.path().to_str().unwrap(), out.to_str().unwrap()])?;
    Some(in_folder(out))
}

fn carved(image: &Image, out: &Path) -> Option<(usize, usize)> {
    let to = out.join("carved");
    let options = "partition_none,options,paranoid,fileopt,everything,disable,txt,enable,\
                   freespace,search";
    let path = image.path();
    let arguments = ["/d", to.to_str().unwrap(), "/cmd", path.to_str().unwrap(), options];
    tool("photorec", &arguments)?;
    Some(in_folder(out))
}

fn undeleted(image: &Image, out: &Path) -> Option<(usize, usize)> {
    let path = image.path();
    tool("ext4magic", &[path.to_str().unwrap(), "-m", "-d", out.to_str().unwrap()])?;
    Some(in_folder(out))
}

fn restored(image: &Image, out: &Path) -> Option<(usize, usize)> {
    let path = image.path();
    let to = out.join("restored");
    let arguments = ["--restore-all", "--output-dir", to.to_str().unwrap(), path.to_str().unwrap()];
    tool("extundelete", &arguments)?;
    Some(in_folder(out))
}

#[test]
fn forensic_tools_find_what_was_deleted_and_nothing_of_what_was_purged() {
    let _turn = turn();
    let test = "forensic_tools_find_what_was_deleted_and_nothing_of_what_was_purged";
    if skip_without_fuse(test) {
        return;
    }
    let judges: [(&str, Judge, bool); 7] = [
        ("blkls", unallocated, true),
        ("fls", deleted_entries, false),
        ("jls and jcat", journal, true),
        ("tsk_recover", recovered, false),
        ("photorec", carved, true),
        ("ext4magic", undeleted, false),
        ("extundelete", restored, false),
    ];
    let (Some(plain), Some(purged)) = (image(test, false), image(test, true)) else { return };
    for name in ["1", "4", "5"] {
        assert!(plain.count(&mark(name)) > 0 && purged.count(&mark(name)) > 0, "what was kept");
    }
    // Those that find nothing even after rm here come in the long run only.
    for (name, judge, must_find) in judges.into_iter().filter(|(.., must)| *must || all()) {
        let out = tempfile::tempdir().unwrap();
        let Some(before) = judge(&plain, out.path()) else { continue };
        let out = tempfile::tempdir().unwrap();
        let Some(after) = judge(&purged, out.path()) else { continue };
        eprintln!("{name}: content and names found {before:?} after rm, {after:?} after a purge");
        assert!(!must_find || before != (0, 0), "{name} finds nothing even after rm");
        assert_eq!(after, (0, 0), "{name}");
    }
}
