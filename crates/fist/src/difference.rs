//! What differs between a file system and the instrumented one, as a patch.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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
        let old_name = if old.is_some() { name("a", path) } else { "/dev/null".to_owned() };
        let (old, new) = (
            String::from_utf8_lossy(old.map_or(&[][..], Vec::as_slice)),
            String::from_utf8_lossy(new),
        );
        let input = InternedInput::new(&*old, &*new);
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        let printer = BasicLineDiffPrinter(&input.interner);
        let hunks = diff.unified_diff(&printer, UnifiedDiffConfig::default(), &input);
        let _ = write!(text, "--- {old_name}\n+++ {}\n{hunks}", name("b", path));
    }
    text
}

/// A name in the head of a patch. One that would end its line, or say something to a terminal, or is no
/// text is in quotes, as patch(1) and git(1) read it.
fn name(side: &str, path: &Path) -> String {
    let is_plain = |c: char| {
        !c.is_control()
            && !matches!(c, '"' | '\\' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
    };
    if let Some(path) = path.to_str().filter(|path| path.chars().all(is_plain)) {
        return format!("{side}/{path}");
    }
    let mut text = format!("\"{side}/");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => _ = write!(text, "\\{byte:03o}"),
        }
    }
    text + "\""
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_name_stays_in_its_line() {
        let of = |name: &[u8]| {
            let after = BTreeMap::from([(OsStr::from_bytes(name).into(), b"new\n".to_vec())]);
            difference(&BTreeMap::new(), &after)
        };
        for (name, shown) in [
            (&b"a b/c.c"[..], "b/a b/c.c"),
            ("\u{e9}.c".as_bytes(), "b/\u{e9}.c"),
            (b"a\n--- a/b", r#""b/a\012--- a/b""#),
            (b"\x1b[2J\"\\", r#""b/\033[2J\"\\""#),
            (b"\xff", r#""b/\377""#),
            ("\u{2028}".as_bytes(), r#""b/\342\200\250""#),
        ] {
            let head = format!("--- /dev/null\n+++ {shown}\n@@ ");
            assert!(of(name).starts_with(&head), "{}", of(name));
        }
    }
}
