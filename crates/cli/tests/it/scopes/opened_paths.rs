//! No path that a session could have swapped for a link is followed outside its fence: every call of the gateway, of its
//! probes and of its launchers before they are confined is watched with `strace`. What lies in a directory that fences
//! can write must be reached from a descriptor of that directory, one name at a time, or without following links.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{
    Gateway, GatewayBuilder, NEWEST, PathWatch, Project, RawClient, WatchReport, WorkspaceDir,
    WritableDirectories, fixture_binary, python_binary, roots, text_of, wait_until, within_deadline,
    workspace_dir,
};

use super::{open, with_roots};

/// A gateway whose calls are written down, with caches and data of its own.
struct Watched {
    gateway: Gateway,
    watch: PathWatch,
    own: WorkspaceDir,
    directory: PathBuf,
}

impl Watched {
    /// Starts a gateway in `directory`.
    async fn start(name: &str, builder: GatewayBuilder, directory: &Path) -> Self {
        Self::start_with(workspace_dir(&format!("{name}-own")), name, builder, directory).await
    }

    /// Starts a gateway with the caches and data of another one.
    async fn start_with(own: WorkspaceDir, name: &str, builder: GatewayBuilder, directory: &Path) -> Self {
        let watch = PathWatch::new(name);
        let builder = builder.under(watch.command()).current_dir(directory);
        let builder =
            builder.env("XDG_CACHE_HOME", own.join("caches")).env("XDG_DATA_HOME", own.join("data"));
        // Its git identity is written into the home of every session.
        std::fs::create_dir_all(own.join("home")).unwrap();
        std::fs::write(own.join("home/.gitconfig"), "[user]\n\tname = Ada\n\temail = ada@example.org\n")
            .unwrap();
        let gateway = builder.env("HOME", own.join("home")).start().await;
        Self { gateway, watch, own, directory: directory.to_owned() }
    }

    /// Opens a session that names its directory in a header.
    async fn open_in(&self, directory: &Path) -> RawClient {
        let mut client =
            self.gateway.client().with_header("ringfence-workspace", directory.to_str().unwrap());
        client.open(json!({}), NEWEST).await;
        client
    }

    /// Ends a session and waits until its files are cleared away.
    async fn end(&self, client: &RawClient) {
        client.delete().await;
        wait_until("nothing of the session is left", async || {
            self.gateway.open_sessions().await == 0 && self.sessions().is_empty()
        })
        .await;
    }

    fn sessions(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.own.join("caches/ringfence/sessions")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Ends the gateway and reads what it did in the scopes and in the directories of its sessions.
    async fn finish(mut self, scopes: &[&Path]) -> WatchReport {
        self.gateway.terminate().await;
        self.report(scopes)
    }

    fn report(&self, scopes: &[&Path]) -> WatchReport {
        let own = self.own.path().canonicalize().unwrap();
        let storage = leaves(&own.join("data/ringfence-storage"), 3);
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).chain(storage);
        let writable = WritableDirectories::of(scopes).with_own(own.join("caches/ringfence"));
        self.watch.report(self.gateway.pid(), &self.directory, &writable)
    }
}

/// The directories that lie this deep, or less deep where there are none below.
fn leaves(directory: &Path, depth: usize) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path());
    let directories: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    if depth == 0 || directories.is_empty() {
        return vec![directory.to_owned()];
    }
    directories.iter().flat_map(|below| leaves(below, depth - 1)).collect()
}

/// A repository with what the gateway looks at in one: links among the kept names, configured hooks, a submodule, and a
/// file with another name outside.
fn repository(name: &str) -> Project {
    let project = Project::new(name);
    project.write("a.txt", "one\n");
    project.write("agent/settings.json", "{}");
    project.write("tools/hooks/pre-commit", "#!/bin/sh\n");
    project.write(".gitmodules", "[submodule \"lib\"]\n\tpath = deep/lib\n");
    project.write("deep/lib/.git", "gitdir: ../../.git/modules/lib\n");
    project.write("node_modules/pkg/index.js", "");
    project.git(&["init", "--quiet", "--initial-branch", "main"]);
    project.git(&["add", "a.txt", "agent"]);
    project.git(&["commit", "--quiet", "--message", "as it was"]);
    project.git(&["config", "core.hooksPath", "tools/hooks"]);
    project.write(".git/modules/lib/HEAD", "ref: refs/heads/main\n");
    std::fs::create_dir_all(project.join(".git/modules/lib/objects")).unwrap();
    symlink("agent", project.join(".claude")).unwrap();
    symlink("/etc/hostname", project.join(".envrc")).unwrap();
    symlink("deep/lib/.git", project.join(".mcp.json")).unwrap();
    project
}

