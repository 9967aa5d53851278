//! From the source of a file system and an extension to a new file system.
//!
//! Paper: section 3.1, figure 2.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::check::{self, HiddenReturns};
use crate::edits::Edits;
use crate::error::{Error, Kind, Result};
use crate::extension::Extension;
use crate::folder::Folder;
use crate::generated;
use crate::includes;
use crate::initialiser::{FILE_SYSTEM, Handler};
use crate::kernel::Kernel;
use crate::lexer;
use crate::makefile;
use crate::naming::Names;
use crate::plan::{Plan, plan};
use crate::source::{Function, Source};
use crate::weaving;

/// A new file system.
#[derive(Debug)]
pub struct Instrumented {
    /// Every file by its path in the new folder.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    /// Names of the new file systems.
    pub file_systems: Vec<String>,
    /// What was done.
    pub report: Report,
}

/// What was done to a file system.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Operation vectors of the source.
    pub vectors: usize,
    /// Functions of the source with code in them.
    pub functions: usize,
    /// Returns with code before them.
    pub returns: usize,
    /// Functions written around handlers.
    pub wrappers: usize,
    /// Entries put into vectors that lacked them.
    pub additions: usize,
    /// Files of the source that changed.
    pub changed: usize,
}

/// Instruments a file system; nothing is read or written here but what was read before.
///
/// `name` is that of the new file system, or what the names of several begin with.
///
/// # Errors
/// If something is not known, not understood or not safe, with the place and a remedy.
pub fn instrument(
    folder: &Folder,
    extension: &Extension,
    kernel: &Kernel,
    name: Option<&str>,
) -> Result<Instrumented> {
    let sources = &folder.sources;
    if extension.is_empty() && name.is_none() {
        let file_systems = Names::find(sources, None, "same")?.file_systems;
        return Ok(Instrumented {
            files: folder.files.clone(),
            file_systems,
            report: Report::default(),
        });
    }
    no_clashes(folder)?;
    let names = Names::find(sources, name, &extension.name())?;
    let plan = plan(sources, extension, kernel)?;
    let mut this = Instrumenter { folder, extension, names, report: Report::default() };
    this.run(&plan)
}

fn no_clashes(folder: &Folder) -> Result<()> {
    for source in &folder.sources {
        check::no_clash(source)?;
    }
    for name in [generated::HEADER, generated::NAMES, generated::EXTENSION] {
        if folder.files.contains_key(Path::new(name)) {
            return Err(Error::new(Kind::Source, format!("{name} is there already"))
                .with_remedy("is this instrumented already? take the original"));
        }
    }
    Ok(())
}

struct Instrumenter<'a> {
    folder: &'a Folder,
    extension: &'a Extension,
    names: Names,
    report: Report,
}

