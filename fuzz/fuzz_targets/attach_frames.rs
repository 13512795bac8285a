//! Frames of an attachment, as either end receives them from the other.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    upstream::oracle::check(data);
    connect::oracle::check(data);
});
