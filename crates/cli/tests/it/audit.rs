//! The audit log of a running gateway: keyed chains, and sinks that are away, broken, untrusted or slow.

mod commands;
mod http_sink;
mod keyed;
mod receivers;
mod rsyslog;
mod syslog_sink;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::{Gateway, GatewayBuilder, RawClient, WorkspaceDir, ringfence_binary, workspace_dir};

/// The files of a test.
struct Site {
    directory: WorkspaceDir,
}

impl Site {
    fn new(name: &str) -> Self {
        let directory = workspace_dir(name);
        std::fs::create_dir(directory.join("project")).unwrap();
        Self { directory }
    }

    fn log(&self) -> PathBuf {
        self.directory.join("audit.jsonl")
    }

    /// A gateway that writes the log, with its own caches.
    fn gateway(&self) -> GatewayBuilder {
        Gateway::unfenced()
            .flag("--audit-log")
            .flag(self.log())
            .env("XDG_CACHE_HOME", self.directory.join("caches"))
            .current_dir(self.directory.join("project"))
    }

    fn gateway_with_sink(&self, url: &str) -> GatewayBuilder {
        self.gateway().flags(["--audit-sink", url])
    }

    /// The lines of the log.
    fn lines(&self) -> Vec<String> {
        lines(&self.log())
    }
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
}

/// Makes calls, each of which is a record.
async fn call(client: &RawClient, times: usize) {
    for _ in 0..times {
        assert_eq!(client.call_tool_for_text("echo", json!({"text": "x"})).await, "x");
    }
}

/// Records of the log that the sink does not have, as the metrics tell.
async fn unsent(gateway: &Gateway) -> u64 {
    let reply = gateway.client().get_stream(None).path("/metrics").await;
    let text = String::from_utf8(reply.raw).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("ringfence_audit_unsent_records "));
    line.unwrap_or_else(|| panic!("no such gauge in {text}")).parse().unwrap()
}

fn number(line: &str) -> u64 {
    let record: Value = serde_json::from_str(line).unwrap();
    record["seq"].as_u64().unwrap()
}

/// Asserts that all lines of the log arrived, in order. Lines may arrive again, with those that followed them.
#[track_caller]
fn assert_complete(received: &[String], log: &[String]) {
    let mut arrived: Vec<&String> = Vec::new();
    for line in received {
        let place = usize::try_from(number(line)).unwrap() - 1;
        assert!(place <= arrived.len(), "record {} came after {}", place + 1, arrived.len());
        match arrived.get(place) {
            Some(before) => assert_eq!(*before, line, "sent again, it is the same"),
            None => arrived.push(line),
        }
    }
    assert_eq!(arrived, log.iter().collect::<Vec<_>>());
}

fn audit(arguments: &[&str]) -> Output {
    Command::new(ringfence_binary()).arg("audit").args(arguments).output().unwrap()
}

/// The exit code and everything that was printed.
fn verify(log: &Path, arguments: &[&str]) -> (i32, String) {
    let mut all = vec!["verify", log.to_str().unwrap()];
    all.extend(arguments);
    let output = audit(&all);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}
