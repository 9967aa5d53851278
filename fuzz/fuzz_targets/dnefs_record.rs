//! See `tacita_hostile::dnefs::record`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::dnefs::record(bytes));
