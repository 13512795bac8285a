//! Paths that the operator denies to the file tools: no spelling, link, move or search reaches them.

use serde_json::{Value, json};

use super::ground::{Ground, INSIDE, Server};
use super::tool_calls::{PATH_TOOLS, Takes};

const HIDDEN: &str = "HIDDEN-by-the-operator";

/// A workspace with `safe/key` and `safe/deep/key`, which the rules block, and links to them.
fn ground_with_secrets(name: &str) -> Ground {
    let ground = Ground::new(name);
    for file in ["safe/key", "safe/deep/key"] {
        ground.write(file, HIDDEN);
    }
    ground.write(".env", "DOTENV");
    ground.write("spare", INSIDE);
    ground.write("open/f", INSIDE);
    ground.link("to-safe", "safe");
    ground.link("open/to-key", "../safe/key");
    ground.link("chain", "open/to-key");
    ground
}

/// The paths of these files in many spellings.
fn spellings(ground: &Ground) -> Vec<String> {
    let root = ground.inside("").display().to_string();
    let root = root.trim_end_matches('/');
    let plain = [
        "safe/key",
        "./safe/key",
        "safe//key",
        "open/../safe/key",
        "safe/deep/../key",
        "to-safe/key",
        "to-safe/deep/key",
        "open/to-key",
        "chain",
        "open/../to-safe/deep/../key",
    ];
    let mut all: Vec<String> = plain.iter().map(|path| (*path).to_owned()).collect();
    for path in ["safe/key", "to-safe/key"] {
        all.push(format!("{root}/{path}"));
        all.push(format!("file://{root}/{path}"));
        all.push(format!("file://localhost{root}/{}", path.replace("key", "%6bey")));
    }
    all
}

async fn assert_blocked(ground: &Ground, server: &mut Server, title: &str) {
    for path in spellings(ground) {
        for tool in PATH_TOOLS.iter().filter(|tool| tool.takes == Takes::File) {
            let arguments = (tool.arguments)(&path);
            let result = server.call(tool.tool, arguments.clone()).await;
            assert!(!result.to_string().contains(HIDDEN), "{title}: {} {arguments}: {result}", tool.tool);
            // A search skips blocked files and finds nothing.
            let is_search = tool.tool == "grep_search";
            let code = &result["structuredContent"]["code"];
            assert!(code == "blocked_by_rule" || is_search, "{title}: {} {arguments}: {result}", tool.tool);
        }
    }
    assert_eq!(std::fs::read_to_string(ground.inside("safe/key")).unwrap(), HIDDEN, "{title}");
    assert!(!ground.inside("copied").exists(), "{title}");
    let read = server.ok("read_file", json!({ "path": "open/f" })).await;
    assert_eq!(read["content"], INSIDE, "{title}: the control");
}

/// Flags that block these files in different ways.
const PATTERNS: &[&[&str]] = &[
    &["--block-path", "safe"],
    &["--block-path", "safe/"],
    &["--block-path", "/safe"],
    &["--block-path", "key"],
    &["--block-path", "safe/**"],
    &["--block-path", "safe/key", "--block-path", "safe/deep/*"],
    &["--allow-path", "open", "--allow-path", "spare"],
    &["--allow-path", "**", "--block-path", "safe"],
];

#[tokio::test]
async fn no_spelling_and_no_link_leads_to_a_blocked_file() {
    for flags in PATTERNS {
        let ground = ground_with_secrets("rules");
        let mut server = ground.unfenced(flags).await;
        assert_blocked(&ground, &mut server, &format!("{flags:?}")).await;
    }
    // The control: without rules all of these can be read.
    let ground = ground_with_secrets("rules-control");
    let mut server = ground.unfenced(&[]).await;
    for path in spellings(&ground) {
        assert_eq!(server.ok("read_file", json!({ "path": path })).await["content"], HIDDEN, "{path}");
    }
}

