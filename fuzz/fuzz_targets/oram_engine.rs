//! See `tacita_fuzz::oram::engine`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::oram::engine(bytes));
