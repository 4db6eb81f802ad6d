//! Whole connections: commands, hostile arguments and raw bytes through a server without threads; see `gimmal_fuzz::command_front`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| gimmal_fuzz::command_front::run(input));
