//! `tacita fist ...`.

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tacita_block::NewFile;
use tacita_daemon::control::path_to_json;
use tacita_fist::{Error, Extension, Folder, Instrumented, Kernel, Kind, Owner, difference};

use crate::arguments::Fist as Command;
use crate::exit::{self, Failure, Outcome};
use crate::new_folder::NewFolder;
use crate::output::{self, shown_name};

/// Bytes of an extension at most: it is a page.
const EXTENSION_LEN_MAX: u64 = 1 << 20;

/// Places that are listed where a source is not understood.
const LISTED: usize = 20;

pub(crate) fn run(command: &Command) -> Outcome<()> {
    match command {
        Command::Vectors { source, json } => vectors(source, *json),
        Command::Instrument { source, extension, out, name, diff, headers, json } => {
            let made = make(source, extension, name.as_deref(), headers.as_deref())?;
            is_outside(out, source)?;
            let patch = diff.as_deref().map(|file| begin_patch(file, out, [source, extension]));
            let patch = patch.transpose()?;
            if let Some((file, new)) = &patch {
                output::fill(file, new, &difference(&made.0, &made.1.files))?;
            }
            write(&made.1, out)?;
            if let Some((file, new)) = patch {
                output::name(file, new)?;
            }
            tell(&made.1, out, *json)
        }
    }
}

/// Within its source a new file system would be taken for a part of it the next time.
fn is_outside(out: &Path, source: &Path) -> Outcome<()> {
    let out = std::path::absolute(out)?;
    let above = out.ancestors().find_map(|above| above.canonicalize().ok());
    let source = source.canonicalize().map_err(|e| output::of_file(source, e))?;
    if source.is_dir() && above.is_some_and(|above| above.starts_with(&source)) {
        return Err(Failure::usage(format!("{}: lies in the source", shown_name(&out)))
            .with_remedy("name a folder outside of it"));
    }
    Ok(())
}

/// The file of the patch, which is in place of nothing that was read, nor of the new folder.
fn begin_patch<'a>(file: &'a Path, out: &Path, inputs: [&Path; 2]) -> Outcome<(&'a Path, NewFile)> {
    if std::path::absolute(file)? == std::path::absolute(out)? {
        return Err(Failure::usage(format!("{}: the folder is called so", shown_name(file)))
            .with_remedy("give --diff another name than --out"));
    }
    if let Ok(there) = file.canonicalize()
        && inputs.iter().any(|read| read.canonicalize().is_ok_and(|read| there.starts_with(read)))
    {
        return Err(Failure::usage(format!("{}: the patch would replace it", shown_name(file)))
            .with_remedy("give --diff a new file, not one of the source or the extension"));
    }
    Ok((file, output::beginning(file, None)?))
}

/// An error of the instrumenter; the source or the extension is what was given wrong.
fn of_fist(error: &Error) -> Failure {
    let code = match error.kind() {
        Kind::Headers => exit::NOT_HERE,
        Kind::Io => exit::DEVICE,
        Kind::Check => exit::WRONG,
        _ => exit::USAGE,
    };
    let cause = match error.place() {
        // Its lines are those of the source.
        Some(place) => {
            let (file, line, column) = (shown_name(&place.file), place.line, place.column);
            let cause = shown_name(error.cause());
            format!("{file}:{line}:{column}: {cause}\n{}", place.excerpt())
        }
        None => shown_name(error.cause()),
    };
    let remedy = error.remedy().unwrap_or(match error.kind() {
        Kind::Io => "check the path, and that this user may read there",
        _ => "a source is the folder of a file system in a kernel's source, or one file of C",
    });
    Failure::new(code, cause).with_remedy(shown_name(remedy))
}

fn vectors(source: &Path, as_json: bool) -> Outcome<()> {
    let folder = Folder::read(source).map_err(|e| of_fist(&e))?;
    let (vectors, understood) = (folder.vectors(), folder.understanding());
    let owner = |owner| match owner {
        Owner::FileSystem => "own",
        Owner::Kernel => "kernel",
        Owner::Expression => "expression",
    };
    let mut text = String::new();
    let mut facts = Vec::new();
    for vector in &vectors {
        let place = format!("{}:{}", shown_name(&vector.file), vector.line);
        let _ = writeln!(text, "{} {}  {place}", vector.type_name, vector.name);
        let mut entries = Vec::new();
        for (entry, handler, of) in &vector.entries {
            let _ = writeln!(text, "    {entry:24} {handler:36} {}", owner(*of));
            entries.push(json!({ "entry": entry, "handler": handler, "owner": owner(*of) }));
        }
        facts.push(json!({ "type": vector.type_name, "name": vector.name,
            "file": path_to_json(&vector.file), "line": vector.line, "entries": entries }));
    }
    let doubtful: Vec<&String> = understood.doubtful.iter().take(LISTED).collect();
    let _ = writeln!(
        text,
        "\n{} vectors; {} functions with {} returns, {} of them not understood",
        vectors.len(),
        understood.functions,
        understood.returns,
        understood.doubtful.len()
    );
    for place in &doubtful {
        let _ = writeln!(text, "    {}", shown_name(place));
    }
    let facts = json!({ "vectors": facts, "functions": understood.functions, "returns": understood.returns,
        "not_understood_count": understood.doubtful.len(), "not_understood": doubtful });
    output::facts(as_json, &facts, &text)
}

