//! Imports run one way: the order of the modules is that of the table in ARCHITECTURE.md.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules in the order of the table.
fn floors() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("In `crates/purge/src`").unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with("| `"));
    let rows = rows.take_while(|line| line.starts_with('|'));
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The files of a module: its own, and those below it.
fn files(place: &Path) -> Vec<PathBuf> {
    let mut all = vec![place.with_extension("rs")];
    for entry in fs::read_dir(place).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            all.extend(files(&path.with_extension("")));
        }
    }
    all
}

/// What a module imports, and what it names by its whole path; its unit tests may do as they like.
fn imports(module: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files(&sources().join(module)) {
        let source = fs::read_to_string(file).unwrap();
        let code = source.split("#[cfg(test)]").next().unwrap();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code = code.collect::<Vec<_>>().join(" ");
        for path in code.split("crate::").skip(1) {
            let list = path.strip_prefix('{').and_then(|list| list.split('}').next());
            let paths = list.map_or_else(|| vec![path], |list| list.split(',').collect());
            let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
            let firsts = paths.into_iter().map(str::trim_start);
            let firsts = firsts.map(|path| path.split(|c| !is_of_name(c)).next().unwrap());
            names.extend(firsts.map(str::to_owned));
        }
    }
    names
}

/// Imports of what stands behind a module in that order.
fn upward(floors: &[String]) -> Vec<String> {
    let imports: BTreeMap<_, _> = floors.iter().map(|module| (module, imports(module))).collect();
    let mut found = Vec::new();
    for (at, module) in floors.iter().enumerate() {
        let behind = floors[at + 1..].iter().filter(|name| imports[module].contains(*name));
        found.extend(behind.map(|name| format!("{module} imports {name}")));
    }
    found
}

#[test]
fn imports_run_one_way() {
    let floors = floors();
    let names = fs::read_dir(sources()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let modules = names.filter_map(|name| name.strip_suffix(".rs").map(str::to_owned));
    let modules: BTreeSet<String> = modules.filter(|name| name != "lib").collect();
    assert_eq!(floors.iter().cloned().collect::<BTreeSet<_>>(), modules, "the table has them all");
    assert_eq!(upward(&floors), Vec::<String>::new());
}

#[test]
fn an_import_that_runs_the_other_way_is_found() {
    let mut floors = floors();
    let (low, high) = ("lower_fs".to_owned(), "verdict".to_owned());
    floors.retain(|name| *name != high);
    let at = floors.iter().position(|name| *name == low).unwrap();
    floors.insert(at, high);
    assert!(upward(&floors).contains(&"verdict imports lower_fs".to_owned()));
}
