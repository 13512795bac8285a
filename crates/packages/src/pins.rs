//! What a package was resolved to: the exact version, and the hashes, of every package that is installed with it.
//!
//! The text is the lock file of the tool itself: npm's `package-lock.json`, or requirements with hashes for uv. A tool
//! wrote it inside a fence, so it is read with bounds and parsed strictly before anything relies on it. From then on the
//! copy beside the tree counts, which no fence can write.

mod npm_lock;
mod requirements;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use thiserror::Error;

use crate::recognition::{Package, Tool};

/// Bounds a lock file. Those of large projects have a few megabytes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Bounds what is shown of a name or a version.
const MAX_WORD: usize = 256;

/// Why the text of a lock pins nothing.
#[derive(Debug, Error)]
pub(crate) enum PinsError {
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("it is longer than {} MiB", MAX_BYTES >> 20)]
    TooLong,
    #[error("it is not a lock file: {0}")]
    Malformed(String),
    #[error("it has no hash for `{0}`")]
    NoHash(String),
    #[error("`{0}` does not come from a registry")]
    NotFromRegistry(String),
    #[error("it does not contain `{0}`")]
    Missing(String),
}

/// One package of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The files that may be installed for it, as the tool writes their hashes. Empty if another package contains it.
    pub(crate) hashes: BTreeSet<String>,
    /// Whether npm would run a script of it on this machine, if that is allowed.
    pub(crate) has_install_script: bool,
    /// False for the other versions of a package that some of its dependents need.
    pub(crate) is_at_top: bool,
}

/// A lock that was checked.
#[derive(Clone, Debug)]
pub(crate) struct Pins {
    tool: Tool,
    text: String,
    packages: Vec<Pin>,
}

impl Pins {
    /// The file that the tool writes its lock to, and reads it from.
    pub(crate) fn file_name(tool: Tool) -> &'static str {
        match tool {
            Tool::Npx => "package-lock.json",
            Tool::Uvx => "requirements.lock",
        }
    }

    /// Reads a lock with care: a fenced process may have left a link, a pipe or an endless file in its place.
    pub(crate) fn read(tool: Tool, path: &Path) -> Result<Self, PinsError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?);
        if !file.metadata()?.is_file() {
            return Err(PinsError::Malformed("it is not a regular file".to_owned()));
        }
        let mut text = String::new();
        file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
        Self::parse(tool, text)
    }

    pub(crate) fn parse(tool: Tool, text: String) -> Result<Self, PinsError> {
        if text.len() as u64 > MAX_BYTES {
            return Err(PinsError::TooLong);
        }
        let packages = match tool {
            Tool::Npx => npm_lock::packages(&text)?,
            Tool::Uvx => requirements::packages(&text)?,
        };
        Ok(Self { tool, text, packages })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn packages(&self) -> &[Pin] {
        &self.packages
    }

    /// The package itself, as opposed to what it depends on.
    pub(crate) fn top(&self, package: &Package) -> Result<&Pin, PinsError> {
        let name = match self.tool {
            Tool::Npx => package.name().to_owned(),
            Tool::Uvx => requirements::normalised(package.name()),
        };
        let is_top = |pin: &&Pin| pin.is_at_top && pin.name == name;
        self.packages.iter().find(is_top).ok_or(PinsError::Missing(name))
    }

    /// The names of the packages with install scripts, each once.
    pub(crate) fn with_install_scripts(&self) -> BTreeSet<&str> {
        self.packages.iter().filter(|pin| pin.has_install_script).map(|pin| pin.name.as_str()).collect()
    }

    /// Puts the lock where the tool reads it, in place of anything that a step before has left there.
    pub(crate) fn write_into(&self, tree: &Path) -> io::Result<()> {
        write_new(&tree.join(Self::file_name(self.tool)), &self.text)?;
        if self.tool == Tool::Npx {
            let description = npm_lock::description(&self.text).map_err(io::Error::other)?;
            write_new(&tree.join("package.json"), &description)?;
        }
        Ok(())
    }
}

