//! Everything that the threads of one fixture process share, and the handshake.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::client_requests::ClientRequests;
use crate::flags::Flags;
use crate::outgoing::to_json;
use crate::output::Output;
use crate::running_calls::RunningCalls;
use crate::stubbornness::Stubbornness;
use crate::tasks::Tasks;

const KNOWN_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const LOG_LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) flags: Flags,
    pub(crate) output: Output,
    pub(crate) running_calls: RunningCalls,
    pub(crate) client_requests: ClientRequests,
    pub(crate) tasks: Tasks,
    pub(crate) stubbornness: Stubbornness,
    pub(crate) subscriptions: Mutex<HashSet<String>>,
    pub(crate) memory: Mutex<HashMap<String, String>>,
    /// The last result of `big`, with its size.
    pub(crate) big_result: Mutex<Option<(usize, Arc<str>)>>,
    /// The answer to the last `ask_unowned`; `None` while it is pending.
    pub(crate) unowned_answer: Mutex<Option<String>>,
    client_capabilities: Mutex<Value>,
    lowest_log_level: Mutex<usize>,
    message_log: Option<Mutex<File>>,
}

impl Server {
    pub(crate) fn new(flags: Flags) -> Self {
        let message_log = flags.message_log.as_ref().map(|path| {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            Mutex::new(opened.expect("the message log opens"))
        });
        Self {
            flags,
            output: Output::standard(),
            running_calls: RunningCalls::default(),
            client_requests: ClientRequests::default(),
            tasks: Tasks::default(),
            stubbornness: Stubbornness::default(),
            subscriptions: Mutex::default(),
            memory: Mutex::default(),
            big_result: Mutex::default(),
            unowned_answer: Mutex::default(),
            client_capabilities: Mutex::default(),
            lowest_log_level: Mutex::default(),
            message_log,
        }
    }

    pub(crate) fn record_received_line(&self, line: &[u8]) {
        if let Some(log) = &self.message_log {
            let written = log.lock().write_all(line);
            written.expect("the message log takes another line");
        }
    }

    /// Remembers the client's capabilities and returns the result of `initialize`.
    pub(crate) fn initialize(&self, params: &Value) -> String {
        *self.client_capabilities.lock() = params["capabilities"].clone();
        let version = self.negotiate(params["protocolVersion"].as_str().unwrap_or_default());
        let mut capabilities = json!({
            "tools": {"listChanged": true},
            "prompts": {},
            "resources": {"subscribe": true},
            "logging": {},
            "completions": {},
        });
        if version == "2025-11-25" {
            capabilities["tasks"] = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
        }
        to_json(&json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "serverInfo": {"name": "ringfence-fixture", "version": env!("CARGO_PKG_VERSION")},
            "instructions": "A fixture for tests. Nothing it says is of interest.",
        }))
    }

    fn negotiate(&self, requested: &str) -> &'static str {
        let cap = self.flags.version_cap.as_deref();
        let allowed = || {
            // Revisions are dates, so they compare correctly as text.
            KNOWN_VERSIONS.into_iter().filter(move |version| cap.is_none_or(|cap| *version <= cap))
        };
        let same = allowed().find(|version| *version == requested);
        same.or_else(|| allowed().next_back()).unwrap_or(KNOWN_VERSIONS[0])
    }

    pub(crate) fn client_has_capability(&self, name: &str) -> bool {
        self.client_capabilities.lock().get(name).is_some()
    }

    /// Stops sending messages below `level`; returns false if there is no such level.
    pub(crate) fn set_log_level(&self, level: &str) -> bool {
        let rank = log_level_rank(level);
        if let Some(rank) = rank {
            *self.lowest_log_level.lock() = rank;
        }
        rank.is_some()
    }

    pub(crate) fn send_log(&self, level: &str, text: &str) {
        let lowest = *self.lowest_log_level.lock();
        if log_level_rank(level).is_some_and(|rank| rank >= lowest) {
            let params = json!({"level": level, "logger": "ringfence-fixture", "data": text});
            self.output.send_notification("notifications/message", Some(&params));
        }
    }
}

fn log_level_rank(level: &str) -> Option<usize> {
    LOG_LEVELS.iter().position(|known| *known == level)
}

#[cfg(test)]
mod tests {
    use super::Server;
    use crate::flags::Flags;

    fn negotiated(cap: Option<&str>, requested: &str) -> &'static str {
        let flags = Flags { version_cap: cap.map(str::to_owned), ..Flags::default() };
        Server::new(flags).negotiate(requested)
    }

    #[test]
    fn known_versions_are_echoed_and_others_get_the_newest() {
        assert_eq!(negotiated(None, "2024-11-05"), "2024-11-05");
        assert_eq!(negotiated(None, "2025-06-18"), "2025-06-18");
        assert_eq!(negotiated(None, "2026-07-28"), "2025-11-25");
        assert_eq!(negotiated(None, ""), "2025-11-25");
    }

    #[test]
    fn the_cap_is_never_exceeded() {
        assert_eq!(negotiated(Some("2025-03-26"), "2025-11-25"), "2025-03-26");
        assert_eq!(negotiated(Some("2025-03-26"), "2024-11-05"), "2024-11-05");
        assert_eq!(negotiated(Some("2025-03-26"), "nonsense"), "2025-03-26");
    }
}
