//! Payloads of RESTORE through the whole server; see `gimmal_fuzz::restore`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| gimmal_fuzz::restore::run(input));
