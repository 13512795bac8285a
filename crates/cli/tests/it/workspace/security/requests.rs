//! Clients that send too much or nonsense: every request is answered, and the server continues.

use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{ringfence_binary, within_deadline};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use super::ground::{Ground, INSIDE};

const CALLS: u64 = 10_000;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_calls_at_once_are_all_answered() {
    let ground = Ground::new("many-calls");
    let mut command = Command::new(ringfence_binary());
    command
        .args(["workspace", "--structured", "--root"])
        .arg(ground.inside(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let writer = tokio::spawn(async move {
        let mut lines = String::new();
        for id in 0..CALLS {
            let (tool, arguments) = match id % 4 {
                0 => ("read_file", json!({ "path": "f" })),
                1 => ("read_file", json!({ "path": "../outside/f" })),
                2 => ("grep_search", json!({ "query": "fine" })),
                _ => ("write_file", json!({ "path": format!("new/{}", id % 100), "content": INSIDE })),
            };
            let params = json!({ "name": tool, "arguments": arguments });
            let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
            lines.push_str(&call.to_string());
            lines.push('\n');
        }
        stdin.write_all(lines.as_bytes()).await.unwrap();
        stdin
    });
    let mut lines = BufReader::new(stdout).lines();
    let mut answered = vec![false; usize::try_from(CALLS).unwrap()];
    let (mut read, mut searched) = (0, 0);
    for _ in 0..CALLS {
        let line = within_deadline("an answer comes", lines.next_line()).await.unwrap().unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        let id = answer["id"].as_u64().unwrap();
        let before = std::mem::replace(&mut answered[usize::try_from(id).unwrap()], true);
        assert!(!before, "{id} is answered twice");
        let result = &answer["result"]["structuredContent"];
        match id % 4 {
            0 => read += u64::from(result["content"] == INSIDE),
            1 => assert_eq!(result["code"], "outside_workspace", "{answer}"),
            // Too many searches at once are refused, which is an answer too.
            2 => searched += u64::from(result["total_matches"].is_u64()),
            _ => assert!(result.is_object(), "{answer}"),
        }
    }
    assert_eq!(read, CALLS / 4);
    assert!(searched > 0);
    drop(writer.await.unwrap());
    assert!(within_deadline("the server ends", child.wait()).await.unwrap().success());
}

#[tokio::test]
async fn what_is_no_message_is_refused_and_the_next_one_is_read() {
    let ground = Ground::new("malformed");
    let mut server = ground.unfenced(&[]).await;
    let too_long = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":{{\"x\":\"{}\"}}}}",
        "x".repeat(17 << 20)
    );
    let deep = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":{}{}}}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    for line in [
        "{",
        "nonsense",
        "[]",
        "[1]",
        "null",
        "\"text\"",
        "{}",
        "{\"jsonrpc\":\"1.0\",\"id\":7,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":7}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"",
        &too_long,
        &deep,
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"no/such\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\"}",
    ] {
        server.write_line(line).await;
        let answer = server.next_response().await;
        assert!(answer["error"]["code"].is_i64(), "{line:.60}: {answer}");
        assert_eq!(server.request("ping", json!({})).await["result"], json!({}), "{line:.60}");
    }
}

#[tokio::test]
async fn wrong_arguments_are_named_and_harm_nothing() {
    let ground = Ground::new("wrong-arguments");
    let mut server = ground.unfenced(&[]).await;
    let listed = server.request("tools/list", json!({})).await;
    let tools: Vec<Value> = listed["result"]["tools"].as_array().unwrap().clone();
    assert_eq!(tools.len(), 22);
    for tool in &tools {
        let name = tool["name"].as_str().unwrap();
        let fields = tool["inputSchema"]["properties"].as_object().unwrap();
        for field in fields.keys() {
            for wrong in [json!([[[]]]), json!({ "a": {} }), json!(-1.5), json!([{ "old_string": 1 }, 2])] {
                let required = tool["inputSchema"]["required"].as_array().cloned().unwrap_or_default();
                let mut arguments = json!({});
                for other in required {
                    arguments[other.as_str().unwrap()] = "f".into();
                }
                arguments[field] = wrong.clone();
                let code = server.refusal(name, arguments.clone()).await;
                assert_eq!(code, "bad_arguments", "{name} {arguments}");
            }
        }
        let refused = server.refusal(name, json!({ "no such argument": 1 })).await;
        assert_eq!(refused, "bad_arguments", "{name}");
        for arguments in [json!([]), json!("text"), json!(7)] {
            let answer = server.request("tools/call", json!({ "name": name, "arguments": arguments })).await;
            let is_refused = answer["error"].is_object() || answer["result"]["isError"] == true;
            assert!(is_refused, "{name}: {answer}");
        }
    }
    let huge = json!({ "path": "f", "start_line": u64::MAX - 1, "end_line": u64::MAX });
    assert_eq!(server.ok("read_file", huge).await["content"], "");
    for method in ["resources/read", "resources/subscribe", "completion/complete", "resources/list"] {
        for params in [json!({ "uri": 7, "cursor": 7, "argument": 7 }), json!([])] {
            let answer = server.request(method, params.clone()).await;
            assert_eq!(answer["error"]["code"], -32602, "{method} {params}: {answer}");
        }
    }
    assert_eq!(server.ok("read_file", json!({ "path": "f" })).await["content"], INSIDE);
}
