//! npm and uv: the arguments with which they install into a directory, and the program among the installed files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::PackageError;
use crate::pins::Pins;
use crate::program::is_executable;
use crate::recognition::{Package, Tool};

/// Bounds `package.json`. Far more than any package needs.
const MAX_DESCRIPTION: u64 = 4 * 1024 * 1024;

/// The virtual environment of a Python package, below its tree.
const ENVIRONMENT: &str = "environment";
/// What was asked for, as uv reads it.
const REQUIREMENTS: &str = "requirements.in";

/// One call of npm or uv.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Version,
    /// Makes the environment that the other steps of uv need.
    Environment,
    /// Writes a lock with what the registry offers now.
    Resolve,
    /// Installs exactly what the lock says, without code of packages.
    InstallOnly,
    /// The same, with install scripts, or builds from source where there is no wheel.
    InstallWithScripts,
}

impl Step {
    /// What the installer does, for the user.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Version => "tells its version",
            Self::Environment => "makes an environment",
            Self::Resolve => "looks up versions in the registry",
            Self::InstallOnly | Self::InstallWithScripts => "downloads and unpacks",
        }
    }
}

/// The arguments of the installer.
pub(crate) fn arguments(step: Step, package: &Package, tree: &Path) -> Vec<OsString> {
    match package.tool {
        Tool::Npx => npm_arguments(step, package, tree),
        Tool::Uvx => uv_arguments(step, package, tree),
    }
}

fn npm_arguments(step: Step, package: &Package, tree: &Path) -> Vec<OsString> {
    let quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"];
    // Fail soon when offline, and write no log: it would vanish with the fence.
    let patience = ["--fetch-retry-mintimeout=1000", "--fetch-retry-factor=3", "--logs-max=0"];
    let words = match step {
        // npm needs no environment.
        Step::Version | Step::Environment => return vec!["--version".into()],
        Step::Resolve => &["install", "--package-lock-only", "--lockfile-version=3", "--ignore-scripts"][..],
        Step::InstallOnly => &["ci", "--ignore-scripts"],
        // The second switch is for versions of npm that run no scripts unless each is named.
        Step::InstallWithScripts => &["ci", "--ignore-scripts=false", "--dangerously-allow-all-scripts"],
    };
    let mut words: Vec<OsString> = words.iter().chain(&quiet).chain(&patience).map(Into::into).collect();
    words.extend(["--prefix".into(), tree.into()]);
    if step == Step::Resolve {
        words.push("--".into());
        words.extend(package.specifications.iter().map(Into::into));
    }
    words
}

fn uv_arguments(step: Step, package: &Package, tree: &Path) -> Vec<OsString> {
    let environment = tree.join(ENVIRONMENT);
    let lock = tree.join(Pins::file_name(Tool::Uvx));
    let words = match step {
        Step::Version => return vec!["--version".into()],
        Step::Environment => &["venv", "--no-progress", "--no-project"][..],
        Step::Resolve => {
            &["pip", "compile", "--no-progress", "--generate-hashes", "--no-header", "--no-annotate"]
        }
        Step::InstallOnly | Step::InstallWithScripts => &["pip", "sync", "--no-progress", "--require-hashes"],
    };
    let mut words: Vec<OsString> = words.iter().map(Into::into).collect();
    if step == Step::Environment {
        words.extend(package.python.iter().flat_map(|python| ["--python".into(), python.into()]));
        words.push(environment.into());
        return words;
    }
    let may_build = step == Step::InstallWithScripts || (step == Step::Resolve && package.install_scripts);
    if !may_build {
        words.extend(["--only-binary".into(), ":all:".into()]);
    }
    words.extend(["--python".into(), environment.join("bin/python").into()]);
    if step == Step::Resolve {
        words.extend(["--output-file".into(), lock.into(), tree.join(REQUIREMENTS).into()]);
    } else {
        words.push(lock.into());
    }
    words
}

/// Writes what the installer reads beside its arguments.
pub(crate) fn write_request(package: &Package, tree: &Path) -> std::io::Result<()> {
    match package.tool {
        Tool::Npx => Ok(()),
        Tool::Uvx => std::fs::write(tree.join(REQUIREMENTS), requirements(package)),
    }
}

/// The packages in the notation of requirements, which has no `@` before a version.
fn requirements(package: &Package) -> String {
    let asked = package.specifications.iter().map(|specification| match specification.split_once('@') {
        Some((name, "latest")) => name.to_owned(),
        Some((name, version)) => format!("{name}=={version}"),
        None => specification.clone(),
    });
    let with = package.with.iter().flat_map(|with| with.split(',')).map(str::to_owned);
    asked.chain(with).flat_map(|line| [line, "\n".to_owned()]).collect()
}

/// For npm, the name of a program that does not exist.
pub(crate) const NO_GIT: &str = "git-is-not-allowed";

/// The variables that make the installer write into the tree, and npm run no code of packages unless that is allowed.
pub(crate) fn variables(package: &Package, tree: &Path) -> Vec<(OsString, OsString)> {
    match package.tool {
        Tool::Npx if package.install_scripts => Vec::new(),
        // For a dependency in a git repository, npm starts another npm, which runs its scripts and obeys the settings in
        // it. That one gets no arguments of ours, but these variables. The last is for versions that lack the second.
        Tool::Npx => [("IGNORE_SCRIPTS", "true"), ("ALLOW_GIT", "none"), ("GIT", NO_GIT)]
            .map(|(name, value)| (format!("NPM_CONFIG_{name}").into(), value.into()))
            .into(),
        Tool::Uvx => {
            // If uv has to download a Python, it belongs to the package.
            let places = [("UV_PYTHON_INSTALL_DIR", "python"), ("UV_PYTHON_BIN_DIR", "python-bin")];
            let places =
                places.map(|(name, directory)| (OsString::from(name), tree.join(directory).into_os_string()));
            // Sessions cannot write the bytecode, so without this every start would compile.
            let words = [("UV_COMPILE_BYTECODE", "1")].map(|(name, value)| (name.into(), value.into()));
            places.into_iter().chain(words).collect()
        }
    }
}

