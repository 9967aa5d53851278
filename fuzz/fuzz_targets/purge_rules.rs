//! See `tacita_fuzz::purge_rules`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::purge_rules(bytes));
