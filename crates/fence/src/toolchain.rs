//! Which directories a program needs to read: its own prefix and its interpreter's. For the strict read mode, and for
//! programs inside hidden directories.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A script may name an interpreter that is a script.
const MAX_INTERPRETERS: usize = 4;
/// More programs of one directory are not looked at.
const MAX_PROGRAMS: usize = 512;
/// More prefixes than this make a rule set that takes long to install.
const MAX_PREFIXES: usize = 128;

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

/// The prefixes of every program on a search path, except those in the system's directories, which are readable
/// anyway.
pub(crate) fn readable_for_all(search_path: &OsStr, closed: &[PathBuf]) -> Vec<PathBuf> {
    let is_systems = |path: &PathBuf| {
        ["/usr", "/bin", "/sbin"].iter().any(|system| path.starts_with(system)) || !path.is_absolute()
    };
    let mut readable = Vec::new();
    for directory in std::env::split_paths(search_path).filter(|path| !is_systems(path) && path.is_dir()) {
        // Any name in it will do: what matters is where it lies.
        readable.extend(prefix(&directory.join("program"), closed).filter(|prefix| prefix.is_dir()));
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten().take(MAX_PROGRAMS);
        let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
        let elsewhere = links.filter_map(|link| link.path().canonicalize().ok());
        readable.extend(elsewhere.filter(|path| !is_systems(path)).filter_map(|path| prefix(&path, closed)));
    }
    readable.sort();
    readable.dedup();
    readable.truncate(MAX_PREFIXES);
    readable
}

/// `/opt/x/bin/tool` needs `/opt/x`; a tool straight in a home directory needs its own directory only.
fn prefix(program: &Path, closed: &[PathBuf]) -> Option<PathBuf> {
    let directory = program.parent()?;
    let is_too_wide =
        |path: &Path| path.parent().is_none() || closed.iter().any(|closed| closed.starts_with(path));
    let is_usable = |path: &&Path| !is_too_wide(path);
    // A package finds what it needs beside and above itself.
    if let Some(modules) = directory.ancestors().filter(|path| path.ends_with("node_modules")).last() {
        return Some(modules.to_owned());
    }
    if let Some(project) = directory.ancestors().take_while(is_usable).find(|path| is_project(path)) {
        return Some(project.to_owned());
    }
    let above = directory.parent().filter(is_usable);
    match above {
        Some(above) if directory.ends_with("bin") || directory.ends_with(".bin") => Some(above.to_owned()),
        _ if is_too_wide(directory) => Some(program.to_owned()),
        _ => Some(directory.to_owned()),
    }
}

fn is_project(directory: &Path) -> bool {
    ["package.json", "pyproject.toml"].iter().any(|name| directory.join(name).is_file())
}

/// Programs whose first word is a program itself.
const INTERPRETERS: &[&str] =
    &["bash", "bun", "dash", "deno", "node", "perl", "php", "python", "ruby", "sh", "tsx", "zsh"];

/// The script that an interpreter is given: the first word that is no option, if it names a file. Returns its
/// place and its absolute path. Returns `None` for programs that are no interpreters.
pub fn script_among(program: &OsStr, arguments: &[OsString], directory: &Path) -> Option<(usize, PathBuf)> {
    let name = Path::new(program).file_name()?.to_str()?;
    // As in `python3.12`.
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if !INTERPRETERS.contains(&name) {
        return None;
    }
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    let (place, word) = arguments.iter().enumerate().find(|(_, word)| !is_option(word))?;
    let path = directory.join(word);
    path.is_file().then_some((place, path))
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
        let base = crate::test_directory::directory("toolchain");
        std::fs::create_dir_all(base.join("tools/bin")).unwrap();
        std::fs::create_dir_all(base.join("node/bin")).unwrap();
        std::fs::write(base.join("tools/bin/npx"), "#!/usr/bin/env node\n").unwrap();
        std::fs::write(base.join("node/bin/node"), "\x7fELF").unwrap();
        let readable = readable_for(&base.join("tools/bin/npx"), base.join("node/bin").as_os_str(), &[]);
        assert_eq!(readable, [base.join("node"), base.join("tools")]);
    }

    #[test]
    fn whatever_is_on_the_search_path_can_be_run() {
        let base = crate::test_directory::directory("toolchain-all");
        let home = base.join("home");
        for directory in
            ["home/.cargo/bin", "home/.local/bin", "home/.local/share/tools/x/bin", "opt/node/bin"]
        {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        std::fs::write(home.join(".local/share/tools/x/bin/x"), "").unwrap();
        std::os::unix::fs::symlink(home.join(".local/share/tools/x/bin/x"), home.join(".local/bin/x"))
            .unwrap();
        let directories = [home.join(".cargo/bin"), home.join(".local/bin"), base.join("opt/node/bin")];
        let search_path = std::env::join_paths(directories).unwrap();
        let closed = [home.clone(), home.join(".cargo/credentials.toml"), home.join(".local/share/keyrings")];
        assert_eq!(
            readable_for_all(&search_path, &closed),
            [
                home.join(".cargo/bin"),
                home.join(".local/bin"),
                home.join(".local/share/tools/x"),
                base.join("opt/node"),
            ]
        );
    }

    fn script_path(base: &Path) -> PathBuf {
        base.join("app/src/main.js")
    }

    #[test]
    fn a_script_brings_its_package_along() {
        let base = crate::test_directory::directory("toolchain-script");
        std::fs::create_dir_all(base.join("app/src")).unwrap();
        std::fs::write(base.join("app/package.json"), "{}").unwrap();
        std::fs::write(base.join("app/src/main.js"), "").unwrap();
        let words: Vec<OsString> = ["--flag", "app/src/main.js", "x"].map(Into::into).into();
        let (place, script) = script_among("/opt/bin/node".as_ref(), &words, &base).unwrap();
        assert_eq!((place, &script), (1, &script_path(&base)));
        assert_eq!(prefix(&script, &[]), Some(base.join("app")));
        assert_eq!(
            prefix(&script, &[base.join("app/src/.secret")]),
            Some(script),
            "what is closed stays closed"
        );
        assert_eq!(script_among("python3.12".as_ref(), &words, &base), Some((1, script_path(&base))));
        assert_eq!(script_among("cat".as_ref(), &words, &base), None, "what others are given is not run");
        assert_eq!(script_among("node".as_ref(), &["/".into()], &base), None);
        let deep = Path::new("/srv/x/node_modules/@a/b/node_modules/c/index.js");
        assert_eq!(prefix(deep, &[]), Some("/srv/x/node_modules".into()));
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
