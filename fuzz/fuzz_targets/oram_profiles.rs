//! See `tacita_fuzz::oram::profiles`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::oram::profiles(bytes));
