//! See `tacita_hostile::fist::extension`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::fist::extension(bytes));
