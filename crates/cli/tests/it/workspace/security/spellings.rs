//! Hostile spellings of paths in every tool that takes a path: each is refused with the right code, and nothing
//! outside is read or touched. As a control, the same tools work on paths inside.

use serde_json::{Value, json};

use super::ground::{Ground, INSIDE, SECRET, Server};
use super::tool_calls::{PATH_TOOLS, PathTool, Takes};

/// A workspace with several kinds of links that lead outside.
fn hostile_ground(name: &str) -> Ground {
    let ground = Ground::new(name);
    ground.link("link", "../outside");
    ground.link("absolute-link", ground.base.join("outside"));
    ground.link("link-chain", "dir/../link");
    ground.link("file-link", "../outside/f");
    ground.link("root-link", "/");
    ground
}

/// Spellings of paths outside, as templates for [`named`]: `%` stands for a name there, `\u{1}` for a percent sign.
fn hostile_spellings(ground: &Ground) -> Vec<String> {
    let base = ground.base.display();
    let relative = [
        "../outside/%",
        "./../outside/%",
        "dir/../../outside/%",
        "dir/sub/../../../outside/%",
        "..//outside/%",
        "../ws-evil/%",
        "link/%",
        "absolute-link/%",
        "link-chain/%",
        "dir/../link/%",
        "link/../outside/%",
        "..\\outside\\%",
        "C:/outside/%",
        "..\0/outside/%",
        "/proc/self/root/etc/%",
        "/proc/self/cwd/outside/%",
    ];
    let absolute = [
        format!("{base}/outside/%"),
        format!("{base}/ws/../outside/%"),
        format!("{base}/ws-evil/%"),
        format!("root-link{base}/outside/%"),
        format!("file://{base}/outside/%"),
        format!("file://localhost{base}/outside/%"),
        format!("file://{base}/ws/../outside/%"),
        format!("file://{base}/ws/link/%"),
        format!("file://{base}/ws/%2e%2e/outside/%").replacen("/%2e%2e/", "/\u{1}2e\u{1}2e/", 1),
        format!("file://{base}/ws/\u{1}252e\u{1}252e/outside/%"),
        format!("file://{base}/ws/..\u{1}2foutside\u{1}2f%"),
        format!("file://evil.host{base}/ws/%"),
        format!("FILE://{base}/outside/%"),
        format!("file:{base}/outside/%"),
    ];
    relative.into_iter().map(str::to_owned).chain(absolute).collect()
}

fn named(spelling: &str, name: &str) -> String {
    spelling.replace('%', name).replace('\u{1}', "%")
}

/// The hostile paths for a tool: of existing files or directories, or of new ones if it creates them.
fn paths_for(tool: &PathTool, spellings: &[String]) -> Vec<String> {
    let names: &[&str] = match tool.takes {
        Takes::File | Takes::Name => &["f", "sub/f"],
        Takes::Directory => &["", "sub"],
        Takes::NewName => &["new", "sub/new", "new/new"],
    };
    let mut paths: Vec<String> =
        spellings.iter().flat_map(|spelling| names.iter().map(|name| named(spelling, name))).collect();
    if matches!(tool.takes, Takes::File | Takes::Directory) {
        paths.push("file-link".to_owned());
    }
    paths
}

async fn assert_refused(server: &mut Server, tool: &PathTool, path: &str) {
    let arguments = (tool.arguments)(path);
    let result = server.call(tool.tool, arguments.clone()).await;
    let title = format!("{} {arguments}: {result}", tool.tool);
    assert_eq!(result["isError"], true, "{title}");
    assert!(!result.to_string().contains(SECRET), "{title}");
    let code = result["structuredContent"]["code"].as_str().unwrap_or_default();
    // In the grammar of patches some of these are not paths, so the patch is refused as malformed.
    let is_right = matches!(code, "outside_workspace" | "bad_path")
        || (tool.tool == "apply_patch" && code.starts_with("patch_"));
    assert!(is_right, "{title}");
}

async fn assert_all_refused(ground: &Ground, server: &mut Server) {
    ground.write("spare", INSIDE);
    let spellings = hostile_spellings(ground);
    let before = ground.outside();
    for tool in PATH_TOOLS {
        for path in paths_for(tool, &spellings) {
            assert_refused(server, tool, &path).await;
        }
    }
    assert_eq!(ground.outside(), before, "nothing outside was touched");
    assert_eq!(std::fs::read_to_string(ground.inside("spare")).unwrap(), INSIDE);
    assert!(!ground.inside("moved").exists() && !ground.inside("copied").exists());
    assert_all_work(ground, server).await;
}