#[tokio::test]
async fn a_search_that_begins_behind_a_link_or_dots_finds_nothing_that_is_blocked() {
    for flags in PATTERNS {
        let ground = ground_with_secrets("rules-search");
        let mut server = ground.unfenced(flags).await;
        for path in
            [".", "safe", "to-safe", "open/../safe", "to-safe/deep/..", "safe/deep", "open/../to-safe/deep"]
        {
            for (tool, arguments) in [
                ("grep_search", json!({ "path": path, "query": "HIDDEN", "include_hidden": true })),
                ("grep_search", json!({ "path": format!("{path}/key"), "query": "HIDDEN" })),
            ] {
                let result = server.call(tool, arguments.clone()).await;
                assert!(!result.to_string().contains(HIDDEN), "{flags:?} {arguments}: {result}");
                assert_ne!(
                    result["structuredContent"]["total_matches"], 1,
                    "{flags:?} {arguments}: {result}"
                );
            }
        }
        let found = server.ok("grep_search", json!({ "query": "fine", "path": "open" })).await;
        assert_eq!(found["total_matches"], 1, "{flags:?}: the control");
    }
}

#[tokio::test]
async fn the_file_that_is_searched_alone_is_not_a_blocked_one() {
    let ground = ground_with_secrets("rules-search-one");
    let mut server = ground.unfenced(&["--block-path", ".env"]).await;
    let arguments = json!({ "path": ".env", "query": ".", "include_hidden": true });
    let result = server.call("grep_search", arguments.clone()).await;
    assert!(!result.to_string().contains("DOTENV"), "{result}");
    let found = ground.unfenced(&[]).await.ok("grep_search", arguments).await;
    assert!(found.to_string().contains("DOTENV"), "the control: {found}");
}

/// Whether an answer contains the blocked name.
fn tells(answer: &Value) -> bool {
    answer.to_string().contains("very-secret-name")
}

#[tokio::test]
async fn names_that_are_blocked_are_not_listed_by_any_way_of_asking() {
    for flags in [&["--block-path", "safe/very-secret-name"][..], &["--block-path", "safe"]] {
        let ground = ground_with_secrets("rules-names");
        ground.write("safe/very-secret-name", HIDDEN);
        let mut server = ground.unfenced(flags).await;
        for path in ["safe", "to-safe", "open/../safe", "./safe/deep/.."] {
            for (tool, arguments) in [
                ("list_dir", json!({ "path": path })),
                ("directory_tree", json!({ "path": path })),
                ("file_search", json!({ "path": path, "query": "very" })),
                ("grep_search", json!({ "path": path, "query": ".", "files_only": true })),
            ] {
                let result = server.call(tool, arguments.clone()).await;
                assert!(!tells(&result), "{flags:?} {tool} {arguments}: {result}");
            }
            let argument = json!({ "name": "path", "value": format!("{path}/ver") });
            let params =
                json!({ "ref": { "type": "ref/resource", "uri": "file:///{+path}" }, "argument": argument });
            let answer = server.request("completion/complete", params).await;
            assert_eq!(answer["result"]["completion"]["values"], json!([]), "{flags:?} {path}: {answer}");
        }
        assert!(!tells(&server.request("resources/list", json!({})).await), "{flags:?}");
        let tree = server.ok("directory_tree", json!({})).await;
        assert!(tree.to_string().contains("open/f"), "the control: {tree}");
    }
}

#[tokio::test]
async fn a_hint_does_not_tell_names_that_are_blocked() {
    let ground = ground_with_secrets("rules-hints");
    ground.write("safe/very-secret-name", HIDDEN);
    let mut server = ground.unfenced(&["--block-path", "safe"]).await;
    for path in ["safe/very-secret-nam", "to-safe/very-secret-nam"] {
        for tool in ["read_file", "file_info", "delete_file"] {
            let result = server.call(tool, json!({ "path": path })).await;
            // The answer may repeat the path that the client sent.
            assert!(
                !result.to_string().replace(&format!("{path}`"), "").contains("secret-name"),
                "{tool}: {result}"
            );
        }
    }
    let result = server.call("read_file", json!({ "path": "open/ff" })).await;
    assert!(result.to_string().contains("open/f`"), "the control: {result}");
}

