//! Workspaces with special, huge or countless files: every tool answers, and none blocks forever.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use super::ground::{Ground, INSIDE, Server};

const TEBIBYTE: u64 = 1 << 40;

/// Makes calls that traverse the whole workspace, each of which must return.
async fn look_at_everything(server: &mut Server) -> Vec<Value> {
    let mut results = Vec::new();
    for (tool, arguments) in [
        ("grep_search", json!({ "query": "fine", "include_hidden": true, "include_ignored": true })),
        ("directory_tree", json!({ "depth": 64 })),
        ("file_search", json!({ "query": "f" })),
        ("list_dir", json!({})),
    ] {
        results.push(server.ok(tool, arguments).await);
    }
    let listed = server.request("resources/list", json!({})).await;
    assert!(listed["result"]["resources"].is_array(), "{listed}");
    results
}

#[tokio::test]
async fn pipes_sockets_and_devices_are_refused_at_once() {
    let ground = Ground::new("special");
    let mut server = ground.unfenced(&[]).await;
    mknodat(CWD, ground.inside("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = UnixListener::bind(ground.inside("s")).unwrap();
    ground.link("to-pipe", "pipe");
    ground.write("spare", INSIDE);
    let mut names = vec!["pipe", "s", "to-pipe"];
    // Only root can create a device, so the test skips it for other users.
    let zero = rustix::fs::makedev(1, 5);
    match mknodat(CWD, ground.inside("zero"), FileType::CharacterDevice, Mode::RWXU, zero) {
        Ok(()) => names.push("zero"),
        Err(errno) => assert_eq!(errno, rustix::io::Errno::PERM),
    }
    for name in names {
        for (tool, arguments) in [
            ("read_file", json!({ "path": name })),
            ("write_file", json!({ "path": name, "content": "x" })),
            ("edit_file", json!({ "path": name, "code_edit": "x", "full_replace": true })),
            ("search_replace", json!({ "path": name, "old_string": "a", "new_string": "b" })),
            ("multi_edit", json!({ "path": name, "edits": [{ "old_string": "a", "new_string": "b" }] })),
            ("copy_file", json!({ "source": name, "destination": "copy" })),
            ("copy_file", json!({ "source": "spare", "destination": name, "overwrite": true })),
        ] {
            assert_eq!(server.refusal(tool, arguments.clone()).await, "special_file", "{tool} {arguments}");
        }
        let info = server.ok("file_info", json!({ "path": name })).await;
        assert_ne!(info["type"], "file", "{info}");
        let uri = format!("file://{}", ground.inside(name).display());
        for method in ["resources/read", "resources/subscribe"] {
            let answer = server.request(method, json!({ "uri": uri })).await;
            assert_eq!(answer["error"]["data"]["code"], "special_file", "{method} {name}: {answer}");
        }
        let found = server.call("grep_search", json!({ "query": ".", "path": name })).await;
        assert_ne!(found["structuredContent"]["total_matches"], 1, "{found}");
    }
    let looked = look_at_everything(&mut server).await;
    assert_eq!(looked[0]["total_matches"], 6, "files among them are still found: {}", looked[0]);
    server.ok("move_file", json!({ "source": "pipe", "destination": "pipe-2" })).await;
    server.ok("delete_file", json!({ "path": "pipe-2" })).await;
    assert!(!ground.inside("copy").exists());
}

#[tokio::test]
async fn a_sparse_file_of_a_tebibyte_is_no_burden() {
    let ground = Ground::new("sparse");
    let mut server = ground.unfenced(&[]).await;
    File::create(ground.inside("huge")).unwrap().set_len(TEBIBYTE).unwrap();
    assert_eq!(server.refusal("read_file", json!({ "path": "huge" })).await, "binary");
    assert_eq!(server.refusal("read_file", json!({ "path": "huge", "start_line": 1000 })).await, "binary");
    for (tool, arguments) in [
        ("search_replace", json!({ "path": "huge", "old_string": "a", "new_string": "b" })),
        ("multi_edit", json!({ "path": "huge", "edits": [{ "old_string": "a", "new_string": "b" }] })),
        ("edit_file", json!({ "path": "huge", "code_edit": "x", "full_replace": true })),
    ] {
        assert_eq!(server.refusal(tool, arguments).await, "too_large", "{tool}");
    }
    let uri = format!("file://{}", ground.inside("huge").display());
    let answer = server.request("resources/read", json!({ "uri": uri })).await;
    assert_eq!(answer["error"]["data"]["code"], "too_large", "{answer}");
    assert_eq!(server.ok("file_info", json!({ "path": "huge" })).await["size"], TEBIBYTE);
    let looked = look_at_everything(&mut server).await;
    assert_eq!(looked[0]["total_matches"], 5, "{}", looked[0]);
    assert!(testkit::peak_resident_bytes(server.pid()) < 512 << 20);
}

#[tokio::test]
async fn a_copy_that_nobody_wants_any_more_leaves_nothing() {
    let ground = Ground::new("sparse-copy");
    let mut server = ground.unfenced(&[]).await;
    File::create(ground.inside("huge")).unwrap().set_len(TEBIBYTE).unwrap();
    let names = || std::fs::read_dir(ground.inside("")).unwrap().count();
    let before = names();
    let id = server.send_call("copy_file", &json!({ "source": "huge", "destination": "copy" })).await;
    testkit::wait_until("the copy has begun", async || names() > before).await;
    let params = json!({ "requestId": id });
    server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params })).await;
    testkit::wait_until("what was copied is gone", async || names() == before).await;
    assert!(!ground.inside("copy").exists());
    server.ok("copy_file", json!({ "source": "f", "destination": "copy" })).await;
}

