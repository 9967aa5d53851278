//! See `tacita_fuzz::privatefs::block`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::privatefs::block(bytes));
