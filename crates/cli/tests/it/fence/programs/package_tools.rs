//! npm, uv, pip and cargo: they install packages, run them from the scope or its caches, and find them again
//! without network.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use testkit::{parts_dir, python_binary};

use super::fenced_run::{FencedRun, npm_registry, pip_index};

fn uvx() -> PathBuf {
    parts_dir().join("venv/bin/uvx")
}

/// Writes a project whose dependency brings an executable, as `npm install` would have left it.
fn write_project(run: &FencedRun) {
    let package = run.in_scope("node_modules/greeter");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::create_dir(run.in_scope("node_modules/.bin")).unwrap();
    run.write_in_scope(
        "node_modules/greeter/package.json",
        r#"{"name": "greeter", "version": "1.0.0", "bin": {"greeter": "cli.js"}}"#,
    );
    run.write_in_scope(
        "node_modules/greeter/cli.js",
        "#!/usr/bin/env node\nconsole.log('hello', ...process.argv.slice(2));\n",
    );
    run.write_in_scope(
        "package.json",
        r#"{"name": "project", "version": "1.0.0", "scripts": {"greet": "greeter from a script"}}"#,
    );
    let cli = package.join("cli.js");
    std::fs::set_permissions(cli, PermissionsExt::from_mode(0o755)).unwrap();
    symlink("../greeter/cli.js", run.in_scope("node_modules/.bin/greeter")).unwrap();
    run.ground.belongs_to_caller();
}

