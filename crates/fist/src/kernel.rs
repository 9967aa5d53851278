//! What the kernel's own header says of the types of vectors: the signature of every entry.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Result};
use crate::folder::read_file;
use crate::initialiser::VECTORS;
use crate::lexer::{self, Token, closing, tokens};
use crate::source::{Parameter, type_text};

/// Where the types are declared, below a folder of headers.
const HEADER: &str = "include/linux/fs.h";

/// The types of vectors, as a version of the kernel declares them.
#[derive(Debug)]
pub struct Kernel {
    /// The header that was read.
    pub(crate) header: PathBuf,
    types: BTreeMap<String, Vec<Operation>>,
    /// Names that are NULL and no functions.
    nulls: BTreeSet<String>,
}

/// An entry of a vector's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) name: String,
    pub(crate) return_type: String,
    pub(crate) parameters: Vec<Parameter>,
}

impl Kernel {
    /// The folder of headers that a file system's source lies in, if it lies in a kernel's source.
    pub fn around(source: &Path) -> Option<PathBuf> {
        let whole = std::fs::canonicalize(source).ok()?;
        whole.ancestors().find(|above| above.join(HEADER).is_file()).map(Path::to_owned)
    }

    /// Reads the header below `folder`: a kernel's source, or what `linux-headers-VERSION-common`
    /// installs.
    ///
    /// # Errors
    /// [`Kind::Headers`] if it is not there or declares no vectors.
    pub fn read(folder: &Path) -> Result<Self> {
        let header = folder.join(HEADER);
        let remedy = "name the folder of the headers of the source's own kernel with --headers, such as \
                      /usr/src/linux-headers-VERSION-common";
        let bytes = read_file(&header)
            .map_err(|error| Error::new(Kind::Headers, error.cause()).with_remedy(remedy))?;
        let this = Self::parse(header, &bytes);
        match VECTORS.iter().find(|name| this.types.get(**name).is_none_or(Vec::is_empty)) {
            None => Ok(this),
            Some(name) => Err(Error::new(
                Kind::Headers,
                format!("{}: struct {name} is not declared there", this.header.display()),
            )
            .with_remedy(remedy)),
        }
    }

    fn parse(header: PathBuf, bytes: &[u8]) -> Self {
        let all = tokens(bytes);
        let mut types = BTreeMap::new();
        for (at, token) in all.iter().enumerate() {
            let Some(name) = all.get(at + 1).filter(|_| token.is_word(bytes, "struct")) else {
                continue;
            };
            let Some(name) = VECTORS.iter().find(|vector| name.is_word(bytes, vector)) else {
                continue;
            };
            if let Some(end) =
                all.get(at + 2).filter(|t| t.is(b'{')).and_then(|_| closing(&all, at + 2))
            {
                types.insert((*name).to_owned(), operations(bytes, &all[at + 3..end]));
            }
        }
        Self { header, types, nulls: nulls(bytes, &all) }
    }

