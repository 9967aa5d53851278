//! Every input that was ever kept, through its target once more.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Where the corpus lies.
const FUZZ: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz");

/// A target: its name, and the function that it hands the bytes to.
struct Target {
    name: &'static str,
    path: &'static str,
    run: fn(&[u8]),
}

macro_rules! targets {
    ($($name:literal: $run:path,)*) => {
        [$(Target { name: $name, path: stringify!($run), run: $run },)*]
    };
}

const TARGETS: [Target; 27] = targets! {
    "image_open": tacita_hostile::image_open,
    "journal": tacita_hostile::journal,
    "directory_page": tacita_hostile::directory_page,
    "purge_rules": tacita_hostile::purge_rules,
    "spool_record": tacita_hostile::spool_record,
    "spool_intent": tacita_hostile::spool_intent,
    "spool_folder": tacita_hostile::spool_folder,
    "control_request": tacita_hostile::control_request,
    "nbd_options": tacita_hostile::nbd::options,
    "nbd_requests": tacita_hostile::nbd::requests,
    "oram_requests": tacita_hostile::oram::requests,
    "oram_replies": tacita_hostile::oram::replies,
    "oram_agreement": tacita_hostile::oram::agreement,
    "oram_lease": tacita_hostile::oram::lease,
    "oram_engine": tacita_hostile::oram::engine,
    "oram_key": tacita_hostile::oram::key,
    "oram_profiles": tacita_hostile::oram::profiles,
    "oram_trace": tacita_hostile::oram::trace,
    "privatefs_block": tacita_hostile::privatefs::block,
    "pddm_superblock": tacita_hostile::pddm::superblock,
    "pddm_units": tacita_hostile::pddm::units,
    "fist_extension": tacita_hostile::fist::extension,
    "fist_source": tacita_hostile::fist::source,
    "flash_image": tacita_hostile::flash::image,
    "dnefs_record": tacita_hostile::dnefs::record,
    "dnefs_dump": tacita_hostile::dnefs::dump,
    "dnefs_mount": tacita_hostile::dnefs::mount,
};

#[test]
fn the_corpus_is_digested() {
    let corpus = Path::new(FUZZ).join("corpus");
    for Target { name, run, .. } in TARGETS {
        let inputs = fs::read_dir(corpus.join(name)).into_iter().flatten().flatten();
        let inputs: Vec<_> = inputs.map(|entry| entry.path()).collect();
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for path in inputs {
            println!("{}", path.display());
            run(&fs::read(path).unwrap());
        }
    }
}

/// In the corpus's own README, in rows that begin with the input.
#[test]
fn every_input_has_its_sentence() {
    let corpus = Path::new(FUZZ).join("corpus");
    let page = fs::read_to_string(corpus.join("README.md")).unwrap();
    let told: BTreeSet<String> = page
        .lines()
        .filter_map(|row| Some(row.strip_prefix("| `")?.split_once('`')?.0.into()))
        .collect();
    let mut there = BTreeSet::new();
    for target in TARGETS.map(|target| target.name) {
        for entry in fs::read_dir(corpus.join(target)).unwrap() {
            there.insert(format!("{target}/{}", entry.unwrap().file_name().to_str().unwrap()));
        }
    }
    assert_eq!(told, there);
}

/// The files that a fuzzer is built from name the functions that are played here, and no more.
#[test]
fn every_target_is_replayed() {
    let folder = Path::new(FUZZ).join("fuzz_targets");
    let files: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(files, TARGETS.iter().map(|target| target.name.to_owned()).collect());
    let manifest = fs::read_to_string(Path::new(FUZZ).join("Cargo.toml")).unwrap();
    for Target { name, path, .. } in TARGETS {
        let path = path.replace(' ', "");
        let want = format!(
            "//! See `{path}`.\n\n#![no_main]\n\n\
             libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {path}(bytes));\n"
        );
        assert_eq!(fs::read_to_string(folder.join(format!("{name}.rs"))).unwrap(), want);
        let bin = format!("[[bin]]\nname = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n");
        assert!(manifest.contains(&bin), "fuzz/Cargo.toml has no target {name}");
    }
}
