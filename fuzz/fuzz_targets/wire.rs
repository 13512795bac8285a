//! Messages, batches, server-sent events and lines: what the wire parser makes of any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::oracle::check(data));
