//! Packages that are not installed yet, that do not exist, or that do not start: a list does not wait for them, and each
//! failure is told once, with its reason, in the log, in listings and in answers.

use std::process::Output;

use serde_json::{Value, json};
use testkit::{Gateway, RawClient, ringfence_binary, wait_until};
use tokio::process::Command;

use super::{Site, fixture, one_server, open, tools, tools_with};
use crate::commands::registry::{NpmContents, Registry};
use crate::fence::programs::fenced_run::npm_registry;

/// Ends with a message when it has no key.
const WANTS_KEY: &str = "@modelcontextprotocol/server-brave-search@0.6.2";
const NEEDS_KEY: &str = "BRAVE_API_KEY environment variable is required";

fn npx(package: &str) -> Value {
    json!({ "command": ["npx", "-y", package] })
}

/// Runs a command as the operator of a gateway of this site.
async fn ringfence(site: &Site, registry: &str, words: &[&str]) -> Output {
    let mut command = Command::new(ringfence_binary());
    command
        .args(words)
        .env("XDG_CACHE_HOME", site.directory.join("caches"))
        .env("XDG_DATA_HOME", site.directory.join("data"))
        .env("NPM_CONFIG_REGISTRY", registry)
        .env_remove("BRAVE_API_KEY")
        .current_dir(site.project());
    command.output().await.unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The handle of the only session.
async fn handle(site: &Site) -> String {
    let listed: Value =
        serde_json::from_slice(&ringfence(site, "", &["sessions", "list", "--json"]).await.stdout).unwrap();
    listed["sessions"][0]["session"].as_str().unwrap().to_owned()
}

/// Opens a session by `POST /session/init`. Returns its client and what it was told about a server.
async fn told_at_init(gateway: &Gateway, server: &str) -> (RawClient, Value) {
    let client = gateway.client();
    let reply = client.post("{}").without_header("accept").path("/session/init").await;
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    let found = reply.json()["servers"][server].clone();
    (client, found)
}

/// Asserts that every place which tells of a server's failure tells `reason` once.
async fn assert_told_everywhere(site: &Site, registry: &str, server: &str, reason: &str) {
    let gateway =
        site.builder().env("NPM_CONFIG_REGISTRY", registry).env_remove("BRAVE_API_KEY").start().await;
    let (_client, found) = told_at_init(&gateway, server).await;
    assert_eq!(found["enabled"], false, "{found}");
    assert!(found["reason"].as_str().unwrap().contains(reason), "{found}");
    // Another session meets the same failure.
    let (_other, again) = told_at_init(&gateway, server).await;
    assert_eq!(again["reason"], found["reason"]);
    let log = gateway.log();
    let is_told = |line: &&str| line.contains(reason) && !line.contains("stderr: ");
    let told: Vec<&str> = log.lines().filter(is_told).collect();
    assert!(told.len() == 1 && told[0].contains("ERROR"), "{told:#?}\n{log}");
    let shown = stdout(&ringfence(site, registry, &["sessions", "show", &handle(site).await]).await);
    assert_eq!(shown.matches(reason).count(), 1, "{shown}");
    drop(gateway);

    let file = site.configuration();
    let file = file.to_str().unwrap();
    let checked = ringfence(site, registry, &["config", "check", "--start", file]).await;
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    assert_eq!(stdout(&checked).matches(reason).count(), 1, "{checked:?}");
    assert!(stdout(&checked).contains("good    remote  command; starts, and offers "), "{checked:?}");
    let unstarted = ringfence(site, registry, &["config", "check", file]).await;
    assert_eq!((unstarted.status.code(), stdout(&unstarted).contains(reason)), (Some(0), false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_that_does_not_exist_is_told_with_the_words_of_npm() {
    let registry = Registry::start();
    let site = Site::new(
        "no-package",
        &json!({"servers": {"absent": npx("no-such-package"), "good": fixture(&[])}}),
    );
    assert_told_everywhere(&site, &registry.npm_url(), "absent", "E404: 404 Not Found - GET").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_for_want_of_a_key_is_told_with_its_own_words() {
    let site = Site::new("no-key", &json!({"servers": {"search": npx(WANTS_KEY), "good": fixture(&[])}}));
    assert_told_everywhere(&site, &npm_registry().await, "search", NEEDS_KEY).await;
}

/// The same server alone: its error is the answer to `initialize`.
#[tokio::test(flavor = "multi_thread")]
async fn a_lone_server_that_ends_for_want_of_a_key_answers_with_its_own_words() {
    let site = Site::new("lone-no-key", &json!({}));
    let gateway = Gateway::builder()
        .command(["npx", "-y", WANTS_KEY])
        .env("NPM_CONFIG_REGISTRY", npm_registry().await)
        .env("XDG_CACHE_HOME", site.directory.join("caches"))
        .env_remove("BRAVE_API_KEY")
        .current_dir(site.project())
        .start()
        .await;
    let reply = gateway.client().post_initialize(&json!(1), json!({}), testkit::NEWEST).await;
    let answer: Value = serde_json::from_str(&reply.answer_text().await).unwrap();
    assert!(answer["error"]["message"].as_str().unwrap().contains(NEEDS_KEY), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_does_not_wait_for_an_installation_and_the_client_hears_when_it_is_done() {
    let registry = Registry::start();
    registry.publish("greeter", "1.0.0", &NpmContents::default());
    registry.hold();
    let site =
        Site::new("installing", &json!({"servers": {"greeter": npx("greeter"), "good": fixture(&[])}}));
    let gateway = site.builder().env("NPM_CONFIG_REGISTRY", registry.npm_url()).start().await;
    let client = open(&gateway).await;
    let mut events = client.get_stream(None).await.into_events();
    let first = tools(&client).await;
    assert!(first.contains(&"good_echo".to_owned()), "{first:?}");
    assert!(!first.contains(&"greeter_version".to_owned()), "{first:?}");
    gateway.wait_for_log("installing greeter with npm").await;
    gateway.wait_for_log("still installing greeter after ").await;

    registry.release();
    let message = events.next_message().await.unwrap();
    assert_eq!(message["method"], "notifications/tools/list_changed", "{message}");
    wait_until("it is listed", async || tools(&client).await.contains(&"greeter_version".to_owned())).await;
    assert_eq!(client.call_tool_for_text("greeter_version", json!({})).await, "1.0.0");
    gateway.wait_for_log("installed greeter in ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_package_that_is_not_installed_yet_comes_by_itself() {
    let package = "@modelcontextprotocol/server-sequential-thinking";
    let site = Site::new("fresh", &one_server("thinking", npx(package)));
    let gateway = site.builder().env("NPM_CONFIG_REGISTRY", npm_registry().await).start().await;
    let client = open(&gateway).await;
    tools_with(&client, &["thinking_sequentialthinking"]).await;
    let log = gateway.log();
    let place = |part: String| log.find(&part).unwrap_or_else(|| panic!("no {part} in {log}"));
    assert!(place(format!("installing {package} with npm")) < place(format!("installed {package} in ")));
}
