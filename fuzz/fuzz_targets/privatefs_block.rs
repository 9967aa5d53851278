//! See `tacita_hostile::privatefs::block`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::privatefs::block(bytes));
