//! `ringfence register`: the entries that it writes into the files of clients, and how it removes them.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use testkit::ringfence_binary;

use crate::commands::config::Home;

const URL: &str = "http://127.0.0.1:3000/mcp";

/// Each client with a JSON file: its name, the file, the pointer to the entry that `register` writes, and the entry.
fn cases() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let own = ringfence_binary();
    vec![
        ("vscode", ".config/Code/User/mcp.json", "/servers/ringfence", json!({"type": "http", "url": URL})),
        ("cursor", ".cursor/mcp.json", "/mcpServers/ringfence", json!({"url": URL})),
        ("claude-code", ".claude.json", "/mcpServers/ringfence", json!({"type": "http", "url": URL})),
        (
            "claude-desktop",
            ".config/Claude/claude_desktop_config.json",
            "/mcpServers/ringfence",
            json!({"command": own, "args": ["stdio"]}),
        ),
    ]
}

#[test]
fn a_file_is_made_and_removed_again() {
    for (client, file, pointer, entry) in cases() {
        let home = Home::new();
        let tried = home.succeeds(&format!("register --client {client} --dry-run"));
        assert!(tried.contains("+++ ~/") && tried.contains("ringfence") && !home.has(file), "{tried}");
        home.succeeds(&format!("register --client {client}"));
        let written: Value = serde_json::from_str(&home.read(file)).unwrap();
        assert_eq!((written.pointer(pointer), home.mode(file)), (Some(&entry), 0o600), "{client}");
        let before = home.read(file);
        assert!(home.succeeds(&format!("register --client {client}")).contains("already"));
        assert_eq!(home.read(file), before);
        home.succeeds(&format!("register --client {client} --undo"));
        assert!(!home.has(file), "{client}: {}", home.read(file));
        assert!(home.succeeds(&format!("register --client {client} --undo")).contains("has no `ringfence`"));
    }
}

#[test]
fn a_file_that_was_there_is_the_same_to_the_byte_after_undo() {
    for (client, file, pointer, entry) in cases() {
        let section = pointer.split('/').nth(1).unwrap();
        for text in [
            format!(
                "{{\n  // mine\n  \"z\": [1,   2],\n  \"{section}\": {{\n    \"a\": {{\"command\": \"x\"}}, // why\n  }},\n}}\n"
            ),
            format!("{{\"b\":1,\"{section}\":{{\"a\":{{\"command\":\"x\"}}}},\"a\":2}}"),
            "{}".to_owned(),
            "{\r\n\t\"other\": true\r\n}\r\n".to_owned(),
            format!("{{\"{section}\": {{\"ringfence\": {{\"command\": \"somebody's own\"}}}}}}\n"),
        ] {
            let home = Home::new();
            home.write(file, &text);
            let path = home.directory.join(file);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
            home.succeeds(&format!("register --client {client}"));
            let now = config_value(&home.read(file));
            assert_eq!(now.pointer(pointer), Some(&entry), "{client}: {text}");
            assert_eq!(home.mode(file), 0o640);
            assert_eq!(home.mode(&format!("{file}.before-ringfence")), 0o640);
            home.succeeds(&format!("register --client {client} --undo"));
            assert_eq!((home.read(file), home.mode(file)), (text, 0o640), "{client}");
            assert!(!home.has(&format!("{file}.before-ringfence")));
        }
    }
}

/// Parses JSON with comments and trailing commas, which these tests write only at the ends of lines.
fn config_value(text: &str) -> Value {
    let lines = text.lines().map(|line| line.split(" //").next().unwrap().to_owned() + "\n");
    let mut text: String = lines.filter(|line| !line.trim_start().starts_with("//")).collect();
    loop {
        let shorter = text.replace(" }", "}").replace("\n}", "}").replace("\t}", "}").replace(",}", "}");
        if shorter == text {
            return serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        }
        text = shorter;
    }
}

#[test]
fn undo_keeps_what_the_user_changed_since() {
    let home = Home::new();
    let file = ".cursor/mcp.json";
    home.write(file, "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}\n  }\n}\n");
    home.succeeds("register --client cursor");
    home.succeeds("register --client cursor --url http://127.0.0.1:4000/mcp");
    home.write(file, &home.read(file).replace("\"x\"", "\"changed\""));
    home.succeeds("register --client cursor --undo");
    assert_eq!(home.read(file), "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"changed\"}\n  }\n}\n");
}

#[test]
fn codex_has_toml_and_keeps_it() {
    let home = Home::new();
    let text =
        "# mine\nmodel = 'x'  # why\n\n[mcp_servers.a]\ncommand = \"x\"\n\n[profiles.fast]\nmodel = \"y\"\n";
    home.write(".codex/config.toml", text);
    home.succeeds("register --client codex --name gate --url http://127.0.0.1:4000/mcp");
    let now = home.read(".codex/config.toml");
    assert!(now.contains("[mcp_servers.gate]\nurl = \"http://127.0.0.1:4000/mcp\"\n"), "{now}");
    assert!(text.lines().all(|line| now.contains(line)), "{now}");
    home.succeeds("register --client codex --name gate --undo");
    assert_eq!(home.read(".codex/config.toml"), text);
    let fresh = Home::new();
    fresh.succeeds("register --client codex");
    assert_eq!(fresh.read(".codex/config.toml"), format!("[mcp_servers.ringfence]\nurl = \"{URL}\"\n"));
    fresh.succeeds("register --client codex --undo");
    assert!(!fresh.has(".codex/config.toml"));
}

#[test]
fn clients_can_start_ringfence_themselves() {
    let home = Home::new();
    home.succeeds("add time -- uvx mcp-server-time");
    home.succeeds("register --client vscode --stdio");
    let written: Value = serde_json::from_str(&home.read(".config/Code/User/mcp.json")).unwrap();
    let configuration = home.directory.join(".config/ringfence/config.yaml");
    let entry =
        json!({"type": "stdio", "command": ringfence_binary(), "args": ["stdio", "--config", configuration]});
    assert_eq!(written["servers"]["ringfence"], entry);
    let refused = home.ringfence("register --client claude-desktop --url http://127.0.0.1:3000/mcp");
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("takes no URL") && refused.stderr.contains("hint: leave --url out"));
}

#[test]
fn another_file_and_links_are_followed() {
    let home = Home::new();
    home.write("dotfiles/mcp.json", "{}\n");
    std::os::unix::fs::symlink("dotfiles/mcp.json", home.directory.join("link.json")).unwrap();
    home.succeeds("register --client cursor --file link.json");
    assert!(home.directory.join("link.json").is_symlink());
    assert!(home.read("dotfiles/mcp.json").contains(URL));
}

#[test]
fn a_broken_file_is_left_alone() {
    let home = Home::new();
    for text in ["{\"mcpServers\": [", "[]", "{\"mcpServers\": 3}"] {
        home.write(".cursor/mcp.json", text);
        let ended = home.ringfence("register --client cursor");
        assert_eq!(ended.code, 1, "{text}: {ended:?}");
        assert!(
            ended.stderr.starts_with("error: ~/.cursor/mcp.json: ") && ended.stderr.contains("hint: "),
            "{ended:?}"
        );
        assert_eq!(home.read(".cursor/mcp.json"), text);
    }
}