/// Replaces a file without following a link in its place.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    io::Write::write_all(&mut File::create_new(path)?, text.as_bytes())
}

/// Accepts what names and versions consist of, so that nothing else reaches a terminal or a tool.
fn word(text: &str) -> Result<String, PinsError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@/-._~+!".contains(c);
    if text.is_empty() || text.len() > MAX_WORD || !text.chars().all(is_plain) {
        return Err(PinsError::Malformed(format!("{:?} is no name or version", shortened(text))));
    }
    Ok(text.to_owned())
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recognition::recognise;
    use serde_json::{Value, json};

    fn integrity(letter: char) -> String {
        format!("sha512-{}==", letter.to_string().repeat(86))
    }

    fn npm(packages: &Value) -> Result<Pins, PinsError> {
        Pins::parse(Tool::Npx, json!({"lockfileVersion": 3, "packages": packages}).to_string())
    }

    fn entry(version: &str) -> Value {
        json!({"version": version, "resolved": "https://r.example/a.tgz", "integrity": integrity('a')})
    }

    fn package(line: &str) -> Package {
        recognise(&line.split(' ').map(Into::into).collect::<Vec<_>>()).unwrap().package
    }

    #[test]
    fn a_lock_of_npm_names_every_version_and_hash() {
        let mut script = entry("2.0.0");
        script["hasInstallScript"] = true.into();
        let mut elsewhere = script.clone();
        elsewhere["os"] = json!(["no-such-system"]);
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let pins = npm(&json!({
            "": {"dependencies": {"@s/a": "^1.0.0"}},
            "node_modules/b": script,
            "node_modules/elsewhere": elsewhere,
            "node_modules/b/node_modules/@s/a": entry("0.9.0"),
            "node_modules/@s/a": entry("1.0.0"),
            "node_modules/b/node_modules/inside": {"version": "1.0.0", "inBundle": true},
            "node_modules/git": {"version": "1.0.0", "resolved": format!("git+ssh://git@r.example/x.git#{commit}")},
        }))
        .unwrap();
        let top = pins.top(&package("npx -y @s/a@^1")).unwrap();
        assert_eq!((&*top.version, &top.hashes), ("1.0.0", &BTreeSet::from([integrity('a')])));
        assert!(matches!(pins.top(&package("npx -y inside")), Err(PinsError::Missing(_))));
        assert_eq!((pins.packages().len(), pins.with_install_scripts()), (6, BTreeSet::from(["b", "git"])));
        let git = pins.top(&package("npx -y git")).unwrap();
        assert_eq!(git.hashes, BTreeSet::from([format!("commit-{commit}")]));
    }

    #[test]
    fn a_lock_of_npm_that_does_not_pin_everything_is_refused() {
        let with = |name: &str, value: Value| {
            let mut entry = entry("1.0.0");
            entry[name] = value;
            entry
        };
        assert!(npm(&json!({"node_modules/a": entry("1.0.0")})).is_ok(), "the control");
        let refused = [
            ("node_modules/a", with("integrity", Value::Null), "no hash for `a`"),
            ("node_modules/a", with("integrity", "sha512-short".into()), "hash of `a`"),
            ("node_modules/a", with("integrity", "md5-Q2hlY2sgSW50ZWdyaXR5IQ==".into()), "hash of `a`"),
            ("node_modules/a", with("resolved", "file:../secret.tgz".into()), "registry"),
            ("node_modules/a", with("resolved", "git+ssh://r.example/x.git#main".into()), "registry"),
            ("node_modules/a", with("link", true.into()), "registry"),
            ("node_modules/a", with("version", Value::Null), "no version"),
            ("node_modules/a", with("version", "1\u{1b}[31m".into()), "no name or version"),
            ("node_modules/a", with("version", 1.into()), "not a lock file"),
            ("node_modules/../../a", entry("1.0.0"), "registry"),
            ("elsewhere/a", entry("1.0.0"), "registry"),
            ("node_modules/a b", entry("1.0.0"), "no name or version"),
        ];
        for (place, entry, expected) in refused {
            let error = npm(&json!({place: entry})).unwrap_err().to_string();
            assert!(error.contains(expected), "{place} {entry}: {error}");
        }
        for text in ["", "[]", "{\"lockfileVersion\": 2, \"packages\": {}}", "{\"lockfileVersion\": 3}"] {
            assert!(
                matches!(Pins::parse(Tool::Npx, text.to_owned()), Err(PinsError::Malformed(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn requirements_name_every_version_and_hash() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        let text = format!(
            "# by uv\nanyio==4.1 ; python_version < '4' \\\n    --hash=sha256:{a} \\\n    --hash=sha256:{b}\n\
             some-server==1!2.0+local \\\n    --hash=sha256:{b}\n"
        );
        let pins = Pins::parse(Tool::Uvx, text).unwrap();
        let top = pins.top(&package("uvx Some_Server[cli]@2")).unwrap();
        assert_eq!((&*top.version, &top.hashes), ("1!2.0+local", &BTreeSet::from([format!("sha256:{b}")])));
        assert_eq!(pins.packages()[0].hashes.len(), 2);
    }

    #[test]
    fn requirements_that_do_not_pin_everything_are_refused() {
        let hash = format!("--hash=sha256:{}", "a".repeat(64));
        let parse = |text: String| Pins::parse(Tool::Uvx, text);
        assert!(parse(format!("a==1 {hash}\n")).is_ok(), "the control");
        let refused = [
            "a==1\n".to_owned(),
            format!("a>=1 {hash}\n"),
            format!("a @ file:///x {hash}\n"),
            format!("--index-url=http://x.example {hash}\n"),
            "-r other.txt\n".to_owned(),
            "a==1 --hash=sha256:12\n".to_owned(),
            format!("a==1 {hash} --config-settings=x\n"),
            format!("a==1 --hash=md5:{}\n", "a".repeat(32)),
        ];
        for text in refused {
            assert!(parse(text.clone()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_lock_is_read_only_if_it_is_a_file_of_bounded_size() {
        let directory = testkit::workspace_dir("pins-read");
        let lock = directory.join("lock");
        let text = format!("a==1 --hash=sha256:{}\n", "a".repeat(64));
        std::fs::write(directory.join("real"), &text).unwrap();
        assert!(Pins::read(Tool::Uvx, &directory.join("real")).is_ok(), "the control");
        std::os::unix::fs::symlink(directory.join("real"), &lock).unwrap();
        assert!(matches!(Pins::read(Tool::Uvx, &lock), Err(PinsError::Unreadable(_))), "a link");
        std::fs::remove_file(&lock).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &lock, Mode::RWXU).unwrap();
        assert!(matches!(Pins::read(Tool::Uvx, &lock), Err(PinsError::Malformed(_))), "a pipe");
        std::fs::remove_file(&lock).unwrap();
        std::fs::write(&lock, text).unwrap();
        File::options().write(true).open(&lock).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(matches!(Pins::read(Tool::Uvx, &lock), Err(PinsError::TooLong)), "a large file");
    }

    #[test]
    fn the_lock_replaces_what_a_step_before_left() {
        let directory = testkit::workspace_dir("pins-write");
        let (tree, outside) = (directory.join("tree"), directory.join("outside"));
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(&outside, "mine").unwrap();
        for name in ["package.json", "package-lock.json"] {
            std::os::unix::fs::symlink(&outside, tree.join(name)).unwrap();
        }
        let pins =
            npm(&json!({"": {"dependencies": {"a": "^1"}}, "node_modules/a": entry("1.0.0")})).unwrap();
        pins.write_into(&tree).unwrap();
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "mine");
        assert_eq!(std::fs::read_to_string(tree.join("package-lock.json")).unwrap(), pins.text());
        let description: Value =
            serde_json::from_slice(&std::fs::read(tree.join("package.json")).unwrap()).unwrap();
        assert_eq!(description["dependencies"], json!({"a": "^1"}));
    }
}
