//! What is said about a session, by its agent, its client and the operator: it is searched, bounded, its principal's
//! alone, and there after its gateway was killed.

use serde_json::{Value, json};
use testkit::{
    Gateway, GatewayBuilder, NEWEST, RawClient, Reply, StatusCode, ringfence_binary, workspace_dir,
};
use tokio::process::Command;

use super::Site;

fn path_of(client: &RawClient) -> String {
    format!("/session/{}/context", client.session_id().unwrap())
}

async fn context(client: &RawClient) -> Value {
    let reply = client.get_stream(None).path(&path_of(client)).await;
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    reply.json().clone()
}

async fn change(client: &RawClient, change: Value) -> Reply {
    client.post(change.to_string()).method("PATCH").path(&path_of(client)).await
}

async fn ok(client: &RawClient, wanted: Value) -> Value {
    let reply = change(client, wanted).await;
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    reply.json().clone()
}

impl Site {
    fn operated(&self, builder: GatewayBuilder) -> GatewayBuilder {
        builder.env("XDG_CACHE_HOME", self.state.join("caches"))
    }

    /// `ringfence sessions`: its exit code, and what it prints.
    async fn sessions(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(ringfence_binary());
        command.arg("sessions").args(arguments).env("XDG_CACHE_HOME", self.state.join("caches"));
        let output = command.output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    /// The handles that `list` finds.
    async fn found(&self, arguments: &[&str]) -> Vec<String> {
        let (code, text) = self.sessions(&[&["list", "--json"], arguments].concat()).await;
        assert_eq!(code, Some(0), "{text}");
        let listed: Value = serde_json::from_str(&text).unwrap();
        let handle = |session: &Value| session["session"].as_str().unwrap().to_owned();
        listed["sessions"].as_array().unwrap().iter().map(handle).collect()
    }
}

async fn opened(gateway: &Gateway) -> (RawClient, String) {
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    let handle = context(&client).await["session"].as_str().unwrap().to_owned();
    (client, handle)
}

#[tokio::test]
async fn what_agent_client_and_operator_say_is_found_and_there_after_a_kill() {
    let mut site = Site::new("context");
    let mut gateway = site.start(site.operated(Gateway::built_in())).await;
    let (client, handle) = opened(&gateway).await;
    let (_other, other) = opened(&gateway).await;
    let first = context(&client).await;
    assert_eq!((&first["restarts"], first["agents"].as_array().unwrap().len()), (&json!(0), 1), "{first}");
    assert!(first["name"].is_null() && first["notes"].is_null(), "{first}");
    assert_eq!(first["workspace"][0], site.project.path.to_str().unwrap());

    let said = json!({"name": "Release 7", "labels": ["ticket=AB-1", "urgent"], "note": "tests are green"});
    let said = client.call_tool("session_context", said).await["result"]["structuredContent"].clone();
    assert_eq!(said["notes"][0]["by"], "agent", "{said}");
    assert!(said["last_used"].is_string() && said["lastUsed"].is_null(), "{said}");
    ok(&client, json!({"labels": {"team": "shop", "urgent": null}, "note": "from the client"})).await;
    let (code, text) = site.sessions(&["label", &handle, "ready", "env=prod", "--remove", "team"]).await;
    assert_eq!(code, Some(0), "{text}");
    site.sessions(&["note", &handle, "waits for the review"]).await;
    let before = context(&client).await;
    assert_eq!(before["labels"], json!({"env": "prod", "ready": "", "ticket": "AB-1"}));
    let authors: Vec<&Value> = before["notes"].as_array().unwrap().iter().map(|note| &note["by"]).collect();
    assert_eq!(authors, ["agent", "client", "operator"]);
    gateway.kill().await;

    let mut gateway = site.start(site.operated(Gateway::built_in())).await;
    assert_eq!(gateway.open_sessions().await, 0);
    for search in [
        &["--search", "release REVIEW"][..],
        &["--label", "env=prod", "--label", "ready"],
        &["--search", "green", "--label", "ticket"],
    ] {
        assert_eq!(site.found(search).await, [handle.as_str()], "{search:?}");
    }
    assert_eq!(site.found(&[]).await.len(), 2, "the control");
    assert!(site.found(&["--label", "env=test"]).await.is_empty());
    // The operator need not wait for the client.
    let (code, text) = site.sessions(&["note", &other, "a stored one"]).await;
    assert_eq!((code, text.contains("a stored one")), (Some(0), true), "{text}");
    assert_eq!(site.sessions(&["note", &handle, "--remove", "2"]).await.0, Some(0));
    gateway.kill().await;

    let gateway = site.start(site.operated(Gateway::built_in())).await;
    assert_eq!(site.found(&["--search", "stored"]).await, [other.as_str()]);
    let (_, shown) = site.sessions(&["show", &handle]).await;
    for part in ["Release 7", "env=prod", "tests are green (agent, 20", "waits for the review", "(stored)"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let (_, listed) = site.sessions(&["list"]).await;
    assert!(listed.contains("\"Release 7\" env=prod ready ticket=AB-1"), "{listed}");
    let info = client.call_tool("session_info", json!({})).await["result"]["structuredContent"].clone();
    let short = &info["context"];
    assert_eq!(
        (&short["name"], &short["notes"], &short["restarts"]),
        (&json!("Release 7"), &json!(2), &json!(1))
    );
    let after = context(&client).await;
    assert_eq!((&after["created"], &after["agents"]), (&before["created"], &before["agents"]));
    // What the session is told now goes on from there.
    let added = client.call_tool("session_context", json!({"note": "goes on"})).await;
    assert_eq!(added["result"]["structuredContent"]["notes"][2]["id"], 4, "{added}");
    drop(gateway);
}

#[tokio::test]
async fn bad_changes_are_refused_with_a_hint_and_change_nothing() {
    let mut site = Site::new("context-bad");
    let gateway = site.start(site.operated(Gateway::built_in())).await;
    let (client, handle) = opened(&gateway).await;
    ok(&client, json!({"name": "kept"})).await;
    for bad in [
        json!({"name": "\u{1b}[31m"}),
        json!({"name": "other", "labels": {"a b": "c"}}),
        json!({"name": "other", "note": "x".repeat(1001)}),
        json!({"name": "other", "removeNote": 3}),
        json!({"title": "other"}),
        json!([1]),
    ] {
        let refused = change(&client, bad.clone()).await;
        assert_eq!(refused.status, 400, "{bad}");
        assert!(!refused.json()["error"]["message"].as_str().unwrap().is_empty(), "{bad}");
    }
    let large = change(&client, json!({"note": "x".repeat(100_000)})).await;
    assert_eq!(large.status, 413);
    let plain =
        client.post("{}").method("PATCH").path(&path_of(&client)).header("content-type", "text/plain").await;
    assert_eq!(plain.status, 415);
    let (code, text) = site.sessions(&["label", &handle, "a b"]).await;
    assert_eq!((code, text.contains("hint: write `key=value`")), (Some(1), true), "{text}");
    let refused = client.call_tool("session_context", json!({"labels": ["a b"]})).await;
    let text = refused["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("is no label") && text.contains("\nhint: "), "{text}");
    assert_eq!(context(&client).await["name"], "kept");
    assert!(context(&client).await["labels"].is_null());
    let (code, text) = site.sessions(&["note", "s-00000000", "x"]).await;
    assert_eq!((code, text.contains("hint:")), (Some(1), true), "{text}");

    // As many as a session has, and no more.
    for number in 0..64 {
        ok(&client, json!({"note": format!("note {number}")})).await;
    }
    assert_eq!(change(&client, json!({"note": "one more"})).await.status, 400);
    ok(&client, json!({"note": "instead", "removeNote": 1})).await;
}

#[tokio::test]
async fn to_another_principal_a_session_has_no_context() {
    let site = Site::new("context-principals");
    let tokens = site.state.join("tokens");
    let (alice, bob) = ("alices-token-0123456789", "bobs-token-0123456789ab");
    crate::authentication::write_private(&tokens, &format!("alice:{alice}\nbob:{bob}\n"));
    let builder = Gateway::built_in().flag("--auth-token-file").flag(&tokens);
    let builder = builder.flag("--allow-scope").flag(&site.project.path);
    let gateway = site.operated(site.with_state(builder)).start().await;
    let with = |token: &str| gateway.client().with_header("authorization", &format!("Bearer {token}"));
    let mut owner = with(alice);
    owner.open(json!({}), NEWEST).await;
    ok(&owner, json!({"name": "hers"})).await;
    let mut stranger = with(bob);
    stranger.set_session(owner.session_id(), None);
    let unknown = with(bob);
    let never =
        |request: testkit::RawRequest| request.path("/session/00000000-0000-4000-8000-000000000000/context");
    for (known, unknown) in [
        (stranger.get_stream(None).path(&path_of(&owner)), never(unknown.get_stream(None))),
        (
            stranger.post(r#"{"name":"his"}"#).method("PATCH").path(&path_of(&owner)),
            never(unknown.post(r#"{"name":"his"}"#).method("PATCH")),
        ),
    ] {
        let (known, unknown) = (known.await, unknown.await);
        assert_eq!(known.status, StatusCode::NOT_FOUND);
        assert_eq!(known.raw, unknown.raw, "nothing tells that it exists");
    }
    let without = gateway.client();
    assert_eq!(without.get_stream(None).path(&path_of(&owner)).await.status, 401);
    assert_eq!(context(&owner).await["name"], "hers");
    // The operator's paths want the operator's token.
    let handle = context(&owner).await["session"].as_str().unwrap().to_owned();
    for request in [owner.get_stream(None), owner.post(r#"{"name":"x"}"#).method("PATCH")] {
        assert_eq!(request.path(&format!("/sessions/{handle}/context")).await.status, 401);
    }
    assert_eq!(site.found(&["--search", "alice"]).await, [handle]);
}

/// Where sessions share a server, it cannot tell whose the context would be. Other servers are not asked for it either.
#[tokio::test]
async fn a_shared_server_has_no_session_to_speak_of() {
    let directory = workspace_dir("context-shared");
    let gateway =
        Gateway::built_in().flags(["--lifecycle", "shared"]).current_dir(directory.path()).start().await;
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    let refused = client.call_tool("session_context", json!({"name": "x"})).await;
    assert_eq!(refused["result"]["structuredContent"]["code"], "no_session", "{refused}");
    let info = client.call_tool("session_info", json!({})).await["result"].clone();
    assert!(info["isError"].is_null() && info["structuredContent"]["context"].is_null(), "{info}");
    assert_eq!(ok(&client, json!({"name": "by the client"})).await["name"], "by the client");
}
