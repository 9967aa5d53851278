//! See `tacita_fuzz::oram::replies`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::oram::replies(bytes));
