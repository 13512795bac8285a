//! Recognises commands that launch a package: `npx -y PACKAGE …` and `uvx PACKAGE …`, in the forms that are safe to
//! replace. Every other command runs as it was written.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A package tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    Npx,
    Uvx,
}

impl Tool {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Npx => "npx",
            Self::Uvx => "uvx",
        }
    }

    /// The program that installs its packages.
    pub(crate) fn installer(self) -> &'static str {
        match self {
            Self::Npx => "npm",
            Self::Uvx => "uv",
        }
    }
}

/// A package with everything that decides what is installed: equal packages share a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    pub(crate) tool: Tool,
    /// The launcher as it was written: `npx`, or a path to it.
    pub(crate) launcher: String,
    /// The packages to install, in the tool's own notation. Never empty.
    pub(crate) specifications: Vec<String>,
    /// The program to run. `None`: the package's own description decides.
    pub(crate) executable: Option<String>,
    /// Further packages to install beside it (`uvx --with`).
    pub(crate) with: Vec<String>,
    /// The Python that was asked for.
    pub(crate) python: Option<String>,
    /// Whether code of packages may run when they are installed. Absent where false, so that directories from before it
    /// existed keep their names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) install_scripts: bool,
}

impl Package {
    pub fn tool(&self) -> Tool {
        self.tool
    }

    /// The packages as they were written: `@scope/name@1.2`.
    pub fn specification(&self) -> String {
        self.specifications.join(" ")
    }

    /// The name of the first package without version and extras.
    pub fn name(&self) -> &str {
        package_name(&self.specifications[0])
    }

    /// Whether code of packages may run when they are installed.
    pub fn allows_install_scripts(&self) -> bool {
        self.install_scripts
    }

    /// The same package with the other answer to whether install scripts may run.
    pub(crate) fn sibling(&self) -> Self {
        Self { install_scripts: !self.install_scripts, ..self.clone() }
    }

    /// Whether `name` is its name, or one of its specifications as written.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name() == name || self.specifications.iter().any(|specification| specification == name)
    }
}

/// A command that launches a package, with the arguments for the package's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageCommand {
    pub package: Package,
    pub(crate) arguments: Vec<OsString>,
}

impl PackageCommand {
    /// Sets whether install scripts of npm packages run, and Python packages without wheels are built. By default
    /// neither happens.
    #[must_use]
    pub fn allow_install_scripts(mut self, is_allowed: bool) -> Self {
        self.package.install_scripts = is_allowed;
        self
    }
}

/// Reads a command that launches a package. Returns `None` also for forms that it does not know.
pub fn recognise(command: &[OsString]) -> Option<PackageCommand> {
    let (program, words) = command.split_first()?;
    let launcher = program.to_str()?;
    match Path::new(program).file_name()?.to_str()? {
        "npx" => npx(launcher, words),
        "uvx" => uvx(launcher, words),
        "uv" => match words {
            [tool, run, rest @ ..] if tool == "tool" && run == "run" => uvx(launcher, rest),
            _ => None,
        },
        _ => None,
    }
}

/// One word before the package.
enum Word<'a> {
    /// An option, with the value that was joined to it by `=`.
    Option(&'a str, Option<&'a str>),
    EndOfOptions,
    Positional(&'a str),
}

/// The words of a command, from the left. Launchers read options up to the first other word.
struct Words<'a>(std::slice::Iter<'a, OsString>);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<Word<'a>> {
        let word = self.0.next()?.to_str()?;
        Some(match word.split_once('=') {
            _ if word == "--" => Word::EndOfOptions,
            _ if !word.starts_with('-') => Word::Positional(word),
            Some((name, value)) => Word::Option(name, Some(value)),
            None => Word::Option(word, None),
        })
    }

    /// The value of an option: the joined one, or the next word.
    fn value(&mut self, joined: Option<&'a str>) -> Option<String> {
        let value = match joined {
            Some(value) => value,
            None => self.0.next()?.to_str()?,
        };
        (!value.is_empty() && !value.starts_with('-')).then(|| value.to_owned())
    }

    fn positional(&mut self) -> Option<&'a str> {
        self.0.next()?.to_str().filter(|word| !word.starts_with('-'))
    }

    fn rest(self) -> Vec<OsString> {
        self.0.cloned().collect()
    }
}

