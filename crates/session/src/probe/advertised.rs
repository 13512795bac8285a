//! What a client was told in place of its upstream, and whether the upstream turns out to be that.
//!
//! A worker may answer otherwise in its workspace. Then what is known is corrected, and the session starts over; an
//! upstream whose answers vary is from then on described by all that it ever offered, so that this cannot go round in
//! circles.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use wire::{InitializeResult, Version};

use super::{Kind, ProbeCache, ProbeResult};

/// What clients of one kind are told.
#[derive(Clone, Debug)]
pub(super) struct Promise {
    answer: Arc<InitializeResult>,
    /// The probe failed: the answer promises everything.
    is_guess: bool,
    /// Workers offered different things.
    varies: bool,
}

impl Promise {
    pub(super) fn shown(answer: &Arc<InitializeResult>) -> Self {
        Self { answer: Arc::clone(answer), is_guess: false, varies: false }
    }

    /// Promises all that the protocol knows; a method that is not there is answered with an error.
    pub(super) fn guess(version: Version) -> Self {
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

/// What one client was told.
#[derive(Clone, Debug)]
pub(crate) struct Advertised {
    pub(crate) answer: Arc<InitializeResult>,
    /// The worker need only offer no more than was promised.
    is_loose: bool,
    kind: Kind,
    cache: Arc<Mutex<ProbeCache>>,
}

impl Advertised {
    pub(crate) fn new(
        cache: &Arc<Mutex<ProbeCache>>,
        kind: Kind,
        result: &ProbeResult,
        version: Version,
    ) -> Self {
        let promise = cache.lock().promise(kind, result, version);
        Self {
            answer: promise.answer,
            is_loose: promise.is_guess || promise.varies,
            kind,
            cache: Arc::clone(cache),
        }
    }

    /// Whether the worker answered what the client was told. If not, the next client hears better.
    pub(crate) fn holds_for(&self, actual: &Arc<InitializeResult>) -> bool {
        let (told, real) = (parts(&self.answer), parts(actual));
        let same_version = told.version == real.version;
        let same_offer = told.capabilities == real.capabilities && told.instructions == real.instructions;
        let is_covered = self.is_loose && covers(&told.capabilities, &real.capabilities);
        let holds = same_version && (same_offer || is_covered);
        let mut cache = self.cache.lock();
        if cache.current_promise(self.kind).is_none_or(|promise| promise.is_guess) {
            cache.set_promise(self.kind, Promise::shown(actual));
        } else if !holds {
            let mut answer: Value = serde_json::from_str(actual.as_json()).unwrap_or_default();
            answer["capabilities"] = merged(&told.capabilities, &real.capabilities);
            let promise = Promise { answer: Arc::new(read(&answer)), is_guess: false, varies: true };
            cache.set_promise(self.kind, promise);
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

/// Whether everything that is offered had been promised.
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
