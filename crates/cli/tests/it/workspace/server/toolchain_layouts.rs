//! Programs where version managers put them: each row is a home with real programs in one layout. The program that the
//! search path finds runs in both tiers and reads its own files. It cannot write them, and nothing beside them in the
//! home can be read.
//!
//! asdf, Homebrew, conda, nix, nvm, fnm and sdkman are in no package registry. Their rows have the directories, links and
//! scripts that they make, around real interpreters. mise is the real one.

use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Gateway, Project, WorkspaceDir, node_binary, parts_dir, workspace_dir};

use super::Session;
use crate::workspace::security::ground::tiers;

const SECRET: &str = "the secret of another project";

/// A home in which programs are installed in one way. `{home}` stands for its path.
struct Layout {
    name: &'static str,
    install: fn(&Home, &Stock),
    /// Directories of the home on the search path.
    search_path: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    script: &'static str,
    prints: &'static str,
    /// A file of the program.
    installed: &'static str,
}

const JAVA_HOME: &str = "java -XshowSettings:properties -version 2>&1 | sed -n 's/.*java.home = //p'";

const LAYOUTS: &[Layout] = &[
    Layout {
        name: "nvm",
        install: |home, _| home.node(".nvm/versions/node/v24.9.0"),
        search_path: &[".nvm/versions/node/v24.9.0/bin"],
        variables: &[],
        script: "tool && node -p process.execPath",
        prints: "42\n{home}/.nvm/versions/node/v24.9.0/bin/node",
        installed: ".nvm/versions/node/v24.9.0/lib/node_modules/tool/index.js",
    },
    Layout {
        name: "fnm",
        install: |home, _| {
            home.node(".local/share/fnm/node-versions/v24.9.0/installation");
            home.link(
                ".local/state/fnm_multishells/1_2",
                ".local/share/fnm/node-versions/v24.9.0/installation",
            );
        },
        search_path: &[".local/state/fnm_multishells/1_2/bin"],
        variables: &[],
        script: "tool && node -p process.execPath",
        prints: "42\n{home}/.local/share/fnm/node-versions/v24.9.0/installation/bin/node",
        installed: ".local/share/fnm/node-versions/v24.9.0/installation/lib/node_modules/tool/index.js",
    },
    Layout {
        name: "asdf",
        install: |home, _| {
            home.node(".asdf/installs/nodejs/24.9.0");
            home.program(".asdf/bin/asdf", ASDF);
            let shim = "#!/usr/bin/env bash\n# asdf-plugin: nodejs 24.9.0\nexec {home}/.asdf/bin/asdf exec \"node\" \"$@\"\n";
            home.program(".asdf/shims/node", shim);
            home.write(".tool-versions", "nodejs 24.9.0\n");
        },
        search_path: &[".asdf/shims"],
        variables: &[],
        script: "node -p process.execPath",
        prints: "{home}/.asdf/installs/nodejs/24.9.0/bin/node",
        installed: ".asdf/installs/nodejs/24.9.0/lib/node_modules/tool/index.js",
    },
    Layout {
        name: "mise",
        install: |home, _| {
            home.node(".local/share/mise/installs/node/24.9.0");
            let mise = parts_dir().join("node_modules/@jdxcode/mise-linux-x64/bin/mise");
            hard_link(&mise, &home.join(".local/bin/mise"));
            home.link(".local/share/mise/shims/node", ".local/bin/mise");
            home.write(".config/mise/config.toml", "[env]\nKEY = \"secret\"\n\n[tools]\nnode = \"24.9.0\"\n");
        },
        search_path: &[".local/share/mise/shims"],
        variables: &[],
        // The settings of the workspace count too, and the variables of the user do not come along.
        script: "printf '[env]\\nWORD = \"hello\"\\n' > mise.toml
                 node -p 'process.env.WORD + process.env.KEY + process.execPath'",
        prints: "helloundefined{home}/.local/share/mise/installs/node/24.9.0/bin/node",
        installed: ".local/share/mise/installs/node/24.9.0/lib/node_modules/tool/index.js",
    },
    Layout {
        name: "sdkman",
        install: |home, stock| {
            link_tree(&stock.java(), &home.join(".sdkman/candidates/java/17.0.0-open"));
            symlink("17.0.0-open", home.join(".sdkman/candidates/java/current")).unwrap();
        },
        search_path: &[".sdkman/candidates/java/current/bin"],
        variables: &[("JAVA_HOME", ".sdkman/candidates/java/current")],
        script: JAVA_HOME,
        prints: "{home}/.sdkman/candidates/java/17.0.0-open",
        installed: ".sdkman/candidates/java/17.0.0-open/release",
    },
    Layout {
        name: "a JDK that only JAVA_HOME names",
        install: |home, stock| link_tree(&stock.java(), &home.join(".jdks/openjdk-17")),
        search_path: &[],
        variables: &[("JAVA_HOME", ".jdks/openjdk-17")],
        script: "PATH=$JAVA_HOME/bin:$PATH; java -XshowSettings:properties -version 2>&1 | sed -n 's/.*java.home = //p'",
        prints: "{home}/.jdks/openjdk-17",
        installed: ".jdks/openjdk-17/release",
    },
    Layout {
        name: "conda with an active environment",
        install: |home, stock| home.python("miniconda3", stock),
        search_path: &["miniconda3/bin", "miniconda3/condabin"],
        variables: &[],
        script: "python -c 'import ctypes, json, sqlite3, ssl, sys; print(sys.prefix)'",
        prints: "{home}/miniconda3",
        installed: "miniconda3/lib/python/os.py",
    },
    Layout {
        name: "conda without an active environment",
        install: |home, stock| {
            home.python("miniconda3", stock);
            home.program(
                "miniconda3/condabin/conda",
                "#!{home}/miniconda3/bin/python\nimport sys; print(sys.prefix)\n",
            );
        },
        search_path: &["miniconda3/condabin"],
        variables: &[],
        script: "conda",
        prints: "{home}/miniconda3",
        installed: "miniconda3/lib/python/os.py",
    },
    Layout {
        name: "a tool of uv",
        install: |home, stock| {
            let python = ".local/share/uv/python/cpython-3-linux-x86_64-gnu";
            home.python(python, stock);
            home.link(".local/bin/python3.99", &format!("{python}/bin/python"));
            home.python_tool(&format!("{python}/bin/python"), ".local/share/uv/tools/hello");
        },
        search_path: &[".local/bin"],
        variables: &[],
        script: "hello && python3.99 -c 'import sys; print(sys.prefix)'",
        prints: "{home}/.local/share/uv/tools/hello\n{home}/.local/share/uv/python/cpython-3-linux-x86_64-gnu",
        installed: ".local/share/uv/tools/hello/pyvenv.cfg",
    },
    Layout {
        name: "a tool of pipx with the Python of conda",
        install: |home, stock| {
            home.python("miniconda3", stock);
            home.python_tool("miniconda3/bin/python", ".local/pipx/venvs/hello");
        },
        search_path: &[".local/bin"],
        variables: &[],
        script: "hello",
        prints: "{home}/.local/pipx/venvs/hello",
        installed: ".local/pipx/venvs/hello/pyvenv.cfg",
    },
    Layout {
        name: "Homebrew",
        install: |home, _| home.homebrew(),
        search_path: &[".linuxbrew/bin", ".linuxbrew/sbin"],
        variables: &[],
        script: "greet && node -p process.execPath",
        prints: "hello\n{home}/.linuxbrew/Cellar/node/24.9.0/bin/node",
        installed: ".linuxbrew/Cellar/greet/1.0/bin/greet",
    },
    Layout {
        name: "a link to a program of Homebrew",
        install: |home, _| {
            home.homebrew();
            home.link(".local/bin/greet", ".linuxbrew/opt/greet/bin/greet");
        },
        search_path: &[".local/bin"],
        variables: &[],
        script: "greet",
        prints: "hello",
        installed: ".linuxbrew/Cellar/greet/1.0/bin/greet",
    },
    Layout {
        name: "a profile of nix",
        install: |home, _| {
            home.node("store/h1-nodejs-24.9.0");
            home.link("store/h2-user-environment/bin/node", "store/h1-nodejs-24.9.0/bin/node");
            home.link("store/h2-user-environment/bin/tool", "store/h1-nodejs-24.9.0/bin/tool");
            home.link(".local/state/nix/profiles/profile-1-link", "store/h2-user-environment");
            symlink("profile-1-link", home.join(".local/state/nix/profiles/profile")).unwrap();
            home.link(".nix-profile", ".local/state/nix/profiles/profile");
        },
        search_path: &[".nix-profile/bin"],
        variables: &[],
        script: "tool && node -p process.execPath",
        prints: "42\n{home}/store/h1-nodejs-24.9.0/bin/node",
        installed: "store/h1-nodejs-24.9.0/lib/node_modules/tool/index.js",
    },
];

