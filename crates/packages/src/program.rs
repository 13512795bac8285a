//! Finds programs on a `PATH`, so that a typing error fails at the start and not in the first session.

use std::ffi::OsStr;
use std::path::PathBuf;

pub(crate) use fence::toolchain::is_executable;
use fence::toolchain::is_file;
use thiserror::Error;

/// Why a program cannot be started.
#[derive(Debug, Error)]
pub enum ProgramError {
    #[error("cannot start `{0}`: no such program")]
    NotFound(String),
    #[error("cannot start `{0}`: the file is not executable")]
    NotExecutable(String),
}

impl ProgramError {
    /// The reason without the program.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "no such program",
            Self::NotExecutable(_) => "the file is not executable",
        }
    }

    pub fn hint(&self) -> String {
        match self {
            Self::NotFound(program) => {
                format!("install `{program}`, give its full path, or pass another PATH with --env PATH=…")
            }
            Self::NotExecutable(program) => format!("make it executable: chmod +x {program}"),
        }
    }
}

/// Finds a program as `execvp` does: a name with a slash is a path, any other is looked for on `search_path`.
pub fn find_program(program: &OsStr, search_path: &OsStr) -> Result<PathBuf, ProgramError> {
    let shown = || program.to_string_lossy().into_owned();
    let candidates: Vec<PathBuf> = if program.as_encoded_bytes().contains(&b'/') {
        vec![std::path::absolute(program).map_err(|_| ProgramError::NotFound(shown()))?]
    } else {
        std::env::split_paths(search_path).map(|directory| directory.join(program)).collect()
    };
    let files: Vec<PathBuf> = candidates.into_iter().filter(|candidate| is_file(candidate)).collect();
    match files.iter().find(|file| is_executable(file)) {
        Some(found) => Ok(found.clone()),
        None if files.is_empty() => Err(ProgramError::NotFound(shown())),
        None => Err(ProgramError::NotExecutable(files[0].to_string_lossy().into_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_on_the_upstreams_own_path() {
        let find = |program: &str, search_path: &str| find_program(program.as_ref(), search_path.as_ref());
        assert!(find("sh", "/nowhere:/bin").unwrap().is_absolute());
        assert!(matches!(find("sh", "/nowhere"), Err(ProgramError::NotFound(_))));
        assert!(matches!(find("/etc/passwd", ""), Err(ProgramError::NotExecutable(_))));
    }
}
