//! Names under which the new file system lives beside the old one.

use std::collections::{BTreeMap, BTreeSet};

use crate::edits::Edits;
use crate::error::{Error, Kind, Result};
use crate::initialiser::FILE_SYSTEM;
use crate::lexer;
use crate::source::Source;

/// Names of file systems, modules and symbols, old and new.
#[derive(Debug)]
pub(crate) struct Names {
    /// What new names begin with, and the name of the one file system if there is one.
    prefix: String,
    single: Option<(String, String)>,
    /// Names of file systems in the source.
    pub(crate) file_systems: Vec<String>,
    /// Symbols that other modules see.
    pub(crate) exported: BTreeSet<String>,
    /// Those of them after which trace points are called, too.
    traced: BTreeSet<String>,
}

/// Whether a name can be that of a module and a file system.
fn is_usable(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 40
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl Names {
    /// Finds what has to be named anew. `wanted` is the user's name, `prefix` the extension's.
    pub(crate) fn find(sources: &[Source], wanted: Option<&str>, prefix: &str) -> Result<Self> {
        let name = wanted.unwrap_or(prefix);
        if !is_usable(name) {
            return Err(Error::new(
                Kind::Extension,
                format!("`{name}` cannot be the name of a module"),
            )
            .with_remedy("take letters, digits and _ with --name, 40 at most"));
        }
        let mut file_systems = Vec::new();
        for source in sources {
            for found in source.initialisers.iter().filter(|found| found.type_name == FILE_SYSTEM) {
                let Some(entry) = found.entry("name") else { continue };
                let text = source.text(&entry.value);
                let Some(old) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'))
                else {
                    return Err(source
                        .refuse(
                            &entry.value,
                            "the name of the file system is no text, so it cannot be changed",
                        )
                        .with_remedy("write it as a text in quotes"));
                };
                file_systems.push(old.to_owned());
            }
        }
        let single = match (&file_systems[..], wanted) {
            ([one], Some(wanted)) if one == wanted => {
                return Err(Error::new(
                    Kind::Extension,
                    format!("the new file system would be called {wanted} like the old one"),
                )
                .with_remedy("take another --name, so that both can be there at once"));
            }
            ([one], Some(wanted)) => Some((one.clone(), wanted.to_owned())),
            _ => None,
        };
        let exported = exported(sources);
        let traced = traced(sources, &exported);
        Ok(Self { prefix: name.to_owned(), single, file_systems, exported, traced })
    }

    /// What a file system or module is called now.
    pub(crate) fn of(&self, old: &str) -> String {
        match &self.single {
            Some((_, new)) if self.file_systems.len() == 1 => new.clone(),
            _ => format!("{}_{old}", self.prefix),
        }
    }

    /// A name for something else that is known outside of the module. It begins like no other of the
    /// file system, whose own names may begin with anything: `trace_` is the kernel's for trace points.
    pub(crate) fn prefixed(&self, old: &str) -> String {
        format!("fist_{}_{old}", self.prefix)
    }

    /// Renames file systems, their aliases and caches in a source.
    pub(crate) fn rename(&self, edits: &mut Edits, source: &Source) {
        for found in source.initialisers.iter().filter(|found| found.type_name == FILE_SYSTEM) {
            if let Some(entry) = found.entry("name") {
                let old = source.text(&entry.value).trim_matches('"');
                edits.replace(entry.value.clone(), format!("\"{}\"", self.of(old)));
            }
        }
        let tokens = &source.tokens;
        for at in 0..tokens.len().saturating_sub(2) {
            if tokens[at].kind != lexer::Kind::Word
                || !tokens[at + 1].is(b'(')
                || tokens[at + 2].kind != lexer::Kind::Text
            {
                continue;
            }
            let range = tokens[at + 2].start..tokens[at + 2].end;
            let old = source.text(&range).trim_matches('"');
            match source.text(&(tokens[at].start..tokens[at].end)) {
                "MODULE_ALIAS_FS" | "MODULE_ALIAS"
                    if self.file_systems.iter().any(|name| name == old) =>
                {
                    edits.replace(range.clone(), format!("\"{}\"", self.of(old)));
                }
                "kmem_cache_create" | "kmem_cache_create_usercopy" => {
                    edits.insert(range.start + 1, format!("{}_", self.prefix));
                }
                _ => {}
            }
        }
    }

    /// Symbols and what they are called from now on.
    pub(crate) fn symbols(&self, ours: &[String]) -> BTreeMap<String, String> {
        let all = self.exported.iter().chain(ours);
        let mut found: BTreeMap<String, String> =
            all.map(|symbol| (symbol.clone(), self.prefixed(symbol))).collect();
        // A trace point that is called like an exported function is named anew with it.
        for symbol in &self.traced {
            found.insert(format!("trace_{symbol}"), format!("trace_{}", self.prefixed(symbol)));
        }
        found
    }
}

/// Symbols that the file system exports to other modules.
fn exported(sources: &[Source]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for source in sources {
        for three in source.tokens.windows(3) {
            let of_export = three[0].kind == lexer::Kind::Word
                && source.text(&(three[0].start..three[0].end)).starts_with("EXPORT_SYMBOL");
            if of_export && three[1].is(b'(') && three[2].kind == lexer::Kind::Word {
                found.insert(source.text(&(three[2].start..three[2].end)).to_owned());
            }
        }
    }
    found
}

fn traced(sources: &[Source], exported: &BTreeSet<String>) -> BTreeSet<String> {
    let words = sources.iter().flat_map(|source| {
        let words = source.tokens.iter().filter(|token| token.kind == lexer::Kind::Word);
        words.map(|token| source.text(&(token.start..token.end)))
    });
    let points = words.filter_map(|word| word.strip_prefix("trace_"));
    points.filter(|name| exported.contains(*name)).map(str::to_owned).collect()
}
