//! See `tacita_fuzz::image_open`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::image_open(bytes));
