//! Edits of files: exactly what changes, and that nothing else does.

use std::path::Path;

use config::client_file::{self, ClientSyntax};
use config::edit::{EditError, ServerEntry, add_server};
use config::{Configuration, ExecutionContext};
use proptest::prelude::*;
use serde_json::{Value, json};

fn entry(name: &str) -> ServerEntry {
    let command = json!(["npx", "-y", "@scope/server", "--port=80", "a b", "3000", "true", "-"]);
    ServerEntry { name: name.to_owned(), fields: vec![("command", command)] }
}

fn small(name: &str) -> ServerEntry {
    ServerEntry { name: name.to_owned(), fields: vec![("command", json!(["x"]))] }
}

#[track_caller]
fn added(text: &str, file: &str, entry: &ServerEntry) -> String {
    add_server(text, Path::new(file), entry, false)
        .unwrap_or_else(|error| panic!("{error} {:?}", error.hint()))
}

#[test]
fn a_new_file_is_begun() {
    let mut new = entry("time");
    new.fields.push(("env", json!({"KEY": "${KEY}", "A": ""})));
    new.set_context(ExecutionContext::Local);
    assert_eq!(
        added("", "c.yaml", &new),
        "servers:\n  time:\n    command: [npx, -y, \"@scope/server\", --port=80, \"a b\", \"3000\", \"true\", \"-\"]\n    \
         env:\n      A: \"\"\n      KEY: \"${KEY}\"\n    executionContext: local\n"
    );
    assert_eq!(
        added("", "c.json", &small("a")),
        "{\n  \"servers\": {\n    \"a\": {\n      \"command\": [\"x\"]\n    }\n  }\n}\n"
    );
}

#[test]
fn yaml_keeps_its_comments_order_and_indentation() {
    let new = "  b:\n    command: [x]\n";
    for (before, after) in [
        ("# mine\n", "# mine\nservers:\n  b:\n    command: [x]\n".to_owned()),
        ("names: none", format!("names: none\nservers:\n{new}")),
        ("servers:\n  a: {command: [y]}  # why\n", format!("servers:\n  a: {{command: [y]}}  # why\n{new}")),
        ("servers:\n  a: {command: [y]}", format!("servers:\n  a: {{command: [y]}}\n{new}")),
        (
            "servers:\n  a:\n    command: [y]\n    env:\n      T: |\n        one\n\n        two\n  # last words\n\n# about names\nnames: none\n",
            format!(
                "servers:\n  a:\n    command: [y]\n    env:\n      T: |\n        one\n\n        two\n  # last words\n{new}\n# about \
                 names\nnames: none\n"
            ),
        ),
        ("servers:\nnames: none\n", format!("servers:\n{new}names: none\n")),
        ("servers: # none yet\n", format!("servers: # none yet\n{new}")),
        (
            "servers:\n    a:\n        command: [y]\n",
            "servers:\n    a:\n        command: [y]\n    b:\n        command: [x]\n".to_owned(),
        ),
        ("servers: {}\n", "servers: {b: {command: [x]}}\n".to_owned()),
        (
            "servers: {a: {command: [y]}}  # é\n",
            "servers: {a: {command: [y]}, b: {command: [x]}}  # é\n".to_owned(),
        ),
        (
            "servers: {\n  a: {command: [y]},\n}\nnames: none\n",
            "servers: {\n  a: {command: [y]}, b: {command: [x]},\n}\nnames: none\n".to_owned(),
        ),
        (
            "servers:\r\n  a: {command: [y]}\r\nnames: none\r\n",
            "servers:\r\n  a: {command: [y]}\r\n  b:\r\n    command: [x]\r\nnames: none\r\n".to_owned(),
        ),
    ] {
        assert_eq!(added(before, "c.yaml", &small("b")), after, "{before:?}");
    }
}

