//! Every message that a fixture started with `--message-log` has read.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::waiting::wait_until;

/// The file to which fixture processes append every message they read.
#[derive(Debug, Clone)]
pub struct MessageLog {
    path: PathBuf,
}

impl MessageLog {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The path to pass as `--message-log`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All complete lines so far, byte for byte, without their newlines.
    pub fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
    }

    /// All complete messages so far.
    pub fn messages(&self) -> Vec<Value> {
        let parse =
            |line: &String| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        self.lines().iter().map(parse).collect()
    }

    /// The messages with that method.
    pub fn with_method(&self, method: &str) -> Vec<Value> {
        self.messages().into_iter().filter(|message| message["method"] == method).collect()
    }

    /// Waits until `count` calls of `tool` have reached the fixture.
    pub async fn wait_for_calls(&self, tool: &str, count: usize) {
        wait_until(&format!("{count} calls of {tool} reached the server"), async || {
            let calls = self.with_method("tools/call");
            calls.iter().filter(|call| call["params"]["name"] == tool).count() >= count
        })
        .await;
    }
}
