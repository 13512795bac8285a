//! Paths and tool arguments as clients spell them: where the built-in server lets them lead.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| workspace::oracle::check(data));
