//! What an upstream answers to `initialize`, known before the worker of a session may start: each kind of
//! client is answered from what a probe in an empty fence has shown.
//!
//! A worker may answer otherwise in its workspace. Then what is known is corrected, and the session starts
//! over; an upstream whose answers vary is from then on described by all that it ever offered.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::{OnceCell, Semaphore};
use wire::{InitializeResult, Version};

use crate::StartError;

/// Kinds of clients that are kept apart; the one that was not seen for longest goes.
const MAX_KINDS: usize = 64;

/// Probes of different kinds at once: a client may say what it likes, and each new thing is a probe.
const MAX_PROBES: usize = 2;

#[derive(Debug)]
pub(crate) struct CapabilityCache {
    /// The one that was used last stands first.
    entries: Mutex<Vec<([u8; 32], Arc<Entry>)>>,
    places: Arc<Semaphore>,
}

impl Default for CapabilityCache {
    fn default() -> Self {
        Self { entries: Mutex::default(), places: Arc::new(Semaphore::new(MAX_PROBES)) }
    }
}

#[derive(Debug, Default)]
struct Entry {
    /// One probe at a time; the others wait for it.
    tried: OnceCell<()>,
    known: Mutex<Option<Known>>,
}

#[derive(Clone, Debug)]
struct Known {
    answer: Arc<InitializeResult>,
    /// The probe failed: the answer promises everything.
    is_guess: bool,
    /// Workers offered different things.
    varies: bool,
}

/// What a client was told in place of its upstream.
#[derive(Clone, Debug)]
pub(crate) struct Advertised {
    pub(crate) answer: Arc<InitializeResult>,
    is_loose: bool,
    entry: Arc<Entry>,
}

impl CapabilityCache {
    /// The answer for a kind of client; `probe` runs if it is not known yet. A probe that has begun goes on
    /// without the client that it was begun for.
    pub(crate) async fn answer(
        &self,
        kind: [u8; 32],
        version: Version,
        probe: impl Future<Output = Result<Arc<InitializeResult>, StartError>> + Send + 'static,
    ) -> Advertised {
        let entry = self.entry(kind);
        if !entry.tried.initialized() {
            let (entry, places) = (Arc::clone(&entry), Arc::clone(&self.places));
            let tried = tokio::spawn(async move {
                let first = async {
                    let _place = places.acquire().await;
                    entry.learn(probe.await, version);
                };
                entry.tried.get_or_init(|| first).await;
            });
            let _ = tried.await;
        }
        let known = entry.known().clone().unwrap_or_else(|| Known::guess(version));
        Advertised { answer: known.answer, is_loose: known.is_guess || known.varies, entry }
    }

    fn entry(&self, kind: [u8; 32]) -> Arc<Entry> {
        let mut entries = self.entries.lock();
        let found = entries.iter().position(|(known, _)| *known == kind);
        let used = found.map_or_else(|| (kind, Arc::default()), |at| entries.remove(at));
        let entry = Arc::clone(&used.1);
        entries.insert(0, used);
        entries.truncate(MAX_KINDS);
        entry
    }
}

impl Entry {
    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock()
    }

    fn learn(&self, probe: Result<Arc<InitializeResult>, StartError>, version: Version) {
        let known = match probe {
            Ok(answer) => Known { answer, is_guess: false, varies: false },
            Err(failure) => {
                tracing::warn!("the MCP server could not be tried in an empty workspace: {failure}");
                Known::guess(version)
            }
        };
        // A worker may have shown better meanwhile.
        self.known().get_or_insert(known);
    }
}

impl Known {
    /// Promises whatever the protocol knows; what is not there is answered with an error.
    fn guess(version: Version) -> Self {
        let answer = json!({
            "protocolVersion": version.as_str(),
            "capabilities": {
                "tools": {"listChanged": true},
                "resources": {"listChanged": true, "subscribe": true},
                "prompts": {"listChanged": true},
                "completions": {},
                "logging": {},
            },
            "serverInfo": {"name": "ringfence", "version": env!("CARGO_PKG_VERSION")},
        });
        Self { answer: Arc::new(read(&answer)), is_guess: true, varies: false }
    }
}

