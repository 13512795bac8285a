//! The state of a conversation with a server that remembers nothing itself.

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::header::HeaderValue;
use serde_json::value::RawValue;
use wire::{ClientCapabilities, Id, LogLevel};

use super::annotations::Annotations;
use super::envelope::{Envelope, VERSION};
use super::questions::Questions;
use super::subscriptions::{ChangeNotifications, Subscriptions};
use crate::http::client::Session;

pub(crate) struct Modern {
    /// Never has an id; its version is a header of every request.
    pub(super) session: Session,
    /// Part of every request.
    pub(super) envelope: Envelope,
    /// What the caller can be asked.
    pub(super) capabilities: ClientCapabilities,
    /// The level from which on the caller wants log messages. Without one the server sends none.
    log_level: Mutex<Option<LogLevel>>,
    /// Which arguments of which tools are repeated in headers.
    pub(super) annotations: Annotations,
    pub(super) subscriptions: Subscriptions,
    /// Questions that the caller has not answered yet.
    pub(crate) questions: Questions,
    /// Counts our own ids.
    ids: AtomicU64,
}

impl Modern {
    pub(super) fn new(session: Session, envelope: Envelope, offered: ChangeNotifications) -> Self {
        Self {
            session,
            capabilities: envelope.capabilities(),
            envelope,
            log_level: Mutex::default(),
            annotations: Annotations::default(),
            subscriptions: Subscriptions::new(offered),
            questions: Questions::default(),
            ids: AtomicU64::default(),
        }
    }

    pub(super) fn log_level(&self) -> MutexGuard<'_, Option<LogLevel>> {
        self.log_level.lock()
    }

    /// An id for a request of our own, or for a request of the caller that is sent again.
    pub(super) fn own_id(&self, purpose: &str) -> Id {
        own_id(purpose, self.ids.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// The session that stands for the modern era: a version without an id.
pub(super) fn session(number: u64) -> Session {
    Session { number, id: None, version: Some(HeaderValue::from_static(VERSION)) }
}

pub(super) fn own_id(purpose: &str, number: u64) -> Id {
    // A short plain string is always a valid id.
    RawValue::from_string(format!("\"ringfence-{purpose}-{number}\""))
        .ok()
        .and_then(|raw| Id::from_raw(&raw).ok())
        .unwrap_or_else(|| Id::number(number))
}