    pub(crate) fn operations(&self, type_name: &str) -> &[Operation] {
        self.types.get(type_name).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn operation(&self, type_name: &str, entry: &str) -> Option<&Operation> {
        self.operations(type_name).iter().find(|operation| operation.name == entry)
    }

    pub(crate) fn has_operation(&self, entry: &str) -> bool {
        self.types.values().flatten().any(|operation| operation.name == entry)
    }

    /// The entry whose name is nearest to a word that is none.
    pub(crate) fn nearest(&self, word: &str) -> Option<&str> {
        let all = self.types.values().flatten().map(|operation| operation.name.as_str());
        all.map(|name| (distance(name, word), name))
            .min()
            .filter(|(far, _)| *far <= 2)
            .map(|(_, name)| name)
    }

    pub(crate) fn is_null(&self, name: &str) -> bool {
        self.nulls.contains(name)
    }
}

impl Operation {
    /// What differs between this and the signature of a function, if they cannot be the same.
    pub(crate) fn differs(&self, parameters: &[Parameter]) -> Option<String> {
        if self.parameters.len() != parameters.len() {
            let (wanted, there) = (self.parameters.len(), parameters.len());
            return Some(format!("takes {there} arguments and not {wanted}"));
        }
        self.parameters.iter().zip(parameters).find_map(|(wanted, there)| {
            let (wanted, there) = (tag(&wanted.type_text)?, tag(&there.type_text)?);
            (wanted != there)
                .then(|| format!("takes a struct {there} where a struct {wanted} belongs"))
        })
    }
}

/// The structure that a type points to.
pub(crate) fn tag(type_text: &str) -> Option<&str> {
    let mut words = type_text.split_whitespace().skip_while(|word| *word != "struct");
    words.nth(1)
}

/// Entries that are functions: `TYPE (*name)(PARAMETERS);`.
fn operations(bytes: &[u8], within: &[Token]) -> Vec<Operation> {
    let mut found = Vec::new();
    for field in within.split(|token| token.is(b';')) {
        let field: Vec<Token> =
            field.iter().filter(|token| token.kind != lexer::Kind::Directive).copied().collect();
        let pointer = |at: usize| {
            field[at].is(b'(')
                && field.get(at + 1).is_some_and(|t| t.is(b'*'))
                && field.get(at + 3).is_some_and(|t| t.is(b')'))
                && field.get(at + 4).is_some_and(|t| t.is(b'('))
        };
        let Some(at) = (0..field.len()).find(|&at| pointer(at)) else { continue };
        let Some(end) = closing(&field, at + 4) else { continue };
        found.push(Operation {
            name: String::from_utf8_lossy(field[at + 2].text(bytes)).into_owned(),
            return_type: type_text(bytes, &field[..at]),
            parameters: parameters(bytes, &field[at + 5..end]),
        });
    }
    found
}

fn parameters(bytes: &[u8], within: &[Token]) -> Vec<Parameter> {
    let mut found = Vec::new();
    let mut depth = 0_usize;
    let mut first = 0;
    for at in 0..=within.len() {
        match within.get(at).map(|token| token.kind) {
            Some(lexer::Kind::Punctuation(b'(' | b'[')) => depth += 1,
            Some(lexer::Kind::Punctuation(b')' | b']')) => depth = depth.saturating_sub(1),
            Some(lexer::Kind::Punctuation(b',')) if depth == 0 => {
                found.push(parameter(bytes, &within[first..at]));
                first = at + 1;
            }
            None => found.push(parameter(bytes, &within[first..at])),
            _ => {}
        }
    }
    found.retain(|parameter| !matches!(parameter.type_text.as_str(), "void" | ""));
    found
}

fn parameter(bytes: &[u8], tokens: &[Token]) -> Parameter {
    let word = |at: usize| {
        let token = tokens.get(at).filter(|token| token.kind == lexer::Kind::Word)?;
        std::str::from_utf8(token.text(bytes)).ok()
    };
    let base = base(&word, tokens.len());
    let name = (base..tokens.len()).rev().find(|&at| {
        word(at).is_some_and(|word| !matches!(word, "const" | "__user" | "__rcu" | "volatile"))
    });
    let kept: Vec<Token> = tokens
        .iter()
        .enumerate()
        .filter(|(at, _)| Some(*at) != name)
        .map(|(_, token)| *token)
        .collect();
    let name = name.and_then(word).unwrap_or_default().to_owned();
    Parameter { type_text: type_text(bytes, &kept), name }
}

/// How many tokens at the begin of a parameter are the words of its type.
fn base<'a>(word: &impl Fn(usize) -> Option<&'a str>, count: usize) -> usize {
    let built_in = |word: &str| {
        matches!(word, "unsigned" | "signed" | "long" | "short" | "int" | "char" | "void" | "bool")
    };
    let mut at = 0;
    while word(at).is_some_and(|word| matches!(word, "const" | "volatile")) {
        at += 1;
    }
    match word(at) {
        Some("struct" | "union" | "enum") => at + 2,
        Some(first) if built_in(first) => {
            (at..count).find(|&at| word(at).is_none_or(|word| !built_in(word))).unwrap_or(count)
        }
        _ => at + 1,
    }
}

