//! Packages of npx and uvx: installed once, found again without a registry, and executed in fences that can read but
//! not alter them.

use std::ffi::OsStr;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use rustix::fs::FlockOperation;
use serde_json::{Value, json};
use testkit::{
    PipedProcess, WorkspaceDir, parts_dir, python_binary, ringfence_binary, wait_until, workspace_dir,
};
use tokio::process::Command;

use super::registry::{NpmContents, Registry};
use crate::fence::programs::fenced_run::{npm_registry, pip_index};

/// No server listens on the port "discard".
const DEAD_REGISTRY: &str = "http://127.0.0.1:9/";
const SMALL: &str = "semver@7.6.3";

/// A directory for ringfence's caches that only one test uses, and the registries of this machine or of the test.
pub(super) struct Cache {
    pub(super) directory: WorkspaceDir,
    npm_registry: String,
    pip_index: String,
}

impl Cache {
    async fn new(name: &str) -> Self {
        Self::with(name, npm_registry().await, pip_index().await)
    }

    pub(super) fn of(name: &str, registry: &Registry) -> Self {
        Self::with(name, registry.npm_url(), registry.python_url())
    }

    fn with(name: &str, npm_registry: String, pip_index: String) -> Self {
        let directory = workspace_dir(name);
        std::fs::create_dir(directory.join("scope")).unwrap();
        Self { directory, npm_registry, pip_index }
    }

