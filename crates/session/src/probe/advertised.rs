//! What a client was told in place of its upstream, and whether the upstream turns out to be that.
//!
//! A worker may answer otherwise in its workspace. Then what is known is corrected, and the session starts over; an
//! upstream whose answers vary is from then on described by all that it ever offered, so that this cannot go round in
//! circles.
//!
//! What a worker says in its workspace may come from the files there, and what is learned reaches sessions of other
//! workspaces and principals. So only which of the protocol's own capabilities it offers is learned, and no text:
//! instructions, names and experimental capabilities are those of the probe.

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
        let same_offer = told.capabilities == real.capabilities;
        let is_covered = self.is_loose && covers(&told.capabilities, &real.capabilities);
        let holds = same_version && (same_offer || is_covered);
        let mut cache = self.cache.lock();
        if cache.current_promise(self.kind).is_none_or(|promise| promise.is_guess) {
            let answer = self.answer_with(&real, &real.capabilities);
            cache.set_promise(self.kind, Promise { answer, is_guess: false, varies: false });
        } else if !holds {
            let answer = self.answer_with(&real, &merged(&told.capabilities, &real.capabilities));
            cache.set_promise(self.kind, Promise { answer, is_guess: false, varies: true });
        }
        holds
    }

    /// What the client was told, with the version of the worker and with these capabilities of the protocol.
    fn answer_with(&self, real: &Parts, capabilities: &Value) -> Arc<InitializeResult> {
        let mut answer: Value = serde_json::from_str(self.answer.as_json()).unwrap_or_default();
        let told = answer["capabilities"].take();
        let others =
            told.as_object().into_iter().flatten().filter(|(name, _)| !CAPABILITIES.contains(&name.as_str()));
        let mut all: Map<String, Value> = others.map(|(name, value)| (name.clone(), value.clone())).collect();
        all.extend(capabilities.as_object().cloned().unwrap_or_default());
        answer["capabilities"] = all.into();
        answer["protocolVersion"] = real.version.clone();
        Arc::new(read(&answer))
    }
}

/// The names that the protocol gives to capabilities and to what is in them.
const CAPABILITIES: &[&str] = &[
    "completions",
    "logging",
    "prompts",
    "resources",
    "tools",
    "tasks",
    "listChanged",
    "subscribe",
    "list",
    "cancel",
    "requests",
    "call",
];

/// What two answers are compared by.
struct Parts {
    version: Value,
    /// The protocol's own.
    capabilities: Value,
}

fn parts(answer: &InitializeResult) -> Parts {
    let mut answer: Value = serde_json::from_str(answer.as_json()).unwrap_or_default();
    Parts {
        version: answer["protocolVersion"].take(),
        capabilities: without_text(answer["capabilities"].take()),
    }
}

/// Keeps what the protocol names, and of that only whether it is there.
fn without_text(capabilities: Value) -> Value {
    match capabilities {
        Value::Object(names) => {
            let known = names.into_iter().filter(|(name, _)| CAPABILITIES.contains(&name.as_str()));
            known.map(|(name, value)| (name, without_text(value))).collect::<Map<_, _>>().into()
        }
        flag @ Value::Bool(_) => flag,
        _ => json!({}),
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
