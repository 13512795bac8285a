//! The response to a single HTTP request: statuses, headers, error bodies, and bytes that pass through unchanged.

use serde_json::{Value, json};
use testkit::{
    Gateway, MessageLog, NEWEST, RawClient, RawRequest, Reply, ReplyBody, wait_until, workspace_dir,
};

const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST];
const MODERN: &str = "2026-07-28";
const MODERN_META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#;

/// Far longer than any test, so such a call ends only by being cancelled, or with its session.
const FOREVER_MS: u64 = 3_600_000;

/// Starts a gateway and opens a session of the newest revision.
async fn gateway_and_client() -> (Gateway, RawClient) {
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open().await;
    (gateway, client)
}

/// Starts a gateway with a fixture that logs the messages it reads.
async fn logged_gateway() -> (Gateway, MessageLog, testkit::WorkspaceDir) {
    let directory = workspace_dir("http-rules");
    let log = MessageLog::new(directory.join("messages"));
    let gateway =
        Gateway::unfenced().fixture_flags(["--message-log".as_ref(), log.path().as_os_str()]).start().await;
    (gateway, log, directory)
}

#[track_caller]
fn assert_refused(reply: &Reply, status: u16, code: i64, id: &Value, what: &str) {
    assert_eq!(reply.status, status, "{what}: {:?}", reply.body);
    assert_eq!(reply.header("content-type"), Some("application/json"), "{what}");
    let body = reply.json();
    assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), id), "{what}: {body}");
    assert_eq!(body["error"]["code"], code, "{what}: {body}");
    assert!(!body["error"]["message"].as_str().unwrap().is_empty(), "{what}: {body}");
}