    fn ringfence(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(ringfence_binary());
        command
            .args(arguments)
            .env("XDG_CACHE_HOME", self.directory.join("caches"))
            .env("NPM_CONFIG_REGISTRY", &self.npm_registry)
            .env("UV_DEFAULT_INDEX", &self.pip_index)
            .current_dir(self.directory.join("scope"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub(super) fn cache(&self, words: &[&str]) -> Command {
        self.ringfence([&["cache"], words].concat())
    }

    pub(super) async fn json(&self, words: &[&str]) -> Value {
        told(&self.cache(words).output().await.unwrap())
    }

    /// The installed generations of all packages.
    pub(super) fn generations(&self) -> Vec<PathBuf> {
        let packages = self.directory.join("caches/ringfence/packages");
        let directories = |path: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
        };
        let mut found: Vec<PathBuf> =
            directories(&packages).iter().flat_map(|package| directories(package)).collect();
        found.sort();
        found
    }

    /// The numbers of the generations, if there is only one package.
    pub(super) fn numbers(&self) -> Vec<String> {
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        self.generations().iter().map(name).collect()
    }

    fn assert_nothing_is_left(&self) {
        let entries = std::fs::read_dir(self.directory.join("caches/ringfence/packages")).unwrap();
        assert_eq!(entries.count(), 0, "packages and locks are gone");
    }
}

/// The JSON that a command printed, which must have succeeded.
pub(super) fn told(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

pub(super) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(super) fn path(value: &Value) -> PathBuf {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a path")).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installed_package_needs_no_registry() {
    let cache = Cache::new("packages-offline").await;
    let add = ["add", "--json", "--", "npx", "-y", SMALL, "1.2.3"];
    let first = cache.json(&add).await;
    assert_eq!(first["arguments"], json!(["1.2.3"]));
    let output = Command::new(path(&first["program"])).arg("1.2.3").output().await.unwrap();
    assert_eq!(output.stdout, b"1.2.3\n");

    let listed = cache.json(&["list", "--json"]).await;
    assert_eq!((&listed[0]["package"], &listed[0]["tool"]), (&json!(SMALL), &json!("npx")));
    assert_eq!(listed[0]["program"], first["program"]);
    assert!(listed[0]["bytes"].as_u64().unwrap() > 10_000, "{listed}");

    let again = cache.cache(&add).env("NPM_CONFIG_REGISTRY", DEAD_REGISTRY).output().await.unwrap();
    assert_eq!(told(&again)["program"], first["program"]);
    let without_network = ["add", "--json", "--net", "none", "--", "npx", "-y", SMALL];
    assert_eq!(cache.json(&without_network).await["program"], first["program"]);

    let _ = cache.cache(&["clear", "semver"]).output().await.unwrap();
    assert_eq!(cache.json(&["list", "--json"]).await, json!([]));
    cache.assert_nothing_is_left();
    // The control: a package that is not installed needs the registry.
    let missing = cache.cache(&add).env("NPM_CONFIG_REGISTRY", DEAD_REGISTRY).output().await.unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("hint: the last words of npm were:"), "{}", stderr(&missing));
    assert!(stderr(&missing).contains("ECONNREFUSED"), "{}", stderr(&missing));
    let missing = cache.cache(&without_network).output().await.unwrap();
    assert!(stderr(&missing).contains("the network is off\nhint: "), "{}", stderr(&missing));
    cache.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_installed_is_said() {
    let cache = Cache::new("packages-refused").await;
    let cases: [(&[&str], i32, &str); 4] = [
        (&["add", "--", "npx", "-y", "./here"], 2, "hint: write npx -y PACKAGE"),
        (&["add", "--", "npx", "-y", "lodash@4.17.21"], 1, "has no program"),
        (&["add", "--", "npx", "-y", "-p", SMALL, "other"], 1, "PROGRAM): semver"),
        (&["clear", "nothing"], 1, "ringfence cache list"),
    ];
    for (words, code, expected) in cases {
        let output = cache.cache(words).output().await.unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(stderr(&output).contains(expected), "{words:?}: {}", stderr(&output));
    }
    cache.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_installs_while_others_wait_and_what_was_interrupted_is_done_again() {
    let cache = Cache::new("packages-interrupted").await;
    // This registry accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let registry = format!("http://{}/", silent.local_addr().unwrap());
    let add = ["add", "--json", "--", "npx", "-y", SMALL];
    let mut stuck = cache.cache(&add).env("NPM_CONFIG_REGISTRY", registry).spawn().unwrap();
    wait_until("the first one installs", async || cache.numbers() == ["1"]).await;
    let mut others: Vec<PipedProcess> = (0..2).map(|_| PipedProcess::start(&mut cache.cache(&add))).collect();
    for other in &mut others {
        let line = first_line(&mut other.stderr).await;
        assert_eq!(line, format!("ringfence: waiting for {SMALL}, which is being installed already"));
    }
    assert_eq!(cache.numbers(), ["1"]);
    let unfinished = cache.generations().remove(0);
    std::fs::write(unfinished.join("tree/left"), "").unwrap();

    stuck.start_kill().unwrap();
    stuck.wait().await.unwrap();
    let mut programs = Vec::new();
    for other in &mut others {
        programs.push(path(&other.read().await["program"]));
    }
    assert_eq!(programs[0], programs[1], "one installed, the other found it");
    assert!(programs[0].is_file() && cache.generations().len() == 1);
    assert!(!unfinished.join("tree/left").exists());
}

async fn first_line(stream: &mut tokio::process::ChildStderr) -> String {
    use tokio::io::AsyncBufReadExt;
    let mut line = String::new();
    let read = async { tokio::io::BufReader::new(stream).read_line(&mut line).await };
    testkit::within_deadline("it says something", read).await.unwrap();
    line.trim_end().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_keeps_what_is_in_use() {
    let registry = Registry::start();
    let cache = Cache::of("packages-refresh", &registry);
    registry.publish("greeter", "1.0.0", &NpmContents::default());
    cache.json(&["add", "--json", "--", "npx", "-y", "greeter"]).await;
    let in_use = cache.generations().remove(0);
    // Lock the generation as a gateway does that runs the package.
    let lease = File::open(in_use.join("complete")).unwrap();
    rustix::fs::flock(&lease, FlockOperation::LockShared).unwrap();
    for number in ["2", "3", "4"] {
        registry.publish("greeter", &format!("{number}.0.0"), &NpmContents::default());
        let refreshed = cache.json(&["refresh", "--json", "greeter"]).await;
        let directory = path(&refreshed[0]["directory"]);
        assert!(directory.ends_with(format!("{number}/tree")), "{refreshed}");
    }
    assert_eq!(cache.numbers(), ["1", "3", "4"]);
    let refused = cache.cache(&["refresh", "--net", "none"]).output().await.unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert_eq!(cache.numbers(), ["1", "3", "4"]);

    assert_eq!(cache.json(&["clear", "--json"]).await, json!([{"package": "greeter", "removed": false}]));
    assert_eq!(cache.numbers(), ["1"]);
    drop(lease);
    assert_eq!(cache.json(&["clear", "--json"]).await, json!([{"package": "greeter", "removed": true}]));
    cache.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_takes_the_network_of_the_operator() {
    let cache = Cache::new("packages-proxy").await;
    let rest = cache.npm_registry.split_once("://").unwrap().1;
    let host = rest.split(['/', ':']).next().unwrap();
    let command = ["--json", "--", "npx", "-y", SMALL];
    let elsewhere = ["add", "--net", "http", "--allow-host", "elsewhere.example"];
    let refused = cache.cache(&[&elsewhere[..], &command].concat()).output().await.unwrap();
    assert!(stderr(&refused).contains("403"), "{}", stderr(&refused));
    let allowed = ["add", "--net", "http", "--allow-host", host];
    assert!(path(&cache.json(&[&allowed[..], &command].concat()).await["program"]).is_file());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_install_script_reaches_nothing_but_its_tree() {
    for tier in ["a", "b"] {
        let registry = Registry::start();
        let cache = Cache::of("packages-greedy", &registry);
        let (outside, secret) = (cache.directory.join("outside"), cache.directory.join("secret"));
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(&secret, "a secret file").unwrap();
        // The script runs in `tree/node_modules/greedy`; the marker `complete` and the lock are beside `tree`.
        let script = format!(
            "echo found > found; env | grep 'a secret' >> found; cat {} >> found; \
             echo x > {}/written; echo x > ../../../written; echo x > ../../../complete; \
             echo x > ../../../lock; true\n",
            secret.display(),
            outside.display()
        );
        registry.publish(
            "greedy",
            "1.0.0",
            &NpmContents { postinstall: Some(&script), ..NpmContents::default() },
        );
        let options = ["add", "--json", "--allow-install-scripts", "--tier", tier, "--allow-root"];
        let mut add = cache.cache(&[&options[..], &["--", "npx", "-y", "greedy"]].concat());
        add.env("API_TOKEN", "a secret variable");
        let added = told(&add.output().await.unwrap());
        let tree = path(&added["readable"][0]);
        let package = tree.join("node_modules/greedy");
        assert_eq!(std::fs::read_to_string(package.join("found")).unwrap(), "found\n", "tier {tier}");
        assert!(!outside.join("written").exists() && !tree.join("../written").exists(), "tier {tier}");
        assert_eq!(cache.json(&["list", "--json"]).await[0]["package"], "greedy");

        // The control: without the fence the same script succeeds.
        let mut unfenced = Command::new("sh");
        unfenced.arg("postinstall.sh").current_dir(&package).env("API_TOKEN", "a secret variable");
        assert!(unfenced.status().await.unwrap().success());
        let found = std::fs::read_to_string(package.join("found")).unwrap();
        assert!(found.contains("a secret variable") && found.contains("a secret file"), "{found}");
        assert!(outside.join("written").exists() && tree.join("../written").exists());
        assert_eq!(cache.json(&["list", "--json"]).await, json!([]), "the marker is spoilt");
    }
}

/// Asserts that an installed server answers from inside a fence, which can neither write its tree nor read another
/// package, in each tier and read mode.
async fn answers_read_only(cache: &Cache, command: &[&str]) {
    let other = cache.json(&["add", "--json", "--", "npx", "-y", SMALL]).await;
    let other = path(&other["readable"][0]);
    for tier in ["a", "b"] {
        let add = ["add", "--json", "--tier", tier, "--allow-root", "--"];
        let installed = cache.json(&[&add[..], command].concat()).await;
        let tree = path(&installed["readable"][0]);
        for mode in ["strict", "open"] {
            let mut options: Vec<String> =
                ["run", "--allow-root", "--net", "none", "--tier", tier, "--read-mode", mode]
                    .map(str::to_owned)
                    .into();
            for readable in installed["readable"].as_array().unwrap() {
                options.extend(["--read".to_owned(), readable.as_str().unwrap().to_owned()]);
            }
            options.push("--".to_owned());
            let run = |words: Vec<String>| cache.ringfence([options.clone(), words].concat());

            let mut words = vec![installed["program"].as_str().unwrap().to_owned()];
            let arguments = installed["arguments"].as_array().unwrap();
            words.extend(arguments.iter().map(|word| word.as_str().unwrap().to_owned()));
            assert_initializes(&mut run(words), &format!("tier {tier}, {mode}")).await;

            let attempts = format!(
                "echo x > {0}/written; cat {0}/../complete {1}/package.json",
                tree.display(),
                other.display()
            );
            let sh = |script: &str| vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()];
            let output = run(sh(&attempts)).output().await.unwrap();
            assert_eq!(output.stdout, b"", "tier {tier}, {mode}: {output:?}");
            assert!(!output.status.success() && !tree.join("written").exists(), "{output:?}");
            // The control: without the fence the same command succeeds.
            let output = Command::new("sh").args(["-c", &attempts]).output().await.unwrap();
            assert!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
            std::fs::remove_file(tree.join("written")).unwrap();
        }
    }
}

async fn assert_initializes(command: &mut Command, what: &str) {
    let mut server = PipedProcess::start(command);
    let parameters = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters});
    server.send(&initialize).await;
    let answer = server.read().await;
    assert!(answer["result"]["capabilities"].is_object(), "{what}: {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_npm_answers_from_a_tree_that_it_cannot_write() {
    let cache = Cache::new("packages-npm").await;
    answers_read_only(&cache, &["npx", "-y", "@modelcontextprotocol/server-everything", "stdio"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_python_answers_from_a_tree_that_it_cannot_write() {
    let cache = Cache::new("packages-python").await;
    let (uvx, python) = (parts_dir().join("venv/bin/uvx"), python_binary());
    let (uvx, python) = (uvx.to_str().unwrap(), python.to_str().unwrap());
    let command = [uvx, "--python", python, "mcp-server-time", "--local-timezone", "UTC"];
    answers_read_only(&cache, &command).await;
    let listed = cache.json(&["list", "--json"]).await;
    let python = listed.as_array().unwrap().iter().find(|package| package["tool"] == "uvx").unwrap();
    let compiled = Command::new("find")
        .arg(path(&python["directory"]))
        .args(["-path", "*mcp_server_time*", "-name", "*.pyc"])
        .output()
        .await
        .unwrap();
    assert!(!compiled.stdout.is_empty(), "the fenced program could not compile it later");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_program_runs() {
    let cache = Cache::new("packages-native").await;
    let added = cache.json(&["add", "--json", "--", "npx", "-y", "esbuild@0.25.0"]).await;
    let readable = path(&added["readable"][0]);
    let mut run = cache.ringfence(["run", "--net", "none", "--read-mode", "strict", "--read"]);
    run.arg(readable).arg("--").arg(path(&added["program"])).arg("--version");
    let output = run.output().await.unwrap();
    assert_eq!(output.stdout, b"0.25.0\n", "{output:?}");
}
