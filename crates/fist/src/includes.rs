//! Headers that a source includes from beside its folder: they come along, or it could not be built elsewhere.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use crate::edits::Edits;
use crate::error::{Error, Result};
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
///
/// # Errors
/// If one is there and cannot be read.
pub(crate) fn read(folder: &Path, sources: &[Source]) -> Result<Outside> {
    let mut outside = Outside::new();
    for (_, path) in sources.iter().flat_map(named) {
        let whole = folder.join(&path);
        if whole.try_exists().map_err(|error| Error::io(&whole, &error))? {
            outside.insert(path, read_file(&whole)?);
        }
    }
    Ok(outside)
}

/// Where a header from outside is in the new folder: those from further up have a place of their own, for names
/// may be the same.
pub(crate) fn place(path: &Path) -> PathBuf {
    let is_up = |part: &Component<'_>| *part == Component::ParentDir;
    let below: PathBuf = path.components().skip_while(is_up).collect();
    match path.components().take_while(is_up).count() {
        1 => Path::new(PLACE).join(below),
        up => Path::new(&format!("{PLACE}_{up}")).join(below),
    }
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
    fn headers_of_one_name_from_different_folders_have_different_places() {
        let paths = ["../a.h", "../../a.h", "../../../a.h", "../2/a.h"].map(Path::new);
        let places: std::collections::BTreeSet<PathBuf> = paths.map(place).into();
        assert_eq!(places.len(), paths.len(), "{places:?}");
    }

    /// A header that is there and cannot be read would be left out.
    #[test]
    fn what_is_outside_and_cannot_be_read_is_told() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("fs");
        std::fs::create_dir(&folder).unwrap();
        let source =
            Source::parse(Path::new("a.c"), b"#include \"../other.h\"\n".to_vec()).unwrap();
        let sources = [source];
        assert_eq!(read(&folder, &sources).unwrap(), Outside::new());
        std::os::unix::fs::symlink("other.h", above.path().join("other.h")).unwrap();
        assert!(read(&folder, &sources).unwrap_err().to_string().contains("other.h"));
    }

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
