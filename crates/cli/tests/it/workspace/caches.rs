//! What package managers download in a session is there for the next session of the same workspace, and for no other.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{
    Gateway, GatewayBuilder, NEWEST, Project, RawClient, WorkspaceDir, ringfence_binary, workspace_dir,
};

/// A gateway whose kept caches are in a directory of the test.
pub(super) fn built_in(own: &WorkspaceDir) -> GatewayBuilder {
    Gateway::built_in().env("XDG_CACHE_HOME", own.join("caches"))
}

async fn open_in(gateway: &Gateway, project: &Project) -> RawClient {
    let mut client = gateway.client().with_header("ringfence-workspace", project.path.to_str().unwrap());
    client.open(json!({}), NEWEST).await;
    client
}

/// Runs a command in a session of its own, and returns what it printed.
pub(super) async fn run_in_session(gateway: &Gateway, project: &Project, command: &str) -> String {
    let client = open_in(gateway, project).await;
    let printed = run(&client, command).await;
    client.delete().await;
    printed
}

pub(super) async fn run(client: &RawClient, command: &str) -> String {
    let arguments = json!({"command": format!("{{ {command}; }} 2>&1"), "wait_seconds": 45});
    let answer = client.call_tool("run_terminal_cmd", arguments).await;
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn crate_with_dependency(name: &str) -> Project {
    let project = Project::new(name);
    project.write(
        "Cargo.toml",
        "[workspace]\n[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nitoa = \"=1.0.15\"\n",
    );
    project.write("src/main.rs", "fn main() { println!(\"{}\", itoa::Buffer::new().format(7)); }\n");
    project
}

/// Builds outside any fence, as the user does.
fn build_outside(project: &Project) -> String {
    let output = Command::new("cargo")
        .args(["build", "-v"])
        .current_dir(&project.path)
        .env_remove("CARGO_HOME")
        .output();
    let output = output.unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    printed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_inside_and_the_users_own_do_not_undo_each_other() {
    let own = workspace_dir("caches-target");
    let project = crate_with_dependency("caches-target");
    let gateway = built_in(&own).start().await;
    assert!(build_outside(&project).contains("Compiling itoa"), "the control: the first build compiles");
    let inside = run_in_session(&gateway, &project, "cargo build -v && target/debug/tiny").await;
    assert!(inside.contains("Fresh itoa") && !inside.contains("Compiling"), "{inside}");
    // What is built inside is good outside.
    std::fs::remove_dir_all(project.join("target")).unwrap();
    let inside = run_in_session(&gateway, &project, "cargo build -v").await;
    assert!(inside.contains("Compiling itoa"), "{inside}");
    let outside = build_outside(&project);
    assert!(outside.contains("Fresh itoa") && !outside.contains("Compiling"), "{outside}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_session_downloads_nothing_and_another_project_finds_nothing() {
    let own = workspace_dir("caches-second");
    let (project, other) = (crate_with_dependency("caches-second"), crate_with_dependency("caches-other"));
    // The user has downloaded nothing.
    let cargo_home = directory_in(&own, "cargo-home");
    let mut gateway = built_in(&own).env("CARGO_HOME", &cargo_home).start().await;
    let first = run_in_session(&gateway, &project, "cargo fetch").await;
    assert!(first.contains("Downloaded itoa"), "{first}");
    gateway.terminate().await;
    other.write("Cargo.lock", project.bytes("Cargo.lock"));
    // Also after a restart of the gateway.
    let gateway = built_in(&own).env("CARGO_HOME", &cargo_home).flags(["--net", "none"]).start().await;
    let second = run_in_session(&gateway, &project, "cargo build --offline && target/debug/tiny").await;
    assert!(second.contains("Finished") && second.contains('7'), "{second}");
    let elsewhere = run_in_session(&gateway, &other, "cargo build --offline").await;
    assert!(!elsewhere.contains("Finished") && elsewhere.contains("itoa"), "{elsewhere}");
}

fn directory_in(own: &WorkspaceDir, name: &str) -> PathBuf {
    std::fs::create_dir_all(own.join(name)).unwrap();
    own.join(name).canonicalize().unwrap()
}

/// Runs the user's own program in a project, with a cache of the test.
fn run_outside(project: &Project, command: &[&str], (variable, cache): (&str, &PathBuf)) {
    let mut outside = Command::new(command[0]);
    let output =
        outside.args(&command[1..]).current_dir(&project.path).env(variable, cache).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn crates_that_the_user_has_are_not_downloaded_again() {
    let own = workspace_dir("caches-users-crates");
    let project = crate_with_dependency("caches-users-crates");
    let cargo_home = directory_in(&own, "cargo-home");
    run_outside(&project, &["cargo", "fetch"], ("CARGO_HOME", &cargo_home));
    for tier in ["a", "b"] {
        let build_with = async |name: &str, home: &PathBuf| {
            let caches = directory_in(&own, &format!("{name}-{tier}"));
            let gateway = built_in(&own).env("XDG_CACHE_HOME", caches).env("CARGO_HOME", home);
            let gateway = gateway.flags(["--net", "none", "--allow-root", "--tier", tier]).start().await;
            run_in_session(&gateway, &project, "cargo build --offline && target/debug/tiny").await
        };
        let without = build_with("without", &directory_in(&own, "empty")).await;
        assert!(!without.contains("Finished"), "the control: it is needed: {without}");
        let with = build_with("with", &cargo_home).await;
        assert!(with.contains("Finished") && with.contains('7'), "{with}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_of_npm_that_the_user_has_are_not_downloaded_again() {
    let own = workspace_dir("caches-users-npm");
    let project = Project::new("caches-users-npm");
    project.write(
        "package.json",
        r#"{"name": "tiny", "version": "1.0.0", "dependencies": {"is-number": "7.0.0"}}"#,
    );
    let cache = directory_in(&own, "npm-cache");
    // Without the addresses npm would ask the registry for them.
    let install = ["npm", "install", "--no-audit", "--no-fund", "--no-omit-lockfile-registry-resolved"];
    run_outside(&project, &install, ("NPM_CONFIG_CACHE", &cache));
    let install_with = async |name: &str, cache: PathBuf| {
        let gateway = built_in(&own).env("XDG_CACHE_HOME", directory_in(&own, name));
        let gateway = gateway.env("NPM_CONFIG_CACHE", cache).flags(["--net", "none"]).start().await;
        let install = "rm -rf node_modules; npm ci --offline --no-audit --no-fund; ls node_modules";
        run_in_session(&gateway, &project, install).await
    };
    let without = install_with("without", directory_in(&own, "empty")).await;
    assert!(without.contains("ENOTCACHED"), "the control: it is needed: {without}");
    let with = install_with("with", cache).await;
    assert!(with.contains("added 1 package") && with.contains("is-number"), "{with}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_users_own_cargo_home_is_neither_changed_nor_shown() {
    let own = workspace_dir("caches-home");
    let project = Project::new("caches-home");
    let home = own.join("home");
    std::fs::create_dir_all(home.join(".cargo/bin")).unwrap();
    std::fs::write(home.join(".cargo/credentials.toml"), "token-of-the-user").unwrap();
    std::fs::write(home.join(".cargo/bin/tool"), "").unwrap();
    std::fs::write(home.join(".cargo/config.toml"), "[build]\njobs = 3\n").unwrap();
    let home = home.canonicalize().unwrap();
    let start = || built_in(&own).env("HOME", &home).env_remove("CARGO_HOME").start();
    let gateway = start().await;
    let script = "echo at $CARGO_HOME; cat $CARGO_HOME/credentials.toml; cat $CARGO_HOME/config.toml; \
                  echo x > $CARGO_HOME/mine; echo x > $CARGO_HOME/bin/evil; ls $CARGO_HOME/bin";
    let printed = run_in_session(&gateway, &project, script).await;
    let at = format!("at {}", home.join(".cargo").display());
    assert!(printed.contains(&at) && printed.contains("jobs = 3") && printed.contains("tool"), "{printed}");
    assert!(!printed.contains("token-of-the-user") && printed.contains("Read-only"), "{printed}");
    assert!(!home.join(".cargo/mine").exists() && !home.join(".cargo/bin/evil").exists());
    let kept = run_in_session(&gateway, &project, "cat $CARGO_HOME/mine").await;
    assert!(kept.contains('x') && !kept.contains("No such file"), "the control: it is kept inside: {kept}");
    // Settings that may hold a key are not shown.
    std::fs::write(home.join(".cargo/config.toml"), "[registry]\ntoken = \"token-of-the-user\"\n").unwrap();
    let hidden = run_in_session(&gateway, &project, "cat $CARGO_HOME/config.toml; true").await;
    assert!(!hidden.contains("token-of-the-user"), "{hidden}");
}

/// A session must not choose what is mounted, or what ringfence writes, by what it leaves in its caches.
#[tokio::test(flavor = "multi_thread")]
async fn links_that_a_session_left_in_its_caches_lead_nothing_outside() {
    let own = workspace_dir("caches-links");
    let (project, outside) = (Project::new("caches-links"), workspace_dir("caches-links-outside"));
    let home = own.join("home");
    std::fs::create_dir_all(home.join(".cargo/bin")).unwrap();
    std::fs::write(home.join(".cargo/config.toml"), "[build]\njobs = 3\n").unwrap();
    let home = home.canonicalize().unwrap();
    let victim = outside.path().canonicalize().unwrap().join("victim");
    std::fs::write(&victim, "as it was").unwrap();
    let gateway = built_in(&own).env("HOME", &home).env_remove("CARGO_HOME").start().await;
    let script = format!(
        "cd $XDG_CACHE_HOME && rm -rf cargo/config.toml && ln -s {0} cargo/config.toml && \
         ln -sfn {1} escaped && mv cargo away && ln -s {1} cargo && ls -l",
        victim.display(),
        outside.path().display()
    );
    let printed = run_in_session(&gateway, &project, &script).await;
    assert!(printed.contains("cargo ->"), "the control: the links were made: {printed}");
    let after = run_in_session(&gateway, &project, "echo x > $CARGO_HOME/file && ls $CARGO_HOME").await;
    assert!(after.contains("file"), "{after}");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "as it was");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1, "nothing was made there");
}

#[tokio::test(flavor = "multi_thread")]
async fn caches_are_listed_and_cleared_by_command_and_can_be_declined() {
    let own = workspace_dir("caches-command");
    let project = Project::new("caches-command");
    let cache = |arguments: &[&str]| -> Value {
        let mut command = Command::new(ringfence_binary());
        command.args(["cache", "workspaces", "--json"]).args(arguments);
        let output = command.env("XDG_CACHE_HOME", own.join("caches")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let leave = "head -c 100000 /dev/zero > $XDG_CACHE_HOME/left; true";
    let look = "cat $XDG_CACHE_HOME/left | wc -c";
    let mut gateway = built_in(&own).flags(["--caches", "session"]).start().await;
    run_in_session(&gateway, &project, leave).await;
    assert_eq!(cache(&[]), json!([]), "declined");
    gateway.terminate().await;

    let gateway = built_in(&own).start().await;
    let client = open_in(&gateway, &project).await;
    run(&client, leave).await;
    let listed = cache(&[project.path.to_str().unwrap()]);
    assert_eq!(listed[0]["workspace"], project.path.to_str().unwrap());
    assert!(listed[0]["bytes"].as_u64().unwrap() >= 100_000 && listed[0]["in_use"] == true, "{listed}");
    assert_eq!(cache(&["--clear"])[0]["removed"], false, "a session uses them");
    assert!(run(&client, look).await.contains("100000"));
    client.delete().await;
    testkit::wait_until("the session has ended", async || cache(&[])[0]["in_use"] == false).await;
    assert!(run_in_session(&gateway, &project, look).await.contains("100000"), "they are kept");
    testkit::wait_until("the session has ended", async || cache(&[])[0]["in_use"] == false).await;
    assert_eq!(cache(&["--clear"])[0]["removed"], true);
    assert_eq!(cache(&[]), json!([]));
    let again = run_in_session(&gateway, &project, look).await;
    assert!(!again.contains("100000"), "{again}");
    // A session that may only read leaves nothing for one that may write.
    let read_only = built_in(&own).flag("--read-only").start().await;
    run_in_session(&read_only, &project, leave).await;
    assert!(!run_in_session(&gateway, &project, look).await.contains("100000"));
}

/// The same place for tools whose paths end up in what they build.
#[tokio::test(flavor = "multi_thread")]
async fn caches_have_the_same_path_in_every_session_of_a_workspace() {
    let own = workspace_dir("caches-path");
    let project = Project::new("caches-path");
    let gateway = built_in(&own).start().await;
    let script = "echo $NPM_CONFIG_CACHE $UV_CACHE_DIR $UV_PYTHON_INSTALL_DIR $GOPATH $GRADLE_USER_HOME $PIP_CACHE_DIR";
    let first = run_in_session(&gateway, &project, script).await;
    let second = run_in_session(&gateway, &project, script).await;
    let places = |printed: &str| -> Vec<PathBuf> {
        let line = printed.lines().find(|line| line.contains("/npm")).unwrap_or_else(|| panic!("{printed}"));
        line.split_whitespace().map(PathBuf::from).collect()
    };
    assert_eq!(places(&first), places(&second));
    assert!(
        places(&first).iter().all(|place| place.starts_with(own.join("caches/ringfence/caches"))),
        "{first}"
    );
}
