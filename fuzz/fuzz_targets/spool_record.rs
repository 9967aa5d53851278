//! See `tacita_fuzz::spool_record`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::spool_record(bytes));
