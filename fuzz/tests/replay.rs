//! Every input that was ever kept, through its target once more.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Each target, and what it does with the bytes.
const TARGETS: [(&str, fn(&[u8])); 27] = [
    ("image_open", tacita_fuzz::image_open),
    ("journal", tacita_fuzz::journal),
    ("directory_page", tacita_fuzz::directory_page),
    ("purge_rules", tacita_fuzz::purge_rules),
    ("spool_record", tacita_fuzz::spool_record),
    ("spool_intent", tacita_fuzz::spool_intent),
    ("spool_folder", tacita_fuzz::spool_folder),
    ("control_request", tacita_fuzz::control_request),
    ("nbd_options", tacita_fuzz::nbd::options),
    ("nbd_requests", tacita_fuzz::nbd::requests),
    ("oram_requests", tacita_fuzz::oram::requests),
    ("oram_replies", tacita_fuzz::oram::replies),
    ("oram_agreement", tacita_fuzz::oram::agreement),
    ("oram_lease", tacita_fuzz::oram::lease),
    ("oram_engine", tacita_fuzz::oram::engine),
    ("oram_key", tacita_fuzz::oram::key),
    ("oram_profiles", tacita_fuzz::oram::profiles),
    ("oram_trace", tacita_fuzz::oram::trace),
    ("privatefs_block", tacita_fuzz::privatefs::block),
    ("pddm_superblock", tacita_fuzz::pddm::superblock),
    ("pddm_units", tacita_fuzz::pddm::units),
    ("fist_extension", tacita_fuzz::fist::extension),
    ("fist_source", tacita_fuzz::fist::source),
    ("flash_image", tacita_fuzz::flash::image),
    ("dnefs_record", tacita_fuzz::dnefs::record),
    ("dnefs_dump", tacita_fuzz::dnefs::dump),
    ("dnefs_mount", tacita_fuzz::dnefs::mount),
];

#[test]
fn the_corpus_is_digested() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in TARGETS {
        let inputs = fs::read_dir(corpus.join(name)).into_iter().flatten().flatten();
        let inputs: Vec<_> = inputs.map(|entry| entry.path()).collect();
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for path in inputs {
            println!("{}", path.display());
            target(&fs::read(path).unwrap());
        }
    }
}

/// In the corpus's own README, in rows that begin with the input.
#[test]
fn every_input_has_its_sentence() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let page = fs::read_to_string(corpus.join("README.md")).unwrap();
    let told: BTreeSet<String> = page
        .lines()
        .filter_map(|row| Some(row.strip_prefix("| `")?.split_once('`')?.0.into()))
        .collect();
    let mut there = BTreeSet::new();
    for (target, _) in TARGETS {
        for entry in fs::read_dir(corpus.join(target)).unwrap() {
            there.insert(format!("{target}/{}", entry.unwrap().file_name().to_str().unwrap()));
        }
    }
    assert_eq!(told, there);
}

#[test]
fn every_target_is_replayed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
        assert!(TARGETS.iter().any(|(target, _)| *target == name), "{name} is not replayed");
    }
}
