//! See `tacita_hostile::fist::source`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::fist::source(bytes));
