//! What differs between a file system and the instrumented one, as a patch.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use imara_diff::{
    Algorithm, Diff, InternedInput, Interner, Token, UnifiedDiffConfig, UnifiedDiffPrinter,
};

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
        let printer = Lines(&input.interner);
        let hunks = diff.unified_diff(&printer, UnifiedDiffConfig::default(), &input);
        let _ = write!(text, "--- {old_name}\n+++ {}\n{hunks}", name("b", path));
    }
    text
}

/// Lines of a patch, as patch(1) and git(1) want them.
struct Lines<'a>(&'a Interner<&'a str>);

impl Lines<'_> {
    fn line(&self, mut f: impl Write, sign: char, token: Token) -> fmt::Result {
        let line = self.0[token];
        write!(f, "{sign}{line}")?;
        if line.ends_with('\n') { Ok(()) } else { f.write_str("\n\\ No newline at end of file\n") }
    }
}

impl UnifiedDiffPrinter for Lines<'_> {
    fn display_header(
        &self,
        mut f: impl Write,
        start_before: u32,
        start_after: u32,
        len_before: u32,
        len_after: u32,
    ) -> fmt::Result {
        // Of no lines that is the number of the one before.
        let first = |start: u32, len: u32| start + u32::from(len > 0);
        let (before, after) = (first(start_before, len_before), first(start_after, len_after));
        writeln!(f, "@@ -{before},{len_before} +{after},{len_after} @@")
    }

    fn display_context_token(&self, f: impl Write, token: Token) -> fmt::Result {
        self.line(f, ' ', token)
    }

    fn display_hunk(&self, mut f: impl Write, before: &[Token], after: &[Token]) -> fmt::Result {
        before.iter().try_for_each(|token| self.line(&mut f, '-', *token))?;
        after.iter().try_for_each(|token| self.line(&mut f, '+', *token))
    }
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

    /// New files begin nowhere, and what ends without a line end goes on doing so.
    #[test]
    fn a_patch_is_one_to_those_who_read_it() {
        let of = |old: Option<&str>, new: &str| {
            let file = |text: &str| (PathBuf::from("a"), text.as_bytes().to_vec());
            let before: BTreeMap<_, _> = old.map(file).into_iter().collect();
            difference(&before, &[file(new)].into()).split_once("b/a\n").unwrap().1.to_owned()
        };
        assert_eq!(of(None, "1\n2\n"), "@@ -0,0 +1,2 @@\n+1\n+2\n");
        assert_eq!(of(Some(""), "1\n"), "@@ -0,0 +1,1 @@\n+1\n");
        let mark = "\\ No newline at end of file\n";
        assert_eq!(of(Some("1\n2"), "0\n2"), format!("@@ -1,2 +1,2 @@\n-1\n+0\n 2\n{mark}"));
        let both = format!("@@ -1,1 +1,1 @@\n-1\n{mark}+2\n{mark}");
        assert_eq!(of(Some("1"), "2"), both);
    }

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
