//! See `tacita_fuzz::oram::agreement`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::oram::agreement(bytes));
