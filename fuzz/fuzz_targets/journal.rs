//! See `tacita_fuzz::journal`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::journal(bytes));