fn npx(launcher: &str, words: &[OsString]) -> Option<PackageCommand> {
    let mut words = Words(words.iter());
    let mut packages = Vec::new();
    let positional = loop {
        match words.next()? {
            Word::Option("-y" | "--yes" | "-q" | "--quiet" | "-s" | "--silent", None) => {}
            Word::Option("-p" | "--package", joined) => packages.push(words.value(joined)?),
            Word::Option(..) => return None,
            Word::EndOfOptions => break words.positional()?,
            Word::Positional(word) => break word,
        }
    };
    let executable = if packages.is_empty() {
        packages.push(positional.to_owned());
        None
    } else {
        Some(positional.to_owned())
    };
    let is_understood = packages.iter().all(|package| is_npm_registry_specification(package))
        && executable.as_deref().is_none_or(is_file_name);
    let package = Package {
        tool: Tool::Npx,
        launcher: launcher.to_owned(),
        specifications: packages,
        executable,
        with: Vec::new(),
        python: None,
        install_scripts: false,
    };
    is_understood.then(|| PackageCommand { package, arguments: words.rest() })
}

fn uvx(launcher: &str, words: &[OsString]) -> Option<PackageCommand> {
    let mut words = Words(words.iter());
    let (mut from, mut with, mut python) = (None, Vec::new(), None);
    let positional = loop {
        match words.next()? {
            Word::Option("-q" | "--quiet", None) => {}
            Word::Option("--from", joined) => from = Some(words.value(joined)?),
            Word::Option("--with", joined) => with.push(words.value(joined)?),
            Word::Option("-p" | "--python", joined) => python = Some(words.value(joined)?),
            Word::Option(..) => return None,
            Word::EndOfOptions => break words.positional()?,
            Word::Positional(word) => break word,
        }
    };
    let executable = if from.is_some() { positional } else { package_name(positional) };
    let specification = from.unwrap_or_else(|| positional.to_owned());
    let is_understood = with.iter().flat_map(|with| with.split(',')).all(is_python_index_specification)
        && is_python_index_specification(&specification)
        && is_file_name(executable);
    let package = Package {
        tool: Tool::Uvx,
        launcher: launcher.to_owned(),
        executable: Some(executable.to_owned()),
        specifications: vec![specification],
        with,
        python,
        install_scripts: false,
    };
    is_understood.then(|| PackageCommand { package, arguments: words.rest() })
}

/// The part before version and extras.
fn package_name(specification: &str) -> &str {
    let scope = specification.find('/').filter(|_| specification.starts_with('@')).map_or(0, |end| end + 1);
    let is_end = |c: char| "@=<>!~[; ".contains(c);
    let end = specification[scope..].find(is_end).map_or(specification.len(), |end| scope + end);
    &specification[..end]
}

/// Accepts `name` and `@scope/name`, each with or without `@version`; rejects paths, URLs and `owner/repository`.
fn is_npm_registry_specification(text: &str) -> bool {
    let is_word = |word: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        !word.is_empty() && !word.starts_with(['.', '-', '~']) && word.chars().all(is_plain)
    };
    let (name, version) = match text[1.min(text.len())..].find('@') {
        Some(at) => (&text[..=at], Some(&text[at + 2..])),
        None => (text, None),
    };
    let is_name = match name.strip_prefix('@').map(|rest| rest.split_once('/')) {
        Some(Some((scope, name))) => is_word(scope) && is_word(name),
        Some(None) => false,
        // npm would take these for files.
        None => is_word(name) && ![".tgz", ".tar", ".tar.gz"].iter().any(|end| name.ends_with(end)),
    };
    is_name && version.is_none_or(|version| !version.is_empty() && !version.contains([':', '/']))
}

/// Accepts `name` with or without extras and versions; rejects paths and URLs.
fn is_python_index_specification(text: &str) -> bool {
    let name = package_name(text);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let starts_well = |c: char| c.is_ascii_alphanumeric();
    name.starts_with(starts_well)
        && name.chars().all(is_plain)
        && !text.contains(['/', ':'])
        // These would end or split its line among the requirements.
        && !text.contains(|c: char| c.is_control() || "\\#".contains(c))
        // uv would take these for files.
        && ![".whl", ".zip", ".tar.gz", ".py"].iter().any(|end| name.ends_with(end))
}

