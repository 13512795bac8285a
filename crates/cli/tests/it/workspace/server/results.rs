//! What results cost a model: text alone unless a program asks for data, and a list of tools that is short.

use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, Project, count_tokens, python_binary, run_part, text_of};

use super::{Desk, TOOLS, numbered};

async fn open(project: &Project) -> (Gateway, testkit::RawClient) {
    let gateway = Gateway::without_command().current_dir(&project.path).start().await;
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    (gateway, client)
}

#[tokio::test]
async fn results_are_text_unless_a_call_asks_for_data() {
    let project = Project::new("results-text");
    project.write("a.txt", "one \"quoted\" line\n");
    let (_gateway, client) = open(&project).await;
    let calls = [
        ("read_file", json!({"path": "a.txt"})),
        ("grep_search", json!({"query": "quoted"})),
        ("session_info", json!({})),
        ("run_terminal_cmd", json!({"command": "exit 3"})),
        ("sandboxed_shell", json!({"command": "echo answered"})),
        ("read_file", json!({"path": "missing"})),
    ];
    for (tool, arguments) in calls {
        let plain = client.call_tool(tool, arguments.clone()).await;
        assert!(plain["result"].get("structuredContent").is_none(), "{tool}: {plain}");
        let params =
            json!({"name": tool, "arguments": arguments, "_meta": {"io.ringfence/structured": true}});
        let asked = client.request("tools/call", Some(params)).await;
        assert!(asked["result"]["structuredContent"].is_object(), "{tool}: {asked}");
        assert_eq!(plain["result"]["isError"], asked["result"]["isError"], "{tool}");
    }
    let listed = client.request("tools/list", None).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.iter().map(|tool| &tool["name"]).collect::<Vec<_>>(), TOOLS);
    assert!(tools.iter().all(|tool| tool.get("outputSchema").is_none()), "{listed}");
}

#[tokio::test]
async fn with_structured_every_result_has_data_that_fits_a_flat_schema() {
    let desk = Desk::open(Project::new("results-structured")).await;
    desk.project.write("a.txt", "one\n");
    let listed = desk.session.client.request("tools/list", None).await;
    for tool in listed["result"]["tools"].as_array().unwrap() {
        let fields = tool["outputSchema"]["properties"].as_object().unwrap();
        let is_flat = |schema: &Value| schema["type"] != "object" && schema["items"]["type"] != "object";
        assert!(fields.values().all(is_flat), "{tool}");
    }
    let read = desk.ok("read_file", json!({"path": "a.txt"})).await;
    assert_eq!(read.data["content"], "one\n");
}

/// fastmcp 2 makes a class of each output schema, and an empty one of an object that lists no fields.
#[tokio::test]
async fn a_client_that_makes_classes_of_schemas_loses_no_field_of_a_result() {
    let project = Project::new("results-strict");
    project.write("a.txt", "one\n");
    project.commit_all();
    let gateway = Gateway::built_in().current_dir(&project.path).start().await;
    let calls = json!([
        ["read_file", {"path": "a.txt"}],
        ["write_file", {"path": "b.txt", "content": "two\n"}],
        ["search_replace", {"path": "b.txt", "old_string": "two", "new_string": "three"}],
        ["list_dir", {}],
        ["directory_tree", {}],
        ["file_search", {"query": "txt"}],
        ["grep_search", {"query": "three"}],
        ["file_info", {"path": "a.txt"}],
        ["copy_file", {"source": "a.txt", "destination": "c.txt"}],
        ["move_file", {"source": "c.txt", "destination": "d.txt"}],
        ["delete_file", {"path": "d.txt"}],
        ["run_terminal_cmd", {"command": "echo four"}],
        ["operation_status", {}],
        ["session_diff", {}],
        ["session_info", {}],
    ]);
    let arguments = ["strict_client_python.py", gateway.url(), &calls.to_string()].map(str::to_owned);
    let run = run_part(&python_binary(), arguments).await.succeeded("the strict client");
    let said: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(said["tools"], TOOLS.len(), "{said}");
    assert_eq!(said["read"].as_array().map(Vec::len), calls.as_array().map(Vec::len), "{said}");
    assert_eq!(said["lost"], json!({}), "{said}");
    assert_eq!(said["control"], json!(["lost"]), "{said}");
}

/// The figures of the benchmark, as limits.
#[tokio::test]
async fn the_list_of_tools_and_results_cost_few_tokens() {
    let project = Project::new("results-tokens");
    let source = numbered(200, "    let value = item ");
    project.write("src/main.rs", format!("fn main() {{\n{source}}}\n"));
    let (_gateway, client) = open(&project).await;

    let listed = client.request("tools/list", None).await["result"]["tools"].to_string();
    let read = text_of(&client.call_tool("read_file", json!({"path": "src/main.rs"})).await);
    let found = json!({"query": "item 1[0-9]{2}", "limit": 100});
    let found = text_of(&client.call_tool("grep_search", found).await);
    let shell = text_of(&client.call_tool("run_terminal_cmd", json!({"command": "cat src/main.rs"})).await);
    let mut grep = std::process::Command::new("grep");
    grep.args(["-rnE", "item 1[0-9]{2}", "src"]).current_dir(&project.path);
    let grep = String::from_utf8(grep.output().unwrap().stdout).unwrap();
    let plain = project.text("src/main.rs");

    let tokens = count_tokens(&[&listed, &read, &found, &shell, &plain, &grep]).await;
    let [listed_tokens, read_tokens, found_tokens, shell_tokens, plain_tokens, grep_tokens] = tokens[..]
    else {
        panic!("{tokens:?}");
    };
    assert!((1000..=4000).contains(&listed_tokens), "the list of tools takes {listed_tokens} tokens");
    for (name, result, spent, least) in [
        ("read", &read, read_tokens, plain_tokens),
        ("grep", &found, found_tokens, grep_tokens),
        ("shell", &shell, shell_tokens, plain_tokens),
    ] {
        assert!(spent * 10 <= least * 11, "{name}: {spent} tokens for {least} of plain text:\n{result}");
    }
}
