//! See `tacita_hostile::dnefs::dump`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::dnefs::dump(bytes));
