//! How many sessions and calls a gateway takes: in all, of one principal, of one client window.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

use identity::{Instance, Principal, SessionId, SessionKey};

use crate::error::Refusal;
use crate::rights::Rights;
use crate::scope::{Scope, ScopeRefusal};
use crate::settings::Settings;

/// Rates of keys that were not used for a while are forgotten when there are more than this.
const MAX_RATE_KEYS: usize = 4096;

/// The windows of different principals may have the same name.
type InstanceKey = (Principal, Instance);

type Rate<K> = RateLimiter<K, HashMapStateStore<K>, MonotonicClock, NoOpMiddleware<std::time::Instant>>;

#[derive(Debug)]
pub(crate) struct Quotas {
    limits: Limits,
    taken: Mutex<Taken>,
    /// By the number of calls that principals may make; some may make more than others.
    principal_rates: Mutex<HashMap<NonZeroU32, Arc<Rate<Principal>>>>,
    instance_rate: Option<Rate<InstanceKey>>,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    sessions: usize,
    per_principal: Option<usize>,
    calls_per_second: Option<NonZeroU32>,
    per_instance: Option<usize>,
}

/// Who holds how many places, and where they work.
#[derive(Debug, Default)]
struct Taken {
    sessions: usize,
    principals: HashMap<Principal, usize>,
    instances: HashMap<InstanceKey, usize>,
    scopes: HashMap<SessionId, (Principal, Scope)>,
}

/// One session's place; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    quotas: Arc<Quotas>,
    key: SessionKey,
    instance: Instance,
    rights: Arc<Rights>,
    principal_rate: Option<Arc<Rate<Principal>>>,
}

impl Quotas {
    pub(crate) fn new(settings: &Settings) -> Arc<Self> {
        Arc::new(Self {
            limits: Limits {
                sessions: settings.max_sessions,
                per_principal: settings.max_sessions_per_principal,
                calls_per_second: settings.calls_per_second,
                per_instance: settings.max_sessions_per_instance,
            },
            taken: Mutex::default(),
            principal_rates: Mutex::default(),
            instance_rate: settings.instance_calls_per_second.map(rate),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock()
    }

    /// Takes a place for a new session.
    pub(crate) fn enter(
        self: &Arc<Self>,
        key: &SessionKey,
        instance: &Instance,
        rights: &Arc<Rights>,
    ) -> Result<Place, Refusal> {
        let window = (key.principal.clone(), instance.clone());
        let mut taken = self.lock();
        if taken.sessions >= self.limits.sessions {
            return Err(Refusal::TooManySessions { limit: self.limits.sessions });
        }
        let has = |count: Option<&usize>, limit: Option<usize>| {
            limit.filter(|limit| count.copied().unwrap_or(0) >= *limit)
        };
        let per_principal = rights.sessions.or(self.limits.per_principal);
        if let Some(limit) = has(taken.principals.get(&key.principal), per_principal) {
            return Err(Refusal::TooManyOfOne { limit, whose: "caller" });
        }
        if let Some(limit) = has(taken.instances.get(&window), self.limits.per_instance) {
            return Err(Refusal::TooManyOfOne { limit, whose: "client window" });
        }
        taken.sessions += 1;
        *taken.principals.entry(key.principal.clone()).or_default() += 1;
        *taken.instances.entry(window).or_default() += 1;
        drop(taken);
        let calls_per_second = rights.calls_per_second.or(self.limits.calls_per_second);
        Ok(Place {
            quotas: Arc::clone(self),
            key: key.clone(),
            instance: instance.clone(),
            rights: Arc::clone(rights),
            principal_rate: calls_per_second.map(|calls| self.rate_of(calls)),
        })
    }

    fn rate_of(&self, calls_per_second: NonZeroU32) -> Arc<Rate<Principal>> {
        let mut rates = self.principal_rates.lock();
        Arc::clone(rates.entry(calls_per_second).or_insert_with(|| Arc::new(rate(calls_per_second))))
    }

    pub(crate) fn instances(&self) -> usize {
        self.lock().instances.len()
    }
}

impl Place {
    /// The rights of the session's principal when it was opened.
    pub(crate) fn rights(&self) -> &Arc<Rights> {
        &self.rights
    }

    /// Counts a call against the rates.
    pub(crate) fn admit_call(&self) -> Result<(), Refusal> {
        if let Some(rate) = &self.principal_rate {
            check(rate, &self.key.principal)?;
        }
        if let Some(rate) = &self.quotas.instance_rate {
            check(rate, &(self.key.principal.clone(), self.instance.clone()))?;
        }
        Ok(())
    }

    /// Notes where the session works. Where another principal works it must not, unless the directories are its
    /// principal's own; in another session's of the same principal it may, and that is told.
    pub(crate) fn check_neighbours(&self, scope: Scope) -> Result<Scope, ScopeRefusal> {
        let key = &self.key;
        let mut taken = self.quotas.lock();
        let neighbours: Vec<_> = taken
            .scopes
            .values()
            .filter(|(_, other)| scope.directories.overlap(&other.directories))
            .collect();
        let is_own = scope.paths().iter().all(|path| self.rights.owns(path));
        if !is_own && neighbours.iter().any(|(principal, _)| *principal != key.principal) {
            return Err(ScopeRefusal::OthersScope(scope.paths().swap_remove(0)));
        }
        let others = neighbours.len();
        taken.scopes.insert(key.id, (key.principal.clone(), scope.clone()));
        drop(taken);
        if others > 0 {
            tracing::info!(session = %key.id.handle(), others, "other sessions work in this directory too");
        }
        Ok(scope)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.quotas.lock();
        taken.sessions -= 1;
        give_back(&mut taken.principals, &self.key.principal);
        give_back(&mut taken.instances, &(self.key.principal.clone(), self.instance.clone()));
        taken.scopes.remove(&self.key.id);
    }
}

fn give_back<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// One second's worth may come at once.
fn rate<K: Hash + Eq + Clone>(per_second: NonZeroU32) -> Rate<K> {
    RateLimiter::new(Quota::per_second(per_second), HashMapStateStore::default(), MonotonicClock)
}

fn check<K: Hash + Eq + Clone>(rate: &Rate<K>, key: &K) -> Result<(), Refusal> {
    if rate.len() > MAX_RATE_KEYS {
        rate.retain_recent();
    }
    rate.check_key(key).map_err(|over| {
        let wait = over.wait_time_from(MonotonicClock.now());
        Refusal::TooFast { retry_after: wait.max(Duration::from_millis(1)) }
    })
}

#[cfg(test)]
mod tests;
