//! Servers from `npx` and `uvx`, fetched once for all sessions of all gateways.

use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, WorkspaceDir, parts_dir, python_binary, workspace_dir};

/// An address at which no server listens.
const NO_REGISTRY: &str = "http://127.0.0.1:9/";

async fn gateway(directory: &WorkspaceDir, command: &[&str], has_registry: bool) -> Gateway {
    let mut builder = Gateway::builder()
        .command(command)
        .flags(["--start-timeout", "120"])
        .env("XDG_CACHE_HOME", directory.join("caches"))
        .current_dir(directory.join("project"));
    if !has_registry {
        for name in ["npm_config_registry", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"] {
            builder = builder.env(name, NO_REGISTRY);
        }
    }
    builder.start().await
}

/// The names of the tools that a new session sees.
async fn tools(gateway: &Gateway) -> Vec<String> {
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    let listed = client.request("tools/list", None).await;
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().filter_map(|tool: &Value| tool["name"].as_str().map(str::to_owned)).collect()
}

async fn is_fetched_once(command: &[&str], tool: &str) {
    let directory = workspace_dir("packages");
    std::fs::create_dir(directory.join("project")).unwrap();
    let first = gateway(&directory, command, true).await;
    assert!(tools(&first).await.contains(&tool.to_owned()));
    assert!(tools(&first).await.contains(&tool.to_owned()), "the second session");
    drop(first);
    let second = gateway(&directory, command, false).await;
    assert!(tools(&second).await.contains(&tool.to_owned()), "without a registry");
}

#[tokio::test]
async fn an_npx_server_is_fetched_once() {
    is_fetched_once(&["npx", "-y", "@modelcontextprotocol/server-everything"], "echo").await;
}

#[tokio::test]
async fn a_uvx_server_is_fetched_once() {
    let (uvx, python) = (parts_dir().join("venv/bin/uvx"), python_binary());
    let (uvx, python) = (uvx.to_str().unwrap(), python.to_str().unwrap());
    is_fetched_once(&[uvx, "--python", python, "mcp-server-time"], "get_current_time").await;
}

#[tokio::test]
async fn without_a_registry_a_new_package_does_not_start_and_says_why() {
    let directory = workspace_dir("packages-none");
    std::fs::create_dir(directory.join("project")).unwrap();
    let refused = Gateway::builder()
        .command(["npx", "-y", "@modelcontextprotocol/server-everything"])
        .env("XDG_CACHE_HOME", directory.join("caches"))
        .env("npm_config_registry", NO_REGISTRY)
        .env("npm_config_fetch_retries", "0")
        .current_dir(directory.join("project"))
        .try_start()
        .await;
    let stderr = refused.expect_err("it cannot be fetched").stderr;
    assert!(stderr.contains("error:") && stderr.contains("hint:"), "{stderr}");
}
