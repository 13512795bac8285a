//! From the command after `--` to an upstream: the program is found now, so that a typing error is an
//! error of the command line and not of the first session.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::Failure;

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

pub(crate) fn find(program: &OsStr, search_path: &OsStr) -> Result<PathBuf, Failure> {
    let shown = || program.to_string_lossy().into_owned();
    let candidates: Vec<PathBuf> = if program.as_encoded_bytes().contains(&b'/') {
        vec![std::path::absolute(program).map_err(|_| Failure::ProgramNotFound(shown()))?]
    } else {
        std::env::split_paths(search_path).map(|directory| directory.join(program)).collect()
    };
    let files: Vec<PathBuf> = candidates.into_iter().filter(|candidate| candidate.is_file()).collect();
    match files.iter().find(|file| is_executable(file)) {
        Some(found) => Ok(found.clone()),
        None if files.is_empty() => Err(Failure::ProgramNotFound(shown())),
        None => Err(Failure::ProgramNotExecutable(files[0].to_string_lossy().into_owned())),
    }
}

pub(crate) fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_on_the_upstreams_own_path() {
        assert!(find("sh".as_ref(), "/nowhere:/bin".as_ref()).unwrap().is_absolute());
        assert!(matches!(find("sh".as_ref(), "/nowhere".as_ref()), Err(Failure::ProgramNotFound(_))));
        assert!(matches!(find("/etc/passwd".as_ref(), "".as_ref()), Err(Failure::ProgramNotExecutable(_))));
    }

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
