//! Tests of the client transport against scripted servers, and against a real one.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::needless_pass_by_value, reason = "tests write `json!({…})` in the place of an argument")]

mod conversation;
mod functional;
mod lifetime;
mod modern;
mod real_server;
mod recovery;
mod refusals;
mod scripted_server;
mod security;
