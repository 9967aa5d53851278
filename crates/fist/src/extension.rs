//! Extensions: a page of `FiST`, read into rules.
//!
//! Paper: section 3.1 and figure 3. The language as it is here: docs/spec/fist.md.

pub(crate) mod jumps;
mod parser;
mod primitives;

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::edits::Edits;
use crate::error::{Error, Kind, Place, Result};
use crate::lexer::{Token, tokens};

pub(crate) use primitives::{Attribute, Part, parts};

/// An extension that was read.
#[derive(Debug)]
pub struct Extension {
    file: PathBuf,
    source: Vec<u8>,
    pub(crate) header: Range<usize>,
    pub(crate) options: Vec<MountOption>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) additions: Vec<Addition>,
    pub(crate) extra: Range<usize>,
}

/// `%mntopt name=type:default`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountOption {
    pub(crate) name: String,
    pub(crate) value: OptionType,
    /// As C.
    pub(crate) default: String,
    pub(crate) range: Range<usize>,
}

/// What a mount option holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OptionType {
    /// There or not.
    Bool,
    /// A number.
    Int,
    /// A short text.
    Text,
    /// One of these words.
    Words(Vec<String>),
}

/// Which operations or functions a rule is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// All operations.
    All,
    /// A group of operations, by its name.
    Group(&'static str),
    /// One operation, by the entry of the vector.
    Operation(String),
    /// A function of the file system; whether it may be missing.
    Function(String, bool),
}

/// When the code of a rule runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Before anything else.
    Precall,
    /// Before every return.
    Postcall,
    /// Instead.
    Call,
}

/// `%op:...` and `%func:...`.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) target: Target,
    pub(crate) when: When,
    pub(crate) code: Code,
    /// Of what stands before the code.
    pub(crate) range: Range<usize>,
}

/// `%add:type:entry`: a handler for vectors that lack it.
#[derive(Debug)]
pub(crate) struct Addition {
    pub(crate) type_name: String,
    pub(crate) entry: String,
    pub(crate) code: Code,
    pub(crate) range: Range<usize>,
}

/// C with primitives, braces included.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) range: Range<usize>,
    pub(crate) tokens: Vec<Token>,
}

/// Groups of operations.
pub(crate) const GROUPS: [(&str, &[&str]); 3] = [
    (
        "reading",
        &[
            "read",
            "read_iter",
            "iterate",
            "iterate_shared",
            "splice_read",
            "mmap",
            "lookup",
            "get_link",
            "getattr",
            "listxattr",
            "statfs",
            "read_folio",
            "readahead",
            "readlink",
        ],
    ),
    (
        "writing",
        &[
            "write",
            "write_iter",
            "splice_write",
            "fallocate",
            "copy_file_range",
            "remap_file_range",
            "create",
            "link",
            "unlink",
            "symlink",
            "mkdir",
            "rmdir",
            "mknod",
            "rename",
            "setattr",
            "tmpfile",
            "atomic_open",
            "set_acl",
            "fileattr_set",
        ],
    ),
    ("deleting", &["unlink", "rmdir", "rename", "evict_inode", "setattr", "fallocate"]),
];

impl Extension {
    /// Reads an extension; `file` names it in errors.
    ///
    /// # Errors
    /// [`Kind::Extension`] with the place and what to do.
    pub fn parse(file: &Path, source: Vec<u8>) -> Result<Self> {
        parser::parse(file, source)
    }

    /// It asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.additions.is_empty() && self.options.is_empty()
    }

    /// What it is called: its file, without what is behind the last point.
    pub fn name(&self) -> String {
        let stem = self.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        stem.unwrap_or_default()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect()
    }

    pub(crate) fn text(&self, range: &Range<usize>) -> &str {
        std::str::from_utf8(&self.source[range.clone()]).unwrap_or_default()
    }

    pub(crate) fn source(&self) -> &[u8] {
        &self.source
    }

    pub(crate) fn refuse(&self, range: &Range<usize>, cause: impl Into<String>) -> Error {
        Error::new(Kind::Extension, cause).at(Place::of(
            &self.file,
            &self.source,
            range.start,
            range.end,
        ))
    }

    /// Functions of the extra code that other files can call.
    pub(crate) fn shared_functions(&self) -> Vec<String> {
        let source = &self.source[self.extra.clone()];
        shared_functions(source)
    }

    /// The extra code, each function that other files can call exported behind it, under its own conditions.
    pub(crate) fn exporting_extra(&self) -> String {
        let source = &self.source[self.extra.clone()];
        let parsed = crate::source::Source::parse(Path::new("extra"), source.to_vec());
        let functions = parsed.map(|parsed| parsed.functions).unwrap_or_default();
        let mut edits = Edits::default();
        for function in functions.iter().filter(|function| !function.is_static) {
            edits.insert(function.body.end, format!("\nEXPORT_SYMBOL_GPL({});", function.name));
        }
        String::from_utf8_lossy(&edits.apply(source).bytes).into_owned()
    }

    pub(crate) fn has_extra(&self) -> bool {
        !tokens(&self.source[self.extra.clone()]).is_empty()
    }
}

/// Functions of a source of C that are not static.
pub(crate) fn shared_functions(source: &[u8]) -> Vec<String> {
    let parsed = crate::source::Source::parse(Path::new("extra"), source.to_vec());
    let functions = parsed.map(|parsed| parsed.functions).unwrap_or_default();
    functions.into_iter().filter(|f| !f.is_static).map(|f| f.name).collect()
}

impl Target {
    /// Whether an operation is meant.
    pub(crate) fn covers(&self, operation: &str) -> bool {
        match self {
            Self::All => true,
            Self::Group(name) => {
                GROUPS.iter().any(|(group, all)| group == name && all.contains(&operation))
            }
            Self::Operation(name) => name == operation,
            Self::Function(..) => false,
        }
    }
}

#[cfg(test)]
mod tests;
