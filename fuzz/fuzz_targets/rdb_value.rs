//! Encoded values and files of any bytes; see `gimmal_fuzz::rdb_value`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| gimmal_fuzz::rdb_value::run(input));
