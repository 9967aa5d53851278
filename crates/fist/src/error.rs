//! What is refused: where, why, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

/// The result of everything that can be refused.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The extension is not `FiST`, or asks for what there is not.
    Extension,
    /// The source is not C of a file system, or cannot be instrumented safely.
    Source,
    /// The kernel's headers are not at hand, or of another version than the source.
    Headers,
    /// A file or folder cannot be read or written.
    Io,
    /// The instrumented source did not pass the check of itself. Nothing was written.
    Check,
}

/// A place in a file, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, as it was named.
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    /// Bytes from the begin of the line, counted from 1.
    pub column: usize,
    /// The line, without its end.
    pub text: String,
    /// Bytes of the line that are meant, 1 at least.
    pub width: usize,
}

impl Place {
    /// The place of bytes `start..end` of a source.
    pub(crate) fn of(file: &Path, source: &[u8], start: usize, end: usize) -> Self {
        let start = start.min(source.len());
        let begin = source[..start].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let line_end =
            source[start..].iter().position(|&b| b == b'\n').map_or(source.len(), |n| start + n);
        Self {
            file: file.to_owned(),
            line: source[..begin].split(|&b| b == b'\n').count(),
            column: start - begin + 1,
            text: String::from_utf8_lossy(&source[begin..line_end]).into_owned(),
            width: end.clamp(start, line_end.max(start)).saturating_sub(start).max(1),
        }
    }

    /// The line, and a caret under what is meant.
    pub fn excerpt(&self) -> String {
        // Tabs stay tabs, so that the caret stands under its place whatever their width is.
        let before = self.text.get(..self.column - 1).unwrap_or_default();
        let gap: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        format!("    {}\n    {gap}{}", self.text, "^".repeat(self.width.min(120)))
    }
}

/// A failure. Shown with its place, the line there and a caret under what is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    place: Option<Box<Place>>,
    cause: String,
    remedy: Option<String>,
}

impl Error {
    pub(crate) fn new(kind: Kind, cause: impl Into<String>) -> Self {
        Self { kind, place: None, cause: cause.into(), remedy: None }
    }

    pub(crate) fn at(mut self, place: Place) -> Self {
        self.place = Some(Box::new(place));
        self
    }

    pub(crate) fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        Self::new(Kind::Io, format!("{}: {error}", path.display()))
    }

    /// Of which kind it is.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Where it is, if it is somewhere in a file.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_deref()
    }

    /// What is wrong, without the place.
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// What can be done.
    pub fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(place) = &self.place else { return f.write_str(&self.cause) };
        let Place { file, line, column, .. } = &**place;
        write!(f, "{}:{line}:{column}: {}\n{}", file.display(), self.cause, place.excerpt())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_with_its_line_and_a_caret() {
        let source = b"one\n\tint %opp;\nthree";
        let error = Error::new(Kind::Extension, "there is no primitive %opp").at(Place::of(
            Path::new("a.fist"),
            source,
            9,
            13,
        ));
        assert_eq!(
            error.to_string(),
            "a.fist:2:6: there is no primitive %opp\n    \tint %opp;\n    \t    ^^^^"
        );
    }

    #[test]
    fn a_place_at_the_end_or_beyond_is_one() {
        for source in [&b""[..], b"a", b"a\n"] {
            for at in 0..4 {
                let place = Place::of(Path::new("f"), source, at, at + 3);
                assert!(place.width >= 1 && place.line >= 1 && place.column >= 1);
            }
        }
    }
}
