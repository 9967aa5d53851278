//! See `tacita_fuzz::oram::key`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::oram::key(bytes));
