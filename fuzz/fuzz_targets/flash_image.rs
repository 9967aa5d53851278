//! See `tacita_fuzz::flash::image`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::flash::image(bytes));
