//! The resolver and the searches against somebody who moves things around all the while. No fence is involved.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod arena;
mod races;