#[test]
fn json_keeps_its_comments_and_layout() {
    let before = "{\n    // mine\n    \"servers\": {\n        \"a\": {\"command\": [\"y\"]}, // why\n    },\n    \"names\": \"none\"\n}\n";
    let after = added(before, "c.json", &small("b"));
    for part in
        ["    // mine\n", "        \"a\": {\"command\": [\"y\"]}, // why\n", "    \"names\": \"none\"\n}\n"]
    {
        assert!(after.contains(part), "{after}");
    }
    assert_eq!(Configuration::parse(&after, Path::new("c.json")).unwrap().configuration.servers.len(), 2);
}

#[test]
fn a_server_is_written_anew_in_its_place_if_that_is_wanted() {
    let before =
        "servers:\n  # first\n  a:\n    command: [y]\n    # inside\n\n  # second\n  b: {command: [z]}\n";
    let exists = add_server(before, Path::new("c.yaml"), &small("a"), false).unwrap_err();
    assert!(matches!(&exists, EditError::Exists(name) if name == "a"));
    assert_eq!(exists.hint().as_deref(), Some("--replace overwrites it"));
    let after = add_server(before, Path::new("c.yaml"), &small("a"), true).unwrap();
    assert_eq!(
        after,
        "servers:\n  # first\n  a:\n    command: [x]\n    # inside\n\n  # second\n  b: {command: [z]}\n"
    );
    let flow = add_server(
        "servers: {a: {command: [y]}, b: {command: [z]}}\n",
        Path::new("c.yaml"),
        &small("a"),
        true,
    );
    assert_eq!(flow.unwrap(), "servers: {a: {command: [x]}, b: {command: [z]}}\n");
    let json =
        add_server(r#"{"servers": {"a": {"url": "http://y"}}}"#, Path::new("c.json"), &small("a"), true)
            .unwrap();
    let servers = Configuration::parse(&json, Path::new("c.json")).unwrap().configuration.servers;
    assert!(servers.len() == 1 && json.contains("command") && !json.contains("http://y"));
}

#[test]
fn what_cannot_be_changed_safely_is_left_to_its_author() {
    for text in ["servers:\n  a: {command: [y]}\n...\n# after the end\n", "{servers: {a: {command: [y]}}}\n"]
    {
        match add_server(text, Path::new("c.yaml"), &small("b"), false) {
            Err(EditError::ByHand { entry }) => assert_eq!(entry, "  b:\n    command: [x]"),
            Ok(new) => assert!(Configuration::parse(&new, Path::new("c.yaml")).is_ok(), "{new}"),
            Err(other) => panic!("{other}"),
        }
    }
    let bad = add_server("servers: {a: 1}\n", Path::new("c.yaml"), &small("b"), false).unwrap_err();
    assert_eq!(bad.to_string(), "c.yaml:1:14: `a` must be a map, not a number");
    let other = add_server("{\"mcpServers\": {}}", Path::new("c.json"), &small("b"), false).unwrap_err();
    assert!(matches!(other, EditError::NotOurs { .. }));
    let name = add_server("", Path::new("c.yaml"), &small("a b"), false).unwrap_err();
    assert!(matches!(name, EditError::BadName(_)) && name.hint().is_some());
    let template =
        ServerEntry { name: "a".to_owned(), fields: vec![("command", json!(["x", "{session_id}"]))] };
    let template = add_server("", Path::new("c.yaml"), &template, false).unwrap_err();
    assert!(template.to_string().contains("`{session_id}` is not a placeholder"), "{template}");
}

#[test]
fn servers_of_other_clients_mean_the_same_in_our_file() {
    let theirs = r#"{"mcpServers": {
        "a": {"command": "npx", "args": ["${workspaceFolder}", "${env:KEY}", "$${x}", "{\"j\": 1}"], "env": {"K": "${V:-d}", "E": ""}, "cwd": "/x"},
        "b": {"url": "https://x.example", "headers": {"Authorization": "Bearer ${T}"}}
    }}"#;
    let read = Configuration::parse(theirs, Path::new("mcp.json")).unwrap();
    let mut text = String::new();
    for server in &read.configuration.servers {
        text = added(&text, "c.yaml", &ServerEntry::of(server));
    }
    let ours = Configuration::parse(&text, Path::new("c.yaml")).unwrap();
    for (theirs, ours) in read.configuration.servers.iter().zip(&ours.configuration.servers) {
        assert_eq!(format!("{:?}", theirs.transport), format!("{:?}", ours.transport));
        assert_eq!(theirs.environment, ours.environment);
        assert_eq!(theirs.working_directory, ours.working_directory);
    }
}

