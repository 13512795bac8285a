//! Files of other clients, as those clients write them.

use std::path::Path;
use std::time::Duration;

use config::{Configuration, ExecutionContext, Format, Template, Transport};

use crate::{in_a_line, json, server, wrong};

fn template(text: &str) -> Template {
    Template::parse(text).unwrap()
}

#[test]
fn mcp_servers_of_claude_and_cursor() {
    let read = json(
        r#"{
  "numStartups": 7, "projects": {"/home/me/x": {"mcpServers": {"ignored": {"command": "y"}}}},
  "mcpServers": {
    "memory": {"type": "stdio", "command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"], "env": {"API_KEY": "literal"}, "alwaysAllow": []},
    "hub": {"type": "http", "url": "https://hub.example/mcp", "headers": {"Authorization": "Bearer ${HUB_TOKEN:-none}"}},
    "old": {"type": "sse", "url": "https://old.example/sse"},
    "off": {"command": "/Applications/My App/server", "disabled": true},
    "My Server/1": {"command": "x", "args": ["${workspaceFolder}", "${env:HOME}", "${input:token}"]},
    "broken": {"command": "x", "args": ["${a b}"]},
    "empty": {}
  }
}"#,
    );
    assert_eq!(read.format, Format::McpServers);
    let memory = server(&read, "memory");
    assert_eq!((memory.context, memory.overridable), (ExecutionContext::Remote, false));
    assert_eq!(memory.environment["API_KEY"], template("literal"));
    assert!(matches!(&server(&read, "hub").transport, Transport::Url { headers, .. }
        if headers["Authorization"] == template("Bearer ${HUB_TOKEN:-none}")));
    let reasons = ["old", "off", "broken", "empty"].map(|name| server(&read, name).disabled.clone().unwrap());
    assert!(reasons[0].starts_with("the old HTTP+SSE transport is not supported"));
    assert_eq!(
        reasons[1..],
        [
            "switched off in the configuration",
            "`${a b}` does not name a variable",
            "nothing to run is named: add command or url",
        ]
    );
    assert!(matches!(&server(&read, "off").transport, Transport::Command { program, .. }
        if *program == template("/Applications/My App/server")));
    let renamed = server(&read, "My-Server-1");
    assert_eq!(renamed.needed_variables().collect::<Vec<_>>(), ["HOME", "input:token"]);
    let warnings: Vec<_> = read.warnings.iter().map(|warning| in_a_line(warning, "/etc/rf/c.json")).collect();
    assert_eq!(
        warnings,
        ["8:5: `My Server/1` is called `My-Server-1` here | names are 1 to 32 letters, digits, `-` and `_`"]
    );
    assert_eq!(read.configuration.servers.len(), 7, "those of single projects are not looked at");
}

#[test]
fn servers_of_vs_code() {
    let servers = r#"{
    // comments are usual here
    "github": {"type": "http", "url": "https://api.example/mcp", "gallery": "x"},
    "db": {"type": "stdio", "command": "npx", "args": ["-y", "db"], "env": {"PW": "${input:pw}"}, "envFile": "${workspaceFolder}/.env", "dev": {"watch": "x"}},
  }"#;
    let own = format!("{{\"inputs\": [{{\"id\": \"pw\", \"password\": true}}], \"servers\": {servers}}}");
    let settings = format!("{{\"editor.fontSize\": 12, \"mcp\": {{\"servers\": {servers}}}}}");
    for text in [own, settings] {
        let read = json(&text);
        assert_eq!(read.format, Format::VsCode);
        assert!(server(&read, "github").disabled.is_none());
        assert_eq!(server(&read, "db").needed_variables().collect::<Vec<_>>(), ["input:pw"]);
        assert!(
            read.warnings[0].to_string().contains("`envFile` is not read: it must not depend on the session")
        );
        assert!(server(&read, "db").variables_file.is_none());
    }
}

