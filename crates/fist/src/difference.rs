//! What differs between a file system and the instrumented one, as a patch.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use imara_diff::{Algorithm, BasicLineDiffPrinter, Diff, InternedInput, UnifiedDiffConfig};

/// A unified diff of all files, for `patch -p1`; those that are new are shown whole.
pub fn difference(
    before: &BTreeMap<PathBuf, Vec<u8>>,
    after: &BTreeMap<PathBuf, Vec<u8>>,
) -> String {
    let mut text = String::new();
    for (path, new) in after {
        let old = before.get(path);
        if old == Some(new) {
            continue;
        }
        let path = path.display();
        let old_name = if old.is_some() { format!("a/{path}") } else { "/dev/null".to_owned() };
        let (old, new) = (
            String::from_utf8_lossy(old.map_or(&[][..], Vec::as_slice)),
            String::from_utf8_lossy(new),
        );
        let input = InternedInput::new(&*old, &*new);
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        let printer = BasicLineDiffPrinter(&input.interner);
        let hunks = diff.unified_diff(&printer, UnifiedDiffConfig::default(), &input);
        let _ = write!(text, "--- {old_name}\n+++ b/{path}\n{hunks}");
    }
    text
}
