//! A read-only session: the server offers no writing tools, and the fence refuses writes by a shell.

use serde_json::json;

use super::ground::{Ground, INSIDE, Server, fingerprint, tiers};

const WRITERS: &[&str] = &[
    "write_file",
    "edit_file",
    "search_replace",
    "multi_edit",
    "apply_patch",
    "create_directory",
    "move_file",
    "copy_file",
    "delete_file",
];

async fn names_of_tools(server: &mut Server) -> Vec<String> {
    let listed = server.request("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn assert_only_reads(server: &mut Server) {
    let names = names_of_tools(server).await;
    for tool in WRITERS {
        assert!(!names.contains(&(*tool).to_owned()), "{tool} is listed");
        let params = json!({ "name": tool, "arguments": { "path": "f", "content": "x", "source": "f", "destination": "g" } });
        let answer = server.request("tools/call", params).await;
        assert_eq!(answer["error"]["code"], -32602, "{tool}: {answer}");
    }
    assert_eq!(server.ok("read_file", json!({ "path": "f" })).await["content"], INSIDE);
    assert!(names.contains(&"grep_search".to_owned()));
}

#[tokio::test]
async fn a_server_that_only_reads_offers_nothing_that_writes() {
    let ground = Ground::new("read-only");
    let before = fingerprint(&ground.inside(""));
    let mut server = ground.unfenced(&["--read-only"]).await;
    assert_only_reads(&mut server).await;
    assert_eq!(fingerprint(&ground.inside("")), before);
    // The control: without the flag the writing tools are listed.
    let names = names_of_tools(&mut ground.unfenced(&[]).await).await;
    assert!(WRITERS.iter().all(|tool| names.contains(&(*tool).to_owned())), "{names:?}");
}

#[tokio::test]
async fn a_shell_in_a_fence_that_only_reads_writes_nothing() {
    for tier in tiers() {
        let ground = Ground::new("read-only-shell");
        let before = fingerprint(&ground.inside(""));
        let mut server = ground.fenced(&[&tier[..], &["--read-only"]].concat()).await;
        assert_only_reads(&mut server).await;
        // Landlock does not cover modes and times, as Tier A reports; Tier B's read-only mount protects them too.
        let metadata: &[&str] = if tier.contains(&"a") { &[] } else { &["chmod 700 f", "touch f"] };
        let contents = ["echo x > f", "echo x > new", "rm f", "mkdir new", "mv f g", "ln f g"];
        for command in contents.iter().chain(metadata) {
            let result = server.call("run_terminal_cmd", json!({ "command": command })).await;
            assert_eq!(result["isError"], true, "{tier:?} {command}: {result}");
            assert_ne!(result["structuredContent"]["exit_code"], 0, "{tier:?} {command}: {result}");
        }
        let read = server.ok("run_terminal_cmd", json!({ "command": "cat f" })).await;
        assert!(read.to_string().contains("fine, this is inside"), "{tier:?}: {read}");
        assert_eq!(fingerprint(&ground.inside("")), before, "{tier:?}");

        // The control: without the flag such commands succeed.
        let mut server = ground.fenced(&tier).await;
        server.ok("run_terminal_cmd", json!({ "command": "echo x > new && rm new && touch f" })).await;
        assert_ne!(fingerprint(&ground.inside("")), before, "{tier:?}");
    }
}
