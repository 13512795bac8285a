//! The other era: a server that speaks only revision 2026-07-28, under a user who speaks those before it.
//!
//! In that revision there is no `initialize` and no session: every request stands for itself and carries what
//! `initialize` used to settle ([`envelope`], [`headers`]). A server cannot ask its client anything; it answers a call
//! with what it needs to know, and the call is sent again with the answers ([`call`], [`input`], [`questions`]). What it says
//! unasked comes on a stream that a request opens ([`listen`], [`subscriptions`]). Our user sees none of that.

mod annotations;
pub(crate) mod call;
pub(crate) mod discover;
mod envelope;
mod exchange;
mod headers;
mod input;
pub(crate) mod listen;
mod members;
mod questions;
mod subscriptions;

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::header::HeaderValue;
use serde_json::value::RawValue;
use wire::{ClientCapabilities, Id, LogLevel};

use crate::http::client::Session;
use annotations::Annotations;
use discover::Discovered;
use envelope::Envelope;
pub(crate) use questions::Questions;
use subscriptions::Subscriptions;

/// The revision that is spoken to the server.
pub(crate) const VERSION: &str = "2026-07-28";

/// What is remembered of a conversation whose server remembers nothing.
pub(crate) struct Modern {
    /// Never has an id; its version goes into the header of every request.
    session: Session,
    /// What every request carries.
    envelope: Envelope,
    /// What our user can be asked.
    capabilities: ClientCapabilities,
    /// From when on our user wants to hear logs. The server sends none without it.
    log_level: Mutex<Option<LogLevel>>,
    /// Which arguments of which tools also stand in headers.
    annotations: Annotations,
    subscriptions: Subscriptions,
    /// What our user was asked and has not answered yet.
    pub(crate) questions: Questions,
    /// Counts the ids of our own.
    ids: AtomicU64,
}

impl Modern {
    fn new(session: Session, envelope: Envelope, found: &Discovered) -> Self {
        Self {
            session,
            capabilities: envelope.capabilities(),
            envelope,
            log_level: Mutex::default(),
            annotations: Annotations::default(),
            subscriptions: Subscriptions::new(found.can),
            questions: Questions::default(),
            ids: AtomicU64::default(),
        }
    }

    fn log_level(&self) -> MutexGuard<'_, Option<LogLevel>> {
        self.log_level.lock()
    }

    /// An id for a request of our own, or for one of our user's that is sent once more.
    fn own_id(&self, purpose: &str) -> Id {
        own_id(purpose, self.ids.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// What goes with every request to a server of this era.
fn session(number: u64) -> Session {
    Session { number, id: None, version: Some(HeaderValue::from_static(VERSION)) }
}

fn own_id(purpose: &str, number: u64) -> Id {
    // A short plain string is always an id.
    RawValue::from_string(format!("\"ringfence-{purpose}-{number}\""))
        .ok()
        .and_then(|raw| Id::from_raw(&raw).ok())
        .unwrap_or_else(|| Id::number(number))
}