impl Advertised {
    /// Whether the worker answered what the client was told. If not, the next client hears better.
    pub(crate) fn holds_for(&self, actual: &Arc<InitializeResult>) -> bool {
        let (told, real) = (parts(&self.answer), parts(actual));
        let same_version = told.version == real.version;
        let same_offer = told.capabilities == real.capabilities && told.instructions == real.instructions;
        let holds =
            same_version && (same_offer || (self.is_loose && covers(&told.capabilities, &real.capabilities)));
        let mut known = self.entry.known();
        let is_guess = known.as_ref().is_none_or(|known| known.is_guess);
        if is_guess {
            *known = Some(Known { answer: Arc::clone(actual), is_guess: false, varies: false });
        } else if !holds {
            let union = merged(&told.capabilities, &real.capabilities);
            let mut answer: Value = serde_json::from_str(actual.as_json()).unwrap_or_default();
            answer["capabilities"] = union;
            *known = Some(Known { answer: Arc::new(read(&answer)), is_guess: false, varies: true });
        }
        holds
    }
}

struct Parts {
    version: Value,
    capabilities: Value,
    instructions: Value,
}

fn parts(answer: &InitializeResult) -> Parts {
    let mut answer: Value = serde_json::from_str(answer.as_json()).unwrap_or_default();
    Parts {
        version: answer["protocolVersion"].take(),
        capabilities: answer["capabilities"].take(),
        instructions: answer["instructions"].take(),
    }
}

/// Whether whatever is offered had been promised.
fn covers(promised: &Value, offered: &Value) -> bool {
    match (promised, offered) {
        (Value::Object(promised), Value::Object(offered)) => offered
            .iter()
            .filter(|(_, value)| **value != Value::Bool(false))
            .all(|(name, value)| promised.get(name).is_some_and(|promise| covers(promise, value))),
        _ => true,
    }
}

fn merged(one: &Value, other: &Value) -> Value {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let mut both: Map<String, Value> = one.clone();
            for (name, value) in other {
                let value = both.get(name).map_or_else(|| value.clone(), |had| merged(had, value));
                both.insert(name.clone(), value);
            }
            Value::Object(both)
        }
        (Value::Bool(one), Value::Bool(other)) => Value::Bool(*one || *other),
        (Value::Null, other) => other.clone(),
        (one, _) => one.clone(),
    }
}

fn read(answer: &Value) -> InitializeResult {
    match InitializeResult::read(&answer.to_string()) {
        Ok(result) => result,
        Err(error) => unreachable!("our own answer to initialize has a version: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "tests write `json!({…})` in the place of an argument")]
    fn answer(capabilities: Value, instructions: &str) -> Arc<InitializeResult> {
        let answer = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": {"name": "s", "version": "1"},
            "instructions": instructions,
        });
        Arc::new(read(&answer))
    }

    async fn told(cache: &CapabilityCache, probe: Result<Arc<InitializeResult>, StartError>) -> Advertised {
        cache.answer([0; 32], Version::NEWEST, async { probe }).await
    }

    #[tokio::test]
    async fn one_trial_serves_all_clients_of_a_kind() {
        let cache = CapabilityCache::default();
        let first = told(&cache, Ok(answer(json!({"tools": {}}), ""))).await;
        let second = told(&cache, Err(StartError::Stopped)).await;
        assert_eq!(first.answer.as_json(), second.answer.as_json());
        assert!(second.holds_for(&answer(json!({"tools": {}}), "")));
    }

    #[tokio::test]
    async fn a_contradiction_is_corrected_and_does_not_come_back() {
        let cache = CapabilityCache::default();
        let first = told(&cache, Ok(answer(json!({"tools": {}}), "a"))).await;
        let real = answer(json!({"prompts": {"listChanged": true}}), "b");
        assert!(!first.holds_for(&real));
        let second = told(&cache, Err(StartError::Stopped)).await;
        assert!(second.holds_for(&real));
        assert!(second.holds_for(&answer(json!({"tools": {"listChanged": false}}), "c")), "it varies");
        assert!(!second.holds_for(&answer(json!({"logging": {}}), "c")), "that was never offered before");
    }

    #[tokio::test]
    async fn a_failed_trial_promises_everything_until_a_worker_has_shown_itself() {
        let cache = CapabilityCache::default();
        let guess = told(&cache, Err(StartError::Stopped)).await;
        let real = answer(json!({"tools": {}}), "x");
        assert!(guess.holds_for(&real));
        assert_eq!(told(&cache, Err(StartError::Stopped)).await.answer.as_json(), real.as_json());
    }

    #[tokio::test]
    async fn kinds_are_bounded() {
        let cache = CapabilityCache::default();
        for number in 0..MAX_KINDS * 2 {
            let probe = async { Ok(answer(json!({}), "")) };
            cache.answer([u8::try_from(number).unwrap(); 32], Version::NEWEST, probe).await;
        }
        assert_eq!(cache.entries.lock().len(), MAX_KINDS);
    }
}
