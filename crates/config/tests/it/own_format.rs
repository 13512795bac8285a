//! Ringfence's own format: every key, every default.

use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{
    ExecutionContext, FencePolicy, Format, Lifecycle, LocalExecution, NameMode, NetworkMode, SecretSource,
    Start, Storage, Template, Transport,
};

use crate::{in_a_line, json, server, yaml};

/// The example from the founding documents, verbatim.
const FOUNDING: &str = include_str!("../founding.yaml");

fn template(text: &str) -> Template {
    Template::parse(text).unwrap()
}

fn words(transport: &Transport) -> Vec<String> {
    match transport {
        Transport::Command { program, arguments } => {
            std::iter::once(program).chain(arguments).map(Template::to_string).collect()
        }
        Transport::BuiltIn { arguments } => std::iter::once("<built-in>".to_owned())
            .chain(arguments.iter().map(Template::to_string))
            .collect(),
        Transport::Url { url, .. } => vec![url.to_string()],
        Transport::Unnamed => Vec::new(),
    }
}

#[test]
fn the_founding_file_works_to_the_letter() {
    let read = yaml(FOUNDING);
    assert_eq!((read.format, read.warnings.len()), (Format::Ringfence, 0));
    let names: Vec<_> = read.configuration.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["filesystem", "git", "web-search", "brave-search", "database", "memory"]);
    let nothing = Some("nothing to run is named: add command or url");
    for (name, context, disabled) in [
        ("filesystem", ExecutionContext::Local, None),
        ("git", ExecutionContext::Local, None),
        ("web-search", ExecutionContext::Remote, nothing),
        ("brave-search", ExecutionContext::Remote, nothing),
        ("database", ExecutionContext::Remote, nothing),
        ("memory", ExecutionContext::Remote, nothing),
    ] {
        let server = server(&read, name);
        assert_eq!((server.context, server.disabled.as_deref()), (context, disabled), "{name}");
    }
    let filesystem = server(&read, "filesystem");
    assert!(matches!(&filesystem.transport, Transport::BuiltIn { arguments } if arguments.is_empty()));
    assert_eq!(filesystem.allowed_directories, Some(vec![template("{workingDirectory}")]));
    assert_eq!((filesystem.origin.line, filesystem.overridable), (3, true));
    assert!(matches!(server(&read, "git").transport, Transport::Unnamed));
    let brave = server(&read, "brave-search");
    assert_eq!(brave.needed_variables().collect::<Vec<_>>(), ["BRAVE_API_KEY"]);
    assert!(!brave.overridable, "it has a secret");
    assert_eq!(server(&read, "memory").storage, Storage::Persistent);
}

#[test]
fn flow_style_and_json_with_comments_mean_the_same() {
    let flow = yaml(
        "servers:\n  files: { command: [ringfence, workspace, --read-only] }\n  time: { command: [uvx, mcp-server-time], \
         executionContext: local }\n  docs: { url: \"https://mcp.example.com/mcp\" }\n",
    );
    let commented = json(
        "\u{feff}{\n  // ours\n  \"servers\": {\n    \"files\": {\"command\": [\"ringfence\", \"workspace\", \
         \"--read-only\"]}, /* built in */\n    \"time\": {\"command\": [\"uvx\", \"mcp-server-time\"], \
         \"executionContext\": \"local\"},\n    \"docs\": {\"url\": \"https://mcp.example.com/mcp\"},\n  },\n}\n",
    );
    for read in [flow, commented] {
        assert_eq!(read.format, Format::Ringfence);
        assert_eq!(words(&server(&read, "files").transport), ["<built-in>", "--read-only"]);
        assert_eq!(server(&read, "files").context, ExecutionContext::Local);
        assert_eq!(words(&server(&read, "time").transport), ["uvx", "mcp-server-time"]);
        assert_eq!(server(&read, "time").context, ExecutionContext::Local);
        assert_eq!(words(&server(&read, "docs").transport), ["https://mcp.example.com/mcp"]);
    }
}

#[test]
fn a_command_is_a_list_or_text_or_a_program_with_arguments() {
    let read = yaml(
        "servers:\n  a: {command: [npx, -y, 3000]}\n  b: {command: \"npx -y 'x y'\"}\n  c: {command: /opt/my server, \
         args: [-v]}\n  d: {command: [node], args: [x.js, \"{workingDirectory}\"]}\n  e: {command: ringfence workspace}\n  \
         f: {command: [ringfence, stdio]}\n  g:\n  filesystem:\n",
    );
    for (name, expected) in [
        ("a", vec!["npx", "-y", "3000"]),
        ("b", vec!["npx", "-y", "x y"]),
        ("c", vec!["/opt/my server", "-v"]),
        ("d", vec!["node", "x.js", "{workingDirectory}"]),
        ("e", vec!["<built-in>"]),
        ("f", vec!["ringfence", "stdio"]),
        ("g", vec![]),
        ("filesystem", vec!["<built-in>"]),
    ] {
        assert_eq!(words(&server(&read, name).transport), expected, "{name}");
    }
}

