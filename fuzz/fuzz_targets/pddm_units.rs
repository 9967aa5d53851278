//! See `tacita_hostile::pddm::units`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::pddm::units(bytes));
