//! npm and uv: the arguments with which they install into a directory, and the program among the installed files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::PackageError;
use crate::program::is_executable;
use crate::recognition::{Package, Tool};

/// Bounds `package.json`. Far more than any package needs.
const MAX_DESCRIPTION: u64 = 4 * 1024 * 1024;

/// The arguments of the installer.
pub(crate) fn arguments(package: &Package, tree: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = match package.tool {
        Tool::Npx => {
            let fixed = ["install", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"];
            // Fail soon when offline, and write no log: it would vanish with the fence.
            let patience = ["--fetch-retry-mintimeout=1000", "--fetch-retry-factor=3", "--logs-max=0"];
            let mut words: Vec<OsString> = fixed.into_iter().chain(patience).map(Into::into).collect();
            words.extend(["--prefix".into(), tree.into(), "--".into()]);
            words
        }
        Tool::Uvx => ["tool", "install", "--no-progress"].map(Into::into).into(),
    };
    for with in &package.with {
        words.extend(["--with".into(), with.into()]);
    }
    if let Some(python) = &package.python {
        words.extend(["--python".into(), python.into()]);
    }
    words.extend(package.specifications.iter().map(Into::into));
    words
}

/// The variables that make the installer write into the tree.
pub(crate) fn variables(tool: Tool, tree: &Path) -> Vec<(OsString, OsString)> {
    match tool {
        Tool::Npx => Vec::new(),
        Tool::Uvx => {
            let places = [
                ("UV_TOOL_DIR", "tools"),
                ("UV_TOOL_BIN_DIR", "bin"),
                // If uv has to download a Python, it belongs to the package.
                ("UV_PYTHON_INSTALL_DIR", "python"),
                ("UV_PYTHON_BIN_DIR", "python-bin"),
            ];
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
    let programs = programs(package.tool, tree).ok_or_else(|| no_program(package, None, Vec::new()))?;
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
pub(crate) fn programs(tool: Tool, tree: &Path) -> Option<PathBuf> {
    match tool {
        Tool::Npx => Some(tree.join("node_modules/.bin")),
        Tool::Uvx => {
            let tools = std::fs::read_dir(tree.join("tools")).ok()?;
            tools.flatten().map(|entry| entry.path().join("bin")).find(|path| path.is_dir())
        }
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
    fn a_program_that_lies_elsewhere_is_none() {
        let directory = testkit::workspace_dir("package-elsewhere");
        installed(directory.path(), "package", r#"{"bin": "cli.js"}"#, &[]);
        symlink("/bin/sh", directory.join("node_modules/.bin/package")).unwrap();
        assert!(matches!(entry_of(directory.path(), "npx -y package"), Err(PackageError::NoProgram { .. })));
    }
}
