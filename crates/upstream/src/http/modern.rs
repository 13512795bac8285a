//! Translates for a server that speaks only revision 2026-07-28, under a caller that speaks an earlier one.
//!
//! That revision has no `initialize` and no session: every request stands alone and carries what `initialize` used to
//! settle (`envelope`, `headers`; `discovery` finds out whether a server speaks it). A server cannot send requests; it
//! answers a call with its questions, and the call is sent again with the answers (`call`, `input`, `questions`). Its
//! notifications arrive on a stream that a request opens (`listen`, `subscriptions`). `state` holds what the server does
//! not remember. The caller sees none of that.

mod annotations;
pub(crate) mod call;
pub(crate) mod discovery;
pub(crate) mod envelope;
mod exchange;
mod headers;
mod input;
pub(crate) mod listen;
mod members;
mod questions;
pub(crate) mod state;
mod subscriptions;