#[test]
fn every_key_of_a_server_has_its_effect() {
    let read = yaml(
        "names: conflict\nlocalExecution: attachment\nservers:\n  all:\n    command: [run]\n    args: [x]\n    executionContext: local\n    \
         overridable: false\n    enabled: true\n    disabled: false\n    env: {MODE: test, PORT: 80}\n    cwd: /srv\n    \
         allowedDirectories: [\"{storage}\"]\n    lifecycle: shared\n    storage: persistent\n    start: eager\n    \
         allowInstallScripts: true\n    timeout: 0.5\n    maxTimeout: 10\n    startTimeout: 5\n    fence:\n      network: http\n      allowHosts: [a.example]\n      allowMetadata: [.claude]\n      unixSockets: true\n      sshAgent: true\n      gitDirectories: [none, /g, ./g]\n      \
         read: [/r, sub/../d]\n      write: [./w]\n      denyRead: [/d]\n      readOnly: true\n      memory: 2G\n      processes: 64\n    \
         tools:\n      allow: [\"read_*\"]\n      deny: [x]\n      aliases: {a: b}\n  off: {command: [x], enabled: false}\n  \
         also-off: {command: [x], disabled: true}\n  bare: {command: [x], fence: {unfenced: true}}\n",
    );
    assert_eq!(read.configuration.names, NameMode::Conflict);
    assert_eq!(read.configuration.local_execution, LocalExecution::Attachment);
    let all = server(&read, "all");
    assert_eq!((all.context, all.overridable, &all.disabled), (ExecutionContext::Local, false, &None));
    assert_eq!(all.environment["PORT"], template("80"));
    assert_eq!(all.working_directory, Some(template("/srv")));
    assert_eq!(
        (all.lifecycle, all.storage, all.start),
        (Lifecycle::Shared, Storage::Persistent, Start::Eager)
    );
    assert_eq!(all.allows_install_scripts, Some(true));
    assert_eq!(server(&read, "off").allows_install_scripts, None, "the command line decides");
    assert_eq!(all.limits.timeout, Some(Duration::from_millis(500)));
    assert_eq!(all.limits.max_timeout, Some(Duration::from_secs(10)));
    assert_eq!(all.limits.start_timeout, Some(Duration::from_secs(5)));
    let fence = FencePolicy {
        network: Some(NetworkMode::Http),
        allow_hosts: vec!["a.example".to_owned()],
        allow_metadata: vec![".claude".to_owned()],
        unix_sockets: true,
        ssh_agent: true,
        git_directories: vec!["none".into(), "/g".into(), "/etc/rf/g".into()],
        read: vec!["/r".into(), "/etc/rf/sub/../d".into()],
        write: vec!["/etc/rf/w".into()],
        deny_read: vec!["/d".into()],
        read_only: Some(true),
        memory_bytes: Some(2 << 30),
        processes: Some(64),
        unfenced: false,
    };
    assert_eq!(all.fence, fence);
    assert_eq!(
        (&all.tools.allow[..], &all.tools.deny[..]),
        (&["read_*".to_owned()][..], &["x".to_owned()][..])
    );
    assert_eq!(all.tools.aliases["a"], "b");
    for name in ["off", "also-off"] {
        assert_eq!(server(&read, name).disabled.as_deref(), Some("switched off in the configuration"));
    }
    assert!(server(&read, "bare").fence.unfenced);
}

#[test]
fn execution_contexts_have_defaults_by_name() {
    let read = yaml(
        "servers:\n  git: {command: [x]}\n  editor-integration: {command: [x]}\n  filesystem: {command: [x]}\n  \
         web: {command: [x]}\n  ours: {command: [ringfence, workspace]}\n  moved: {command: [ringfence, workspace], \
         executionContext: remote}\n",
    );
    for (name, context) in [
        ("git", ExecutionContext::Local),
        ("editor-integration", ExecutionContext::Local),
        ("filesystem", ExecutionContext::Local),
        ("web", ExecutionContext::Remote),
        ("ours", ExecutionContext::Local),
        ("moved", ExecutionContext::Remote),
    ] {
        assert_eq!(server(&read, name).context, context, "{name}");
    }
}

