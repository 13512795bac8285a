//! Policies: what the plan and the survey of mounts make of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fence::oracle::check(data));