#[test]
fn a_file_of_variables_begins_at_the_file_that_names_it_and_makes_secrets() {
    for text in [
        r#"{"servers": {"db": {"type": "stdio", "command": "db", "envFile": "../secret.env"}}}"#,
        r#"{"servers": {"db": {"command": ["db"], "envFile": "../secret.env"}}}"#,
    ] {
        let read = json(text);
        let db = server(&read, "db");
        assert_eq!(db.variables_file.as_deref(), Some(Path::new("/etc/rf/../secret.env")));
        assert!(db.has_secrets() && read.warnings.is_empty(), "{:?}", read.warnings);
    }
    for (written, told) in [
        ("{sessionId}.env", "it must not depend on the session"),
        ("${NOBODY_HAS_SET_THIS}/x.env", "Missing NOBODY_HAS_SET_THIS"),
    ] {
        let read =
            json(&format!(r#"{{"servers": {{"db": {{"command": ["db"], "envFile": "{written}"}}}}}}"#));
        assert!(server(&read, "db").variables_file.is_none());
        assert!(read.warnings[0].to_string().contains(told), "{:?}", read.warnings);
    }
    let home = std::env::var("HOME").unwrap();
    let read = json(r#"{"mcpServers": {"db": {"command": "db", "envFile": "${userHome}/x.env"}}}"#);
    assert_eq!(server(&read, "db").variables_file, Some(Path::new(&home).join("x.env")));
}

#[test]
fn a_servers_file_with_keys_of_ours_is_ours() {
    let text = r#"{"servers": {"a": {"type": "stdio", "command": "x", "lifecycle": "shared"}}}"#;
    assert_eq!(
        wrong(text, "/c.json"),
        ["1:20: unknown key `type` | leave it out: `command` or `url` says it"]
    );
    let plain = json(r#"{"servers": {"a": {"command": "npx", "args": ["x"]}}}"#);
    assert_eq!(plain.format, Format::Ringfence, "either would read it the same");
}

#[test]
fn servers_of_codex() {
    let text = r#"
model = "x"
[mcp_servers.docs]
command = "npx"
args = ["-y", "docs"]
env_vars = ["DOCS_KEY"]
startup_timeout_sec = 20
tool_timeout_sec = 2.5
disabled_tools = ["delete"]
[mcp_servers.docs.env]
MODE = "fast"
[mcp_servers.hub]
url = "https://hub.example/mcp"
bearer_token_env_var = "HUB_TOKEN"
http_headers = { X-Team = "web" }
env_http_headers = { X-Key = "HUB_KEY" }
enabled = false
"#;
    let read = Configuration::parse(text, Path::new("/home/me/.codex/config.toml")).unwrap();
    assert_eq!(read.format, Format::Codex);
    let docs = server(&read, "docs");
    assert_eq!(docs.needed_variables().collect::<Vec<_>>(), ["DOCS_KEY"]);
    assert_eq!(docs.environment["MODE"], template("fast"));
    assert_eq!(
        (docs.limits.timeout, docs.limits.start_timeout),
        (Some(Duration::from_millis(2500)), Some(Duration::from_secs(20)))
    );
    assert_eq!((docs.tools.deny[0].as_str(), docs.origin.line), ("delete", 3));
    let hub = server(&read, "hub");
    assert_eq!(hub.disabled.as_deref(), Some("switched off in the configuration"));
    let Transport::Url { headers, .. } = &hub.transport else { panic!("{hub:?}") };
    assert_eq!(headers["Authorization"], template("Bearer ${HUB_TOKEN}"));
    assert_eq!(headers["X-Key"], template("${HUB_KEY}"));
    assert_eq!(headers["X-Team"], template("web"));
    let none = Configuration::parse("model = 1\n", Path::new("/config.toml")).unwrap();
    assert!(none.configuration.servers.is_empty());
    assert_eq!(wrong("a = 1\na = 2\n", "/config.toml"), ["2:1: duplicate key"]);
}

#[test]
fn servers_of_gemini_and_qwen() {
    let text = r#"{
  "security": {"auth": {"selectedType": "gemini-api-key"}}, "mcp": {"excluded": ["other"]},
  "mcpServers": {
    "github": {"command": "npx", "args": ["-y", "github", "--price=5$", "$5"], "env": {"TOKEN": "$GITHUB_TOKEN", "URL": "https://$HOST:${PORT}/"},
      "timeout": 30000, "trust": true, "includeTools": ["search"], "excludeTools": ["delete"]},
    "hub": {"httpUrl": "https://hub.example/mcp", "headers": {"Authorization": "Bearer $HUB_TOKEN"}},
    "typed": {"url": "https://typed.example/mcp", "type": "http"},
    "old": {"url": "https://old.example/sse", "type": "sse"}
  }
}"#;
    for path in ["/home/me/.gemini/settings.json", "/srv/project/.qwen/settings.json"] {
        let read = Configuration::parse(text, Path::new(path)).unwrap();
        assert_eq!((read.format, read.warnings.len()), (Format::Gemini, 0));
        let github = server(&read, "github");
        assert_eq!(github.environment["TOKEN"], template("${GITHUB_TOKEN}"));
        assert_eq!(github.environment["URL"], template("https://${HOST}:${PORT}/"));
        let Transport::Command { arguments, .. } = &github.transport else { panic!("{github:?}") };
        assert_eq!(arguments[2..], [template("--price=5$"), template("$5")]);
        assert_eq!(github.limits.timeout, Some(Duration::from_secs(30)));
        assert_eq!(
            (&*github.tools.allow, &*github.tools.deny),
            (&["search".into()][..], &["delete".into()][..])
        );
        let Transport::Url { headers, .. } = &server(&read, "hub").transport else { panic!() };
        assert_eq!(headers["Authorization"], template("Bearer ${HUB_TOKEN}"));
        assert!(server(&read, "typed").disabled.is_none() && server(&read, "old").disabled.is_some());
    }
    let elsewhere = Configuration::parse(text, Path::new("/home/me/.cursor/mcp.json")).unwrap();
    assert_eq!(elsewhere.format, Format::McpServers);
    assert!(server(&elsewhere, "github").environment["TOKEN"].is_literal(), "others do not read it so");
}

#[test]
fn servers_of_opencode() {
    let read = json(
        r#"{
  "$schema": "https://opencode.ai/config.json",
  "permission": {"bash": "ask"}, // comments are usual here, too
  "mcp": {
    "docs": {"type": "local", "command": ["npx", "-y", "docs"], "environment": {"KEY": "{env:DOCS_KEY}"}, "enabled": true, "timeout": 20000},
    "hub": {"type": "remote", "url": "https://hub.example/mcp", "headers": {"Authorization": "Bearer {env:HUB_TOKEN}"}, "oauth": false},
    "file": {"type": "remote", "url": "https://file.example/mcp", "headers": {"X-Key": "{file:~/.key}"}},
    "servers": {"type": "local", "command": ["x"], "enabled": false}
  }
}"#,
    );
    assert_eq!(read.format, Format::OpenCode);
    let docs = server(&read, "docs");
    let words = vec![template("-y"), template("docs")];
    let Transport::Command { program, arguments } = &docs.transport else { panic!() };
    assert_eq!((program, arguments), (&template("npx"), &words));
    assert_eq!(docs.environment["KEY"], template("${DOCS_KEY}"));
    assert_eq!((docs.limits.timeout, docs.limits.start_timeout), (None, Some(Duration::from_secs(20))));
    let Transport::Url { headers, .. } = &server(&read, "hub").transport else { panic!() };
    assert_eq!(headers["Authorization"], template("Bearer ${HUB_TOKEN}"));
    let reasons = ["file", "servers"].map(|name| server(&read, name).disabled.clone().unwrap());
    assert!(reasons[0].contains("under `secrets`"), "{reasons:?}");
    assert_eq!(reasons[1], "switched off in the configuration");
}

#[test]
fn servers_of_zed_and_windsurf() {
    let read = json(
        r#"// Zed settings
{
  "theme": "One Dark",
  "context_servers": {
    "docs": {"source": "custom", "enabled": true, "command": "npx", "args": ["-y", "docs"], "env": {"MODE": "fast"}},
    "hub": {"url": "https://hub.example/mcp", "headers": {"X-Team": "web"}},
    "from-an-extension": {"source": "extension", "enabled": true, "settings": {"key": 1}},
  },
}"#,
    );
    assert_eq!(read.format, Format::Zed);
    assert_eq!(server(&read, "docs").environment["MODE"], template("fast"));
    assert!(matches!(&server(&read, "hub").transport, Transport::Url { headers, .. } if headers.len() == 1));
    assert!(server(&read, "from-an-extension").disabled.as_deref().unwrap().starts_with("nothing to run"));
    let read = json(
        r#"{"mcpServers": {"hub": {"serverUrl": "https://hub.example/mcp", "headers": {"K": "${env:K}"}, "disabledTools": ["drop"], "disabled": false}}}"#,
    );
    let hub = server(&read, "hub");
    assert!(matches!(&hub.transport, Transport::Url { headers, .. } if headers["K"] == template("${K}")));
    assert_eq!((hub.tools.deny[0].as_str(), hub.disabled.as_deref()), ("drop", None));
}

#[test]
fn what_they_have_wrong_is_told_with_its_place() {
    assert_eq!(
        wrong(
            "{\"mcpServers\": {\n\"a\": {\"command\": [\"x\"]},\n\"b\": {\"command\": \"x\", \"args\": \"y\"}}}",
            "/c.json"
        ),
        ["2:18: `command` must be text, not a list", "3:31: `args` must be a list of texts",]
    );
    assert_eq!(
        wrong("{\"mcpServers\": {\"a b\": {}, \"a-b\": {}}}", "/c.json"),
        ["1:28: a second server would be called `a-b` here"]
    );
}
