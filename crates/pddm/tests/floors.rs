//! Imports run one way: the order of the modules is that of the table in ARCHITECTURE.md.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::collections::BTreeSet;
use std::fs;

/// The modules in the order of the table.
fn floors() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("In `crates/pddm/src`").unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with("| `"));
    let rows = rows.take_while(|line| line.starts_with('|'));
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

/// What a module imports, and what it names by its whole path; its unit tests may do as they like.
fn imports(module: &str) -> BTreeSet<String> {
    let source = format!("{}/src/{module}.rs", env!("CARGO_MANIFEST_DIR"));
    let source = fs::read_to_string(source).unwrap();
    let code = source.split("#[cfg(test)]").next().unwrap();
    let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let paths = code.flat_map(|line| line.split("crate::").skip(1));
    let names = paths.map(|path| path.split(|c: char| !c.is_alphanumeric() && c != '_').next());
    names.map(|name| name.unwrap().to_owned()).collect()
}

/// Imports of what stands behind a module in that order.
fn upward(floors: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, module) in floors.iter().enumerate() {
        let behind = &floors[at..];
        let wrong = imports(module).into_iter().filter(|name| behind.contains(name));
        found.extend(wrong.map(|name| format!("{module} imports {name}")));
    }
    found
}

#[test]
fn imports_run_one_way() {
    let floors = floors();
    let sources = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    let names = sources.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let modules = names.filter_map(|name| name.strip_suffix(".rs").map(str::to_owned));
    let modules: BTreeSet<String> = modules.filter(|name| name != "lib").collect();
    assert_eq!(floors.iter().cloned().collect::<BTreeSet<_>>(), modules, "the table has them all");
    assert_eq!(upward(&floors), Vec::<String>::new());
}

#[test]
fn an_import_that_runs_the_other_way_is_found() {
    let mut floors = floors();
    let (low, high) = ("open_log".to_owned(), "sequencer".to_owned());
    floors.retain(|name| *name != high);
    let at = floors.iter().position(|name| *name == low).unwrap();
    floors.insert(at, high);
    assert!(upward(&floors).contains(&"sequencer imports open_log".to_owned()));
}
