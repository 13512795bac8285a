//! Where each message of an upstream goes. A process per session has one client, `a`; a shared one has `a` and `b`.

mod answers;
mod notifications;
mod requests;
