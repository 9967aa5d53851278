//! The paper's figure 3 put into a file system: its own figure 4.
//!
//! Paper: Purgefs, section 3.1, figures 3 and 4.

use std::fs;
use std::path::{Path, PathBuf};

use tacita_fist::{EXAMPLE, difference};

use super::{Chapter, Evidence};
use crate::exit::Outcome;
use crate::fist::make;
use crate::output::shown_name;

/// Lines of a patch that are shown.
const SHOWN: usize = 48;

/// A macro that returns where nobody sees it.
const HIDING: &str = "#define MUST(x) do { if (!(x)) return -EINVAL; } while (0)\n";

pub(super) fn chapter(folder: &Path) -> Outcome<Chapter> {
    fs::create_dir_all(folder.join("include/linux"))?;
    fs::write(folder.join("include/linux/fs.h"), EXAMPLE.1)?;
    let sample = folder.join("sample.c");
    fs::write(&sample, EXAMPLE.0)?;
    let (source, what) = match kernel_source() {
        Some(source) => {
            let what = format!("The source of ext2 in {}", shown_name(&source));
            (source, what)
        }
        None => (sample, "A file system of a few lines (there is no kernel's source here)".into()),
    };
    let (before, made) = make(&source, Path::new("trace"), None, None)?;
    let patch = difference(&before, &made.files);
    fs::write(folder.join("trace.diff"), &patch)?;
    let words = tacita_fist::Folder::read(&source).map(|folder| folder.understanding());
    let understood = words.is_ok_and(|words| words.doubtful.is_empty());
    let report = &made.report;
    Ok(Chapter {
        done: format!(
            "{what} was instrumented with the paper's figure 3, which prints the result of every \
             operation. The patch begins:"
        ),
        drawn: shown(&patch),
        pictures: Vec::new(),
        evidence: vec![
            Evidence::new(
                "every function is understood: returns by the grammar are as many as words",
                format!(
                    "{} functions edited, {} returns covered, {} handlers of the kernel's own wrapped",
                    report.functions, report.returns, report.wrappers
                ),
                understood && report.returns > 0,
            ),
            untouched(folder, &source)?,
            refused(folder)?,
        ],
    })
}

/// The source of ext2, if a kernel's source is unpacked here.
fn kernel_source() -> Option<PathBuf> {
    let all = fs::read_dir("/usr/src").ok()?.flatten().map(|entry| entry.path());
    let mut kernels: Vec<PathBuf> =
        all.filter(|path| path.join("include/linux/fs.h").is_file()).collect();
    kernels.sort();
    kernels.into_iter().rev().map(|kernel| kernel.join("fs/ext2")).find(|ext2| ext2.is_dir())
}

/// The patch of the sources, without files that are only added.
fn shown(patch: &str) -> Vec<String> {
    let lines =
        patch.lines().skip_while(|line| !line.starts_with("--- a/") || line.ends_with("Makefile"));
    let mut shown: Vec<String> = lines.take(SHOWN).map(|line| line.replace('\t', "    ")).collect();
    if shown.len() == SHOWN {
        shown.push("...".to_owned());
    }
    shown
}

/// Without rules nothing is changed.
fn untouched(folder: &Path, source: &Path) -> Outcome<Evidence> {
    let empty = folder.join("empty.fist");
    fs::write(&empty, "%%\n")?;
    let (before, made) = make(source, &empty, None, None)?;
    Ok(Evidence::new(
        "an extension without rules leaves every file as it was, byte for byte",
        format!("{} files compared", before.len()),
        before == made.files,
    ))
}

/// What cannot be done safely is refused, or covering all returns would prove nothing.
fn refused(folder: &Path) -> Outcome<Evidence> {
    let hiding = folder.join("hiding.c");
    let text = EXAMPLE.0.replace("\tif (!inode)\n", "\tMUST(dir);\n\tif (!inode)\n");
    fs::write(&hiding, format!("{HIDING}{text}"))?;
    let said = match make(&hiding, Path::new("trace"), None, None) {
        Ok(_) => "it was instrumented".to_owned(),
        Err(failure) => failure.cause.lines().next().unwrap_or_default().to_owned(),
    };
    let holds = said.starts_with("hiding.c:9:2: ");
    Ok(Evidence::new("a return that a macro hides is found, and refused at its place", said, holds))
}