/// Finds the program to run, as a path relative to the tree.
pub(crate) fn entry(package: &Package, tree: &Path) -> Result<PathBuf, PackageError> {
    let programs = programs(package.tool, tree);
    let wanted = match &package.executable {
        Some(name) => Some(name.clone()),
        None => npm_program(package, tree),
    };
    let found = wanted.as_ref().and_then(|name| {
        let path = programs.join(name);
        is_program_in(&path, tree).then_some(path)
    });
    let found = found.as_deref().and_then(|path| path.strip_prefix(tree).ok()).map(Path::to_owned);
    found.ok_or_else(|| no_program(package, wanted, names_in(&programs, tree)))
}

/// The directory that holds the programs of a package and of what came with it.
fn programs(tool: Tool, tree: &Path) -> PathBuf {
    match tool {
        Tool::Npx => tree.join("node_modules/.bin"),
        Tool::Uvx => tree.join(ENVIRONMENT).join("bin"),
    }
}

/// Chooses as npx does: the only program, or else the one named like the package.
fn npm_program(package: &Package, tree: &Path) -> Option<String> {
    let description = description(&tree.join("node_modules").join(package.name()).join("package.json"))?;
    let unscoped = package.name().rsplit('/').next().unwrap_or_default();
    match description.get("bin")? {
        Value::String(_) => Some(unscoped.to_owned()),
        Value::Object(programs) => {
            let first = programs.iter().next()?;
            if programs.values().all(|file| file == first.1) {
                return Some(first.0.clone());
            }
            programs.contains_key(unscoped).then(|| unscoped.to_owned())
        }
        _ => None,
    }
}

/// Reads `package.json` with care: install scripts may have replaced it, by a pipe for example.
fn description(path: &Path) -> Option<Value> {
    let metadata = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    if metadata.len() > MAX_DESCRIPTION {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Whether a path leads to an executable file inside the tree.
fn is_program_in(path: &Path, tree: &Path) -> bool {
    let leads_inside = path.canonicalize().is_ok_and(|real| real.starts_with(tree));
    leads_inside && is_executable(path)
}

fn names_in(programs: &Path, tree: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(programs).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| is_program_in(&entry.path(), tree))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names.truncate(20);
    names
}

fn no_program(package: &Package, wanted: Option<String>, found: Vec<String>) -> PackageError {
    PackageError::NoProgram { package: package.specification(), wanted, found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recognition::recognise;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Writes what npm would install for a package with these programs.
    fn installed(tree: &Path, name: &str, description: &str, programs: &[&str]) {
        let package = tree.join("node_modules").join(name);
        std::fs::create_dir_all(&package).unwrap();
        std::fs::create_dir_all(tree.join("node_modules/.bin")).unwrap();
        std::fs::write(package.join("package.json"), description).unwrap();
        let file = package.join("cli.js");
        std::fs::write(&file, "#!/usr/bin/env node\n").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        for program in programs {
            symlink(&file, tree.join("node_modules/.bin").join(program)).unwrap();
        }
    }

    fn entry_of(tree: &Path, line: &str) -> Result<PathBuf, PackageError> {
        let command: Vec<OsString> = line.split(' ').map(Into::into).collect();
        entry(&recognise(&command).unwrap().package, tree)
    }

    #[test]
    fn the_program_is_the_one_that_npx_would_choose() {
        let cases = [
            ("only", r#"{"bin": {"other": "cli.js"}}"#, &["other"][..], Some("other")),
            ("text", r#"{"bin": "cli.js"}"#, &["text"], Some("text")),
            ("@scope/named", r#"{"bin": {"a": "a.js", "named": "cli.js"}}"#, &["a", "named"], Some("named")),
            ("aliases", r#"{"bin": {"x": "cli.js", "y": "cli.js"}}"#, &["x", "y"], Some("x")),
            ("unclear", r#"{"bin": {"a": "a.js", "b": "b.js"}}"#, &["a", "b"], None),
            ("none", "{}", &[], None),
            ("broken", "{", &[], None),
        ];
        for (name, description, programs, expected) in cases {
            let directory = testkit::workspace_dir("package-entry");
            installed(directory.path(), name, description, programs);
            let found = entry_of(directory.path(), &format!("npx -y {name}@1")).ok();
            let expected = expected.map(|program| Path::new("node_modules/.bin").join(program));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn requirements_are_written_as_uv_reads_them() {
        let cases = [
            ("uvx tool", "tool\n"),
            ("uvx tool@latest", "tool\n"),
            ("uvx tool[cli]@1.2", "tool[cli]==1.2\n"),
            ("uvx --with a,b --with c>=2 --from tool>=1 run", "tool>=1\na\nb\nc>=2\n"),
        ];
        for (line, expected) in cases {
            let command: Vec<OsString> = line.split(' ').map(Into::into).collect();
            assert_eq!(requirements(&recognise(&command).unwrap().package), expected, "{line}");
        }
    }

    #[test]
    fn a_program_that_lies_elsewhere_is_none() {
        let directory = testkit::workspace_dir("package-elsewhere");
        installed(directory.path(), "package", r#"{"bin": "cli.js"}"#, &[]);
        symlink("/bin/sh", directory.join("node_modules/.bin/package")).unwrap();
        assert!(matches!(entry_of(directory.path(), "npx -y package"), Err(PackageError::NoProgram { .. })));
    }
}
