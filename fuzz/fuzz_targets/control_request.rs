//! See `tacita_fuzz::control_request`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tacita_fuzz::control_request(bytes));