async fn call(client: &RawClient, tool: &str, arguments: Value) -> Value {
    let answer = client.call_tool(tool, arguments).await;
    assert!(answer["result"].is_object() && answer["result"]["isError"] != true, "{tool}: {answer}");
    answer["result"]["structuredContent"].clone()
}

/// Uses files, commands and the diff of a session.
async fn work(client: &RawClient) {
    call(client, "write_file", json!({"path": "notes/new.txt", "contents": "x\n"})).await;
    call(client, "read_file", json!({"path": "a.txt"})).await;
    let script = "echo two >> a.txt && ln -s /etc/passwd outward && mkdir -p sub/.git && git status --short";
    call(client, "run_terminal_cmd", json!({"command": script, "wait_seconds": 45})).await;
    call(client, "session_diff", json!({})).await;
}

/// Makes a file as no fenced command can, to be found when the session ends.
fn leave_set_id_file(project: &Project) {
    project.write("sub/tool", "");
    std::fs::set_permissions(project.join("sub/tool"), std::fs::Permissions::from_mode(0o4755)).unwrap();
}

#[tokio::test]
async fn a_workspace_of_the_built_in_server_is_looked_at_through_descriptors() {
    for (tier, hardlinks) in [("b", "warn"), ("b", "protect"), ("a", "warn")] {
        let project = repository("opened-built-in");
        let outside = workspace_dir("opened-outside");
        std::fs::hard_link(project.join("node_modules/pkg/index.js"), outside.join("cache")).unwrap();
        let flags = ["--tier", tier, "--allow-root", "--hardlinks", hardlinks];
        let watched =
            Watched::start("opened-built-in", Gateway::built_in().flags(flags), &project.path).await;

        let client = watched.gateway.open().await;
        work(&client).await;
        // A session that opens while another one works there.
        let second = watched.open_in(&project.path).await;
        work_again(&second).await;
        second.delete().await;
        wait_until("one session is left", async || watched.gateway.open_sessions().await == 1).await;
        resume(&client).await;
        leave_set_id_file(&project);
        watched.end(&client).await;
        assert_eq!(project.join("sub/tool").metadata().unwrap().mode() & 0o7777, 0o755, "tier {tier}");

        let report = watched.finish(&[&project.path]).await;
        report.assert_sound();
        report.assert_saw("gateway", &["newfstatat(", "\"tool\"", "AT_SYMLINK_NOFOLLOW"]);
        if tier == "b" {
            report.assert_saw("gateway", &["mkdirat(", "\".vscode\""]);
            report.assert_saw("gateway", &["unlinkat(", "\".vscode\""]);
        }
    }
}

async fn work_again(client: &RawClient) {
    call(client, "run_terminal_cmd", json!({"command": "rm outward; git log", "wait_seconds": 45})).await;
}

/// Reads the rest of a stream after its connection was lost.
async fn resume(client: &RawClient) {
    let arguments = json!({"command": "echo resumed", "wait_seconds": 45});
    let id = client.next_id();
    let reply = client.post_tool_call(&id, "run_terminal_cmd", arguments).await;
    if reply.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream") {
        let mut events = reply.into_events();
        let _ = events.next_message().await;
        let last = events.last_event_id().unwrap().to_owned();
        drop(events);
        drop(client.get_stream(Some(&last)).await);
    }
}

#[tokio::test]
async fn a_home_that_a_server_has_used_is_furnished_through_descriptors() {
    let project = Project::new("opened-restart");
    let watched = Watched::start("opened-restart", Gateway::builder(), &project.path).await;
    let client = watched.gateway.open().await;
    client.call_tool_for_text("working_directory", json!({})).await;
    let _ = client.call_tool("crash", json!({})).await;
    client.call_tool_for_text("working_directory", json!({})).await;
    watched.end(&client).await;
    let report = watched.finish(&[&project.path]).await;
    report.assert_sound();
    report.assert_saw("gateway", &["openat(", "\".gitconfig\"", "O_NOFOLLOW"]);
}

