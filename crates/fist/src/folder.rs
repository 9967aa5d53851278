//! The source of a file system as a folder: its files, the C among them parsed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Result};
use crate::includes::{self, Outside};
use crate::initialiser::FILE_SYSTEM;
use crate::makefile;
use crate::source::Source;

/// More than this is no source of one file system.
const FILES_MAX: usize = 2000;

/// Longer files are not read.
const LEN_MAX: u64 = 16 << 20;

/// The source of a file system.
#[derive(Debug)]
pub struct Folder {
    pub(crate) path: PathBuf,
    /// Every file by its path in the folder.
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    /// Those of C.
    pub(crate) sources: Vec<Source>,
    /// Headers from beside the folder.
    pub(crate) outside: Outside,
}

impl Folder {
    /// Reads a folder, or one file of C as a file system of its own.
    ///
    /// # Errors
    /// [`Kind::Io`] if it cannot be read, [`Kind::Source`] if it is not C of a file system.
    pub fn read(path: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        let meta = std::fs::metadata(path).map_err(|error| Error::io(path, &error))?;
        if meta.is_dir() {
            read_below(path, Path::new(""), &mut files)?;
        } else {
            let name = path.file_name().map(PathBuf::from).unwrap_or_default();
            files.insert(name, read_file(path)?);
        }
        let mut this = Self::of(path, files)?;
        if meta.is_dir() {
            this.outside = includes::read(path, &this.sources)?;
        }
        Ok(this)
    }

    /// Takes files that were read.
    ///
    /// # Errors
    /// As [`Folder::read`].
    pub fn of(path: &Path, files: BTreeMap<PathBuf, Vec<u8>>) -> Result<Self> {
        let mut sources = Vec::new();
        for (name, bytes) in &files {
            if makefile::is_one(name) {
                is_text(name, bytes)?;
            }
            if name.extension().is_some_and(|extension| extension == "c" || extension == "h") {
                is_text(name, bytes)?;
                sources.push(Source::parse(name, bytes.clone())?);
            }
        }
        let this = Self { path: path.to_owned(), files, sources, outside: Outside::new() };
        this.is_file_system()?;
        Ok(this)
    }

    /// Every file as it was read, by its path in the folder.
    pub fn into_files(self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.files
    }

    /// What the folder is called.
    pub(crate) fn name(&self) -> String {
        let whole = std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let stem = whole.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        stem.unwrap_or_else(|| "fs".to_owned())
    }

    fn is_file_system(&self) -> Result<()> {
        let path = self.path.display();
        let refuse = |cause: String| {
            Error::new(Kind::Source, cause).with_remedy(
                "name the folder of one file system in a kernel's source, such as linux/fs/ext2",
            )
        };
        if self.sources.is_empty() {
            return Err(refuse(format!("{path}: there are no files of C")));
        }
        if self.sources.iter().all(|source| source.functions.is_empty()) {
            return Err(refuse(format!("{path}: no functions are defined there; is it C?")));
        }
        let mut all = self.sources.iter().flat_map(|source| &source.initialisers);
        if all.any(|found| found.is_vector() || found.type_name == FILE_SYSTEM) {
            return Ok(());
        }
        Err(refuse(format!("{path}: there are no operation vectors, so this is no file system")))
    }
}

fn is_text(name: &Path, bytes: &[u8]) -> Result<()> {
    let Err(error) = std::str::from_utf8(bytes) else {
        return match bytes.iter().position(|&b| b == 0) {
            Some(at) => Err(no_text(name, bytes, at)),
            None => Ok(()),
        };
    };
    Err(no_text(name, bytes, error.valid_up_to()))
}

fn no_text(name: &Path, bytes: &[u8], at: usize) -> Error {
    Error::new(Kind::Source, "this byte is no text, so the file is neither C nor a Makefile")
        .at(crate::error::Place::of(name, bytes, at, at + 1))
        .with_remedy("name a folder of C in ASCII or UTF-8")
}

fn read_below(root: &Path, below: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    let folder = root.join(below);
    let failed = |error: &std::io::Error| Error::io(&folder, error);
    for entry in std::fs::read_dir(&folder).map_err(|e| failed(&e))? {
        let entry = entry.map_err(|e| failed(&e))?;
        let name = below.join(entry.file_name());
        let meta = std::fs::metadata(entry.path()).map_err(|e| Error::io(&entry.path(), &e))?;
        if meta.is_dir() {
            read_below(root, &name, files)?;
        } else if meta.is_file() {
            files.insert(name, read_file(&entry.path())?);
        }
        if files.len() > FILES_MAX {
            return Err(Error::new(
                Kind::Source,
                format!("{}: there are more than {FILES_MAX} files", root.display()),
            )
            .with_remedy("name the folder of one file system"));
        }
    }
    Ok(())
}

/// All that a file holds.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| Error::io(path, &error);
    // Nobody may ever write to a pipe, and a device may have no end.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::new(Kind::Source, format!("{}: no regular file", path.display())));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LEN_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LEN_MAX {
        return Err(Error::new(
            Kind::Source,
            format!("{}: longer than {LEN_MAX} bytes", path.display()),
        ));
    }
    Ok(bytes)
}
