//! Packages stay what they were when they were installed: version and hashes are kept in a lock, lost files come back
//! from it or not at all, only a refresh changes them, and their code does not run when they are installed.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{Gateway, GatewayBuilder, NEWEST, RawClient, parts_dir, python_binary};
use tokio::process::Command;

use super::packages::{Cache, path, stderr, told};
use super::registry::{NpmContents, Registry};

const PLAIN: NpmContents<'_> = NpmContents { dependencies: &[], postinstall: None, text: "" };

/// Adds the package of a command, and returns what the list then says of it.
async fn added(cache: &Cache, options: &[&str], command: &[&str]) -> Value {
    told(&cache.cache(&[&["add", "--json"], options, &["--"], command].concat()).output().await.unwrap());
    listed(cache).await
}

/// The only package of the list.
async fn listed(cache: &Cache) -> Value {
    let listed = cache.json(&["list", "--json"]).await;
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    listed[0].clone()
}

/// The standard error of an addition that must fail.
async fn refused(cache: &Cache, options: &[&str], command: &[&str]) -> String {
    let output = cache.cache(&[&["add"], options, &["--"], command].concat()).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    stderr(&output)
}

/// A command that launches a Python package.
fn uvx(package: &str) -> Vec<String> {
    let words = [parts_dir().join("venv/bin/uvx"), "--python".into(), python_binary(), package.into()];
    words.into_iter().map(|word| word.into_os_string().into_string().unwrap()).collect()
}