/// Files as they were, and the new file system.
pub(crate) type Made = (std::collections::BTreeMap<PathBuf, Vec<u8>>, Instrumented);

/// Instruments a source; nothing is written.
pub(crate) fn make(
    source: &Path,
    extension: &Path,
    name: Option<&str>,
    headers: Option<&Path>,
) -> Outcome<Made> {
    let extension = read_extension(extension)?;
    let folder = Folder::read(source).map_err(|e| of_fist(&e))?;
    let headers = headers.map(Path::to_owned).or_else(|| Kernel::around(source)).ok_or_else(|| {
        Failure::new(exit::NOT_HERE, format!("{}: lies in no kernel's source", shown_name(source)))
            .with_remedy("name the headers of its kernel with --headers /usr/src/linux-headers-VERSION-common")
    })?;
    let kernel = Kernel::read(&headers).map_err(|e| of_fist(&e))?;
    let made =
        tacita_fist::instrument(&folder, &extension, &kernel, name).map_err(|e| of_fist(&e))?;
    Ok((folder.into_files(), made))
}

/// An extension from a file; without one of this name, the one that comes with the program.
fn read_extension(file: &Path) -> Outcome<Extension> {
    let read = || {
        // Nobody may ever write to a pipe.
        if !fs::metadata(file)?.is_file() {
            return Err(std::io::Error::new(ErrorKind::InvalidInput, "no regular file"));
        }
        let mut bytes = Vec::new();
        fs::File::open(file)?.take(EXTENSION_LEN_MAX + 1).read_to_end(&mut bytes)?;
        std::io::Result::Ok(bytes)
    };
    let bytes = match (read(), file.to_str().and_then(tacita_fist::shipped)) {
        (Ok(bytes), _) => bytes,
        // What is there and cannot be read is not the program's own.
        (Err(error), Some(text)) if error.kind() == ErrorKind::NotFound || file.is_dir() => {
            text.as_bytes().to_vec()
        }
        (Err(error), _) => {
            let known: Vec<&str> = tacita_fist::SHIPPED.iter().map(|(name, _)| *name).collect();
            let code = match error.kind() {
                ErrorKind::InvalidInput => exit::USAGE,
                _ => exit::DEVICE,
            };
            return Err(Failure::new(code, format!("{}: {error}", shown_name(file))).with_remedy(
                format!("name a file, or an extension of the program: {}", known.join(", ")),
            ));
        }
    };
    if bytes.len() as u64 > EXTENSION_LEN_MAX {
        let text = format!("{}: longer than {EXTENSION_LEN_MAX} bytes", shown_name(file));
        return Err(Failure::usage(text).with_remedy("an extension is a page or two of text"));
    }
    Extension::parse(file, bytes).map_err(|e| of_fist(&e))
}

/// Writes all files, which are there when all of them are.
fn write(made: &Instrumented, out: &Path) -> Outcome<()> {
    let failed = |error: std::io::Error| {
        let text = format!("{}: {error}", shown_name(out));
        match error.kind() {
            ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory => {
                Failure::usage(text).with_remedy("name a folder that does not exist yet")
            }
            _ => Failure { cause: text, ..Failure::from(error) },
        }
    };
    let new = NewFolder::prepare(out).map_err(failed)?;
    for (path, bytes) in &made.files {
        let file = new.path().join(path);
        if let Some(above) = file.parent() {
            fs::create_dir_all(above).map_err(failed)?;
        }
        fs::write(file, bytes).map_err(failed)?;
    }
    new.publish().map_err(failed)
}

/// A folder as a shell has to be given it from anywhere: `make` goes elsewhere before it looks for it.
fn for_shell(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let whole = whole.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if whole.chars().all(is_plain) {
        return whole;
    }
    format!("'{}'", whole.replace('\'', r"'\''"))
}

fn tell(made: &Instrumented, out: &Path, json: bool) -> Outcome<()> {
    let report = &made.report;
    let facts: Value = json!({
        "folder": path_to_json(out),
        "file_systems": made.file_systems,
        "vectors": report.vectors,
        "functions_edited": report.functions,
        "returns_covered": report.returns,
        "handlers_wrapped": report.wrappers - report.additions,
        "entries_added": report.additions,
        "files_changed": report.changed,
        "build": format!("make -C /lib/modules/$(uname -r)/build M={} modules", for_shell(out)),
    });
    output::done(json, &facts, &output::lines(&facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It may be gone by the time that it has been read.
    #[test]
    fn a_source_that_is_not_there_is_named() {
        let refused = is_outside(Path::new("out"), Path::new("/nowhere/source")).unwrap_err();
        assert_eq!(refused.code, exit::DEVICE);
        assert!(refused.cause.contains("/nowhere/source"), "{}", refused.cause);
    }
}