/// The control: every tool works on paths inside.
async fn assert_all_work(ground: &Ground, server: &mut Server) {
    for tool in PATH_TOOLS {
        ground.write("spare", INSIDE);
        ground.write("dir/f", INSIDE);
        let _ = std::fs::remove_file(ground.inside("moved"));
        let absolute = ground.inside("dir/f").display().to_string();
        let paths = match tool.takes {
            Takes::File | Takes::Name => vec!["dir/f".to_owned(), "dir/sub/../f".to_owned(), absolute],
            Takes::Directory => vec!["dir".to_owned(), ".".to_owned(), "dir/sub/..".to_owned()],
            Takes::NewName => vec!["new/control".to_owned()],
        };
        for path in paths {
            ground.write("dir/f", INSIDE);
            let _ = std::fs::remove_file(ground.inside("moved"));
            let arguments = (tool.arguments)(&path);
            let result = server.call(tool.tool, arguments.clone()).await;
            // Replacing a text with itself is refused, but with another code.
            let code = result["structuredContent"]["code"].as_str().unwrap_or_default();
            let is_idle =
                arguments["old_string"] == "f" && !code.contains("path") && !code.contains("outside");
            assert!(result["isError"] != true || is_idle, "{} {arguments}: {result}", tool.tool);
        }
        if tool.takes == Takes::NewName {
            drop(std::fs::remove_dir_all(ground.inside("new")));
        }
    }
}

#[tokio::test]
async fn no_tool_takes_a_path_outside_where_only_the_resolver_protects() {
    let ground = hostile_ground("spellings");
    let mut server = ground.unfenced(&[]).await;
    assert_all_refused(&ground, &mut server).await;
}

#[tokio::test]
async fn no_tool_takes_a_path_outside_inside_the_fence() {
    let ground = hostile_ground("spellings-fenced");
    let mut server = ground.fenced(&[]).await;
    assert_all_refused(&ground, &mut server).await;
}

#[tokio::test]
async fn patches_of_files_outside_are_refused_as_a_whole() {
    let ground = hostile_ground("patches");
    let mut server = ground.unfenced(&[]).await;
    let before = ground.outside();
    let good = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-fine, this is inside\n+changed\n";
    let outside = ground.base.join("outside/f");
    let outside = outside.display();
    for hostile in [
        format!("--- a/../outside/f\n+++ b/../outside/f\n@@ -1 +1 @@\n-{SECRET}\n+x\n"),
        format!("--- a/link/f\n+++ b/link/f\n@@ -1 +1 @@\n-{SECRET}\n+x\n"),
        format!("--- {outside}\n+++ {outside}\n@@ -1 +1 @@\n-{SECRET}\n+x\n"),
        format!("--- a/link/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-{SECRET}\n"),
        "diff --git a/dir/f b/../outside/new\nrename from dir/f\nrename to ../outside/new\n".to_owned(),
        "diff --git a/link/f b/got\nrename from link/f\nrename to got\n".to_owned(),
        "diff --git \"a/\\056\\056/outside/f\" b/got\nrename from \"\\056\\056/outside/f\"\nrename to got\n"
            .to_owned(),
        "*** Begin Patch\n*** Delete File: ../outside/f\n*** End Patch\n".to_owned(),
        format!(
            "*** Begin Patch\n*** Update File: dir/f\n*** Move to: {outside}-new\n@@\n-fine, this is inside\n+x\n*** End Patch\n"
        ),
    ] {
        // Where the format allows, a valid edit comes first, which must not be applied either.
        let both = if hostile.starts_with("***") { hostile } else { format!("{good}{hostile}") };
        let result = server.call("apply_patch", json!({ "patch": both })).await;
        assert_eq!(result["isError"], true, "{both}: {result}");
        assert!(!result.to_string().replace(&both, "").contains(SECRET), "{both}: {result}");
        assert_eq!(std::fs::read_to_string(ground.inside("f")).unwrap(), INSIDE, "{both}");
        assert!(ground.inside("dir/f").exists() && !ground.inside("got").exists(), "{both}");
    }
    assert_eq!(ground.outside(), before);
    server.ok("apply_patch", json!({ "patch": good })).await;
    assert_eq!(std::fs::read_to_string(ground.inside("f")).unwrap(), "changed\n");
}

