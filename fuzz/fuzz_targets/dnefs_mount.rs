//! See `tacita_fuzz::dnefs::mount`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::dnefs::mount(bytes));
