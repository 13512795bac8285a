//! Tests of the test tools themselves: the fixture over stdio, the raw client and the gateway harness.

#![allow(clippy::unwrap_used, reason = "a failure here is the test's failure, in its helping functions too")]
#![allow(clippy::needless_pass_by_value, reason = "tests write `json!({…})` in the place of an argument")]

mod asking;
mod calls;
mod gateway_harness;
mod handshake;
mod messages;
mod process;
mod raw_client;
mod start_flags;
mod stdio_server;
mod suite_features;
mod tasks;
