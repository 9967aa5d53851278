//! See `tacita_fuzz::spool_intent`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::spool_intent(bytes));