/// The control after a refusal: the session still answers.
async fn assert_usable(client: &RawClient) {
    let answer = client.request("ping", None).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn initialize_is_answered_with_a_random_session_id_of_visible_ascii() {
    let gateway = Gateway::unfenced().start().await;
    let mut ids = Vec::new();
    for version in VERSIONS {
        let reply = gateway.client().post_initialize(&json!("first"), json!({}), version).await;
        assert_eq!((reply.status.as_u16(), reply.header("content-type")), (200, Some("application/json")));
        assert_eq!(reply.json()["id"], "first");
        assert_eq!(reply.json()["result"]["protocolVersion"], version);
        assert_eq!(reply.json()["result"]["serverInfo"]["name"], "ringfence-fixture");
        let id = reply.session_id().unwrap().to_owned();
        assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
        let parts: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{id} is a UUID");
        assert_eq!(id.as_bytes()[14], b'4', "{id} is a random UUID");
        assert!(!ids.contains(&id));
        ids.push(id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_and_responses_are_accepted_without_a_body() {
    let (_gateway, client) = gateway_and_client().await;
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/anything"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#,
        r#"{"jsonrpc":"2.0","id":77,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"77","error":{"code":1,"message":"no"}}"#,
    ] {
        let reply = client.post(body).await;
        assert_eq!(reply.status, 202, "{body}");
        assert!(matches!(reply.body, ReplyBody::Empty), "{body}: {:?}", reply.body);
    }
    assert_usable(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_returns_byte_for_byte_under_the_callers_id() {
    let (_gateway, client) = gateway_and_client().await;
    let texts =
        [r#""plain""#, r#""\u0041\/\ud83d\ude00 \t""#, r#""ünïcödé 🦀 \u2028""#, r#""a\nb\r\n\\n""#, r#""""#];
    let ids = ["7", "0", "-3", "123456789012345678901234567890", r#""""#, r#""seven 🦀""#];
    for (text, id) in texts.into_iter().cycle().zip(ids) {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":{text}}}}}}}"#
        );
        let reply = client.post(body).await;
        assert_eq!((reply.status.as_u16(), reply.session_id()), (200, client.session_id()));
        let expected = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{text}}}]}}}}"#
        );
        assert_eq!(reply.answer_text().await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_server_answers_passes_unchanged_except_for_the_id() {
    let (gateway, log, _directory) = logged_gateway().await;
    let client = gateway.open().await;
    for rest in [
        r#""result":{"n":123456789012345678901234567890,"a":1,"a":2,"f":1.50e3,"id":9}"#,
        r#""result" : { "text":"\u00e9 é 🦀 \/" } , "extra":[ ]"#,
        r#""error":{"code":-5,"message":"no","data":{"big":98765432109876543210.50},"more":null}"#,
    ] {
        let earlier = log.with_method("tools/call").len();
        let id = client.next_id();
        let pending = client.post_tool_call(&id, "sleep", json!({"ms": FOREVER_MS})).await;
        let upstream_id = log.with_method("tools/call")[earlier]["id"].clone();
        let line = format!(r#"{{"jsonrpc":"2.0", "id":{upstream_id},{rest}}}"#);
        client.call_tool_for_text("raw_stdout", json!({"line": line})).await;
        assert_eq!(pending.answer_text().await, format!(r#"{{"jsonrpc":"2.0", "id":{id},{rest}}}"#));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_gets_the_bytes_of_the_client_with_only_id_and_token_replaced() {
    const REQUESTS: [&str; 6] = [
        r#"{"jsonrpc":"2.0","id":@ID@,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x","n":123456789012345678901234567890,"n":1.50e3,"a":1,"a":2}}}"#,
        "{\r\n  \"params\" : {\n\t\"_meta\":{\"progressToken\":@TOKEN@,\"x\":null},\"name\":\"echo\",\"arguments\":{\"text\":\"a\\nb\"}},\n \"id\":@ID@,\"jsonrpc\":\"2.0\",\"method\":\"tools/call\"\n}\n",
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"arguments":{"text":"\u00e9é🦀\/\u0000"},"name":"ec\u0068o","_meta":{"progressToken":@TOKEN@}},"id":@ID@}"#,
        r#"{"extra":[1.50,{"id":3,"id":4}],"jsonrpc":"2.0","id":@ID@,"method":"vendor/x","params":[1,2,{"progressToken":9}]}"#,
        r#"{"jsonrpc":"2.0","id":@ID@,"method":"vendor/y","params":{"progressToken":"inner","requestId":4,"_meta":{"progressToken":@TOKEN@,"vendor":{"progressToken":8}}}}"#,
        r#"{"jsonrpc":"2.0","id":@ID@,"method":"ping"}"#,
    ];
    let (gateway, log, _directory) = logged_gateway().await;
    let client = gateway.open().await;
    for (template, (id, token)) in REQUESTS
        .into_iter()
        .zip([("1", "1"), ("\"1\"", "\"a b\""), ("98765432109876543210", "0")].iter().cycle())
    {
        let reply = client.post(template.replace("@ID@", id).replace("@TOKEN@", token)).await;
        assert_eq!(reply.status, 200, "{template}");
        reply.answer_text().await;
        let received = log.lines().pop().unwrap();
        let upstream_id =
            serde_json::from_str::<Value>(&received).unwrap()["id"].as_u64().unwrap().to_string();
        let on_one_line = template.replace(['\r', '\n'], " ");
        assert_eq!(received, on_one_line.replace("@ID@", &upstream_id).replace("@TOKEN@", &upstream_id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_reaches_the_server_byte_for_byte_on_one_line() {
    let (gateway, log, _directory) = logged_gateway().await;
    let client = gateway.open().await;
    let body = "{ \"method\":\"notifications/vendor\",\r\n\"params\":{\"n\":98765432109876543210,\"n\":2,\"t\":\"\\n é\"},\"jsonrpc\":\"2.0\"}";
    assert_eq!(client.post(body).await.status, 202);
    let expected = body.replace(['\r', '\n'], " ");
    wait_until("the notification arrived", async || log.lines().contains(&expected)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_session_id_is_refused() {
    let (gateway, client) = gateway_and_client().await;
    let stranger = gateway.client();
    assert_refused(&stranger.post(PING).await, 400, -32000, &json!(5), "a request");
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_refused(&stranger.post(notification).await, 400, -32000, &Value::Null, "a notification");
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    assert_refused(&stranger.post(answer).await, 400, -32000, &Value::Null, "a response");
    assert_refused(&stranger.get_stream(None).await, 400, -32000, &Value::Null, "GET");
    assert_refused(&stranger.delete().await, 400, -32000, &Value::Null, "DELETE");
    assert_usable(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_ended_or_garbage_session_id_is_not_found() {
    let (gateway, client) = gateway_and_client().await;
    let ended = gateway.open().await;
    assert!(ended.delete().await.status.is_success());
    let live = client.session_id().unwrap();
    let (cut, extended, undashed) = (&live[1..], format!("{live}0"), live.replace('-', ""));
    let ids: [&[u8]; 9] = [
        b"00000000-0000-4000-8000-000000000000",
        ended.session_id().unwrap().as_bytes(),
        b"garbage",
        b"",
        b"../../etc/passwd",
        cut.as_bytes(),
        extended.as_bytes(),
        undashed.as_bytes(),
        b"\xff\xfe",
    ];
    let stranger = gateway.client();
    for id in ids {
        let what = String::from_utf8_lossy(id).into_owned();
        for request_id in ["5", r#""five""#] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{request_id},"method":"ping"}}"#);
            let reply = stranger.post(body).header("mcp-session-id", id).await;
            let expected = format!(
                r#"{{"jsonrpc":"2.0","id":{request_id},"error":{{"code":-32001,"message":"Session not found"}}}}"#
            );
            assert_eq!(
                (reply.status.as_u16(), String::from_utf8_lossy(&reply.raw).into_owned()),
                (404, expected),
                "{what}"
            );
        }
        let get = stranger.get_stream(None).header("mcp-session-id", id).await;
        assert_refused(&get, 404, -32001, &Value::Null, &what);
        let delete = stranger.delete().header("mcp-session-id", id).await;
        assert_refused(&delete, 404, -32001, &Value::Null, &what);
    }
    assert_usable(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_header_must_name_a_supported_revision() {
    let (_gateway, client) = gateway_and_client().await;
    for bad in ["", "1", "2024-01-01", "2025-11-26", "2025-11-25x", "2025-06-18, 2025-11-25"] {
        let post = client.post(PING).header("mcp-protocol-version", bad).await;
        assert_refused(&post, 400, -32000, &json!(5), bad);
        let get = client.get_stream(None).header("mcp-protocol-version", bad).await;
        assert_refused(&get, 400, -32000, &Value::Null, bad);
        let delete = client.delete().header("mcp-protocol-version", bad).await;
        assert_refused(&delete, 400, -32000, &Value::Null, bad);
    }
    for good in VERSIONS {
        let reply = client.post(PING).header("mcp-protocol-version", good).await;
        assert_eq!(reply.status, 200, "{good}");
    }
    let silent = client.post(PING).without_header("mcp-protocol-version").await;
    assert_eq!(silent.status, 200, "a client of 2025-03-26 sends no such header");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_verbs_are_refused_with_the_allowed_ones() {
    let (_gateway, client) = gateway_and_client().await;
    for verb in ["PUT", "PATCH", "OPTIONS", "TRACE", "PROPFIND"] {
        let reply = client.post(PING).method(verb).await;
        assert_refused(&reply, 405, -32000, &Value::Null, verb);
        assert_eq!(reply.header("allow"), Some("GET, POST, DELETE"), "{verb}");
    }
    assert_eq!(client.post(PING).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_request_does_not_take_the_stream_of_the_session() {
    let (_gateway, client) = gateway_and_client().await;
    let mut listening = client.get_stream(None).await.into_events();
    let head = client.get_stream(None).method("HEAD").await;
    assert_eq!((head.status.as_u16(), head.header("allow")), (405, Some("GET, POST, DELETE")));
    client.call_tool_for_text("notify_list_changed", json!({})).await;
    let message = listening.next_message().await.expect("the stream is still open");
    assert_eq!(message["method"], "notifications/tools/list_changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_must_accept_what_it_may_be_answered_with() {
    let (_gateway, client) = gateway_and_client().await;
    for bad in
        ["application/json", "text/event-stream", "text/html", "", "application/jsonx, text/event-streams"]
    {
        let reply = client.post(PING).header("accept", bad).await;
        assert_refused(&reply, 406, -32000, &Value::Null, bad);
    }
    let silent = client.post(PING).without_header("accept").await;
    assert_refused(&silent, 406, -32000, &Value::Null, "no Accept at all");
    for bad in ["application/json", "text/plain"] {
        let reply = client.get_stream(None).header("accept", bad).await;
        assert_refused(&reply, 406, -32000, &Value::Null, bad);
    }
    for good in ["text/event-stream, application/json", "application/json;q=0.9,text/event-stream;q=1", "*/*"]
    {
        assert_eq!(client.post(PING).header("accept", good).await.status, 200, "{good}");
    }
    let twice = client.post(PING).header("accept", "application/json");
    assert_eq!(twice.additional_header("accept", "text/event-stream").await.status, 200);
    assert!(client.get_stream(None).await.body.is_sse());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_must_be_called_json() {
    let (_gateway, client) = gateway_and_client().await;
    for bad in [
        "text/plain",
        "application/jsonp",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "",
    ] {
        let reply = client.post(PING).header("content-type", bad).await;
        assert_refused(&reply, 415, -32000, &Value::Null, bad);
    }
    let silent = client.post(PING).without_header("content-type").await;
    assert_refused(&silent, 415, -32000, &Value::Null, "no Content-Type at all");
    for good in ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"] {
        assert_eq!(client.post(PING).header("content-type", good).await.status, 200, "{good}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_is_refused_and_the_session_goes_on() {
    let gateway = Gateway::unfenced().flags(["--max-message-bytes", "2000"]).start().await;
    let client = gateway.open().await;
    let ping_of = |length: usize| format!("{PING}{}", " ".repeat(length - PING.len()));
    for length in [2001, 5_000_000] {
        let reply = client.post(ping_of(length)).await;
        assert_refused(&reply, 413, -32000, &Value::Null, "too large");
        assert!(reply.json()["error"]["message"].as_str().unwrap().contains("2000"));
        assert_usable(&client).await;
    }
    assert_eq!(client.post(ping_of(2000)).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_message_is_refused_with_its_id_where_there_is_one() {
    let (_gateway, client) = gateway_and_client().await;
    let deep = |levels: usize, id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0",{id}"method":"ping","params":{{"x":{}{}}}}}"#,
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    let (deep_request, very_deep) = (deep(200, r#""id":5,"#), deep(100_000, ""));
    let cases: &[(&str, i64, Value)] = &[
        ("", -32700, Value::Null),
        ("{", -32700, Value::Null),
        ("nonsense", -32700, Value::Null),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping"} {}"#, -32700, Value::Null),
        ("42", -32600, Value::Null),
        ("{}", -32600, Value::Null),
        (r#"{"jsonrpc":"1.0","id":5,"method":"ping"}"#, -32600, json!(5)),
        (r#"{"id":"five","method":"ping"}"#, -32600, json!("five")),
        (r#"{"jsonrpc":"2.0","id":5}"#, -32600, json!(5)),
        (r#"{"jsonrpc":"2.0","id":5,"result":1,"error":{}}"#, -32600, json!(5)),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping","result":{}}"#, -32600, json!(5)),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping","\u006dethod":"x"}"#, -32600, json!(5)),
        (r#"{"jsonrpc":"2.0","id":5,"id":6,"method":"ping"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":{"_meta":{},"_meta":{}}}"#, -32600, json!(5)),
        (
            r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":{"_meta":{"progressToken":1,"progressToken":2}}}"#,
            -32600,
            json!(5),
        ),
        (r#"{"jsonrpc":"2.0","id":5,"method":7}"#, -32600, json!(5)),
        (&deep_request, -32600, json!(5)),
        (&very_deep, -32600, Value::Null),
    ];
    let mut wrong = Vec::new();
    for (body, code, id) in cases {
        let reply = client.post(*body).await;
        let got = (reply.status.as_u16(), reply.json()["error"]["code"].clone(), reply.json()["id"].clone());
        if got != (400, json!(code), id.clone()) {
            wrong.push(format!("{}: {}", &body[..body.len().min(100)], reply.json()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let nested = client.post(deep(100, r#""id":5,"#)).await;
    assert_eq!(nested.status, 200, "what real schemas nest passes");
    assert_usable(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_utf_8_is_a_parse_error() {
    let (_gateway, client) = gateway_and_client().await;
    let reply = client.post(&b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"\xff\"}"[..]).await;
    assert_refused(&reply, 400, -32700, &Value::Null, "Latin-1");
    assert_usable(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_integers_and_strings_are_ids() {
    let (_gateway, client) = gateway_and_client().await;
    let body = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    let too_long = format!("\"{}\"", "x".repeat(100_000));
    for bad in ["null", "1.5", "1e3", "{}", r#"{"a":1}"#, "[1]", "true", &too_long] {
        let reply = client.post(body(bad)).await;
        assert_refused(&reply, 400, -32600, &Value::Null, &bad[..bad.len().min(20)]);
    }
    for good in ["0", "-1", "18446744073709551616", r#""""#, r#""1.5""#, r#""null""#] {
        let reply = client.post(body(good)).await;
        assert_eq!(reply.answer_text().await, format!(r#"{{"jsonrpc":"2.0","id":{good},"result":{{}}}}"#));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_a_2025_03_26_session_is_answered_together() {
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open_version("2025-03-26").await;
    let mut listening = client.get_stream(None).await.into_events();
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sleep", "arguments": {"ms": 300, "progress_every_ms": 100}, "_meta": {"progressToken": "t"}}},
        {"jsonrpc": "2.0", "method": "notifications/vendor"},
        {"jsonrpc": "2.0", "id": "1", "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hi"}}},
        {"jsonrpc": "2.0", "id": 99, "result": {}},
        {"jsonrpc": "2.0", "id": 3, "method": "no/such"},
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
    ]);
    let reply = client.post(batch.to_string()).await;
    assert_eq!((reply.status.as_u16(), reply.header("content-type")), (200, Some("application/json")));
    let answers = reply.json().as_array().unwrap();
    assert_eq!(answers.len(), 4, "{answers:?}");
    let find = |id: Value, has: &str| {
        answers
            .iter()
            .find(|answer| answer["id"] == id && answer.get(has).is_some())
            .unwrap_or_else(|| panic!("{id} with {has} in {answers:?}"))
    };
    assert_eq!(find(json!(1), "result")["result"]["content"][0]["text"], "slept");
    assert_eq!(find(json!("1"), "result")["result"]["content"][0]["text"], "hi");
    assert_eq!(find(json!(3), "error")["error"]["code"], -32601);
    assert_eq!(find(json!(1), "error")["error"]["code"], -32600, "the id was in use");
    let progress = listening.next_message().await.unwrap();
    assert_eq!(
        progress["params"]["progressToken"], "t",
        "what cannot stand in the array comes by GET: {progress}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_without_requests_is_accepted_without_a_body() {
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open_version("2025-03-26").await;
    let batch = r#"[{"jsonrpc":"2.0","method":"notifications/a"},{"jsonrpc":"2.0","id":9,"result":{}}]"#;
    let reply = client.post(batch).await;
    assert_eq!(reply.status, 202);
    assert!(matches!(reply.body, ReplyBody::Empty), "{:?}", reply.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_empty_invalid_or_holds_initialize_is_refused() {
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open_version("2025-03-26").await;
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{}}}"#;
    let modern = format!(r#"[{PING},{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{{MODERN_META}}}}}]"#);
    let too_many = format!("[{}{PING}]", format!("{PING},").repeat(1000));
    for bad in [
        "[]",
        "[1]",
        r#"[["2.0",5,"ping"]]"#,
        &format!("[{PING},{{}}]"),
        &format!("[{initialize}]"),
        &format!("[{initialize},{PING}]"),
        &modern,
        &too_many,
    ] {
        assert_refused(&client.post(bad).await, 400, -32600, &Value::Null, &bad[..bad.len().min(80)]);
    }
    let sole = gateway.client().post(format!("[{initialize},{PING}]")).await;
    assert_eq!(sole.status, 400, "and without a session: {:?}", sole.body);
    assert_eq!(client.post(format!("[{PING}]")).await.json()[0]["result"], json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_do_not_exist_in_later_revisions() {
    let gateway = Gateway::unfenced().start().await;
    for version in ["2025-06-18", NEWEST] {
        let client = gateway.open_version(version).await;
        assert_refused(&client.post(format!("[{PING}]")).await, 400, -32600, &Value::Null, version);
        assert_usable(&client).await;
    }
    let control = gateway.open_version("2025-03-26").await;
    assert_eq!(control.post(format!("[{PING}]")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_initialize_is_refused_on_a_live_session_and_starts_over_on_a_stale_one() {
    let (gateway, client) = gateway_and_client().await;
    let again = client.post_initialize(&json!(5), json!({}), NEWEST).await;
    assert_refused(&again, 400, -32600, &json!(5), "a live session");
    assert_usable(&client).await;
    assert_eq!(gateway.open_sessions().await, 1);
    assert!(client.delete().await.status.is_success());
    let fresh = client.post_initialize(&json!(6), json!({}), NEWEST).await;
    assert_eq!(fresh.status, 200, "{:?}", fresh.body);
    assert!(fresh.session_id().is_some_and(|id| Some(id) != client.session_id()));
}

#[tokio::test(flavor = "multi_thread")]
async fn initialize_without_a_protocol_version_starts_nothing() {
    let gateway = Gateway::unfenced().start().await;
    gateway.wait_for_probe().await;
    for params in [
        None,
        Some(json!({})),
        Some(json!({"protocolVersion": 7})),
        Some(json!([NEWEST])),
        Some(json!({"capabilities": {}, "clientInfo": {}})),
    ] {
        let reply = gateway.client().post_request(&json!("x"), "initialize", params.clone()).await;
        assert_refused(&reply, 400, -32602, &json!("x"), &format!("{params:?}"));
        assert_eq!(reply.session_id(), None);
    }
    assert_eq!((gateway.counter("worker_starts").await, gateway.open_sessions().await), (1, 0), "the trial");
    let bare = gateway
        .client()
        .post_request(&json!(1), "initialize", Some(json!({"protocolVersion": NEWEST})))
        .await;
    assert_eq!(bare.status, 200, "the version is all that it takes: {:?}", bare.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_in_flight_is_refused_and_the_number_differs_from_its_string() {
    let (_gateway, client) = gateway_and_client().await;
    let mut running =
        client.post_tool_call(&json!(1), "sleep", json!({"ms": FOREVER_MS})).await.into_events();
    let twice = client.post_tool_call(&json!(1), "echo", json!({"text": "x"})).await;
    assert_refused(&twice, 400, -32600, &json!(1), "the same number");
    let mut other =
        client.post_tool_call(&json!("1"), "sleep", json!({"ms": FOREVER_MS})).await.into_events();
    let twice = client.post_tool_call(&json!("1"), "echo", json!({"text": "x"})).await;
    assert_refused(&twice, 400, -32600, &json!("1"), "the same string");
    for (id, events) in [(json!("1"), &mut other), (json!(1), &mut running)] {
        client.notify("notifications/cancelled", Some(json!({"requestId": id}))).await;
        let answer = events.next_message().await.unwrap();
        assert_eq!((&answer["id"], &answer["error"]["data"]["reason"]), (&id, &json!("cancelled")));
    }
    let after = client.request_with_id(&json!(1), "ping", None).await;
    assert_eq!(after["result"], json!({}), "once it has ended, an id is free");
}

/// A GET request for `/health`, which needs no session.
fn health(gateway: &Gateway) -> RawRequest {
    gateway.client().get_stream(None).path("/health")
}

#[tokio::test(flavor = "multi_thread")]
async fn only_loopback_and_configured_hosts_are_served() {
    let gateway = Gateway::unfenced()
        .flags(["--allowed-host", "dev.example", "--allowed-host", "other.example:8080"])
        .start()
        .await;
    gateway.wait_for_probe().await;
    for good in [
        "localhost",
        "LOCALHOST:3000",
        "127.0.0.1:1",
        "[::1]:5",
        "dev.example",
        "Dev.Example:7",
        "other.example:8080",
    ] {
        let reply = health(&gateway).header("host", good).await;
        assert_eq!(reply.status, 200, "{good}");
    }
    for bad in [
        "evil.example.com",
        "localhost.evil.com",
        "notlocalhost",
        "127.0.0.1.evil.com",
        "127.0.0.1@evil.com",
        "localhost@evil.com:80",
        "user:pw@localhost",
        "dev.example.evil.com",
        "evil-dev.example",
        "other.example",
        "other.example:8081",
        "0.0.0.0",
        "10.0.0.1",
        "[::2]",
        "",
    ] {
        let initialize =
            gateway.client().post_initialize(&json!(1), json!({}), NEWEST).header("host", bad).await;
        assert_refused(&initialize, 403, -32000, &Value::Null, bad);
        for path in ["/mcp", "/health", "/ready", "/.well-known/oauth-protected-resource"] {
            let reply = gateway.client().get_stream(None).path(path).header("host", bad).await;
            assert_refused(&reply, 403, -32000, &Value::Null, &format!("{bad} {path}"));
        }
    }
    assert_eq!(health(&gateway).without_header("host").await.status, 403);
    assert_eq!(health(&gateway).additional_header("host", "evil.example.com").await.status, 403);
    assert_eq!(gateway.counter("worker_starts").await, 1, "nothing but the trial");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_not_allowed_unless_configured() {
    let gateway = Gateway::unfenced().start().await;
    assert_eq!(health(&gateway).header("host", "dev.example").await.status, 403);
    assert_eq!(health(&gateway).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn web_origins_are_compared_whole_and_only_configured_ones_get_cors_headers() {
    let gateway = Gateway::unfenced()
        .flags(["--allowed-origin", "https://app.example", "--allowed-origin", "vscode-webview://abc"])
        .start()
        .await;
    gateway.wait_for_probe().await;
    let initialize = |origin: &str| {
        gateway.client().post_initialize(&json!(1), json!({}), NEWEST).header("origin", origin)
    };
    for bad in [
        "null",
        "",
        "*",
        "https://evil.example.com",
        "http://localhost.evil.com",
        "http://127.0.0.1.evil.com",
        "http://localhost@evil.com",
        "http://user@localhost",
        "https://app.example.evil.com",
        "https://evil-app.example",
        "https://app.example@evil.com",
        "http://app.example",
        "https://app.example:444",
        "https://app.example/path",
        "ftp://localhost",
        "file://",
    ] {
        let reply = initialize(bad).await;
        assert_refused(&reply, 403, -32000, &Value::Null, bad);
        assert_eq!(reply.header("access-control-allow-origin"), None, "{bad}");
        assert_eq!(initialize(bad).method("OPTIONS").await.status, 403, "{bad}");
    }
    assert_eq!(gateway.counter("worker_starts").await, 1, "nothing but the trial");
    for local in ["http://localhost", "http://localhost:5173", "https://127.0.0.1:1", "http://[::1]"] {
        let reply = initialize(local).await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("access-control-allow-origin")),
            (200, None),
            "{local}"
        );
    }
    for allowed in ["https://app.example", "vscode-webview://abc"] {
        let reply = initialize(allowed).await;
        assert_eq!(reply.status, 200, "{allowed}");
        assert_eq!(reply.header("access-control-allow-origin"), Some(allowed));
        assert_eq!(reply.header("access-control-expose-headers"), Some("mcp-session-id"));
        assert_eq!(reply.header("vary"), Some("origin"));
    }
    let no_origin = gateway.client().post_initialize(&json!(1), json!({}), NEWEST).await;
    assert_eq!((no_origin.status.as_u16(), no_origin.header("access-control-allow-origin")), (200, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_is_answered_for_configured_origins_only() {
    let gateway = Gateway::unfenced().flags(["--allowed-origin", "https://app.example"]).start().await;
    let preflight = |origin: &str| {
        let request = gateway.client().get_stream(None).method("OPTIONS").header("origin", origin);
        request.header("access-control-request-method", "POST")
    };
    let allowed = preflight("https://app.example").await;
    assert_eq!(allowed.status, 204);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://app.example"));
    let methods = allowed.header("access-control-allow-methods").unwrap();
    assert!(["GET", "POST", "DELETE"].iter().all(|method| methods.contains(method)), "{methods}");
    let headers = allowed.header("access-control-allow-headers").unwrap();
    for needed in ["content-type", "mcp-session-id", "mcp-protocol-version", "last-event-id"] {
        assert!(headers.contains(needed), "{headers}");
    }
    let local = preflight("http://localhost:5173").await;
    assert_eq!((local.status.as_u16(), local.header("access-control-allow-origin")), (405, None));
    assert_eq!(preflight("https://evil.example").await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_for_a_configured_origin_can_be_read_by_its_page() {
    let gateway = Gateway::unfenced().flags(["--allowed-origin", "https://app.example"]).start().await;
    let reply = gateway.client().post(PING).header("origin", "https://app.example").await;
    assert_refused(&reply, 400, -32000, &json!(5), "no session");
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_for_oauth_get_a_plain_json_404() {
    let gateway = Gateway::unfenced().start().await;
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/register",
        "/",
    ] {
        let reply = gateway.client().get_stream(None).path(path).await;
        assert_refused(&reply, 404, -32000, &Value::Null, path);
        assert_eq!(reply.header("www-authenticate"), None, "{path}");
        let post = gateway.client().post("{}").path(path).await;
        assert_refused(&post, 404, -32000, &Value::Null, path);
    }
    assert_eq!(health(&gateway).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_brief_or_names_the_service() {
    let (gateway, client) = gateway_and_client().await;
    let brief = health(&gateway).await;
    assert_eq!((brief.status.as_u16(), brief.raw.as_slice()), (200, &b"OK"[..]));
    for path in ["/health?verbose", "/health?verbose=1", "/health?verbose=true", "/ready"] {
        let reply = gateway.client().get_stream(None).path(path).await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("content-type")),
            (200, Some("application/json")),
            "{path}"
        );
        let report = reply.json();
        assert_eq!(
            (&report["service"], &report["live"], &report["ready"]),
            (&json!("ringfence"), &json!(true), &json!(true))
        );
        assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(
            (&report["upstream"], &report["lifecycle"]),
            (&json!("ringfence-fixture"), &json!("session"))
        );
        assert_eq!((&report["sessions"], &report["counters"]["sessions_opened"]), (&json!(1), &json!(1)));
        assert!(!report.to_string().contains(client.session_id().unwrap()), "an id is a credential");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_the_modern_era_are_declined_so_that_clients_fall_back() {
    let (gateway, client) = gateway_and_client().await;
    let claimed = |id: &str, method: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{MODERN_META}}}}}"#)
    };
    let stranger = gateway.client();
    for (id, method) in [("5", "server/discover"), (r#""five""#, "tools/list"), ("5", "initialize")] {
        let expected: Value = serde_json::from_str(id).unwrap();
        let with_header = stranger.post(claimed(id, method)).header("mcp-protocol-version", MODERN).await;
        assert_refused(&with_header, 400, -32000, &expected, method);
        assert_refused(&stranger.post(claimed(id, method)).await, 400, -32000, &expected, method);
        assert_eq!(with_header.session_id(), None);
    }
    let within_session = client.post(claimed("5", "tools/list")).await;
    assert_refused(&within_session, 400, -32000, &json!(5), "within a session");
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
    let notification = client.post(notification).header("mcp-protocol-version", MODERN).await;
    assert_refused(&notification, 400, -32000, &Value::Null, "a notification");
    for version in [MODERN, "v999.0.0"] {
        let unclaimed = client.post(PING).header("mcp-protocol-version", version).await;
        assert_refused(&unclaimed, 400, -32602, &json!(5), "a header without a claim");
        let initialize = stranger.post_initialize(&json!(5), json!({}), NEWEST);
        let initialize = initialize.header("mcp-protocol-version", version).await;
        assert_refused(&initialize, 400, -32020, &json!(5), "initialize with a modern header");
        for request in [client.get_stream(None), client.delete()] {
            let reply = request.header("mcp-protocol-version", version).await;
            assert_refused(&reply, 405, -32000, &Value::Null, version);
            assert!(reply.header("allow").is_some_and(|verbs| verbs.contains("POST")), "{version}");
        }
    }
    assert_usable(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_ends_the_session_and_no_other() {
    let (gateway, client) = gateway_and_client().await;
    let other = gateway.open().await;
    let reply = client.delete().await;
    assert!(reply.status.is_success(), "{}", reply.status);
    assert_refused(&client.post(PING).await, 404, -32001, &json!(5), "POST");
    assert_refused(&client.get_stream(None).await, 404, -32001, &Value::Null, "GET");
    assert_refused(&client.delete().await, 404, -32001, &Value::Null, "DELETE");
    assert_usable(&other).await;
    assert_eq!(gateway.open_sessions().await, 1);
}
