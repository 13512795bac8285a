//! Abuse of `POST /session/init`: attempts to run programs, reach directories and set variables.

use serde_json::{Value, json};
use testkit::{Gateway, Reply, StatusCode};

use super::{Site, fixture, one_server, with};

async fn init(gateway: &Gateway, body: &Value) -> Reply {
    gateway.client().post(body.to_string()).path("/session/init").await
}

/// Asserts the status and an error message, and that no session was opened.
#[track_caller]
fn assert_refused(reply: &Reply, status: u16, what: &str) {
    assert_eq!(reply.status.as_u16(), status, "{what}: {:?}", reply.body);
    assert!(reply.json()["error"]["message"].is_string(), "{what}: {:?}", reply.body);
    assert!(reply.json().get("sessionId").is_none(), "{what}");
}

#[tokio::test]
async fn no_body_can_name_a_program_a_variable_or_a_server() {
    let site = Site::new("abuse-fields", &one_server("box", fixture(&[])));
    let witness = site.directory.join("witness");
    let gateway = site.start_unfenced().await;
    let command = json!(["touch", witness]);
    let server = json!({"box": {"command": command, "env": {"LD_PRELOAD": "/tmp/x.so"}}});
    for (field, value) in [
        ("command", command.clone()),
        ("args", json!(["x"])),
        ("env", json!({"LD_PRELOAD": "/tmp/x.so"})),
        ("environment", json!({"A": "b"})),
        ("servers", server.clone()),
        ("mcpServers", server),
        ("serverConfigs", json!({})),
        ("url", json!("http://127.0.0.1:1/")),
        ("secrets", json!({})),
    ] {
        assert_refused(&init(&gateway, &json!({ field: value })).await, 400, field);
    }
    let nested = json!({"preferences": {"command": command, "executionContext": {}}});
    assert_refused(&init(&gateway, &nested).await, 400, "preferences.command");
    for context in [json!("client"), json!({"command": command}), json!(["local"]), Value::Null] {
        let body = json!({"preferences": {"executionContext": {"box": context}}});
        assert_refused(&init(&gateway, &body).await, 400, &body.to_string());
    }
    assert_eq!(gateway.open_sessions().await, 0);
    assert!(!witness.exists());
    assert_eq!(init(&gateway, &json!({})).await.status, 200, "the control");
}

#[tokio::test]
async fn no_body_can_name_a_directory_that_is_not_allowed() {
    let site = Site::new("abuse-directory", &one_server("box", fixture(&[])));
    let (allowed, outside) = (site.another_project("allowed"), site.another_project("outside"));
    std::fs::create_dir(allowed.join("below")).unwrap();
    std::os::unix::fs::symlink(&outside, allowed.join("link")).unwrap();
    let gateway = site.builder().flag("--allow-scope").flag(&allowed).start().await;
    let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    for directory in [
        "/etc".to_owned(),
        "/".to_owned(),
        text(outside.clone()),
        text(allowed.join("../outside")),
        text(allowed.join("link")),
        text(allowed.join("absent")),
        "allowed".to_owned(),
        "../allowed".to_owned(),
        "~".to_owned(),
        "${HOME}".to_owned(),
        String::new(),
        format!("{}\0/etc", allowed.display()),
        format!("file://{}", outside.display()),
    ] {
        let reply = init(&gateway, &json!({ "workingDirectory": directory })).await;
        assert!(
            matches!(reply.status, StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN),
            "{directory:?}: {reply:?}"
        );
        assert!(reply.json().get("sessionId").is_none(), "{directory:?}");
    }
    assert_eq!(gateway.open_sessions().await, 0);
    for good in [text(allowed.clone()), text(allowed.join("below"))] {
        let reply = init(&gateway, &json!({ "workingDirectory": good })).await;
        assert_eq!(reply.status, 200, "the control {good}: {:?}", reply.body);
        assert_eq!(reply.json()["servers"]["box"]["allowedDirectories"], json!([good]));
    }
}

