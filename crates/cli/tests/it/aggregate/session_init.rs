//! Sessions opened by `POST /session/init`, with the configuration and request of the founding document.

use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, RawClient, Reply};

use super::{Site, assert_contains, fixture, official, one_server, tools};

/// The founding document's configuration, word for word.
const FOUNDING_CONFIGURATION: &str = include_str!("../../../../config/tests/founding.yaml");

/// The founding document's request, with another directory.
fn founding_request(directory: &std::path::Path) -> Value {
    json!({
        "clientInfo": {"name": "claude-desktop", "version": "1.0.0"},
        "workingDirectory": directory,
        "capabilities": {"filesystem": true, "experimental": ["local-execution"]},
        "preferences": {
            "executionContext": {"filesystem": "local", "web-search": "remote", "databases": "remote"},
        },
    })
}

async fn init(client: &RawClient, body: &Value) -> Reply {
    client.post(body.to_string()).without_header("accept").path("/session/init").await
}

/// Opens a session by `POST /session/init` and returns a client that has not sent `initialize`, and the answer.
async fn begin(gateway: &Gateway, body: &Value) -> (RawClient, Value) {
    let mut client = gateway.client();
    let reply = init(&client, body).await;
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    let answer = reply.json().clone();
    client.set_session(answer["sessionId"].as_str(), None);
    (client, answer)
}

#[tokio::test]
async fn the_founding_configuration_and_request_work_word_for_word() {
    let site = Site::with_text("founding", FOUNDING_CONFIGURATION);
    std::fs::write(site.project().join("readme"), "hello").unwrap();
    let gateway = site.builder().env_remove("BRAVE_API_KEY").start().await;
    let (client, answer) = begin(&gateway, &founding_request(&site.project())).await;
    assert!(answer["sessionId"].as_str().unwrap().len() >= 16, "{answer}");
    assert_eq!(answer["protocolVersion"], NEWEST);
    assert!(answer["capabilities"]["tools"].is_object(), "{answer}");
    let session = json!({"local_execution": true, "remote_execution": true});
    assert_eq!(answer["capabilities"]["session"], session);

    let servers = &answer["servers"];
    let filesystem = &servers["filesystem"];
    assert_eq!(filesystem["executionContext"], "local", "{filesystem}");
    assert_eq!(filesystem["workingDirectory"], json!(site.project()));
    assert_eq!(filesystem["allowedDirectories"], json!([site.project()]));
    for (server, context) in
        [("web-search", "remote"), ("database", "remote"), ("memory", "remote"), ("git", "local")]
    {
        let found = &servers[server];
        assert_eq!(
            (&found["executionContext"], &found["enabled"]),
            (&json!(context), &json!(false)),
            "{server}: {found}"
        );
        assert!(found["reason"].as_str().unwrap().contains("nothing to run"), "{server}: {found}");
    }
    let brave = &servers["brave-search"];
    assert_eq!((&brave["endpoint"], &brave["enabled"]), (&json!("internal"), &json!(false)), "{brave}");
    assert!(brave["reason"].is_string(), "{brave}");

    let listed = answer["tools"].as_array().unwrap();
    let read = listed
        .iter()
        .find(|tool| tool["name"] == "filesystem_read_file")
        .unwrap_or_else(|| panic!("{answer}"));
    assert_eq!(
        *read,
        json!({"name": "filesystem_read_file", "executionContext": "local", "server": "filesystem"})
    );
    assert_eq!(answer["warnings"], json!(["no server is called `databases`"]));
    let read = client.call_tool_for_text("filesystem_read_file", json!({"path": "readme"})).await;
    assert!(read.contains("hello"), "{read}");
}

#[tokio::test]
async fn a_missing_key_is_the_reason_word_for_word_and_the_control_has_it() {
    let mut brave = fixture(&[]);
    brave["executionContext"] = json!("remote");
    brave["env"] = json!({"BRAVE_API_KEY": "${BRAVE_API_KEY}"});
    let site = Site::new("brave", &one_server("brave-search", brave));
    let gateway = site.builder().env_remove("BRAVE_API_KEY").start().await;
    let (_, answer) = begin(&gateway, &json!({})).await;
    let found = &answer["servers"]["brave-search"];
    assert_eq!(
        (&found["enabled"], &found["reason"]),
        (&json!(false), &json!("Missing BRAVE_API_KEY")),
        "{found}"
    );
    assert_eq!(answer["tools"], json!([]));
    drop(gateway);
    let gateway = site.builder().env("BRAVE_API_KEY", "a-key").start().await;
    let (_, answer) = begin(&gateway, &json!({})).await;
    assert_ne!(answer["servers"]["brave-search"]["enabled"], false, "{answer}");
    assert!(!answer["tools"].as_array().unwrap().is_empty());
    assert!(!answer.to_string().contains("a-key"));
}

#[tokio::test]
async fn a_client_may_go_on_without_initialize() {
    let site = Site::new("no-initialize", &one_server("box", fixture(&[])));
    let gateway = site.start().await;
    let (client, _) = begin(&gateway, &json!({"workingDirectory": site.project()})).await;
    assert_contains(&tools(&client).await, &["box_echo"]);
    assert_eq!(client.call_tool_for_text("box_echo", json!({"text": "e"})).await, "e");
}

