//! See `tacita_hostile::oram::replies`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::oram::replies(bytes));
