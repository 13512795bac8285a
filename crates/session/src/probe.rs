//! What a server offers, known before a session starts it: each server is probed once in a fence around nothing, for
//! each kind of client and set of secrets, and the result is kept.
//!
//! [`ProbeCache`] is pure: it says who must probe, who waits, and what is known. `server.rs` runs the probes.

mod advertised;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use wire::{InitializeResult, Version};

pub(crate) use self::advertised::Advertised;
use self::advertised::Promise;
use crate::catalogue::{Catalogue, CatalogueError};

/// Kinds of clients that are kept apart; the one that was not seen for longest goes.
const MAX_KINDS: usize = 64;

/// A hash over all that a probe's result depends on.
pub(crate) type Kind = [u8; 32];

/// What a probe has shown.
#[derive(Clone, Debug)]
pub(crate) struct Probed {
    pub(crate) initialize: Arc<InitializeResult>,
    /// Its lists, where clients see them merged with those of others.
    pub(crate) catalogue: Option<Arc<Catalogue>>,
}

pub(crate) type ProbeResult = Result<Probed, CatalogueError>;

/// What to do about a kind of client.
#[derive(Debug)]
pub(crate) enum Lookup {
    Known(ProbeResult),
    /// A probe runs; its result arrives here.
    Wait(oneshot::Receiver<ProbeResult>),
    /// The caller must run the probe and [`ProbeCache::finish`] it; its result arrives here, too.
    Probe(oneshot::Receiver<ProbeResult>),
}

#[derive(Debug)]
pub(crate) struct ProbeCache {
    /// The most recently used first.
    entries: Vec<(Kind, Entry)>,
    /// When a failed probe is tried again; never, where a guess serves until a worker has shown better.
    retry_after: Option<Duration>,
}

#[derive(Debug)]
struct Entry {
    state: State,
    /// What clients of this kind are told.
    promise: Option<Promise>,
}

#[derive(Debug)]
enum State {
    Running(Vec<oneshot::Sender<ProbeResult>>),
    Done { result: ProbeResult, at: Instant },
}

impl ProbeCache {
    pub(crate) fn new(retry_after: Option<Duration>) -> Self {
        Self { entries: Vec::new(), retry_after }
    }

    /// Finds what is known of a kind, or who finds it out.
    pub(crate) fn lookup(&mut self, kind: Kind, now: Instant) -> Lookup {
        self.forget_failures(now);
        let found = self.entries.iter().position(|(known, _)| *known == kind);
        if let Some(at) = found {
            let used = self.entries.remove(at);
            self.entries.insert(0, used);
            return match &mut self.entries[0].1.state {
                State::Done { result, .. } => Lookup::Known(result.clone()),
                State::Running(waiters) => {
                    let (sender, receiver) = oneshot::channel();
                    waiters.push(sender);
                    Lookup::Wait(receiver)
                }
            };
        }
        let (sender, receiver) = oneshot::channel();
        let entry = Entry { state: State::Running(vec![sender]), promise: None };
        self.entries.insert(0, (kind, entry));
        self.make_room();
        Lookup::Probe(receiver)
    }

    /// A probe that failed a while ago may be tried again.
    fn forget_failures(&mut self, now: Instant) {
        let Some(retry_after) = self.retry_after else { return };
        self.entries.retain(|(_, entry)| match &entry.state {
            State::Done { result: Err(_), at } => now.saturating_duration_since(*at) < retry_after,
            _ => true,
        });
    }

    /// Forgets the kinds that were not used for longest, but none that is being probed.
    fn make_room(&mut self) {
        while self.entries.len() > MAX_KINDS {
            let is_done = |(_, entry): &(Kind, Entry)| matches!(entry.state, State::Done { .. });
            let Some(oldest) = self.entries.iter().rposition(is_done) else { return };
            self.entries.remove(oldest);
        }
    }

    /// Stores the result of a probe and gives it to all who wait for it. A catalogue that is known already is shared.
    pub(crate) fn finish(&mut self, kind: Kind, result: ProbeResult, now: Instant) {
        let result = result.map(|probed| self.shared(probed));
        if let Some(entry) = self.entry(kind)
            && let State::Running(waiters) =
                std::mem::replace(&mut entry.state, State::Done { result: result.clone(), at: now })
        {
            for waiter in waiters {
                let _ = waiter.send(result.clone());
            }
        }
    }

    fn shared(&self, mut probed: Probed) -> Probed {
        let known = |entry: &Entry| match &entry.state {
            State::Done { result: Ok(known), .. } => known.catalogue.clone(),
            _ => None,
        };
        let mut catalogues = self.entries.iter().filter_map(|(_, entry)| known(entry));
        if let Some(same) = catalogues.find(|known| Some(&**known) == probed.catalogue.as_deref()) {
            probed.catalogue = Some(same);
        }
        probed
    }

    fn entry(&mut self, kind: Kind) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|(known, _)| *known == kind).map(|(_, entry)| entry)
    }

    /// The lists that are known without a probe.
    pub(crate) fn known_catalogue(&self, kind: Kind) -> Option<Arc<Catalogue>> {
        let (_, entry) = self.entries.iter().find(|(known, _)| *known == kind)?;
        match &entry.state {
            State::Done { result: Ok(probed), .. } => probed.catalogue.clone(),
            _ => None,
        }
    }

    /// What a client of this kind is told: what the probe has shown, or a guess if it failed.
    fn promise(&mut self, kind: Kind, result: &ProbeResult, version: Version) -> Promise {
        let made = || match result {
            Ok(probed) => Promise::shown(&probed.initialize),
            Err(_) => Promise::guess(version),
        };
        match self.entry(kind) {
            Some(entry) => entry.promise.get_or_insert_with(made).clone(),
            None => made(),
        }
    }

    fn set_promise(&mut self, kind: Kind, promise: Promise) {
        if let Some(entry) = self.entry(kind) {
            entry.promise = Some(promise);
        }
    }

    fn current_promise(&self, kind: Kind) -> Option<&Promise> {
        let (_, entry) = self.entries.iter().find(|(known, _)| *known == kind)?;
        entry.promise.as_ref()
    }
}

#[cfg(test)]
mod tests;
