//! See `tacita_fuzz::directory_page`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::directory_page(bytes));
