//! The operator's rules for tools, paths, commands and read-only sessions, and the errors for wrong rules.

use serde_json::{Value, json};
use testkit::{FailedStart, Gateway, Project, fixture_binary};

use super::{Desk, TOOLS};

fn project() -> Project {
    let project = Project::new("rules");
    project.write("src/a.rs", "fn a() {}\n");
    project.write("secrets/key.pem", "secret key\n");
    project.write(".env", "secret token\n");
    project.write("README.md", "readme\n");
    project
}

async fn listed_tools(desk: &Desk) -> Vec<String> {
    let answer = desk.client.request("tools/list", None).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn assert_not_offered(desk: &Desk, tool: &str) {
    let answer = desk.client.call_tool(tool, json!({"path": "README.md", "command": "true"})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(message, format!("the operator does not offer the tool `{tool}` here"));
}

#[tokio::test]
async fn a_blocked_tool_is_neither_listed_nor_run() {
    // Blocking a tool under one of its names blocks it under all.
    let flags = ["--block-tool", "sandboxed_shell", "--block-tool", "delete_file"];
    let desk = Desk::with_flags(project(), &flags).await;
    let listed = listed_tools(&desk).await;
    assert_eq!(listed.len(), TOOLS.len() - 2);
    for tool in ["run_terminal_cmd", "sandboxed_shell", "delete_file"] {
        assert!(!listed.contains(&tool.to_owned()), "{listed:?}");
        assert_not_offered(&desk, tool).await;
    }
    assert!(desk.project.has("README.md"));
    let info = desk.ok("session_info", json!({})).await;
    assert_eq!(info.data["tools"], json!(listed));
}

#[tokio::test]
async fn only_allowed_tools_are_listed_and_run() {
    let flags =
        ["--allow-tool", "read_file,grep_search", "--allow-tool", "list_dir", "--block-tool", "list_dir"];
    let desk = Desk::with_flags(project(), &flags).await;
    assert_eq!(listed_tools(&desk).await, ["read_file", "grep_search"]);
    desk.ok("read_file", json!({"path": "README.md"})).await;
    for tool in ["list_dir", "write_file", "run_terminal_cmd"] {
        assert_not_offered(&desk, tool).await;
    }
}

#[tokio::test]
async fn the_file_tools_keep_away_from_blocked_paths() {
    let desk = Desk::with_flags(project(), &["--block-path", "secrets/", "--block-path", ".env"]).await;
    std::os::unix::fs::symlink("secrets/key.pem", desk.project.join("link")).unwrap();
    for path in ["secrets/key.pem", "./src/../secrets/key.pem", ".env", "link"] {
        for (tool, more) in [
            ("read_file", json!({})),
            ("write_file", json!({"content": "x"})),
            ("search_replace", json!({"old_string": "secret", "new_string": "x"})),
        ] {
            let mut arguments: Value = more;
            arguments["path"] = path.into();
            let refused = desk.refused(tool, arguments, "blocked_by_rule").await;
            assert!(refused.text.contains("the operator blocks this path"), "{}", refused.text);
        }
    }
    let to = |destination: &str| json!({"source": "README.md", "destination": destination});
    desk.refused("copy_file", to("secrets/x"), "blocked_by_rule").await;
    desk.refused("move_file", to("secrets/x"), "blocked_by_rule").await;
    desk.refused("copy_file", json!({"source": ".env", "destination": "x"}), "blocked_by_rule").await;
    desk.refused("move_file", json!({"source": "secrets", "destination": "open"}), "blocked_by_rule").await;
    desk.refused("delete_file", json!({"path": ".env"}), "blocked_by_rule").await;
    desk.refused("list_dir", json!({"path": "secrets"}), "blocked_by_rule").await;
    assert_eq!(desk.project.text("secrets/key.pem"), "secret key\n");

    let names = desk.ok("list_dir", json!({"show_hidden": true})).await.column("entries", "name");
    assert_eq!(names, ["src", "README.md", "link"]);
    let tree = desk.ok("directory_tree", json!({"include_hidden": true})).await;
    let is_shown = |name: &str| tree.text.lines().any(|line| line.trim().trim_end_matches('/') == name);
    assert!(is_shown("src") && !is_shown("secrets") && !is_shown(".env"), "{}", tree.text);
    let found = desk.ok("grep_search", json!({"query": "secret", "include_hidden": true})).await;
    assert_eq!(found.data["total_matches"], 0, "{}", found.text);
    let found = desk.ok("file_search", json!({"query": "key"})).await;
    assert_eq!(found.data["files"], json!([]));
    let listed = desk.client.request("resources/list", None).await.to_string();
    assert!(!listed.contains("key.pem") && listed.contains("README.md"), "{listed}");
    let params = json!({"uri": desk.project.uri("secrets/key.pem")});
    let answer = desk.client.request("resources/read", Some(params)).await;
    assert_eq!(answer["error"]["data"]["code"], "blocked_by_rule", "{answer}");
    desk.ok("read_file", json!({"path": "src/a.rs"})).await;
}

#[tokio::test]
async fn hints_do_not_name_what_is_blocked() {
    let desk = Desk::with_flags(project(), &["--block-path", ".env"]).await;
    let refused = desk.refused("read_file", json!({"path": ".en"}), "not_found").await;
    assert!(!refused.text.contains("`.env`"), "{}", refused.text);
    let refused = desk.refused("read_file", json!({"path": "READM.md"}), "not_found").await;
    assert!(refused.text.contains("`README.md`"), "{}", refused.text);
}

#[tokio::test]
async fn a_patch_that_touches_a_blocked_path_changes_nothing() {
    let desk = Desk::with_flags(project(), &["--block-path", "*.pem"]).await;
    let patch = "--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-readme\n+changed\n\
                 --- a/secrets/key.pem\n+++ b/secrets/key.pem\n@@ -1 +1 @@\n-secret key\n+changed\n";
    desk.refused("apply_patch", json!({"patch": patch}), "blocked_by_rule").await;
    assert_eq!(desk.project.text("README.md"), "readme\n");
    let (allowed, _) = patch.split_once("--- a/secrets").unwrap();
    desk.ok("apply_patch", json!({"patch": allowed})).await;
}

#[tokio::test]
async fn the_file_tools_touch_only_allowed_paths() {
    let desk = Desk::with_flags(project(), &["--allow-path", "src/**", "--allow-path", "*.md"]).await;
    desk.ok("read_file", json!({"path": "src/a.rs"})).await;
    desk.ok("read_file", json!({"path": "README.md"})).await;
    desk.ok("write_file", json!({"path": "src/deep/b.rs", "content": "x"})).await;
    let refused = desk.refused("read_file", json!({"path": "secrets/key.pem"}), "blocked_by_rule").await;
    assert!(refused.text.contains("the operator allows other paths only"), "{}", refused.text);
    desk.refused("write_file", json!({"path": "c.txt", "content": "x"}), "blocked_by_rule").await;
    assert!(!desk.project.has("c.txt"));
}

#[tokio::test]
async fn blocked_commands_are_refused_and_others_run() {
    let desk = Desk::with_flags(project(), &["--block-command", "git push", "--block-command", "rm"]).await;
    let run = |command: &str| json!({"command": command});
    for command in ["git push origin", "true && git  push", "rm README.md", "(rm README.md)"] {
        for tool in ["run_terminal_cmd", "sandboxed_shell"] {
            let refused = desk.refused(tool, run(command), "blocked_by_rule").await;
            assert!(refused.text.contains("are blocked by the operator"), "{}", refused.text);
        }
    }
    assert!(desk.project.has("README.md"));
    desk.ok("run_terminal_cmd", run("git --version && echo rm")).await;
}

#[tokio::test]
async fn only_allowed_commands_run() {
    let desk = Desk::with_flags(project(), &["--allow-command", "ls", "--allow-command", "git status"]).await;
    let run = |command: &str| json!({"command": command});
    desk.ok("run_terminal_cmd", run("ls -l | ls")).await;
    let refused = desk.refused("run_terminal_cmd", run("ls; cat README.md"), "blocked_by_rule").await;
    assert!(refused.text.contains("ls, git status"), "{}", refused.text);
    desk.refused("run_terminal_cmd", run("git stash"), "blocked_by_rule").await;
}

#[tokio::test]
async fn a_read_only_session_reads_and_runs_but_writes_nothing() {
    let desk = Desk::with_flags(project(), &["--read-only"]).await;
    let listed = listed_tools(&desk).await;
    for tool in ["write_file", "edit_file", "search_replace", "multi_edit", "apply_patch", "create_directory"]
        .into_iter()
        .chain(["move_file", "copy_file", "delete_file"])
    {
        assert!(!listed.contains(&tool.to_owned()), "{listed:?}");
        assert_not_offered(&desk, tool).await;
    }
    desk.ok("read_file", json!({"path": "README.md"})).await;
    assert_eq!(desk.ok("session_info", json!({})).await.data["read_only"], true);
    assert_eq!(desk.run("cat README.md").await, "readme");
    let ran = desk.run_to_end("echo x > new.txt; rm -f README.md; echo x >> README.md; echo tried").await;
    assert!(ran.data["output"].as_str().unwrap().ends_with("tried\n"), "{}", ran.text);
    assert!(!desk.project.has("new.txt"));
    assert_eq!(desk.project.text("README.md"), "readme\n");
    assert_eq!(desk.run("echo x > \"$HOME/note\" && cat \"$HOME/note\"").await, "x");
}

#[tokio::test]
async fn durable_writes_write_the_same() {
    let desk = Desk::with_flags(project(), &["--durable-writes"]).await;
    desk.ok("write_file", json!({"path": "new/a.txt", "content": "durable\n"})).await;
    assert_eq!(desk.project.text("new/a.txt"), "durable\n");
    let edit = json!({"path": "README.md", "old_string": "readme", "new_string": "durable"});
    desk.ok("search_replace", edit).await;
    assert_eq!(desk.project.text("README.md"), "durable\n");
}

async fn refused_start(flags: &[&str], command: Option<std::path::PathBuf>) -> FailedStart {
    let project = project();
    let gateway = Gateway::built_in().flags(flags).command(command).current_dir(&project.path);
    let failed = gateway.try_start().await.expect_err("it does not start");
    assert_eq!(failed.status.code(), Some(2), "{}", failed.stderr);
    assert!(failed.stderr.contains("hint: "), "{}", failed.stderr);
    failed
}

#[tokio::test]
async fn rules_that_mean_nothing_are_refused_at_the_start() {
    for flags in [["--block-tool", "reed_file"], ["--allow-tool", "reed_file"]] {
        let failed = refused_start(&flags, None).await;
        assert!(failed.stderr.contains("there is no tool `reed_file`"), "{}", failed.stderr);
        assert!(failed.stderr.contains("ringfence workspace --describe"), "{}", failed.stderr);
    }
    for flags in [["--block-path", "["], ["--allow-path", "["]] {
        let failed = refused_start(&flags, None).await;
        assert!(failed.stderr.contains("`[` is not a path pattern"), "{}", failed.stderr);
    }
}

#[tokio::test]
async fn options_of_the_built_in_server_do_not_go_with_another_server() {
    for flags in [
        &["--block-tool", "read_file"][..],
        &["--allow-path", "src"],
        &["--block-command", "rm"],
        &["--durable-writes"],
    ] {
        let failed = refused_start(flags, Some(fixture_binary())).await;
        assert!(failed.stderr.contains("options of the built-in server"), "{}", failed.stderr);
    }
    let project = project();
    Gateway::without_command().command([fixture_binary()]).current_dir(&project.path).start().await;
}
