//! Which directories a program needs to be read from: its own prefix, and its interpreter's. For the strict
//! read mode, and for programs that lie where other things are hidden.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A script may name an interpreter that is a script.
const MAX_INTERPRETERS: usize = 4;

/// The prefixes of a program and of the interpreters that run it. None of them contains a path of `closed`:
/// the home directory, and what must not be read.
pub fn readable_for(program: &Path, search_path: &OsStr, closed: &[PathBuf]) -> Vec<PathBuf> {
    let mut readable = Vec::new();
    let mut current = Some(program.to_owned());
    for _ in 0..MAX_INTERPRETERS {
        let Some(path) = current.take() else { break };
        for spelling in [Some(path.clone()), path.canonicalize().ok()].into_iter().flatten() {
            readable.extend(prefix(&spelling, closed));
        }
        current = interpreter(&path, search_path);
    }
    readable.sort();
    readable.dedup();
    readable
}

/// `/opt/x/bin/tool` needs `/opt/x`; a tool straight in a home directory needs its own directory only.
fn prefix(program: &Path, closed: &[PathBuf]) -> Option<PathBuf> {
    let directory = program.parent()?;
    let is_too_wide =
        |path: &Path| path.parent().is_none() || closed.iter().any(|closed| closed.starts_with(path));
    let above = directory.parent().filter(|above| !is_too_wide(above));
    match above {
        Some(above) if directory.ends_with("bin") || directory.ends_with(".bin") => Some(above.to_owned()),
        _ if is_too_wide(directory) => Some(program.to_owned()),
        _ => Some(directory.to_owned()),
    }
}

/// The program that a script asks for in its first line.
fn interpreter(script: &Path, search_path: &OsStr) -> Option<PathBuf> {
    let mut head = [0; 256];
    let length = std::fs::File::open(script).ok()?.read(&mut head).ok()?;
    let first = head[..length].split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(first).ok()?.strip_prefix("#!")?.trim();
    let mut words = line.split_ascii_whitespace();
    let program = Path::new(words.next()?);
    if program.file_name()? != "env" {
        return Some(program.to_owned());
    }
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    std::env::split_paths(search_path).map(|directory| directory.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_of_a_script_is_readable_too() {
        let base = crate::scratch::directory("toolchain");
        std::fs::create_dir_all(base.join("tools/bin")).unwrap();
        std::fs::create_dir_all(base.join("node/bin")).unwrap();
        std::fs::write(base.join("tools/bin/npx"), "#!/usr/bin/env node\n").unwrap();
        std::fs::write(base.join("node/bin/node"), "\x7fELF").unwrap();
        let readable = readable_for(&base.join("tools/bin/npx"), base.join("node/bin").as_os_str(), &[]);
        assert_eq!(readable, [base.join("node"), base.join("tools")]);
    }

    #[test]
    fn a_home_directory_is_never_a_prefix() {
        let home = &[PathBuf::from("/home/u"), "/home/u/.local/share/keyrings".into()][..];
        assert_eq!(prefix(Path::new("/home/u/bin/tool"), home), Some("/home/u/bin".into()));
        assert_eq!(prefix(Path::new("/home/u/tool"), home), Some("/home/u/tool".into()));
        assert_eq!(prefix(Path::new("/home/u/.local/bin/uvx"), home), Some("/home/u/.local/bin".into()));
        assert_eq!(prefix(Path::new("/bin/sh"), home), Some("/bin".into()));
    }
}
