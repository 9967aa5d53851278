//! See `tacita_hostile::purge_rules`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::purge_rules(bytes));