/// Does what asdf does for `exec`: takes the version from the nearest `.tool-versions`, at last that of the home.
const ASDF: &str = r#"#!/usr/bin/env bash
directory=$PWD
while [[ -n $directory && ! -r $directory/.tool-versions ]]; do directory=${directory%/*}; done
versions=${directory:-$HOME}/.tool-versions
version=$(sed -n 's/^nodejs //p' "$versions") || exit 126
[[ -n $version ]] || { echo "No version is set for command $2" >&2; exit 126; }
exec "$ASDF_DATA_DIR/installs/nodejs/$version/bin/$2" "${@:3}"
"#;

/// A home directory, with a secret beside the programs.
struct Home {
    path: PathBuf,
    _directory: WorkspaceDir,
}

impl Home {
    fn new() -> Self {
        let directory = workspace_dir("layout-home");
        let home = Self { path: directory.path().canonicalize().unwrap(), _directory: directory };
        home.write("private/notes.txt", SECRET);
        home
    }

    fn join(&self, below: &str) -> PathBuf {
        self.path.join(below)
    }

    /// Fills in the path of the home.
    fn filled(&self, text: &str) -> String {
        text.replace("{home}", self.path.to_str().unwrap())
    }

    fn write(&self, below: &str, text: &str) {
        let path = self.join(below);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, self.filled(text)).unwrap();
    }

    fn program(&self, below: &str, text: &str) {
        self.write(below, text);
        std::fs::set_permissions(self.join(below), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Makes a link with an absolute target in the home.
    fn link(&self, below: &str, target: &str) {
        let path = self.join(below);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.join(target), path).unwrap();
    }

    /// Puts node there, and a global package with a program `tool`.
    fn node(&self, prefix: &str) {
        hard_link(&node_binary(), &self.join(&format!("{prefix}/bin/node")));
        let package = format!("{prefix}/lib/node_modules/tool");
        self.write(&format!("{package}/package.json"), "{\"name\": \"tool\", \"version\": \"1.0.0\"}\n");
        self.write(&format!("{package}/data.json"), "{\"answer\": 42}\n");
        let index = "#!/usr/bin/env node\nconsole.log(require('./data.json').answer);\n";
        self.program(&format!("{package}/index.js"), index);
        symlink("../lib/node_modules/tool/index.js", self.join(&format!("{prefix}/bin/tool"))).unwrap();
    }

    /// Puts a Python with its library there.
    fn python(&self, prefix: &str, stock: &Stock) {
        link_tree(&stock.python(), &self.join(prefix));
    }

    /// Makes a virtual environment with a program `hello`, and links to that from `.local/bin`.
    fn python_tool(&self, python: &str, environment: &str) {
        let directory = self.join(environment);
        let made =
            Command::new(self.join(python)).args(["-m", "venv", "--without-pip"]).arg(&directory).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{made:?}");
        let hello = format!("#!{{home}}/{environment}/bin/python\nimport sys; print(sys.prefix)\n");
        self.program(&format!("{environment}/bin/hello"), &hello);
        self.link(".local/bin/hello", &format!("{environment}/bin/hello"));
    }

    /// Puts a Homebrew with node there, and a program that has its interpreter from another formula.
    fn homebrew(&self) {
        self.node(".linuxbrew/Cellar/node/24.9.0");
        self.program(
            ".linuxbrew/Cellar/greet/1.0/bin/greet",
            "#!{home}/.linuxbrew/opt/node/bin/node\nconsole.log('hello');\n",
        );
        self.program(".linuxbrew/Homebrew/bin/brew", "#!/bin/bash\n");
        std::fs::create_dir_all(self.join(".linuxbrew/bin")).unwrap();
        std::fs::create_dir_all(self.join(".linuxbrew/opt")).unwrap();
        for (link, target) in [
            ("bin/brew", "../Homebrew/bin/brew"),
            ("bin/node", "../Cellar/node/24.9.0/bin/node"),
            ("bin/greet", "../Cellar/greet/1.0/bin/greet"),
            ("opt/node", "../Cellar/node/24.9.0"),
            ("opt/greet", "../Cellar/greet/1.0"),
        ] {
            symlink(target, self.join(&format!(".linuxbrew/{link}"))).unwrap();
        }
    }
}

/// Interpreters that run wherever they are put. Made when they are first needed.
struct Stock {
    directory: WorkspaceDir,
}

impl Stock {
    fn new() -> Self {
        Self { directory: workspace_dir("layout-stock") }
    }

    /// A Java runtime with its base module.
    fn java(&self) -> PathBuf {
        let runtime = self.directory.join("java");
        if !runtime.exists() {
            let javac = std::fs::canonicalize(found("javac")).unwrap();
            let jlink = javac.with_file_name("jlink");
            let made =
                Command::new(jlink).args(["--add-modules", "java.base", "--output"]).arg(&runtime).output();
            let made = made.unwrap();
            assert!(made.status.success(), "{made:?}");
        }
        runtime
    }

    /// The Python of the system with its library, without what is only for tests and for embedding it.
    fn python(&self) -> PathBuf {
        let prefix = self.directory.join("python");
        if !prefix.exists() {
            let real = std::fs::canonicalize("/usr/bin/python3").unwrap();
            let name = real.file_name().unwrap();
            std::fs::create_dir_all(prefix.join("bin")).unwrap();
            std::fs::create_dir_all(prefix.join("lib")).unwrap();
            std::fs::copy(&real, prefix.join("bin").join(name)).unwrap();
            symlink(name, prefix.join("bin/python")).unwrap();
            copy_library(&Path::new("/usr/lib").join(name), &prefix.join("lib").join(name));
            symlink(name, prefix.join("lib/python")).unwrap();
        }
        prefix
    }
}

fn found(program: &str) -> PathBuf {
    let search_path = std::env::var_os("PATH").unwrap();
    let places = std::env::split_paths(&search_path).map(|directory| directory.join(program));
    places.into_iter().find(|path| path.is_file()).unwrap_or_else(|| panic!("{program} is not installed"))
}

fn copy_library(from: &Path, to: &Path) {
    const LEFT_OUT: [&str; 5] = ["__pycache__", "dist-packages", "idlelib", "lib2to3", "test"];
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        let is_left_out =
            LEFT_OUT.iter().any(|left| name == *left) || name.as_encoded_bytes().starts_with(b"config-");
        let place = entry.path();
        if place.is_dir() && !is_left_out {
            copy_library(&place, &to.join(name));
        } else if place.is_file() {
            std::fs::copy(&place, to.join(name)).unwrap();
        }
    }
}

/// Copies a tree, with hard links instead of new files.
fn link_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (place, copy) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            symlink(std::fs::read_link(place).unwrap(), copy).unwrap();
        } else if kind.is_dir() {
            link_tree(&place, &copy);
        } else {
            hard_link(&place, &copy);
        }
    }
}

fn hard_link(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    match std::fs::hard_link(from, to) {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => drop(std::fs::copy(from, to).unwrap()),
        linked => linked.unwrap_or_else(|error| panic!("{}: {error}", from.display())),
    }
}

/// A session of a user whose home this is.
async fn open(layout: &Layout, home: &Home, project: &Project, flags: &[&str]) -> (Gateway, Session) {
    let own = layout.search_path.iter().map(|below| home.join(below));
    let system = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
    let search_path = std::env::join_paths(own.chain(system)).unwrap();
    let mut builder = Gateway::built_in()
        .flags(flags)
        .current_dir(&project.path)
        .env("HOME", &home.path)
        .env("PATH", search_path);
    for name in ["PYENV_ROOT", "NVM_DIR", "RUSTUP_HOME", "JAVA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"] {
        if !layout.variables.iter().any(|(set, _)| *set == name) {
            builder = builder.env_remove(name);
        }
    }
    for (name, below) in layout.variables {
        builder = builder.env(name, home.join(below));
    }
    let gateway = builder.start().await;
    let session = Session::open(&gateway).await;
    (gateway, session)
}

#[tokio::test]
async fn programs_of_every_layout_run_and_cannot_be_changed_and_the_rest_of_the_home_is_closed() {
    let stock = Stock::new();
    for layout in LAYOUTS {
        let home = Home::new();
        (layout.install)(&home, &stock);
        let before = std::fs::read(home.join(layout.installed)).unwrap();
        for tier in tiers() {
            let row = format!("{} with {tier:?}", layout.name);
            let project = Project::new("layout");
            let (_gateway, session) = open(layout, &home, &project, &tier).await;
            let ended = session.run_to_end(layout.script).await;
            assert_eq!(ended.data["exit_code"], 0, "{row}: {}", ended.text);
            let printed = ended.data["output"].as_str().unwrap().trim_end();
            assert_eq!(printed, home.filled(layout.prints), "{row}");

            let installed = home.join(layout.installed);
            let directory = installed.parent().unwrap().display();
            for script in
                [format!("echo x >> {}", installed.display()), format!("echo x > {directory}/planted")]
            {
                let refused = session.run_to_end(&script).await;
                assert_ne!(refused.data["exit_code"], 0, "{row}: {script}");
            }
            assert_eq!(std::fs::read(&installed).unwrap(), before, "{row}");
            assert!(!installed.with_file_name("planted").exists(), "{row}");

            let secret = format!("cat {}", home.join("private/notes.txt").display());
            let refused = session.run_to_end(&secret).await;
            assert_ne!(refused.data["exit_code"], 0, "{row}: {}", refused.text);
            assert!(!refused.text.contains(SECRET), "{row}: {}", refused.text);
        }
    }
}

/// The control: the secret can be read where the operator allows it.
#[tokio::test]
async fn what_lies_beside_the_programs_is_readable_if_the_operator_says_so() {
    let layout = LAYOUTS.iter().find(|layout| layout.name == "nvm").unwrap();
    let home = Home::new();
    (layout.install)(&home, &Stock::new());
    let private = home.join("private");
    for tier in tiers() {
        let project = Project::new("layout-control");
        let flags = [&tier[..], &["--read", private.to_str().unwrap()]].concat();
        let (_gateway, session) = open(layout, &home, &project, &flags).await;
        assert_eq!(session.run(&format!("cat {}/notes.txt", private.display())).await, SECRET);
    }
}
