//! See `tacita_fuzz::pddm::superblock`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::pddm::superblock(bytes));
