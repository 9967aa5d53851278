//! See `tacita_fuzz::oram::lease`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::oram::lease(bytes));
