//! Real toolchains with default flags: each makes and uses what a developer makes with it, through `run_terminal_cmd`.
//! Packages come from the registries that this machine is set up for.

use testkit::{Gateway, Project, parts_dir};

use super::Session;
use crate::fence::programs::fenced_run::{npm_registry, pip_index};

/// A session with the addresses of the registries.
struct Bench {
    project: Project,
    _gateway: Gateway,
    session: Session,
}

impl Bench {
    async fn open(name: &str) -> Self {
        let project = Project::new(name);
        let gateway = Gateway::built_in().current_dir(&project.path).start().await;
        let session = Session::open(&gateway).await;
        Self { project, _gateway: gateway, session }
    }

    async fn run(&self, script: &str) -> String {
        self.session.run(script).await
    }
}

/// The interpreters of this machine: the system's, and those of pyenv.
fn interpreters() -> Vec<String> {
    let mut found = vec!["/usr/bin/python3".to_owned()];
    let pyenv = std::env::var_os("PYENV_ROOT").map(std::path::PathBuf::from);
    let pyenv = pyenv.or_else(|| Some(std::path::Path::new(&std::env::var_os("HOME")?).join(".pyenv")));
    let versions = pyenv.and_then(|root| std::fs::read_dir(root.join("versions")).ok());
    for version in versions.into_iter().flatten().flatten() {
        let python = version.path().join("bin/python3");
        // Older ones bring a pip that cannot read today's packages.
        let name = version.file_name().to_string_lossy().into_owned();
        let minor = name.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
        let is_current = name.starts_with("3.") && minor.is_some_and(|minor| minor >= 11);
        if python.exists() && is_current {
            found.push(python.display().to_string());
        }
    }
    found
}

#[tokio::test]
async fn every_python_makes_an_environment_and_installs_a_package() {
    let index = pip_index().await;
    for python in interpreters() {
        let bench = Bench::open("toolchain-python").await;
        let script = format!(
            "set -e
             {python} -m venv .venv
             .venv/bin/pip install --quiet --disable-pip-version-check --index-url {index} six==1.17.0
             .venv/bin/python -c 'import six, ssl, sqlite3, ctypes, multiprocessing; print(six.__version__)'
             {python} -c 'import platform, locale, getpass; platform.platform(); platform.freedesktop_os_release()'"
        );
        assert_eq!(bench.run(&script).await, "1.17.0", "{python}");
        assert!(bench.project.has(".venv/bin/pip"));
    }
}

#[tokio::test]
async fn uv_makes_an_environment_and_installs_a_package() {
    let (index, uv) = (pip_index().await, parts_dir().join("venv/bin/uv"));
    let bench = Bench::open("toolchain-uv").await;
    let copied = bench.project.join("uv");
    std::fs::copy(uv, &copied).unwrap();
    let script = format!(
        "set -e
         ./uv venv --quiet --python /usr/bin/python3 .venv
         ./uv pip install --quiet --default-index {index} six==1.17.0
         .venv/bin/python -c 'import six; print(six.__version__)'"
    );
    assert_eq!(bench.run(&script).await, "1.17.0");
}

#[tokio::test]
async fn npm_installs_a_package_and_node_uses_it() {
    let registry = npm_registry().await;
    let bench = Bench::open("toolchain-npm").await;
    let script = format!(
        "set -e
         npm init --yes --no-update-notifier > /dev/null
         npm install --silent --no-audit --no-fund --no-update-notifier --registry {registry} semver@7.6.3
         node -p 'require(\"semver\").inc(\"1.2.3\", \"minor\")'"
    );
    assert_eq!(bench.run(&script).await, "1.3.0");
}

#[tokio::test]
async fn compilers_and_interpreters_of_the_system_run() {
    let bench = Bench::open("toolchain-system").await;
    bench.project.write("hello.c", "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n");
    bench.project.write("Makefile", "hello: hello.c\n\tcc -O1 -o hello hello.c\n");
    assert_eq!(bench.run("make --silent && ./hello").await, "hello");
    bench.project.write(
        "Hello.java",
        "public class Hello { public static void main(String[] words) { System.out.println(\"hello\"); } }\n",
    );
    assert_eq!(bench.run("javac Hello.java && java -cp . Hello").await, "hello");
    assert!(bench.run("mvn --version").await.contains("Apache Maven"));
    let perl = "perl -MFile::Temp=tempfile -MPOSIX=strftime -e 'print strftime(\"%Y\", gmtime(0)), \"\\n\"'";
    assert_eq!(bench.run(perl).await, "1970");
    assert_eq!(bench.run("bash -lc 'echo $HOME' | wc -l").await, "1");
    bench.run("openssl version -a && locale && getent passwd root && lsb_release -a || true").await;
}

#[tokio::test]
async fn cargo_builds_a_new_crate() {
    let bench = Bench::open("toolchain-cargo").await;
    let output = bench.run("cargo init --quiet --vcs none --name tiny && cargo run --quiet --offline").await;
    assert_eq!(output, "Hello, world!");
}
