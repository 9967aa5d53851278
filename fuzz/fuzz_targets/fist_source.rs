//! See `tacita_fuzz::fist::source`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::fist::source(bytes));