impl Instrumenter<'_> {
    fn run(&mut self, plan: &Plan<'_>) -> Result<Instrumented> {
        let sources = &self.folder.sources;
        let hidden = HiddenReturns::find(sources);
        let mut files = self.folder.files.clone();
        for (number, source) in sources.iter().enumerate() {
            let (bytes, is_changed) = self.source(plan, number, source, &hidden)?;
            if is_changed {
                self.report.changed += 1;
                files.insert(source.path.clone(), bytes);
            }
        }
        self.report.vectors = sources
            .iter()
            .flat_map(|source| &source.initialisers)
            .filter(|v| v.is_vector())
            .count();
        let outside = self.folder.outside.iter();
        files.extend(outside.map(|(path, bytes)| (includes::place(path), bytes.clone())));
        self.add_files(&mut files)?;
        let file_systems = self.names.file_systems.iter().map(|old| self.names.of(old)).collect();
        Ok(Instrumented { files, file_systems, report: self.report.clone() })
    }

    fn source(
        &mut self,
        plan: &Plan<'_>,
        number: usize,
        source: &Source,
        hidden: &HiddenReturns,
    ) -> Result<(Vec<u8>, bool)> {
        let mut edits = Edits::default();
        let mut edited: Vec<(&Function, bool)> = Vec::new();
        for ((_, index), hooks) in plan.in_place.range((number, 0)..(number + 1, 0)) {
            let function = &source.functions[*index];
            let has_code_after = !hooks.after.is_empty();
            check::before(source, function, hidden, has_code_after)?;
            weaving::in_place(&mut edits, self.extension, source, function, hooks)?;
            self.report.functions += 1;
            self.report.returns += if has_code_after { function.returns.len() } else { 0 };
            edited.push((function, has_code_after));
        }
        for wrapper in plan.wrappers.iter().filter(|wrapper| wrapper.vector.0 == number) {
            let vector = &source.initialisers[wrapper.vector.1];
            weaving::around(&mut edits, self.extension, source, vector, wrapper)?;
            self.report.wrappers += 1;
            self.report.additions += usize::from(wrapper.entry.is_none());
        }
        self.mounts(&mut edits, source)?;
        if let Some(first) = edits.first() {
            include(&mut edits, source, first);
        }
        self.names.rename(&mut edits, source);
        includes::redirect(&mut edits, source, &self.folder.outside);
        if edits.is_empty() {
            return Ok((Vec::new(), false));
        }
        let result = edits.apply(&source.bytes);
        check::after(source, &result, &edited)?;
        Ok((result.bytes, true))
    }

    /// Puts the reading of mount options before that of the file system.
    fn mounts(&self, edits: &mut Edits, source: &Source) -> Result<()> {
        if self.extension.options.is_empty() {
            return Ok(());
        }
        for found in source.initialisers.iter().filter(|found| found.type_name == FILE_SYSTEM) {
            for (field, head, tail) in [
                (
                    "mount",
                    "struct dentry *{}(struct file_system_type *type, int flags, const char *device, void *data)",
                    "return fist_mount(type, flags, device, data, {});",
                ),
                (
                    "init_fs_context",
                    "int {}(struct fs_context *fc)",
                    "return fist_init_fs_context(fc, {});",
                ),
                ("kill_sb", "void {}(struct super_block *sb)", "fist_kill_sb(sb, {});"),
            ] {
                let Some(entry) = found.entry(field) else { continue };
                let Handler::Named(handler) = &entry.handler else {
                    return Err(source
                        .refuse(&entry.value, format!("the handler of {field} is not a name"))
                        .with_remedy("write a function that does this, and name it here"));
                };
                let name = format!("fist_{}_{field}", found.name);
                let (head, tail) = (head.replace("{}", &name), tail.replace("{}", handler));
                edits.insert(found.range.start, format!("static {head}\n{{\n\t{tail}\n}}\n\n"));
                edits.replace(entry.value.clone(), name);
            }
        }
        Ok(())
    }

    fn add_files(&self, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
        let sources = &self.folder.sources;
        let has_code = generated::has_code(self.extension, sources);
        let folder = self.folder.name();
        let module = self.names.of(&folder);
        let mut many = false;
        let makefiles: Vec<PathBuf> =
            files.keys().filter(|path| makefile::is_one(path)).cloned().collect();
        for path in &makefiles {
            let is_root = path.parent() == Some(Path::new(""));
            let text = String::from_utf8_lossy(&files[path]).into_owned();
            many |= text.matches("obj-").count() > 1;
            let text = makefile::outside(&text, &self.names, is_root, has_code);
            files.insert(path.clone(), text.into_bytes());
        }
        if !makefiles.iter().any(|path| path.parent() == Some(Path::new(""))) {
            let is_own = |path: &&PathBuf| {
                path.extension().is_some_and(|e| e == "c") && path.parent() == Some(Path::new(""))
            };
            let own: Vec<String> =
                files.keys().filter(is_own).map(|path| path.display().to_string()).collect();
            let text = makefile::plain(&module, &own, has_code)?;
            files.insert("Makefile".into(), text.into_bytes());
        }
        files.insert(generated::HEADER.into(), generated::header(self.extension).into_bytes());
        let names = generated::names(&self.names, &folder, self.extension);
        files.insert(generated::NAMES.into(), names.into_bytes());
        if has_code {
            let code = generated::code(self.extension, &self.names, sources, many);
            files.insert(generated::EXTENSION.into(), code.into_bytes());
        }
        Ok(())
    }
}

/// Includes our header behind the last header that is always included, before the first edit.
fn include(edits: &mut Edits, source: &Source, first: usize) {
    let mut depth = 0_usize;
    let mut last: Option<Range<usize>> = None;
    for (token, words) in source.directives().take_while(|(token, _)| token.start < first) {
        match words.first() {
            Some(&("if" | "ifdef" | "ifndef")) => depth += 1,
            Some(&"endif") => depth = depth.saturating_sub(1),
            Some(&"include") if depth == 0 => last = Some(token.start..token.end),
            _ => {}
        }
    }
    let up = "../".repeat(source.path.components().count().saturating_sub(1));
    let line = format!("#include \"{up}{}\"", generated::HEADER);
    match last {
        Some(range) => edits.insert(range.end, format!("\n{line}")),
        None => edits.insert(lexer::begin(&source.bytes), format!("{line}\n")),
    }
}