#[tokio::test]
async fn some_lines_of_a_file_of_two_gibibytes_are_read() {
    let ground = Ground::new("two-gibibytes");
    let mut server = ground.unfenced(&[]).await;
    let mut file = BufWriter::new(File::create(ground.inside("long")).unwrap());
    for number in 1..=100_000 {
        writeln!(file, "line {number}").unwrap();
    }
    file.into_inner().unwrap().set_len(2 << 30).unwrap();
    let range = |start: u64, end: u64| json!({ "path": "long", "start_line": start, "end_line": end });
    let read = server.ok("read_file", range(99_998, 99_999)).await;
    assert_eq!(read["content"], "line 99998\nline 99999\n");
    let beyond = server.ok("read_file", range(1_000_000_000, 1_000_000_001)).await;
    assert_eq!(beyond["content"], "", "{beyond}");
    let whole = server.ok("read_file", json!({ "path": "long", "should_read_entire_file": true })).await;
    assert!(whole["content"].as_str().unwrap().len() <= 1 << 20);
    assert!(testkit::peak_resident_bytes(server.pid()) < 512 << 20);
}

#[tokio::test]
async fn one_line_of_a_hundred_megabytes_is_searched_and_shown_in_part() {
    let ground = Ground::new("one-line");
    let mut server = ground.unfenced(&[]).await;
    let mut line = vec![b'a'; 100 << 20];
    line.extend_from_slice(b"needle");
    ground.write("line", line);
    let found = server.ok("grep_search", json!({ "query": "needle$", "path": "line" })).await;
    assert_eq!(found["total_matches"], 1);
    assert!(found.to_string().len() < 4096);
    let found = server.ok("grep_search", json!({ "query": "(a+)+b", "path": "line" })).await;
    assert_eq!(found["total_matches"], 0);
    let read = server.ok("read_file", json!({ "path": "line" })).await;
    assert!(read["content"].as_str().unwrap().len() <= 1 << 20, "{}", read["omitted"]);
    assert_eq!(
        server
            .refusal("search_replace", json!({ "path": "line", "old_string": "needle", "new_string": "x" }))
            .await,
        "too_large"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_grows_all_the_while_is_read_to_some_end() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    let ground = Ground::new("growing");
    let mut server = ground.unfenced(&[]).await;
    ground.write("growing", "line\n");
    let is_over = Arc::new(AtomicBool::new(false));
    let (ended, path) = (Arc::clone(&is_over), ground.inside("growing"));
    let grower = std::thread::spawn(move || {
        let mut file = File::options().append(true).open(path).unwrap();
        while !ended.load(Ordering::Relaxed) && file.metadata().unwrap().len() < 20 << 20 {
            file.write_all(format!("line {}\n", "x".repeat(4000)).as_bytes()).unwrap();
        }
    });
    for _ in 0..20 {
        for (tool, arguments) in [
            ("read_file", json!({ "path": "growing" })),
            ("read_file", json!({ "path": "growing", "start_line": 2, "end_line": 3 })),
            ("grep_search", json!({ "path": "growing", "query": "line", "limit": 1 })),
        ] {
            let result = server.call(tool, arguments).await;
            let code = result["structuredContent"]["code"].as_str().unwrap_or("fine");
            assert!(matches!(code, "fine" | "too_large"), "{tool}: {code}");
        }
    }
    is_over.store(true, Ordering::Relaxed);
    grower.join().unwrap();
    server.ok("copy_file", json!({ "source": "growing", "destination": "copy" })).await;
}

#[tokio::test]
async fn a_directory_with_a_hundred_thousand_names_is_listed_in_part() {
    let ground = Ground::new("many-names");
    let mut server = ground.unfenced(&[]).await;
    std::fs::create_dir(ground.inside("many")).unwrap();
    for number in 0..100_000 {
        File::create(ground.inside(format!("many/name-{number}"))).unwrap();
    }
    let listed = server.ok("list_dir", json!({ "path": "many" })).await;
    assert_eq!((&listed["total_entries"], &listed["truncated"]), (&json!(100_000), &json!(true)));
    assert!(listed["entries"].as_array().unwrap().len() <= 1000);
    let tree = server.ok("directory_tree", json!({ "path": "many" })).await;
    assert_eq!(tree["truncated"], true);
    let found = server.ok("file_search", json!({ "query": "name-99999" })).await;
    assert_eq!(found["files"][0], "many/name-99999", "{found}");
    let missing = server.call("read_file", json!({ "path": "many/name-1000000" })).await;
    assert_eq!(missing["structuredContent"]["code"], "not_found");
    look_at_everything(&mut server).await;
}

#[tokio::test]
async fn deep_trees_and_loops_of_links_come_to_an_end() {
    let ground = Ground::new("deep");
    let mut server = ground.unfenced(&[]).await;
    let deep = "n/".repeat(300);
    ground.write(&format!("{deep}f"), INSIDE);
    for depth in [0, 1, 100, 299] {
        ground.link(&format!("{}loop", "n/".repeat(depth)), ".");
    }
    ground.link("n/up", "..");
    ground.link("self", "self");
    let looked = look_at_everything(&mut server).await;
    assert!(looked[0]["total_matches"].as_u64().unwrap() >= 5, "{}", looked[0]);
    assert_eq!(server.ok("read_file", json!({ "path": format!("{deep}f") })).await["content"], INSIDE);
    assert_eq!(server.refusal("read_file", json!({ "path": "self" })).await, "link_loop");
    let winding = format!("{}f", "loop/n/up/".repeat(10));
    assert_eq!(server.ok("read_file", json!({ "path": winding })).await["content"], INSIDE);
    let too_winding = format!("{}f", "loop/".repeat(50));
    assert_eq!(server.refusal("read_file", json!({ "path": too_winding })).await, "link_loop");
    server.ok("delete_file", json!({ "path": "self" })).await;
}

#[tokio::test]
async fn a_tree_that_is_deeper_than_a_search_goes_is_said_to_be_cut() {
    let ground = Ground::new("too-deep");
    let mut server = ground.unfenced(&[]).await;
    let deep = |levels: usize| format!("{}f", "n/".repeat(levels));
    ground.write(&deep(100), "needle-100\n");
    let found = server.ok("grep_search", json!({ "query": "needle" })).await;
    assert_eq!((&found["total_matches"], &found["truncated"]), (&json!(1), &json!(false)));
    ground.write(&deep(300), "needle-300\n");
    let found = server.ok("grep_search", json!({ "query": "needle" })).await;
    let is_complete = found["total_matches"] == 2;
    assert!(is_complete || found["truncated"] == true, "a search that is not complete must say so: {found}");
}

#[tokio::test]
async fn binary_files_and_broken_text_are_no_surprise() {
    let ground = Ground::new("binary");
    let mut server = ground.unfenced(&[]).await;
    ground.write("binary", [&b"fine\0\x01\x02"[..], &[0; 4096]].concat());
    ground.write("latin", b"caf\xe9 fine\n");
    ground.write("broken", b"fine \xff\xfe\xc3\x28 \xed\xa0\x80 end\n");
    assert_eq!(server.refusal("read_file", json!({ "path": "binary" })).await, "binary");
    assert_eq!(
        server
            .refusal("search_replace", json!({ "path": "binary", "old_string": "fine", "new_string": "x" }))
            .await,
        "binary"
    );
    for path in ["latin", "broken"] {
        let result = server.call("read_file", json!({ "path": path })).await;
        assert!(
            result["isError"] != true || result["structuredContent"]["code"] == "binary",
            "{path}: {result}"
        );
    }
    let found = server.ok("grep_search", json!({ "query": "fine", "files_only": true, "limit": 100 })).await;
    let files = found["files"].to_string();
    assert!(files.contains("latin") && files.contains("broken") && !files.contains("binary"), "{files}");
}

#[tokio::test]
async fn a_query_is_an_expression_whatever_it_looks_like() {
    let ground = Ground::new("queries");
    let mut server = ground.unfenced(&[]).await;
    ground.write("options", "-e\n--help\n-f/etc/passwd\n--pre=touch pwned\n-r x\n");
    for query in ["-e", "--help", "-f/etc/passwd", "--pre=touch pwned", "-r x"] {
        let found = server.ok("grep_search", json!({ "query": query })).await;
        assert_eq!(found["total_matches"], 1, "{query}: {found}");
        assert_eq!(found["matches"][0]["text"], query);
        assert!(!found.to_string().contains("root:"), "{found}");
    }
    assert!(!ground.inside("pwned").exists());
    for glob in ["../**", "/etc/**", "**/../../outside/*", "-f", "!**"] {
        let result = server.call("grep_search", json!({ "query": "SECRET", "include_pattern": glob })).await;
        assert!(!result.to_string().contains(super::ground::SECRET), "{glob}: {result}");
    }
    assert_eq!(
        server.refusal("grep_search", json!({ "query": "a", "include_pattern": "[" })).await,
        "bad_pattern"
    );
}

#[tokio::test]
async fn catastrophic_expressions_are_answered_or_refused() {
    let ground = Ground::new("catastrophes");
    let mut server = ground.unfenced(&[]).await;
    ground.write("as", format!("{}!\n", "a".repeat(100_000)).repeat(20));
    for query in [
        "(a+)+$",
        "(a|a)*b",
        "(a|aa)+$",
        "(.*)*x",
        "(a*)*b",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        "(?i)(a?){50}a{50}b",
    ] {
        let result = server.call("grep_search", json!({ "query": query, "limit": 1 })).await;
        assert_ne!(result["isError"], true, "{query}: {result}");
    }
    let found = server.ok("grep_search", json!({ "query": "a+!$", "limit": 1 })).await;
    assert_eq!(found["total_matches"], 20, "the control");
    for query in [
        "x{1000}{1000}{1000}",
        "(",
        "[a",
        "a{2,1}",
        "*",
        "(?P<n>a)(?P<n>b)",
        "\\p{Nonsense}",
        &"(".repeat(10_000),
    ] {
        assert_eq!(
            server.refusal("grep_search", json!({ "query": query })).await,
            "bad_pattern",
            "{query:.40}"
        );
    }
    let long = "x".repeat(1 << 20);
    for arguments in
        [json!({ "query": long, "literal": true }), json!({ "query": long }), json!({ "query": "\n" })]
    {
        let result = server.call("grep_search", arguments).await;
        let code = result["structuredContent"]["code"].as_str().unwrap_or("fine");
        assert!(matches!(code, "fine" | "bad_pattern"), "{code}");
    }
    server.ok("file_search", json!({ "query": "x ".repeat(1000) })).await;
}
