//! See `tacita_hostile::nbd::options`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::nbd::options(bytes));