/// A server that is started again finds its home as it left it. What it left there must not lead the gateway out.
#[tokio::test]
async fn a_link_in_the_home_of_a_restarted_server_is_not_written_through() {
    let project = Project::new("home-link");
    let outside = workspace_dir("home-link-outside");
    let victims = [outside.join("first"), outside.join("second")];
    for victim in &victims {
        std::fs::write(victim, "as it was").unwrap();
    }
    let script = format!(
        "mkdir -p ~/.config/pnpm && ln -sf {} ~/.config/pnpm/rc && ln -sf {} ~/.gitconfig; exec {}",
        victims[0].display(),
        victims[1].display(),
        fixture_binary().display()
    );
    std::fs::write(outside.join(".gitconfig"), "[user]\n\tname = Ada\n").unwrap();
    let builder =
        Gateway::builder().command(["/bin/sh", "-c", &script]).flag("--read").flag(fixture_binary());
    let builder = builder.env("HOME", outside.path()).env("XDG_CACHE_HOME", outside.join("caches"));
    let gateway = builder.current_dir(&project.path).start().await;
    let client = gateway.open().await;
    let first = client.call_tool_for_text("pid", json!({})).await;
    let _ = client.call_tool("crash", json!({})).await;
    let again = client.call_tool_for_text("environment", json!({})).await;
    assert!(again.contains("RINGFENCE_"), "it was started again after {first}: {again}");
    gateway.wait_for_log("generation=2").await;
    for victim in &victims {
        assert_eq!(std::fs::read_to_string(victim).unwrap(), "as it was", "{}", victim.display());
    }
}

/// What the operator lists is readable even if it is denied otherwise, so a session must not choose where it leads.
#[tokio::test]
async fn a_listed_path_that_a_session_swaps_for_a_link_shows_nothing_else() {
    let project = Project::new("listed-link");
    let outside = workspace_dir("listed-link-outside");
    let key = outside.path().canonicalize().unwrap().join(".ssh/id_rsa");
    std::fs::create_dir(key.parent().unwrap()).unwrap();
    std::fs::write(&key, super::SECRET).unwrap();
    let start = |listed: PathBuf| {
        let builder = Gateway::built_in().flag("--read").flag(listed).env("HOME", outside.path());
        builder.env("XDG_CACHE_HOME", outside.join("caches")).current_dir(&project.path).start()
    };
    let read = async |gateway: &Gateway| {
        let client = gateway.open().await;
        let command = format!("ln -sfn {0} data; cat {0}; true", key.display());
        let ran = call(&client, "run_terminal_cmd", json!({"command": command, "wait_seconds": 45})).await;
        client.delete().await;
        ran["output"].as_str().unwrap().contains(super::SECRET)
    };
    let gateway = start(project.join("data")).await;
    for session in 0..3 {
        assert!(!read(&gateway).await, "session {session}");
    }
    drop(gateway);
    let gateway = start(key.clone()).await;
    assert!(read(&gateway).await, "the control: the operator lists the key itself");
}

#[tokio::test]
async fn a_program_in_the_workspace_is_looked_at_through_descriptors() {
    for (tier, command) in
        [("b", ["tool/server", ""]), ("b", ["/bin/sh", "tool/server"]), ("a", ["./linked/server", ""])]
    {
        let project = Project::new("opened-program");
        std::fs::create_dir(project.join("tool")).unwrap();
        std::fs::copy(fixture_binary(), project.join("tool/fixture")).unwrap();
        project.write("tool/package.json", "{}");
        let script = format!("#!/usr/bin/env sh\nexec {}\n", project.join("tool/fixture").display());
        project.write("tool/server", script);
        std::fs::set_permissions(project.join("tool/server"), std::fs::Permissions::from_mode(0o755))
            .unwrap();
        symlink("tool", project.join("linked")).unwrap();
        let words = command.into_iter().filter(|word| !word.is_empty());
        let builder = Gateway::builder().command(words).flags(["--tier", tier, "--allow-root"]);
        let watched = Watched::start("opened-program", builder, &project.path).await;
        let client = watched.open_in(&project.path).await;
        client.call_tool_for_text("write_file", json!({"path": "new", "text": "x"})).await;
        watched.end(&client).await;
        let report = watched.finish(&[&project.path]).await;
        report.assert_sound();
        assert!(report.watched.len() > 3, "{:?}", report.watched);
    }
}

