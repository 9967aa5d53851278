//! See `tacita_fuzz::spool_folder`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::spool_folder(bytes));