#[tokio::test(flavor = "multi_thread")]
async fn executables_of_node_modules_run_by_path_by_npm_and_by_npx() {
    for run in FencedRun::in_each_tier().await {
        write_project(&run);
        let offline = ["--net", "none"];
        let by_path = run.run(&offline, ["node_modules/.bin/greeter", "by path"]).await;
        by_path.succeeded().assert_stdout("hello by path\n");
        let by_script = run.run(&offline, ["npm", "run", "--silent", "greet"]).await;
        by_script.succeeded().assert_stdout("hello from a script\n");
        let by_npx = run.run(&offline, ["npx", "--offline", "greeter", "by npx"]).await;
        by_npx.succeeded().assert_stdout("hello by npx\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn npx_fetches_a_package_and_later_runs_it_from_the_cache_without_network() {
    const PACKAGE: &str = "semver@7.6.3";
    let registry = format!("--env=NPM_CONFIG_REGISTRY={}", npm_registry().await);
    let options = [registry.as_str()];
    for run in FencedRun::in_each_tier().await {
        run.run(&options, ["npx", "-y", PACKAGE, "1.2.3"]).await.succeeded().assert_stdout("1.2.3\n");
        let offline = [&options[..], &["--net", "none"]].concat();
        let again = run.run(&offline, ["npx", "--offline", "-y", PACKAGE, "1.2.4"]).await;
        again.succeeded().assert_stdout("1.2.4\n");
        let place = ["npx", "--offline", "-y", "-p", PACKAGE, "-c", "command -v semver"];
        let place = run.run(&offline, place).await.succeeded();
        let caches = run.ground.home().join(".cache/ringfence/caches");
        assert!(place.stdout.starts_with(caches.to_str().unwrap()), "{place:?}");
        assert!(place.stdout.trim_end().ends_with("node_modules/.bin/semver"), "{place:?}");
        assert!(!run.ground.home().join(".npm").exists(), "the caller's own cache is left alone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uvx_fetches_a_package_and_later_runs_it_from_the_cache_without_network() {
    let index = format!("--env=UV_DEFAULT_INDEX={}", pip_index().await);
    let options = [index.as_str()];
    let (uvx, python) = (uvx(), python_binary());
    let (uvx, python) = (uvx.to_str().unwrap(), python.to_str().unwrap());
    for run in FencedRun::in_each_tier().await {
        let fetch = [uvx, "--python", python, "pycowsay==0.0.0.2", "fetched"];
        let fetched = run.run(&options, fetch).await.succeeded();
        assert!(fetched.stdout.contains("< fetched >"), "{fetched:?}");
        let offline = [&options[..], &["--net", "none"]].concat();
        let again = [uvx, "--offline", "--python", python, "pycowsay==0.0.0.2", "kept"];
        let again = run.run(&offline, again).await.succeeded();
        assert!(again.stdout.contains("< kept >"), "{again:?}");
        assert!(!run.ground.home().join(".cache/uv").exists(), "the caller's own cache is left alone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pip_installs_into_the_scope_and_the_package_can_be_imported() {
    let index = format!("--env=PIP_INDEX_URL={}", pip_index().await);
    let options = [index.as_str()];
    let python = python_binary();
    let python = python.to_str().unwrap();
    for run in FencedRun::in_each_tier().await {
        let install = [python, "-m", "pip", "install", "--quiet", "--target", "library", "six==1.17.0"];
        let _ = run.run(&options, install).await.succeeded();
        let import = "import sys; sys.path.insert(0, 'library'); import six; print(six.__file__)";
        let imported = run.run(&["--net", "none"], [python, "-c", import]).await.succeeded();
        imported.assert_stdout(&format!("{}\n", run.in_scope("library/six.py").display()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_virtual_environment_is_made_and_used_in_the_scope() {
    for run in FencedRun::in_each_tier().await {
        let offline = ["--net", "none"];
        let _ = run.run(&offline, ["python3", "-m", "venv", ".venv"]).await.succeeded();
        let print = "import sys; print(sys.prefix != sys.base_prefix, sys.prefix)";
        let used = run.run(&offline, [".venv/bin/python", "-c", print]).await.succeeded();
        used.assert_stdout(&format!("True {}\n", run.in_scope(".venv").display()));
        let pip = run.run(&offline, [".venv/bin/pip", "--version"]).await.succeeded();
        assert!(pip.stdout.contains(run.in_scope(".venv").to_str().unwrap()), "{pip:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cargo_builds_a_crate_with_the_callers_toolchain_and_a_home_of_its_own() {
    for run in FencedRun::in_each_tier().await {
        std::fs::create_dir(run.in_scope("src")).unwrap();
        run.write_in_scope("src/main.rs", "fn main() { println!(\"built\"); }\n");
        run.write_in_scope(
            "Cargo.toml",
            "[workspace]\n[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        );
        let script = "cargo build --quiet && target/debug/tiny && echo \"$CARGO_HOME|${RUSTUP_HOME-none}\"";
        // The toolchain is in the home of the user who runs the tests, so keep that home.
        let mut command = run.command(&["--net", "none"], ["sh", "-c", script]);
        let home = PathBuf::from(std::env::var_os("HOME").unwrap());
        let cache = run.ground.home().join(".cache");
        command.env("HOME", &home).env("XDG_CACHE_HOME", &cache).env_remove("RUSTUP_HOME");
        let rustup = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
        if let Some(rustup) = &rustup {
            command.env("RUSTUP_HOME", rustup);
        }
        let built = run.finish(command).await.succeeded();
        let rest = built.stdout.strip_prefix("built\n").unwrap_or_else(|| panic!("{built:?}"));
        let (cargo_home, rustup_home) = rest.trim_end().split_once('|').unwrap();
        // Where mounts can be made, its own home appears at the place of the caller's.
        let callers = home.join(".cargo");
        let is_mirrored = built.tier == "b" && callers.is_dir();
        let place = if is_mirrored { callers } else { cache.join("ringfence/caches") };
        assert!(cargo_home.starts_with(place.to_str().unwrap()), "{built:?}");
        let usual = home.join(".rustup");
        let expected = rustup.or_else(|| usual.is_dir().then_some(usual));
        let expected = expected.map_or("none".to_owned(), |path| path.to_str().unwrap().to_owned());
        assert_eq!(rustup_home, expected, "{built:?}");
    }
}