#[tokio::test]
async fn resources_that_are_blocked_are_neither_read_nor_watched() {
    let ground = ground_with_secrets("rules-resources");
    let mut server = ground.unfenced(&["--block-path", "safe"]).await;
    for path in ["safe/key", "to-safe/key", "open/to-key"] {
        let uri = format!("file://{}", ground.inside(path).display());
        for method in ["resources/read", "resources/subscribe"] {
            let answer = server.request(method, json!({ "uri": uri })).await;
            assert_eq!(answer["error"]["data"]["code"], "blocked_by_rule", "{method} {path}: {answer}");
        }
    }
    let uri = format!("file://{}", ground.inside("open/f").display());
    let answer = server.request("resources/read", json!({ "uri": uri })).await;
    assert_eq!(answer["result"]["contents"][0]["text"], INSIDE, "{answer}");
}

#[tokio::test]
async fn moving_the_directory_above_does_not_lift_a_rule() {
    let ground = ground_with_secrets("rules-moves");
    for flags in [&["--block-path", "safe/key"][..], &["--block-path", "safe/deep/key"]] {
        let mut server = ground.unfenced(flags).await;
        let moved = server.call("move_file", json!({ "source": "safe", "destination": "elsewhere" })).await;
        for path in
            ["elsewhere/key", "elsewhere/deep/key"].iter().filter(|path| flags[1].ends_with(&path[9..]))
        {
            let result = server.call("read_file", json!({ "path": path })).await;
            assert!(!result.to_string().contains(HIDDEN), "{flags:?}: {moved}\n{result}");
        }
        let _ = server.call("move_file", json!({ "source": "elsewhere", "destination": "safe" })).await;
    }
    let mut server = ground.unfenced(&["--block-path", "safe/key"]).await;
    server.ok("move_file", json!({ "source": "open", "destination": "opened" })).await;
}

#[tokio::test]
async fn what_is_blocked_is_not_changed_either() {
    for flags in [&["--block-path", "safe"][..], &["--allow-path", "open", "--allow-path", "spare"]] {
        let ground = ground_with_secrets("rules-writes");
        let before = super::ground::fingerprint(&ground.inside("safe"));
        let mut server = ground.unfenced(flags).await;
        for path in
            ["safe/new", "to-safe/new", "open/../safe/new", "safe/new/deeper", "to-safe/new/deeper/still"]
        {
            for tool in PATH_TOOLS.iter().filter(|tool| tool.takes == Takes::NewName) {
                let arguments = (tool.arguments)(path);
                let result = server.call(tool.tool, arguments.clone()).await;
                assert_eq!(
                    result["structuredContent"]["code"], "blocked_by_rule",
                    "{} {arguments}: {result}",
                    tool.tool
                );
                let left = super::ground::fingerprint(&ground.inside("safe"));
                assert_eq!(left, before, "{flags:?} {} {arguments}: refused, and yet", tool.tool);
            }
        }
        for path in ["safe/key", "to-safe/key", "safe/deep/../key"] {
            for tool in PATH_TOOLS.iter().filter(|tool| tool.takes == Takes::Name) {
                let arguments = (tool.arguments)(path);
                assert_eq!(
                    server.refusal(tool.tool, arguments.clone()).await,
                    "blocked_by_rule",
                    "{} {arguments}",
                    tool.tool
                );
            }
        }
        assert_eq!(super::ground::fingerprint(&ground.inside("safe")), before, "{flags:?}");
        server.ok("write_file", json!({ "path": "open/new/file", "content": "x" })).await;
    }
}
