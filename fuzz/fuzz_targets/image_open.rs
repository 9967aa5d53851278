//! See `tacita_hostile::image_open`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::image_open(bytes));
