//! The command after `--`: finds its program, and derives the server's name from it.

use std::ffi::{OsStr, OsString};
use std::path::Path;

pub(crate) use packages::find_program as find;

/// Programs that start a package which an argument names.
const LAUNCHERS: &[&str] = &["npx", "uvx", "bunx", "pnpx"];

/// Their options whose value is the next word.
const VALUED_OPTIONS: &[&str] = &[
    "--python",
    "--from",
    "--with",
    "--with-editable",
    "--with-requirements",
    "--index-url",
    "--index",
    "--default-index",
    "--extra-index-url",
    "--find-links",
    "--cache-dir",
    "--directory",
    "--config-file",
    "-p",
    "-i",
    "-f",
    "--package",
    "--registry",
    "--workspace",
    "-w",
    "--cache",
    "--userconfig",
];

/// The server's name for logs: the package for launchers such as `npx -y PACKAGE`, else the program.
pub(crate) fn upstream_name(program: &OsStr, arguments: &[OsString]) -> String {
    let command: Vec<OsString> =
        std::iter::once(program.to_owned()).chain(arguments.iter().cloned()).collect();
    if let Some(command) = packages::recognise(&command) {
        return command.package.specification();
    }
    let program = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
    if !LAUNCHERS.contains(&program.as_str()) {
        return program;
    }
    let mut words = arguments.iter().map(|argument| argument.to_string_lossy());
    while let Some(word) = words.next() {
        if VALUED_OPTIONS.contains(&&*word) {
            words.next();
        } else if !word.starts_with('-') {
            return word.into_owned();
        }
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launched_package_names_the_upstream() {
        let name = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(Into::into).collect();
            upstream_name(&words[0], &words[1..])
        };
        assert_eq!(name(&["/usr/bin/npx", "-y", "@scope/server", "arg"]), "@scope/server");
        assert_eq!(name(&["./my-server", "x"]), "my-server");
        assert_eq!(name(&["uvx", "--python", "3.12", "mcp-server-time"]), "mcp-server-time");
        assert_eq!(name(&["uvx", "--index-url", "https://x", "--python=3.12", "pkg"]), "pkg");
        assert_eq!(name(&["uv", "tool", "run", "-p", "3.12", "pkg"]), "pkg");
        assert_eq!(name(&["bunx", "--verbose", "pkg@1"]), "pkg@1");
        assert_eq!(name(&["npx"]), "npx");
    }
}