#[tokio::test]
async fn no_resource_and_no_completion_is_outside() {
    let ground = hostile_ground("resources");
    let mut server = ground.unfenced(&[]).await;
    let before = ground.outside();
    let base = ground.base.display().to_string();
    let uris = hostile_spellings(&ground).iter().map(|spelling| named(spelling, "f")).collect::<Vec<_>>();
    for uri in uris.iter().map(String::as_str).chain(["file-link", "f", ""]) {
        for method in ["resources/read", "resources/subscribe", "resources/unsubscribe"] {
            let answer = server.request(method, json!({ "uri": uri })).await;
            // Unsubscribing from a file without a subscription succeeds.
            assert!(
                answer["error"].is_object() || method.ends_with("unsubscribe"),
                "{method} {uri}: {answer}"
            );
            assert!(!answer.to_string().contains(SECRET), "{method} {uri}: {answer}");
        }
    }
    for uri in [format!("file://{base}/ws/file-link"), format!("file://{base}/ws/link/f")] {
        let answer = server.request("resources/read", json!({ "uri": uri })).await;
        assert_eq!(answer["error"]["data"]["code"], "outside_workspace", "{answer}");
    }
    let reference = json!({ "type": "ref/resource", "uri": "file:///{+path}" });
    for typed in ["../", "../outside/", "link/", "absolute-link/", "dir/../../outside/", "root-link/"] {
        let argument = json!({ "name": "path", "value": typed });
        let answer =
            server.request("completion/complete", json!({ "ref": reference, "argument": argument })).await;
        assert_eq!(answer["result"]["completion"]["values"], json!([]), "{typed}: {answer}");
    }
    let listed = server.request("resources/list", json!({})).await;
    assert!(!listed.to_string().contains("outside"), "{listed}");
    assert_eq!(ground.outside(), before);

    let uri = format!("file://{base}/ws/dir/f");
    let answer = server.request("resources/read", json!({ "uri": uri })).await;
    assert_eq!(answer["result"]["contents"][0]["text"], INSIDE, "{answer}");
    let answer = server.request("resources/subscribe", json!({ "uri": uri })).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
    let argument = json!({ "name": "path", "value": "dir/su" });
    let answer =
        server.request("completion/complete", json!({ "ref": reference, "argument": argument })).await;
    assert_eq!(answer["result"]["completion"]["values"], json!(["dir/sub/"]), "{answer}");
}

#[tokio::test]
async fn a_diff_of_what_is_outside_is_empty_or_refused() {
    let ground = hostile_ground("diffs");
    let mut server = ground.unfenced(&[]).await;
    server.ok("write_file", json!({ "path": "dir/f", "content": "fine\nchanged\n" })).await;
    for spelling in hostile_spellings(&ground) {
        let path = named(&spelling, "");
        let result = server.call("session_diff", json!({ "path": path })).await;
        let data = &result["structuredContent"];
        assert!(result["isError"] == true || data["files"] == json!([]), "{path}: {result}");
        assert!(!result.to_string().contains(SECRET), "{path}: {result}");
    }
    let changes = server.ok("session_diff", json!({ "path": "dir" })).await;
    assert_eq!(changes["files"][0]["path"], "dir/f", "{changes}");
}

#[tokio::test]
async fn a_name_that_is_no_text_goes_there_and_back_through_the_tools() {
    use std::os::unix::ffi::OsStrExt;

    let ground = Ground::new("odd-names");
    let mut server = ground.unfenced(&[]).await;
    let names: [&[u8]; 3] = [b"odd-\xff\xfe", b"odd-caf\xe9", b"odd\\back"];
    for name in names {
        std::fs::write(ground.inside(std::ffi::OsStr::from_bytes(name)), INSIDE).unwrap();
    }
    let listed = server.ok("list_dir", json!({})).await;
    let entries: Vec<&Value> = listed["entries"].as_array().unwrap().iter().collect();
    let uris: Vec<&str> = entries.iter().filter_map(|entry| entry["uri"].as_str()).collect();
    assert!(uris.len() >= 2, "the names that are no text come with a URI: {listed}");
    for uri in uris {
        let read = server.ok("read_file", json!({ "path": uri })).await;
        assert_eq!(read["content"], INSIDE, "{uri}");
        server.ok("write_file", json!({ "path": uri, "content": "fine, this is inside\nwritten\n" })).await;
    }
    let written = std::fs::read_to_string(ground.inside(std::ffi::OsStr::from_bytes(names[0]))).unwrap();
    assert!(written.contains("written"), "{written}");
    let found = server.ok("grep_search", json!({ "query": "inside", "path": "." })).await;
    assert!(found["files_with_matches"].as_u64().unwrap() >= 3, "{found}");
}