#[tokio::test]
async fn what_the_operator_pinned_stays_and_the_answer_says_so() {
    let keyed = with(fixture(&[]), "env", json!({"API_KEY": "${API_KEY}"}));
    let pinned = with(with(fixture(&[]), "executionContext", json!("remote")), "overridable", json!(false));
    let free = with(fixture(&[]), "executionContext", json!("remote"));
    let site = Site::new("pinned", &json!({"servers": {"keyed": keyed, "pinned": pinned, "free": free}}));
    let gateway = site.builder().env("API_KEY", "secret-of-the-operator").start().await;
    let wanted = json!({"keyed": "local", "pinned": "local", "free": "local", "stranger": "local"});
    let reply = init(&gateway, &json!({"preferences": {"executionContext": wanted}})).await;
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    let answer = reply.json();
    for server in ["keyed", "pinned"] {
        let found = &answer["servers"][server];
        assert_eq!(found["executionContext"], "remote", "{found}");
        assert!(found["overrideRefused"].as_str().unwrap().contains("local"), "{found}");
    }
    let free = &answer["servers"]["free"];
    assert_eq!(
        (&free["executionContext"], free.get("overrideRefused")),
        (&json!("local"), None),
        "the control"
    );
    assert_eq!(answer["warnings"], json!(["no server is called `stranger`"]));
    assert!(answer["servers"].get("stranger").is_none());
    assert!(!answer.to_string().contains("secret-of-the-operator"));
}

#[tokio::test]
async fn bodies_that_are_no_introduction_are_refused() {
    let site = Site::new("abuse-body", &one_server("box", fixture(&[])));
    let gateway = site.start().await;
    let client = gateway.client();
    let post = |body: Vec<u8>| client.post(body).path("/session/init");
    for body in ["", "{", "[]", "null", "7", "\"text\"", r#"{"workingDirectory": 7}"#, r#"{"clientInfo": 7}"#]
    {
        assert_refused(&post(body.into()).await, 400, body);
    }
    assert_refused(&post(b"{}".to_vec()).header("content-type", "text/plain").await, 415, "no JSON");
    let huge = format!(r#"{{"clientInfo": {{"name": "{}", "version": "1"}}}}"#, "n".repeat(1 << 20));
    let reply = post(huge.into_bytes()).send().await;
    if let Ok(reply) = reply {
        assert_refused(&reply, 413, "a huge body");
    }
    assert_eq!(gateway.open_sessions().await, 0);
    let deep =
        format!(r#"{{"capabilities": {{"experimental": {}{}}}}}"#, "[".repeat(20_000), "]".repeat(20_000));
    // `experimental` may hold anything, however deeply nested.
    assert_eq!(post(deep.into_bytes()).await.status, 200, "a deep body");
    assert_eq!(post(b"{}".to_vec()).await.status, 200, "the control");
}

#[tokio::test]
async fn other_methods_paths_hosts_and_origins_are_refused() {
    let site = Site::new("abuse-methods", &one_server("box", fixture(&[])));
    let gateway = site.start().await;
    let client = gateway.client();
    let opened = init(&gateway, &json!({})).await;
    let id = opened.json()["sessionId"].as_str().unwrap().to_owned();
    for (method, path, status) in [
        ("GET", "/session/init".to_owned(), [405, 404]),
        ("PUT", "/session/init".to_owned(), [405; 2]),
        ("DELETE", "/session/init".to_owned(), [405, 404]),
        ("POST", format!("/session/{id}"), [405; 2]),
        ("PUT", format!("/session/{id}"), [405; 2]),
        ("GET", format!("/session/{id}/destroy"), [405; 2]),
        ("DELETE", format!("/session/{id}/destroy"), [405; 2]),
        ("GET", "/session/".to_owned(), [404; 2]),
        ("GET", "/session/0123456789abcdef".to_owned(), [404; 2]),
        ("GET", "/session/%2e%2e%2fsessions".to_owned(), [404; 2]),
        ("DELETE", format!("/session/{}", "x".repeat(5000)), [404; 2]),
        ("POST", "/session/init/init".to_owned(), [404; 2]),
    ] {
        let reply = client.post("{}").method(method).path(&path).await;
        assert!(status.contains(&reply.status.as_u16()), "{method} {path}: {}", reply.status);
    }
    for (header, value) in [("host", "evil.example"), ("origin", "https://evil.example")] {
        let reply = client.post("{}").path("/session/init").header(header, value).await;
        assert_eq!(reply.status, 403, "{header}");
        let reply = client.get_stream(None).path(&format!("/session/{id}")).header(header, value).await;
        assert_eq!(reply.status, 403, "{header}");
    }
    assert_eq!(client.get_stream(None).path(&format!("/session/{id}")).await.status, 200, "the control");
}
