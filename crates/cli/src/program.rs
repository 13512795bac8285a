//! The command after `--`: finds its program, and derives the server's name from it.

use std::ffi::{OsStr, OsString};
use std::path::Path;

pub(crate) use packages::find_program as find;

/// The server's name for logs: the package for launchers such as `npx -y PACKAGE`, else the program.
pub(crate) fn upstream_name(program: &OsStr, arguments: &[OsString]) -> String {
    let program = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
    let package =
        arguments.iter().map(|argument| argument.to_string_lossy()).find(|word| !word.starts_with('-'));
    match package {
        Some(package) if matches!(program.as_str(), "npx" | "uvx" | "bunx") => package.into_owned(),
        _ => program,
    }
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
    }
}
