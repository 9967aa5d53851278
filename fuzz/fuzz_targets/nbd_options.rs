//! See `tacita_fuzz::nbd::options`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::nbd::options(bytes));
