//! See `tacita_hostile::control_request`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_hostile::control_request(bytes));