fn is_file_name(text: &str) -> bool {
    Path::new(text).file_name() == Some(OsStr::new(text)) && !text.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognised(line: &str) -> Option<PackageCommand> {
        recognise(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn commands_that_launch_packages_are_understood() {
        type Expected<'a> = (&'a str, &'a [&'a str], Option<&'a str>, &'a [&'a str]);
        let table: &[Expected<'_>] = &[
            ("npx -y server", &["server"], None, &[]),
            ("npx server --flag x", &["server"], None, &["--flag", "x"]),
            ("/opt/bin/npx --yes @scope/server@1.2.3 a", &["@scope/server@1.2.3"], None, &["a"]),
            ("npx -y @scope/server@^2", &["@scope/server@^2"], None, &[]),
            ("npx -y server@latest -- a", &["server@latest"], None, &["--", "a"]),
            ("npx -y -- server -y", &["server"], None, &["-y"]),
            ("npx -q -y -p one --package=two@1 run -p", &["one", "two@1"], Some("run"), &["-p"]),
            ("uvx mcp-server-time --tz UTC", &["mcp-server-time"], Some("mcp-server-time"), &["--tz", "UTC"]),
            ("uvx tool@1.2", &["tool@1.2"], Some("tool"), &[]),
            ("uvx tool==1.2 x", &["tool==1.2"], Some("tool"), &["x"]),
            ("uvx tool[cli]>=1", &["tool[cli]>=1"], Some("tool"), &[]),
            (
                "uvx --from=package[x]@2 command --from y",
                &["package[x]@2"],
                Some("command"),
                &["--from", "y"],
            ),
            ("uv tool run --python 3.12 --with a,b tool", &["tool"], Some("tool"), &[]),
        ];
        for (line, specifications, executable, arguments) in table {
            let Some(PackageCommand { package, arguments: found }) = recognised(line) else {
                panic!("{line} is not recognised");
            };
            assert_eq!(package.specifications, *specifications, "{line}");
            assert_eq!(package.executable.as_deref(), *executable, "{line}");
            assert_eq!(found, *arguments, "{line}");
        }
        let with = recognised("uvx --python 3.12 --with a,b --with=c tool").unwrap().package;
        assert_eq!(
            (with.with, with.python),
            (vec!["a,b".to_owned(), "c".to_owned()], Some("3.12".to_owned()))
        );
    }

    #[test]
    fn what_is_not_understood_runs_as_written() {
        let lines = [
            "node server.js",
            "npx",
            "npx -y",
            "npx -c ls",
            "npx -y --offline server",
            "npx --no server",
            "npx -y ./server",
            "npx -y ../server",
            "npx -y /srv/server",
            "npx -y ~/server",
            "npx -y owner/repository",
            "npx -y git+ssh://example.org/x.git",
            "npx -y https://example.org/x.tgz",
            "npx -y server.tgz",
            "npx -y server@npm:other",
            "npx -y server@",
            "npx -y @scope",
            "npx -y -p server",
            "npx -y -p -x server",
            "npx -p server ../run",
            "uvx",
            "uvx --refresh tool",
            "uvx --from git+https://example.org/x tool",
            "uvx --from ./here tool",
            "uvx --from tool ../../x",
            "uvx --with ./x tool",
            "uvx ./tool",
            "uvx script.py",
            "uvx tool==1\n--index-url=x",
            "uvx tool#x",
            "uv run tool",
            "uv tool install tool",
        ];
        for line in lines {
            assert_eq!(recognised(line), None, "{line}");
        }
    }

    #[test]
    fn a_package_is_named_its_name_or_its_whole_specification() {
        let package = recognised("npx -y @scope/server@1.2").unwrap().package;
        assert!(package.is_named("@scope/server") && package.is_named("@scope/server@1.2"));
        assert!(!package.is_named("server") && !package.is_named("@scope/server@1"));
    }
}