#[tokio::test]
async fn workspaces_of_several_servers_are_looked_at_through_descriptors() {
    let site = workspace_dir("opened-site");
    let project = repository("opened-several");
    std::fs::create_dir(project.join("api")).unwrap();
    std::fs::write(site.join("variables"), "NAME=value\n").unwrap();
    let fixture = |more: Value| {
        let mut server = json!({"command": [fixture_binary()]});
        server.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server
    };
    let servers = json!({
        "files": {"command": ["ringfence", "workspace", "--structured"]},
        "variables": fixture(json!({"envFile": site.join("variables")})),
        "kept": fixture(json!({"storage": "persistent", "allowedDirectories": ["{workingDirectory}", "{storage}"]})),
        "below": fixture(json!({
            "workingDirectory": "{workingDirectory}/api", "allowedDirectories": ["{workingDirectory}/api"],
        })),
        "together": fixture(json!({"lifecycle": "workspace"})),
    });
    let write = |servers: &Value| {
        std::fs::write(site.join("new.yaml"), json!({"servers": servers}).to_string()).unwrap();
        std::fs::rename(site.join("new.yaml"), site.join("ringfence.yaml")).unwrap();
    };
    write(&servers);
    let flags = ["--on-roots-change", "compare", "--config"];
    let builder = Gateway::without_command().flags(flags).flag(site.join("ringfence.yaml"));
    let watched = Watched::start("opened-several", builder, &project.path).await;

    let client = open(&watched.gateway).await;
    let exchange =
        client.call_tool_answering("variables_environment", json!({}), |_| Ok(roots(&[&project.path]))).await;
    let environment = text_of(&exchange.response);
    assert!(environment.contains(r#""NAME":"value""#), "{environment}");
    for server in ["kept", "below", "together"] {
        let directory = client.call_tool_for_text(&format!("{server}_working_directory"), json!({})).await;
        assert_eq!(directory == project.join("api").to_str().unwrap(), server == "below", "{directory}");
    }
    call(&client, "files_write_file", json!({"path": "api/new.txt", "contents": "x\n"})).await;
    // A scope inside the scope of another session.
    let inside = watched.open_in(&project.join("api")).await;
    inside.call_tool_for_text("together_write_file", json!({"path": "written", "text": "x"})).await;
    change_roots(&client, &project.join("api")).await;
    client.call_tool_for_text("kept_echo", json!({"text": "goes on"})).await;

    let mut servers = servers;
    servers["later"] = fixture(json!({}));
    write(&servers);
    wait_until("new sessions see the new file", async || {
        let client = watched.open_in(&project.path).await;
        let is_new = client.call_tool("later_echo", json!({"text": "x"})).await["result"].is_object();
        client.delete().await;
        is_new
    })
    .await;
    inside.delete().await;
    watched.end(&client).await;
    // The second session is asked for a directory below its own, which is vetted and not there.
    let report = watched.finish(&[&project.path, &project.join("api"), &project.join("api/api")]).await;
    report.assert_sound();
    report.assert_saw("launcher", &["openat2(", "RESOLVE_NO_SYMLINKS"]);
}

/// Says that the roots have changed, and answers that they are now this directory.
async fn change_roots(client: &RawClient, directory: &Path) {
    let mut events = client.listen().await;
    client.notify("notifications/roots/list_changed", None).await;
    let mut question = json!({});
    while question["method"] != "roots/list" {
        question = within_deadline("the client is asked again", events.next_message()).await.unwrap();
    }
    client.respond(&question["id"], roots(&[directory])).await;
}

#[tokio::test]
async fn what_a_killed_gateway_left_is_cleared_away_through_descriptors() {
    let project = repository("opened-killed");
    let mut watched = Watched::start("opened-killed", Gateway::built_in(), &project.path).await;
    let client = watched.gateway.open().await;
    work(&client).await;
    let left = watched.sessions();
    assert!(project.has(".vscode") && !left.is_empty());
    // A home that its owner can no longer clear without changing its rights first.
    let locked = left[0].join("home/locked/deep");
    std::fs::create_dir_all(&locked).unwrap();
    std::fs::set_permissions(locked.parent().unwrap(), std::fs::Permissions::from_mode(0o0)).unwrap();
    watched.gateway.kill().await;
    watched.report(&[&project.path]).assert_sound();

    let next =
        Watched::start_with(watched.own, "opened-killed-next", Gateway::built_in(), &project.path).await;
    // Probes of its own may have directories there.
    assert!(!project.has(".vscode") && left.iter().all(|session| !session.exists()), "{left:?}");
    let client = window_of_roots(&next, &project).await;
    next.end(&client).await;
    let report = next.finish(&[&project.path]).await;
    report.assert_sound();
    report.assert_saw("gateway", &["unlinkat(", "\".vscode\""]);
}

/// Opens a session whose roots are the project, in front of the built-in server.
async fn window_of_roots(watched: &Watched, project: &Project) -> RawClient {
    let mut client = watched.gateway.client();
    client.open(with_roots(), NEWEST).await;
    let listed =
        client.call_tool_answering("list_dir", json!({"path": "."}), |_| Ok(roots(&[&project.path]))).await;
    assert!(listed.response["result"].is_object(), "{:?}", listed.response);
    client
}

/// The control: everything that the watcher must tell, done by a program that is no gateway.
#[tokio::test]
async fn the_watcher_tells_what_is_followed_by_name() {
    const BY_NAME: [&str; 14] = [
        "os.stat(S + '/file')",
        "os.lstat(S + '/file')",
        "os.open(S + '/file', os.O_RDONLY | os.O_NOFOLLOW)",
        "os.open('file', os.O_RDONLY | os.O_NOFOLLOW)",
        "os.open('directory/inner', os.O_RDONLY | os.O_NOFOLLOW, dir_fd=D)",
        "os.open('file', os.O_RDONLY, dir_fd=D)",
        "os.chmod(S + '/file', 0o644)",
        "os.chmod('file', 0o644, dir_fd=D)",
        "os.readlink(S + '/link')",
        "os.rename(S + '/file', S + '/file')",
        "os.access(S + '/file', os.R_OK)",
        "os.truncate(S + '/file', 0)",
        "os.listdir(S + '/directory')",
        "open(O + '/link-into-scope')",
    ];
    const BY_DESCRIPTOR: [&str; 6] = [
        "os.open(S, os.O_RDONLY | os.O_NOFOLLOW)",
        "os.open('file', os.O_RDONLY | os.O_NOFOLLOW, dir_fd=D)",
        "os.stat('file', dir_fd=D, follow_symlinks=False)",
        "os.readlink('link', dir_fd=D)",
        "os.rename('file', 'file', src_dir_fd=D, dst_dir_fd=D)",
        "os.listdir(D)",
    ];
    for (statements, is_violation) in [(&BY_NAME[..], true), (&BY_DESCRIPTOR[..], false)] {
        for statement in statements {
            let found = watched_python(statement).await;
            assert_eq!(found.is_empty(), !is_violation, "{statement}: {found:?}");
        }
    }
    // A child that was not confined counts; one that has become another program does not.
    let forked = "os.waitpid(os.fork() or (os.stat(S + '/file'), os._exit(0)), 0)";
    assert!(!watched_python(forked).await.is_empty());
    let executed = "os.waitpid(os.fork() or os.execv('/bin/cat', ['cat', S + '/file']), 0)";
    assert_eq!(watched_python(executed).await, Vec::<String>::new());
}

/// Runs a statement of Python in a scope `S`, with a descriptor `D` of it, and returns the violations.
async fn watched_python(statement: &str) -> Vec<String> {
    let project = Project::new("opened-control");
    project.write("file", "x");
    project.write("directory/inner", "x");
    symlink("file", project.join("link")).unwrap();
    let outside = workspace_dir("opened-control-outside");
    symlink(project.join("file"), outside.join("link-into-scope")).unwrap();
    let watch = PathWatch::new("opened-control");
    let program = format!(
        "import os\nprint(os.getpid(), flush=True)\nS, O = '{}', '{}'\n\
         D = os.open(S, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)\n{statement}\n",
        project.path.display(),
        outside.path().display()
    );
    let words = watch.command();
    let output = tokio::process::Command::new(&words[0])
        .args(&words[1..])
        .arg(python_binary())
        .args(["-I", "-S", "-c", &program])
        .current_dir(&project.path)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{statement}: {output:?}");
    let pid = String::from_utf8(output.stdout).unwrap().lines().next().unwrap().parse().unwrap();
    watch.report(pid, &project.path, &WritableDirectories::of([project.path.clone()])).violations
}
