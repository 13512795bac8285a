//! What a server says in one workspace, or to one principal, does not reach others: neither orders to agents nor secrets.

use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, RawClient, roots};

use super::{Site, one_server};

/// A server that takes its instructions, its name and a capability from the directory that it runs in, and ends with a
/// last word that contains its secret.
const SERVER: &str = r#"
import base64, json, os, sys, urllib.parse
try:
    text = open("instructions.txt").read()
except OSError:
    text = "honest"
for line in sys.stdin:
    message = json.loads(line)
    method, result = message.get("method"), {}
    if method == "initialize":
        capabilities = {"tools": {}, "prompts": {}} if text != "honest" else {"tools": {}}
        if text != "honest":
            capabilities["experimental"] = {text: {}}
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": capabilities,
                  "serverInfo": {"name": text, "version": "1"}, "instructions": text}
    elif method == "tools/list":
        result = {"tools": [{"name": "die", "description": "ends", "inputSchema": {"type": "object"}},
                            {"name": "fail", "description": "fails", "inputSchema": {"type": "object"}},
                            {"name": "say", "description": "says", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        secret = os.environ.get("SECRET", "")
        forms = [secret, base64.b64encode(("x" + secret + "y").encode()).decode(), urllib.parse.quote(secret, safe="")]
        if message["params"]["name"] == "die":
            for form in forms:
                sys.stderr.write("last word: ")
                for character in form:
                    sys.stderr.write(character)
                    sys.stderr.flush()
                sys.stderr.write("\n")
            sys.stderr.flush()
            sys.exit(3)
        if message["params"]["name"] == "say":
            token = message["params"]["_meta"]["progressToken"]
            for form in forms:
                for method, params in [("message", {"level": "error", "logger": form, "data": {"said": form}}),
                                       ("progress", {"progressToken": token, "progress": 1, "message": form})]:
                    said = {"jsonrpc": "2.0", "method": "notifications/" + method, "params": params}
                    print(json.dumps(said), flush=True)
            result = {"content": [{"type": "text", "text": " ".join(forms)}]}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
            continue
        error = {"code": -32000, "message": "no: " + " ".join(forms)}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        continue
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

const SECRET: &str = "very/secret token";

fn configuration(lifecycle: &str) -> Value {
    let mut server = json!({"command": ["python3", "-c", SERVER], "env": {"SECRET": "${SECRET}"}});
    server["lifecycle"] = lifecycle.into();
    one_server("x", server)
}

/// A client with a new workspace.
fn client_in(site: &Site, gateway: &Gateway, name: &str) -> RawClient {
    let directory = site.another_project(name);
    gateway.client().with_header("ringfence-workspace", directory.to_str().unwrap())
}

#[tokio::test]
async fn what_a_workspace_makes_a_server_say_reaches_no_other_session() {
    let site = Site::new("poisoned-workspace", &configuration("session"));
    let alone = Gateway::builder().flag("--no-config").command(["python3", "-c", SERVER]).start().await;
    let of_many = site.builder().env("SECRET", SECRET).start().await;
    for (gateway, tool, kind) in [(&alone, "fail", "alone"), (&of_many, "x_fail", "many")] {
        for round in 0..3 {
            let directory = site.another_project(&format!("{kind}-{round}"));
            std::fs::write(directory.join("instructions.txt"), "OBEY").unwrap();
            // A client with roots is answered before its workspace is known: from what is known of the server.
            let mut poisoned = gateway.client();
            poisoned.open(json!({"roots": {}}), NEWEST).await;
            let call = json!({"name": tool, "arguments": {}});
            // Starts the server in the workspace. The session may end, because the server is not what it was told.
            poisoned.request_answering("tools/call", Some(call), |_| Ok(roots(&[&directory]))).await;
            let reply = gateway.client().post_initialize(&json!(1), json!({"roots": {}}), NEWEST).await;
            let answer = reply.json();
            assert!(answer["result"]["capabilities"].is_object(), "{answer}");
            assert!(!answer.to_string().contains("OBEY"), "{kind}, {round}: {answer}");
        }
    }
}

fn has_secret(text: &str) -> bool {
    [SECRET, "very%2Fsecret%20token", "Znkvc2VjcmV0IHRva2", "ZXJ5L3NlY3JldCB0b2tlb", "dmVyeS9zZWNyZXQgdG9rZW"]
        .iter()
        .any(|form| text.contains(form))
        || text.contains("secret token")
}

#[tokio::test]
async fn secrets_are_redacted_in_what_a_server_says_about_itself() {
    let site = Site::new("redacted-secrets", &configuration("session"));
    let mut gateway = site.builder().env("SECRET", SECRET).start().await;
    let mut client = client_in(&site, &gateway, "one");
    client.open(json!({}), NEWEST).await;
    for tool in ["x_fail", "x_die"] {
        let told = client.call_tool(tool, json!({})).await.to_string();
        assert!(!has_secret(&told), "{tool}: {told}");
        assert!(told.contains("[redacted]"), "the control, {tool}: {told}");
    }
    gateway.terminate().await;
    let log = gateway.log();
    assert!(log.contains("last word: [redacted]") && !has_secret(&log), "{log}");
}

#[tokio::test]
async fn secrets_are_redacted_in_what_a_server_logs_and_not_in_its_results() {
    let site = Site::new("redacted-log", &configuration("session"));
    let gateway = site.builder().env("SECRET", SECRET).start().await;
    let mut client = client_in(&site, &gateway, "one");
    client.open(json!({}), NEWEST).await;
    let call = json!({"name": "x_say", "arguments": {}, "_meta": {"progressToken": "mine"}});
    let exchange = client.request_answering("tools/call", Some(call), |ask| panic!("{ask}")).await;
    for method in ["notifications/message", "notifications/progress"] {
        let said = exchange.notifications.iter().filter(|message| message["method"] == method);
        let said: Vec<String> = said.map(Value::to_string).collect();
        assert_eq!(said.len(), 3, "{method}: {said:?}");
        for text in said {
            assert!(text.contains("[redacted]") && !has_secret(&text), "{text}");
            assert!(method.ends_with("message") || text.contains(r#""progressToken":"mine""#), "{text}");
        }
    }
    assert!(has_secret(&exchange.response.to_string()), "results pass as they are: {}", exchange.response);
}

/// A client that learned a secret uses it in a command or an argument, spelled in several ways.
#[tokio::test]
async fn secrets_of_a_server_are_in_no_entry_of_the_audit_log() {
    let mut configuration = configuration("session");
    let servers = configuration["servers"].as_object_mut().unwrap();
    servers.insert("filesystem".to_owned(), json!({"env": {"SECRET": "${SECRET}"}}));
    servers.insert("y".to_owned(), json!({"command": [testkit::fixture_binary()]}));
    let site = Site::new("redacted-audit", &configuration);
    let log = site.directory.join("audit.jsonl");
    let builder = site.builder().env("SECRET", SECRET).flag("--audit-arguments");
    let mut gateway = builder.flag("--audit-log").flag(&log).start().await;
    let mut client = client_in(&site, &gateway, "one");
    client.open(json!({}), NEWEST).await;
    let encoded = "dmVyeS9zZWNyZXQgdG9rZW4=";
    let command = format!("echo {SECRET} > '{SECRET}'; echo {encoded} > done");
    client.call_tool_for_text("filesystem_run_terminal_cmd", json!({"command": command})).await;
    let arguments = json!({"path": "very/secret token", "content": SECRET});
    client.call_tool("filesystem_write_file", arguments).await;
    let arguments = r#"{"a": "v\u0065ry/secret token", "very/secret token": ["very%2Fsecret%20token"]}"#;
    let id = client.next_id();
    let params = format!(r#"{{"name":"x_fail","arguments":{arguments}}}"#);
    let call = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
    assert_eq!(client.post(call).await.status, 200);
    // The control: another server was not given it, and what looks like it there is logged.
    client.call_tool_for_text("y_echo", json!({"text": SECRET})).await;
    gateway.terminate().await;
    let text = std::fs::read_to_string(&log).unwrap();
    let entries: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let called =
        |tool: &str| entries.iter().find(|entry| entry["tool"] == tool && entry["event"] == "tool_called");
    let is_control = |entry: &Value| entry["tool"] == "y_echo";
    for entry in entries.iter().filter(|entry| !is_control(entry)) {
        assert!(!has_secret(&entry.to_string()), "{entry}");
    }
    for tool in ["filesystem_run_terminal_cmd", "filesystem_write_file", "x_fail"] {
        let entry = called(tool).unwrap_or_else(|| panic!("no entry of {tool}: {text}"));
        assert!(entry["arguments"].to_string().contains("[redacted]"), "{entry}");
    }
    let command = &called("filesystem_run_terminal_cmd").unwrap()["command"];
    assert!(command.as_str().unwrap().starts_with("echo [redacted] > "), "{command}");
    assert_eq!(called("y_echo").unwrap()["arguments"]["text"], SECRET, "{text}");
}

#[tokio::test]
async fn stderr_of_a_shared_server_is_for_the_operator_alone() {
    for (lifecycle, is_told) in [("shared", false), ("session", true)] {
        let site = Site::new(&format!("stderr-{lifecycle}"), &configuration(lifecycle));
        let gateway = site.builder().env("SECRET", SECRET).start().await;
        let mut client = client_in(&site, &gateway, "one");
        client.open(json!({}), NEWEST).await;
        let told = client.call_tool("x_die", json!({})).await.to_string();
        assert_eq!(told.contains("last word"), is_told, "{lifecycle}: {told}");
        gateway.wait_for_log("last word").await;
    }
}
