//! See `tacita_hostile::directory_page`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::directory_page(bytes));
