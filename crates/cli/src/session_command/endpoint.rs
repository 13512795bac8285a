//! Where clients reach a workspace, and what their configurations need.

use fence::HostEnvironment;
use serde_json::json;

use crate::discovery;

/// The endpoints of a workspace at the gateways that this user runs.
pub(super) fn of_running(name: &str) -> Vec<String> {
    let Ok(host) = HostEnvironment::of_this_process() else { return Vec::new() };
    discovery::running(host.outside()).iter().map(|gateway| at(&gateway.url, name)).collect()
}

/// The endpoint of a workspace at a gateway.
pub(super) fn at(gateway: &str, name: &str) -> String {
    format!("{}/mcp/w/{name}", gateway.trim_end_matches('/'))
}

/// What people copy into the configuration of their client.
pub(super) fn snippets(name: &str, url: &str) -> Vec<(&'static str, String)> {
    let servers = |entry: serde_json::Value| json!({ "mcpServers": { name: entry } }).to_string();
    vec![
        ("Claude Code", format!("claude mcp add --transport http {name} {url}")),
        ("Codex", format!("codex mcp add {name} --url {url}")),
        ("Cursor", servers(json!({ "url": url }))),
        ("VS Code", json!({ "servers": { name: { "type": "http", "url": url } } }).to_string()),
        ("on stdio", format!("ringfence stdio --session-workspace {name}")),
    ]
}