#[test]
fn secrets_are_found_where_the_file_says() {
    let directory = std::env::temp_dir().join(format!("ringfence-config-secrets-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for (file, content) in
        [("all", "of all\n"), ("alice", "of alice\r\n"), ("shop", "of shop"), ("token", "t0ken\n")]
    {
        std::fs::write(directory.join(file), content).unwrap();
    }
    let text = "secrets: {KEY: {file: all}}\nprincipals:\n  alice: {secrets: {KEY: {file: alice}}}\n  bob: {secrets: {KEY: {env: \
         SURELY_ABSENT_VARIABLE}}}\nworkspaces:\n  /srv/shop/: {secrets: {KEY: {file: shop}}}\nservers:\n  hub: {url: \
         \"https://hub.example\", bearerToken: {file: token}}\n";
    let read = config::Configuration::parse(text, &directory.join("c.yaml")).unwrap();
    let secrets = &read.configuration.secrets;
    let find = |principal, workspace: Option<&str>| {
        secrets.find("KEY", principal, workspace.map(Path::new), |_| true)
    };
    assert_eq!(find("carol", None).as_deref(), Some("of all"));
    assert_eq!(find("alice", None).as_deref(), Some("of alice"));
    assert_eq!(find("alice", Some("/srv/shop/web")).as_deref(), Some("of shop"));
    let foreign = secrets.find("KEY", "alice", Some(Path::new("/srv/shop/web")), |_| false);
    assert_eq!(foreign.as_deref(), Some("of alice"), "the workspace's is not for her");
    assert_eq!(find("bob", None), None, "a source that has nothing is not replaced by another");
    let hub = server(&read, "hub");
    let needed: Vec<_> = hub.needed_variables().collect();
    assert_eq!(secrets.find(needed[0], "anybody", None, |_| true).as_deref(), Some("t0ken"));
    assert!(!hub.overridable && !format!("{read:?}").contains("t0ken"));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_bearer_token_becomes_a_header() {
    let read = yaml(
        "servers:\n  a: {url: \"https://x.example\", bearerToken: \"${TOKEN}\", headers: {X-Team: web}}\n  b: {url: \
         \"${URL}\", bearerToken: {env: B_TOKEN}}\n",
    );
    let headers = |name| match &server(&read, name).transport {
        Transport::Url { headers, .. } => headers.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(headers("a")["Authorization"], template("Bearer ${TOKEN}"));
    assert_eq!(headers("a")["X-Team"], template("web"));
    assert_eq!(headers("b")["Authorization"].to_string(), "Bearer ${bearerToken of b}");
    let source = &read.configuration.secrets.everybody["bearerToken of b"];
    assert_eq!(source, &SecretSource::Environment("B_TOKEN".to_owned()));
}

#[test]
fn secrets_in_plain_sight_are_warned_of_and_never_shown() {
    let read = yaml(
        "servers:\n  a:\n    command: [x]\n    env: {API_KEY: hunter2, MODE: x, GH_TOKEN: \"${GH_TOKEN}\", EMPTY_KEY: \"\"}\n  \
         b: {url: \"https://x.example\", bearerToken: hunter2}\n  c: {url: \"https://x.example\", headers: {Authorization: \
         hunter2}}\n",
    );
    let hint = "put it into the environment of ringfence or into a file (`secrets`), and write ${NAME}";
    let warnings: Vec<_> = read.warnings.iter().map(|warning| in_a_line(warning, "/etc/rf/c.yaml")).collect();
    let expected = ["4:20: `API_KEY`", "5:46: `bearerToken`", "6:58: `Authorization`"]
        .map(|start| format!("{start} is a secret that every reader of this file sees | {hint}"));
    assert_eq!(warnings, expected);
    assert!(!format!("{read:?}").contains("hunter2"));
    assert!(read.configuration.servers.iter().all(|server| server.has_secrets() && !server.overridable));
}

#[test]
fn an_empty_file_is_an_empty_configuration() {
    for text in ["", "# nothing yet\n", "servers:\n", "servers: {}\n", "---\n"] {
        assert!(yaml(text).configuration.servers.is_empty(), "{text:?}");
    }
    assert!(json("{}").configuration.servers.is_empty());
}

#[test]
fn aliases_of_yaml_are_filled_in() {
    let read = yaml("servers:\n  a: &a {command: [x], env: {M: \"1\"}}\n  b: *a\n");
    assert_eq!(words(&server(&read, "b").transport), ["x"]);
}

#[test]
fn a_file_is_read_from_disk() {
    let directory = std::env::temp_dir().join(format!("ringfence-config-disk-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file: PathBuf = directory.join("c.yaml");
    std::fs::write(&file, "servers: {a: {command: [x]}}\n").unwrap();
    let read = config::Configuration::read(&file).unwrap();
    assert_eq!(read.configuration.servers[0].origin.file, file);
    std::fs::write(&file, b"servers:\n  a: {command: [\xff]}\n").unwrap();
    let error = config::Configuration::read(&file).unwrap_err().to_string();
    assert_eq!(error, format!("{}:2:1: this line is not UTF-8", file.display()));
    std::fs::write(&file, vec![b'#'; (1 << 20) + 1]).unwrap();
    let error = config::Configuration::read(&file).unwrap_err().to_string();
    assert_eq!(error, format!("{}:1:1: the file is longer than 1 MiB", file.display()));
    let error = config::Configuration::read(&directory).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read {}: ", directory.display())), "{error}");
    assert!(config::Configuration::read(&directory.join("absent")).is_err());
    std::fs::remove_dir_all(&directory).unwrap();
}
