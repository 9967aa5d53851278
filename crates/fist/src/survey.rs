//! What stands in a source, for people: its vectors and their handlers, and how well it is understood.

use std::path::PathBuf;

use crate::folder::Folder;
use crate::initialiser::Handler;

/// An operation vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vector {
    /// The structure it is, without the word.
    pub type_name: String,
    /// Its name; with a number in brackets if it is one of an array.
    pub name: String,
    /// The file, relative to the folder.
    pub file: PathBuf,
    /// The line where its declaration begins, from 1.
    pub line: usize,
    /// Its entries that are functions, as they stand there.
    pub entries: Vec<(String, String, Owner)>,
}

/// Whose function a handler is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The file system defines it.
    FileSystem,
    /// The kernel does, or nobody.
    Kernel,
    /// It is no name, but an expression.
    Expression,
}

/// How well the functions of a source are understood.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Understanding {
    /// Functions that are defined.
    pub functions: usize,
    /// Returns in them.
    pub returns: usize,
    /// Functions in which the grammar gave up, or counts fewer returns than there are words; with
    /// their places.
    pub doubtful: Vec<String>,
}

impl Folder {
    /// The operation vectors in the order of files and lines.
    pub fn vectors(&self) -> Vec<Vector> {
        let own = |name: &str| {
            self.sources
                .iter()
                .flat_map(|source| &source.functions)
                .any(|function| function.name == name)
        };
        let mut found = Vec::new();
        for source in &self.sources {
            for vector in source.initialisers.iter().filter(|found| found.is_vector()) {
                let entries = vector.entries.iter().filter_map(|entry| {
                    let text = source.text(&entry.value).to_owned();
                    let owner = match &entry.handler {
                        Handler::None => return None,
                        Handler::Opaque => Owner::Expression,
                        Handler::Named(name) if own(name) => Owner::FileSystem,
                        Handler::Named(_) => Owner::Kernel,
                    };
                    Some((entry.field.clone(), text, owner))
                });
                found.push(Vector {
                    type_name: vector.type_name.clone(),
                    name: vector.name.clone(),
                    file: source.path.clone(),
                    line: source.place(&vector.range).line,
                    entries: entries.collect(),
                });
            }
        }
        found
    }

    /// Looks at every function by both methods.
    pub fn understanding(&self) -> Understanding {
        let mut sum = Understanding::default();
        for source in &self.sources {
            for function in &source.functions {
                let words = source.returns_by_words(function);
                sum.functions += 1;
                sum.returns += words;
                if words != function.returns.len() || function.error.is_some() {
                    let place =
                        source.place(function.error.as_ref().unwrap_or(&function.name_range));
                    let file = source.path.display();
                    sum.doubtful.push(format!("{file}:{}: {}", place.line, function.name));
                }
            }
        }
        sum
    }
}
