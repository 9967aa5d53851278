//! See `tacita_hostile::flash::image`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::flash::image(bytes));
