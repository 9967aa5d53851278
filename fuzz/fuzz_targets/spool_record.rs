//! See `tacita_hostile::spool_record`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::spool_record(bytes));