#[tokio::test]
async fn the_session_is_also_known_by_the_header_x_session_id() {
    let site = Site::new("x-session-id", &one_server("box", fixture(&[])));
    let gateway = site.start().await;
    let (client, answer) = begin(&gateway, &json!({})).await;
    let id = answer["sessionId"].as_str().unwrap();
    let plain = gateway.client();
    let call = || plain.post_tool_call(&json!(1), "box_echo", json!({"text": "x"}));
    let reply = call().header("x-session-id", id).await;
    assert_eq!(reply.status, 200);
    assert!(reply.answer_text().await.contains("\"x\""));
    assert_eq!(call().header("x-session-id", "0123456789abcdef").await.status, 404, "of nobody");
    assert_eq!(call().await.status, 400, "none");
    let both = client.post_tool_call(&json!(2), "box_echo", json!({"text": "x"}));
    assert_eq!(both.header("x-session-id", "0123456789abcdef").await.status, 400, "two different ones");
}

#[tokio::test]
async fn one_late_initialize_is_answered_and_a_second_refused() {
    let site = Site::new("late-initialize", &one_server("box", fixture(&[])));
    let gateway = site.start().await;
    let (mut client, answer) = begin(&gateway, &json!({})).await;
    let id = client.session_id().unwrap().to_owned();
    let reply = client.post_initialize(&json!("i"), json!({"sampling": {}}), NEWEST).await;
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    assert_eq!(reply.session_id(), Some(id.as_str()), "the official clients want to hear it again");
    let opened: Value = serde_json::from_str(&reply.answer_text().await).unwrap();
    assert_eq!(opened["result"]["protocolVersion"], answer["protocolVersion"]);
    assert_eq!(opened["result"]["serverInfo"]["name"], "ringfence");
    client.set_session(Some(&id), Some(NEWEST));
    assert_eq!(client.notify("notifications/initialized", None).await.status, 202);
    let second = client.post_initialize(&json!("again"), json!({}), NEWEST).await;
    assert_eq!(second.status, 400);
    assert_eq!(client.call_tool_for_text("box_echo", json!({"text": "still"})).await, "still");

    // The capabilities of the late `initialize` count, so servers can now ask the client.
    let asked = client
        .call_tool_answering("box_ask", json!({"kind": "sampling", "tag": "t"}), |_| {
            Ok(json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "sampled"}}))
        })
        .await;
    assert!(asked.response.to_string().contains("sampled"), "{:?}", asked.response);
}

#[tokio::test]
async fn a_session_is_shown_and_ended_by_its_own_paths() {
    let site = Site::new("shown", &one_server("box", fixture(&[])));
    let gateway = site.start().await;
    for destroy in [false, true] {
        let (client, answer) = begin(&gateway, &founding_request(&site.project())).await;
        client.call_tool_for_text("box_echo", json!({"text": "e"})).await;
        let shown = client.session_report().await;
        assert_eq!(shown["sessionId"], answer["sessionId"]);
        assert_eq!(shown["workingDirectory"], json!(site.project()));
        assert!(shown["client"].as_str().unwrap().contains("claude-desktop"), "{shown}");
        assert_eq!((&shown["calls"], &shown["tools"]), (&json!(1), &answer["tools"]), "{shown}");
        let path = format!("/session/{}", client.session_id().unwrap());
        let end = if destroy {
            client.post("").path(&format!("{path}/destroy"))
        } else {
            client.post("").method("DELETE").path(&path)
        };
        assert_eq!(end.await.status, 204);
        assert_eq!(client.get_stream(None).path(&path).await.status, 404);
        assert_eq!(client.post_tool_call(&json!(1), "box_echo", json!({})).await.status, 404);
    }
    testkit::wait_until("no process is left", async || gateway.descendants().is_empty()).await;
}

#[tokio::test]
async fn a_client_that_takes_no_local_servers_has_none() {
    let site = Site::new(
        "no-local",
        &json!({"servers": {"filesystem": {}, "everything": official("server-everything", &[])}}),
    );
    let gateway = site.start().await;
    let (_, answer) = begin(&gateway, &json!({"capabilities": {"filesystem": false}})).await;
    let found = &answer["servers"]["filesystem"];
    assert_eq!(found["enabled"], false, "{found}");
    assert!(found["reason"].as_str().unwrap().contains("capabilities.filesystem"), "{found}");
    let all = answer["tools"].as_array().unwrap();
    assert!(!all.is_empty() && all.iter().all(|tool| tool["server"] == "everything"), "{answer}");
    let (_, control) = begin(&gateway, &json!({"capabilities": {"filesystem": true}})).await;
    assert!(control["tools"].as_array().unwrap().iter().any(|tool| tool["server"] == "filesystem"));
}

#[tokio::test]
async fn a_gateway_without_a_configuration_has_the_endpoints_too() {
    let directory = testkit::workspace_dir("init-plain");
    let gateway = Gateway::builder().current_dir(directory.path()).start().await;
    let (client, answer) = begin(&gateway, &json!({"clientInfo": {"name": "c", "version": "1"}})).await;
    assert_eq!(client.call_tool_for_text("echo", json!({"text": "e"})).await, "e");
    assert_eq!(client.session_report().await["sessionId"], answer["sessionId"]);
}
