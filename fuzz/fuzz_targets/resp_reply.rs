//! The reply parser on any bytes in any pieces; see `gimmal_fuzz::resp_reply`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| gimmal_fuzz::resp_reply::run(input));