fn fields(value: &Value) -> Vec<(String, Value)> {
    value.as_object().unwrap().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[test]
fn an_entry_of_a_client_comes_and_goes() {
    let url = fields(&json!({"url": "http://127.0.0.1:3000/mcp"}));
    let cases = [
        (
            ClientSyntax::Json,
            "mcpServers",
            "{\n  // mine\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}\n  },\n  \"other\": [1,2]\n}\n",
        ),
        (ClientSyntax::Json, "servers", "\u{feff}{\r\n\t\"servers\": {\r\n\t\t\"a\": {},\r\n\t},\r\n}\r\n"),
        (
            ClientSyntax::Toml,
            "mcp_servers",
            "# mine\nmodel = 'x'  # why\n\n[mcp_servers.a]\ncommand = \"x\"\n\n[other]\nk = 1\n",
        ),
    ];
    for (syntax, section, before) in cases {
        let section = [section];
        assert_eq!(client_file::entry(before, syntax, &section, "ringfence"), Ok(None));
        let after = client_file::with_entry(before, syntax, &section, "ringfence", url.clone()).unwrap();
        assert_eq!(
            client_file::entry(&after, syntax, &section, "ringfence"),
            Ok(Some(url.clone())),
            "{after}"
        );
        let again = client_file::without_entry(&after, syntax, &section, "ringfence").unwrap();
        assert_eq!(client_file::entry(&again, syntax, &section, "ringfence"), Ok(None));
        assert_eq!(again.trim_end(), before.trim_end(), "{after:?}");
    }
}

#[test]
fn a_client_file_that_is_something_else_is_refused() {
    for (syntax, text) in [
        (ClientSyntax::Json, "{\"servers\": []}"),
        (ClientSyntax::Json, "[]"),
        (ClientSyntax::Json, "{\"servers\": "),
        (ClientSyntax::Toml, "servers = 3\n"),
        (ClientSyntax::Toml, "servers = \n"),
    ] {
        assert!(client_file::with_entry(text, syntax, &["servers"], "a", Vec::new()).is_err(), "{text}");
    }
}

/// Texts made of pieces of files, in any order.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "servers",
        ":",
        " ",
        "\n",
        "\n  ",
        "\n    ",
        "a",
        "b",
        "{",
        "}",
        "[",
        "]",
        ",",
        "\"",
        "'",
        "command",
        ": ",
        "#",
        "- ",
        "&x ",
        "*x",
        "|",
        "\r",
        "\r\n",
        "\t",
        "---",
        "é",
        "\u{feff}",
        "${A}",
        "{storage}",
        "//",
        "mcpServers",
        "=",
        "\"servers\"",
        "servers:\n  a: {command: [x]}\n",
        "\0",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// Any text is either read or refused, and an added server is the only change to it.
    #[test]
    fn any_text_is_read_or_refused(text in pieces()) {
        for file in ["c.yaml", "c.json", "c.toml", "c"] {
            let before = Configuration::parse(&text, Path::new(file));
            if let Ok(after) = add_server(&text, Path::new(file), &small("new"), true) {
                let after = Configuration::parse(&after, Path::new(file)).unwrap().configuration.servers;
                let others = after.iter().filter(|server| server.name != "new").count();
                let before = before.unwrap().configuration.servers;
                prop_assert_eq!(others, before.iter().filter(|server| server.name != "new").count());
                prop_assert!(after.iter().any(|server| server.name == "new"));
            }
        }
        for syntax in [ClientSyntax::Json, ClientSyntax::Toml] {
            if let Ok(with) = client_file::with_entry(&text, syntax, &["servers"], "new", Vec::new()) {
                prop_assert_eq!(client_file::entry(&with, syntax, &["servers"], "new"), Ok(Some(Vec::new())));
            }
        }
    }
}