/// Names that a header defines as NULL and does not declare as functions.
fn nulls(bytes: &[u8], all: &[Token]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for token in all.iter().filter(|token| token.kind == lexer::Kind::Directive) {
        let text = String::from_utf8_lossy(token.text(bytes));
        let words: Vec<&str> = text.trim_start_matches('#').split_whitespace().collect();
        if let ["define", name, "NULL"] = words[..] {
            found.insert(name.to_owned());
        }
    }
    let is_call = |pair: &[Token]| pair[0].kind == lexer::Kind::Word && pair[1].is(b'(');
    for pair in all.windows(2).filter(|pair| is_call(pair)) {
        found.remove(&*String::from_utf8_lossy(pair[0].text(bytes)));
    }
    found
}

/// How many letters have to be changed, added or left out.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let here = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = here.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// An error about an entry that the headers do not have, or have differently.
pub(crate) fn mismatch(
    kernel: &Kernel,
    source: &crate::source::Source,
    range: &Range<usize>,
    what: &str,
) -> Error {
    let header = kernel.header.display();
    Error::new(Kind::Headers, format!("{what}, says {header}: is it of the source's own kernel?"))
        .at(source.place(range))
        .with_remedy("name the headers of the kernel that the source was taken from with --headers")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "struct file_operations {\n\tstruct module *owner;\n\
        \tssize_t (*read) (struct file *, char __user *, size_t, loff_t *);\n\
        \tint (*open)(struct inode *inode, struct file *);\n#ifdef X\n\
        \tconst char *(*link)(struct dentry *d, unsigned int flags, unsigned long);\n#endif\n\
        } __randomize_layout;\nstruct inode_operations;\n#define no_llseek NULL\n\
        #define maybe NULL\nlong maybe(int);\n";

    #[test]
    fn entries_have_their_signatures() {
        let kernel = Kernel::parse(PathBuf::from("fs.h"), TEXT.as_bytes());
        let names: Vec<&str> =
            kernel.operations("file_operations").iter().map(|o| o.name.as_str()).collect();
        assert_eq!(names, ["read", "open", "link"]);
        let read = kernel.operation("file_operations", "read").unwrap();
        assert_eq!(read.return_type, "ssize_t");
        let types: Vec<&str> = read.parameters.iter().map(|p| p.type_text.as_str()).collect();
        assert_eq!(types, ["struct file *", "char __user *", "size_t", "loff_t *"]);
        let open = kernel.operation("file_operations", "open").unwrap();
        assert_eq!(open.parameters[0].name, "inode");
        assert_eq!(open.parameters[1].name, "");
        let link = kernel.operation("file_operations", "link").unwrap();
        assert_eq!(link.return_type, "const char *");
        let parameters: Vec<(&str, &str)> =
            link.parameters.iter().map(|p| (p.type_text.as_str(), p.name.as_str())).collect();
        assert_eq!(
            parameters,
            [("struct dentry *", "d"), ("unsigned int", "flags"), ("unsigned long", "")]
        );
        assert!(kernel.is_null("no_llseek") && !kernel.is_null("maybe"));
        assert_eq!(kernel.nearest("raed"), Some("read"));
        assert_eq!(kernel.nearest("something"), None);
    }

    #[test]
    fn a_signature_of_another_version_is_told() {
        let kernel = Kernel::parse(PathBuf::from("fs.h"), TEXT.as_bytes());
        let open = kernel.operation("file_operations", "open").unwrap();
        let of = |types: &[&str]| -> Vec<Parameter> {
            let name = String::new;
            types.iter().map(|t| Parameter { type_text: (*t).to_owned(), name: name() }).collect()
        };
        assert_eq!(open.differs(&of(&["struct inode *", "struct file *"])), None);
        assert!(open.differs(&of(&["struct inode *"])).unwrap().contains("takes 1 arguments"));
        let said = open.differs(&of(&["struct mnt_idmap *", "struct file *"])).unwrap();
        assert!(said.contains("struct mnt_idmap where a struct inode belongs"), "{said}");
    }
}
