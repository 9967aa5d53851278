//! See `tacita_hostile::journal`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::journal(bytes));
