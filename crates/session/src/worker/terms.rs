//! What a worker is made with: its upstream, its scope, and what every generation is greeted with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use upstream::{Lifecycle, Program, Upstream, hint_on_refused_write};
use wire::Request;

use super::action::Action;
use crate::failure_log::FailureLog;
use crate::probe::Advertised;
use crate::scope::Scope;

/// What an upstream is greeted with.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    /// The `initialize` that every generation is greeted with.
    pub(crate) handshake: Arc<Request>,
    /// The `notifications/initialized` that follows it, once it is known.
    pub(crate) initialized: Option<Bytes>,
    /// What the client was told before the worker started.
    pub(crate) advertised: Option<Advertised>,
}

/// What does not change during the life of a worker.
#[derive(Clone, Debug)]
pub(crate) struct WorkerTerms {
    pub(crate) upstream: Arc<Upstream>,
    /// Where the upstream may write, and what it hears of roots.
    pub(crate) scope: Arc<Scope>,
    /// Clients see this server as it is, so it must stay what they were told.
    pub(crate) is_passed_through: bool,
    /// Whether this server asks for its roots when it starts: learned from probes and earlier generations.
    pub(crate) asks_for_roots: Arc<AtomicBool>,
    pub(crate) verbose_meta: bool,
    /// What was logged of the failures of this server.
    pub(crate) failures: Arc<FailureLog>,
}

impl WorkerTerms {
    pub(super) fn serves_many(&self) -> bool {
        self.upstream.lifecycle.serves_many()
    }

    /// Whether it may ask the gateway about its session: the built-in server, for one session.
    pub(super) fn may_ask_about_session(&self) -> bool {
        !self.serves_many() && self.upstream.program().is_some_and(|program| program.keeps_state)
    }

    pub(super) fn asks_for_roots(&self) -> bool {
        self.asks_for_roots.load(Ordering::Relaxed)
    }

    pub(super) fn learn_roots_habit(&self, asks: bool) {
        self.asks_for_roots.store(asks, Ordering::Relaxed);
    }

    /// What to do about a write that the fence refused, if the server's words are about one.
    pub(super) fn hint_on_refused_write(&self, words: &str) -> Option<String> {
        let is_fenced = |program: &Program| program.fence.is_some() && !program.explains_refusals;
        if self.upstream.program().is_some_and(is_fenced) {
            hint_on_refused_write(words, &self.scope.directories)
        } else {
            None
        }
    }

    /// Ends a worker that was there for one call, now that the call is over.
    pub(super) fn retire(&self) -> Option<Action> {
        (self.upstream.lifecycle == Lifecycle::Call).then_some(Action::Retire)
    }
}
