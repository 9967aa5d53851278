//! See `tacita_hostile::oram::engine`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::oram::engine(bytes));