fn borrowed(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

async fn printed(program: &Value, arguments: &[&str]) -> String {
    let output = Command::new(path(program)).args(arguments).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn remove_tree(package: &Value) {
    std::fs::remove_dir_all(path(&package["directory"])).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_is_listed_with_its_version_and_its_hash() {
    let registry = Registry::start();
    let cache = Cache::of("pinned-list", &registry);
    registry.publish("helper", "2.3.4", &PLAIN);
    let integrity =
        registry.publish("greeter", "1.2.3", &NpmContents { dependencies: &[("helper", "*")], ..PLAIN });
    let found = added(&cache, &[], &["npx", "-y", "greeter@^1"]).await;
    assert_eq!((&found["name"], &found["package"]), (&json!("greeter"), &json!("greeter@^1")));
    assert_eq!((&found["version"], &found["integrity"]), (&json!("1.2.3"), &json!([integrity])));
    assert_eq!((&found["packages"], &found["install_scripts_ran"]), (&json!(2), &json!(false)));
    let installer = found["installer"].as_str().unwrap();
    assert!(installer.starts_with("npm ") && installer.contains('.'), "{installer}");
    assert!(found["installed_at"].as_u64().unwrap() > 1_700_000_000, "{found}");
    let text = cache.cache(&["list"]).output().await.unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("greeter@^1  1.2.3  ") && text.contains(&integrity), "{text}");
    told(&cache.cache(&["clear", "--json"]).output().await.unwrap());

    let wheel = registry.publish_wheel("snake", "0.5", "hello");
    let found = added(&cache, &[], &borrowed(&uvx("snake"))).await;
    assert_eq!((&found["version"], &found["integrity"]), (&json!("0.5"), &json!([wheel])));
    assert!(found["installer"].as_str().unwrap().starts_with("uv 0."), "{found}");
    assert_eq!(printed(&found["program"], &[]).await, "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_files_of_npm_come_back_as_the_lock_says_or_not_at_all() {
    let registry = Registry::start();
    let cache = Cache::of("pinned-npm", &registry);
    let command = ["npx", "-y", "greeter"];
    registry.publish("helper", "1.0.0", &PLAIN);
    registry.publish("greeter", "1.0.0", &NpmContents { dependencies: &[("helper", "*")], ..PLAIN });
    let first = added(&cache, &[], &command).await;
    registry.publish("helper", "1.1.0", &PLAIN);
    registry.publish("greeter", "1.1.0", &NpmContents { dependencies: &[("helper", "*")], ..PLAIN });

    remove_tree(&first);
    let again = added(&cache, &[], &command).await;
    assert_eq!((&again["version"], &again["integrity"]), (&first["version"], &first["integrity"]));
    assert_ne!(again["directory"], first["directory"]);
    assert_eq!(printed(&again["program"], &["version"]).await, "1.0.0");
    let helper = path(&again["directory"]).join("node_modules/helper/package.json");
    assert!(std::fs::read_to_string(&helper).unwrap().contains("\"1.0.0\""));
    // Damage that leaves the program in its place is found, too.
    std::fs::remove_file(&helper).unwrap();
    let third = added(&cache, &[], &command).await;
    assert!(path(&third["directory"]).join("node_modules/helper/package.json").is_file());
    assert_eq!(third["version"], "1.0.0");

    // The attack: another archive under the same version.
    let original = registry.archive("helper", "1.0.0");
    registry.set_archive("helper", "1.0.0", registry.archive("helper", "1.1.0"));
    remove_tree(&third);
    let error = refused(&cache, &[], &command).await;
    assert!(error.contains("does not have the hash that the lock says\nhint: "), "{error}");
    assert!(error.contains("EINTEGRITY"), "{error}");
    assert_eq!(listed(&cache).await["version"], "1.0.0", "the lock stays");
    // The control: the original archive is installed.
    registry.set_archive("helper", "1.0.0", original);
    let back = added(&cache, &[], &command).await;
    assert_eq!(printed(&back["program"], &["version"]).await, "1.0.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_files_of_python_come_back_as_the_lock_says_or_not_at_all() {
    let registry = Registry::start();
    let cache = Cache::of("pinned-python", &registry);
    let command = uvx("snake");
    let command = borrowed(&command);
    registry.publish_wheel("snake", "1.0", "original");
    let first = added(&cache, &[], &command).await;
    registry.publish_wheel("snake", "1.1", "newer");
    remove_tree(&first);
    let again = added(&cache, &[], &command).await;
    assert_eq!((&again["version"], &again["integrity"]), (&json!("1.0"), &first["integrity"]));
    assert_eq!(printed(&again["program"], &[]).await, "original");

    // The attack: another file under the same version.
    registry.publish_wheel("snake", "1.0", "replaced");
    remove_tree(&again);
    let error = refused(&cache, &[], &command).await;
    assert!(error.contains("does not have the hash that the lock says\nhint: "), "{error}");
    assert_eq!(listed(&cache).await["version"], "1.0", "the lock stays");
    // The control: the original file is installed.
    registry.publish_wheel("snake", "1.0", "original");
    let back = added(&cache, &[], &command).await;
    assert_eq!(printed(&back["program"], &[]).await, "original");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_stays_until_it_is_refreshed() {
    for package in ["greeter", "greeter@latest", "greeter@^1"] {
        let registry = Registry::start();
        let cache = Cache::of("pinned-floating", &registry);
        let command = ["npx", "-y", package];
        registry.publish("greeter", "1.0.0", &PLAIN);
        let first = added(&cache, &[], &command).await;
        registry.publish("greeter", "1.1.0", &PLAIN);
        assert_eq!(added(&cache, &[], &command).await["directory"], first["directory"], "{package}");

        let dry = cache.json(&["refresh", "--dry-run", "--json"]).await;
        assert_eq!((&dry[0]["from"], &dry[0]["to"]), (&json!("1.0.0"), &json!("1.1.0")), "{package}");
        assert_eq!((&dry[0]["outcome"], &dry[0]["directory"]), (&json!("outdated"), &Value::Null));
        assert_eq!(listed(&cache).await["version"], "1.0.0", "{package}");
        assert_eq!(cache.numbers(), ["1"], "{package}");

        let refreshed = cache.cache(&["refresh", "greeter"]).output().await.unwrap();
        let text = String::from_utf8(refreshed.stdout).unwrap();
        assert!(text.contains(&format!("npx  {package}  1.0.0 → 1.1.0  installed")), "{text}");
        assert_eq!(added(&cache, &[], &command).await["version"], "1.1.0", "{package}");
        let again = cache.json(&["refresh", "--json"]).await;
        assert_eq!(again[0]["outcome"], "unchanged");
        assert_eq!(cache.numbers(), ["1", "2"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_shows_what_changed() {
    let registry = Registry::start();
    let cache = Cache::of("pinned-changes", &registry);
    for name in ["stays", "goes", "comes", "grows"] {
        registry.publish(name, "1.0.0", &PLAIN);
    }
    let before = [("stays", "*"), ("goes", "*"), ("grows", "*")];
    registry.publish("greeter", "1.0.0", &NpmContents { dependencies: &before, ..PLAIN });
    added(&cache, &[], &["npx", "-y", "greeter"]).await;
    let after = [("stays", "*"), ("comes", "*"), ("grows", "*")];
    registry.publish("grows", "2.0.0", &NpmContents { postinstall: Some("true"), ..PLAIN });
    registry.publish("greeter", "1.0.1", &NpmContents { dependencies: &after, ..PLAIN });

    let changes = json!({
        "changed": [
            {"name": "greeter", "from": ["1.0.0"], "to": ["1.0.1"]},
            {"name": "grows", "from": ["1.0.0"], "to": ["2.0.0"]},
        ],
        "added": [{"name": "comes", "from": [], "to": ["1.0.0"]}],
        "removed": [{"name": "goes", "from": ["1.0.0"], "to": []}],
        "new_install_scripts": ["grows"],
        "altered": [],
    });
    assert_eq!(cache.json(&["refresh", "--dry-run", "--json"]).await[0]["changes"], changes);
    let refreshed = cache.cache(&["refresh"]).output().await.unwrap();
    let text = String::from_utf8_lossy(&refreshed.stdout);
    let lines = ["grows 1.0.0 → 2.0.0\n", "added    comes 1.0.0\n", "removed  goes 1.0.0\n"];
    for line in lines.into_iter().chain(["install scripts appeared: grows\n"]) {
        assert!(text.contains(line), "{line:?} is missing: {text}");
    }
    assert!(
        stderr(&refreshed).contains("the install scripts of grows did not run"),
        "{}",
        stderr(&refreshed)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_file_is_refused_by_a_refresh_unless_it_is_accepted() {
    let registry = Registry::start();
    let cache = Cache::of("pinned-replaced", &registry);
    let before = registry.publish("greeter", "1.0.0", &NpmContents { text: "harmless", ..PLAIN });
    let first = added(&cache, &[], &["npx", "-y", "greeter"]).await;
    let now = registry.publish("greeter", "1.0.0", &NpmContents { text: "replaced", ..PLAIN });

    let refused = cache.cache(&["refresh", "--json"]).output().await.unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let report: Value = serde_json::from_slice(&refused.stdout).unwrap();
    let altered = json!([{"name": "greeter", "version": "1.0.0", "from": [before], "to": [now]}]);
    assert_eq!((&report[0]["outcome"], &report[0]["changes"]["altered"]), (&json!("refused"), &altered));
    let warning = stderr(&refused);
    assert!(warning.contains("warning: THE REGISTRY REPLACED greeter 1.0.0"), "{warning}");
    assert!(warning.contains("hint: --accept-changed"), "{warning}");
    assert_eq!(listed(&cache).await["directory"], first["directory"]);

    let accepted = cache.json(&["refresh", "--json", "--accept-changed"]).await;
    assert_eq!(accepted[0]["outcome"], "installed");
    let found = listed(&cache).await;
    assert_eq!((&found["version"], &found["integrity"]), (&json!("1.0.0"), &json!([now])));
    let text = path(&found["directory"]).join("node_modules/greeter/text");
    assert_eq!(std::fs::read_to_string(text).unwrap(), "replaced");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_without_a_lock_works_until_a_refresh_pins_it() {
    let registry = Registry::start();
    let cache = Cache::of("pinned-old", &registry);
    let command = ["npx", "-y", "greeter"];
    registry.publish("greeter", "1.0.0", &PLAIN);
    let first = added(&cache, &[], &command).await;
    // Take away what older versions of ringfence did not write.
    let generation = cache.generations().remove(0);
    let mut marker: Value =
        serde_json::from_slice(&std::fs::read(generation.join("complete")).unwrap()).unwrap();
    marker.as_object_mut().unwrap().remove("pinned");
    std::fs::write(generation.join("complete"), marker.to_string()).unwrap();
    std::fs::remove_file(generation.join("lock")).unwrap();
    registry.publish("greeter", "1.1.0", &PLAIN);

    let found = added(&cache, &[], &command).await;
    assert_eq!((&found["directory"], &found["pinned"]), (&first["directory"], &json!(false)));
    let text = cache.cache(&["list"]).output().await.unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("not pinned") && text.contains("ringfence cache refresh greeter pins it"),
        "{text}"
    );

    let refreshed = cache.json(&["refresh", "--json"]).await;
    assert_eq!((&refreshed[0]["from"], &refreshed[0]["to"]), (&Value::Null, &json!("1.1.0")));
    let found = listed(&cache).await;
    assert_eq!((&found["pinned"], &found["version"]), (&json!(true), &json!("1.1.0")));
}

#[tokio::test(flavor = "multi_thread")]
async fn install_scripts_of_npm_run_only_if_they_are_allowed() {
    let registry = Registry::start();
    let cache = Cache::of("pinned-scripts", &registry);
    let outside = cache.directory.join("outside");
    let script = format!("echo ran > ran; echo x > {}; true", outside.display());
    registry.publish("native", "1.0.0", &NpmContents { postinstall: Some(&script), ..PLAIN });
    registry.publish("greeter", "1.0.0", &NpmContents { dependencies: &[("native", "*")], ..PLAIN });
    let ran = |package: &Value| path(&package["directory"]).join("node_modules/native/ran").exists();

    let output = cache.cache(&["add", "--json", "--", "npx", "-y", "greeter"]).output().await.unwrap();
    let told_once = "warning: greeter is installed, but the install scripts of native did not run";
    assert!(stderr(&output).contains(told_once), "{}", stderr(&output));
    assert!(stderr(&output).contains("--allow-install-scripts"), "{}", stderr(&output));
    let without = listed(&cache).await;
    assert!(!ran(&without));
    let scripts = (&without["install_scripts"], &without["install_scripts_ran"]);
    assert_eq!(scripts, (&json!(["native"]), &json!(false)));
    let again = cache.cache(&["add", "--json", "--", "npx", "-y", "greeter"]).output().await.unwrap();
    assert_eq!(stderr(&again), "", "it is said once");

    // The control: with the option the script runs, inside the fence. The option changes no version.
    registry.publish("greeter", "1.1.0", &NpmContents { dependencies: &[("native", "*")], ..PLAIN });
    let allowed = ["add", "--json", "--allow-install-scripts", "--", "npx", "-y", "greeter"];
    let output = cache.cache(&allowed).output().await.unwrap();
    assert!(!stderr(&output).contains("did not run"), "{}", stderr(&output));
    let all = cache.json(&["list", "--json"]).await;
    let is_allowed = |package: &&Value| package["install_scripts_allowed"] == true;
    let with = all.as_array().unwrap().iter().find(is_allowed).unwrap();
    assert!(ran(with) && !outside.exists());
    assert_eq!((&with["install_scripts_ran"], &with["version"]), (&json!(true), &json!("1.0.0")));
    assert!(!ran(&without), "packages with and without the option are apart");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_rewrites_the_lock_in_its_tree_changes_nothing() {
    let registry = Registry::start();
    let cache = Cache::of("pinned-rewritten", &registry);
    // The script runs in `tree/node_modules/greeter`.
    let script = "sed -i s/1.0.0/6.6.6/ ../../package-lock.json ../../package.json";
    let integrity = registry.publish("greeter", "1.0.0", &NpmContents { postinstall: Some(script), ..PLAIN });
    let found = added(&cache, &["--allow-install-scripts"], &["npx", "-y", "greeter"]).await;
    let tree = path(&found["directory"]);
    let rewritten = std::fs::read_to_string(tree.join("package-lock.json")).unwrap();
    assert!(rewritten.contains("6.6.6"), "the control: the script ran");
    assert_eq!((&found["version"], &found["integrity"]), (&json!("1.0.0"), &json!([integrity])));
    let lock = std::fs::read_to_string(tree.with_file_name("lock")).unwrap();
    assert!(lock.contains("1.0.0") && !lock.contains("6.6.6"), "{lock}");
}

/// npm prepares a dependency in a git repository with another npm, which does not get the arguments of the first.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_of_git_repositories_run_only_if_they_are_allowed() {
    let registry = Registry::start();
    let cache = Cache::of("pinned-git", &registry);
    let repository = registry.publish_repository("prepared", "echo ran > ran");
    registry.publish(
        "greeter",
        "1.0.0",
        &NpmContents { dependencies: &[("prepared", &repository)], ..PLAIN },
    );
    let command = ["npx", "-y", "greeter"];
    let error = refused(&cache, &[], &command).await;
    assert!(error.contains("a dependency is in a git repository"), "{error}");
    assert!(error.contains("--allow-install-scripts") && cache.generations().is_empty(), "{error}");

    // The control: with the option its script runs, and its commit is pinned.
    let found = added(&cache, &["--allow-install-scripts"], &command).await;
    assert!(path(&found["directory"]).join("node_modules/prepared/ran").exists());
    assert_eq!(
        (&found["install_scripts"], &found["install_scripts_ran"]),
        (&json!(["prepared"]), &json!(true))
    );
    let lock = std::fs::read_to_string(path(&found["directory"]).with_file_name("lock")).unwrap();
    assert!(lock.contains(&format!("\"{repository}#")), "{lock}");
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sources_are_built_only_if_that_is_allowed() {
    let registry = Registry::start();
    let cache = Cache::of("pinned-sources", &registry);
    let outside = cache.directory.join("outside");
    registry.publish_sources("snake", "1.0", "built", &outside);
    let command = uvx("snake");
    let error = refused(&cache, &[], &borrowed(&command)).await;
    assert!(error.contains("there is no wheel of snake for this system\nhint: to allow it, "), "{error}");
    assert!(error.contains("--allow-install-scripts"), "{error}");
    assert!(cache.generations().is_empty() && !outside.exists());

    // The control: with the option it is built, inside the fence.
    let found = added(&cache, &["--allow-install-scripts"], &borrowed(&command)).await;
    assert_eq!(printed(&found["program"], &[]).await, "built");
    assert_eq!(found["install_scripts_ran"], true);
    assert!(!outside.exists());
    // A wheel is preferred, and then no code runs.
    registry.publish_wheel("snake", "2.0", "a wheel");
    told(&cache.cache(&["refresh", "--json"]).output().await.unwrap());
    let found = listed(&cache).await;
    assert_eq!((&found["version"], &found["install_scripts_ran"]), (&json!("2.0"), &json!(false)));
}

/// No command: the servers are those of the configuration.
const NONE: [&str; 0] = [];

fn gateway(cache: &Cache, registry: &Registry) -> GatewayBuilder {
    Gateway::builder()
        .flags(["--start-timeout", "120"])
        .env("XDG_CACHE_HOME", cache.directory.join("caches"))
        .env("NPM_CONFIG_REGISTRY", registry.npm_url())
        .current_dir(cache.directory.join("scope"))
}

async fn session(gateway: &Gateway) -> RawClient {
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    client
}

/// The version that the server of a session reads from its own files.
async fn version(client: &RawClient) -> String {
    let listed = client.request("tools/list", None).await;
    let name = listed["result"]["tools"][0]["name"].as_str().unwrap_or_else(|| panic!("{listed}"));
    client.call_tool_for_text(name, json!({})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_all_gateways_keep_the_version_until_a_refresh_and_running_ones_their_files() {
    let registry = Registry::start();
    let cache = Cache::of("pinned-sessions", &registry);
    let command = ["npx", "-y", "greeter"];
    registry.publish("greeter", "1.0.0", &PLAIN);
    let first = gateway(&cache, &registry).command(command).start().await;
    assert_eq!(version(&session(&first).await).await, "1.0.0");
    registry.publish("greeter", "1.1.0", &PLAIN);
    assert_eq!(version(&session(&first).await).await, "1.0.0");
    drop(first);
    let restarted = gateway(&cache, &registry).command(command).start().await;
    assert_eq!(version(&session(&restarted).await).await, "1.0.0");

    let file = cache.directory.join("ringfence.yaml");
    std::fs::write(&file, json!({"servers": {"greeter": {"command": command}}}).to_string()).unwrap();
    let configured = gateway(&cache, &registry).command(NONE).flag("--config").flag(&file).start().await;
    let running = session(&configured).await;
    assert_eq!(version(&running).await, "1.0.0");
    for number in 1..=3 {
        registry.publish("greeter", &format!("1.{number}.0"), &PLAIN);
        told(&cache.cache(&["refresh", "--json"]).output().await.unwrap());
    }
    assert_eq!(version(&running).await, "1.0.0", "its files are there");
    assert_eq!(version(&session(&configured).await).await, "1.3.0", "a new session");
    assert_eq!(version(&session(&restarted).await).await, "1.0.0", "the command line was read at the start");
    let after = gateway(&cache, &registry).command(command).start().await;
    assert_eq!(version(&session(&after).await).await, "1.3.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn install_scripts_are_allowed_for_a_gateway_or_for_one_server() {
    let registry = Registry::start();
    let script = NpmContents { postinstall: Some("echo ran > ran"), ..PLAIN };
    for name in ["one", "two", "three"] {
        registry.publish(name, "1.0.0", &script);
    }
    let cache = Cache::of("pinned-allowed", &registry);
    let ran = async |name: &str| {
        let listed = cache.json(&["list", "--json"]).await;
        let found = listed.as_array().unwrap().iter().find(|package| package["name"] == name).cloned();
        let found = found.unwrap_or_else(|| panic!("{name} is not installed: {listed}"));
        Path::new(found["directory"].as_str().unwrap()).join("node_modules").join(name).join("ran").exists()
    };
    let allowed = gateway(&cache, &registry).command(["npx", "-y", "one"]).flag("--allow-install-scripts");
    assert_eq!(version(&session(&allowed.start().await).await).await, "1.0.0");
    assert!(ran("one").await);

    let file = cache.directory.join("ringfence.yaml");
    let servers = json!({
        "two": {"command": ["npx", "-y", "two"], "allowInstallScripts": true},
        "three": {"command": ["npx", "-y", "three"]},
    });
    std::fs::write(&file, json!({"servers": servers}).to_string()).unwrap();
    let configured = gateway(&cache, &registry).command(NONE).flag("--config").flag(&file).start().await;
    let client = session(&configured).await;
    testkit::wait_until("both servers are listed", async || {
        let listed = client.request("tools/list", None).await;
        listed["result"]["tools"].as_array().is_some_and(|tools| tools.len() == 2)
    })
    .await;
    assert!(ran("two").await && !ran("three").await);
    let log = configured.wait_for_log("the install scripts of three did not run").await;
    assert!(log.contains("allowInstallScripts") && !log.contains("scripts of two"), "{log}");
}
