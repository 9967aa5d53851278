//! Headers that a source includes from beside its folder: they come along, or it could not be built elsewhere.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use crate::edits::Edits;
use crate::folder::read_file;
use crate::source::Source;

/// Where they are put in the new folder.
const PLACE: &str = "fist_outside";

/// Headers from outside by their path from the folder, such as `../nls/table.h`.
pub(crate) type Outside = BTreeMap<PathBuf, Vec<u8>>;

/// Paths from the folder that a source includes from outside of it, and where in the source they are named.
fn named(source: &Source) -> impl Iterator<Item = (Range<usize>, PathBuf)> {
    source.directives().filter(|(_, words)| words.first() == Some(&"include")).filter_map(
        |(token, _)| {
            let text = source.text(&(token.start..token.end));
            let (before, rest) = text.split_once('"')?;
            let (name, _) = rest.split_once('"')?;
            let path = from_folder(&source.path, name)?;
            let start = token.start + before.len() + 1;
            Some((start..start + name.len(), path))
        },
    )
}

/// The path from the folder, if it leads out of it.
fn from_folder(source: &Path, name: &str) -> Option<PathBuf> {
    let mut parts: Vec<Component<'_>> = Vec::new();
    for part in source.parent()?.components().chain(Path::new(name).components()) {
        match (part, parts.last()) {
            (Component::ParentDir, Some(Component::Normal(_))) => {
                parts.pop();
            }
            (Component::ParentDir | Component::Normal(_), _) => parts.push(part),
            (Component::CurDir, _) => {}
            _ => return None,
        }
    }
    (parts.first() == Some(&Component::ParentDir)).then(|| parts.iter().collect())
}

/// Reads those that are there; what is not is left to the compiler, which may find it elsewhere.
pub(crate) fn read(folder: &Path, sources: &[Source]) -> Outside {
    let paths = sources.iter().flat_map(named).map(|(_, path)| path);
    paths.filter_map(|path| Some((path.clone(), read_file(&folder.join(path)).ok()?))).collect()
}

/// Where a header from outside is in the new folder.
pub(crate) fn place(path: &Path) -> PathBuf {
    let below: PathBuf = path.components().filter(|part| *part != Component::ParentDir).collect();
    Path::new(PLACE).join(below)
}

/// Names them by their new places.
pub(crate) fn redirect(edits: &mut Edits, source: &Source, outside: &Outside) {
    for (range, path) in named(source).filter(|(_, path)| outside.contains_key(path)) {
        let up = "../".repeat(source.path.components().count().saturating_sub(1));
        edits.replace(range, format!("{up}{}", place(&path).display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_beside_the_folder_are_named_by_their_new_places() {
        let text = b"#include \"../nls/table.h\"\n#include \"own.h\"\n#include \"../../up.h\"\n\
                     #include <linux/fs.h>\nint f(void) { return 0; }\n";
        for (name, paths, wanted) in [
            ("a.c", ["../nls/table.h", "../../up.h"].as_slice(), "\"fist_outside/nls/table.h\""),
            ("deep/a.c", &["../up.h"], "\"../fist_outside/up.h\""),
        ] {
            let source = Source::parse(Path::new(name), text.to_vec()).unwrap();
            let found: Vec<PathBuf> = named(&source).map(|(_, path)| path).collect();
            assert_eq!(found, paths.iter().map(PathBuf::from).collect::<Vec<_>>(), "{name}");
            let mut edits = Edits::default();
            let all = found.iter().map(|path| (path.clone(), Vec::new())).collect();
            redirect(&mut edits, &source, &all);
            let result = String::from_utf8(edits.apply(text).bytes).unwrap();
            assert!(result.contains(wanted) && result.contains("#include \"own.h\""), "{result}");
        }
    }
}
