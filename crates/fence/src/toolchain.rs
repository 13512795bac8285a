//! Which directories a program needs to read: its own prefix and its interpreter's. For the strict read mode, and for
//! programs inside hidden directories.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::link_walk::Held;
use crate::scope_scan::lexical;

/// A script may name an interpreter that is a script.
const MAX_INTERPRETERS: usize = 4;
/// More programs of one directory are not looked at.
const MAX_PROGRAMS: usize = 512;
/// As much of a script's first line as the kernel looks at.
const SHEBANG_BYTES: usize = 256;
/// More prefixes than this make a rule set that takes long to install.
const MAX_PREFIXES: usize = 128;

/// What may become readable because a program needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inference<'a> {
    pub(crate) search_path: &'a OsStr,
    pub(crate) home: Option<&'a Path>,
    /// Never readable, and never below what is.
    pub(crate) denied: &'a [PathBuf],
}

/// The prefixes of a program and of the interpreters that run it. None of them contains the home directory or a denied
/// path, and none lies in a denied one.
///
/// A script that an agent can write names any interpreter that it likes, and a link leads anywhere. So what a program
/// outside the system and the search path leads to has to be a well-known interpreter, or lie beside the program.
pub(crate) fn readable_for(program: &Path, inference: Inference<'_>) -> Vec<PathBuf> {
    let mut readable = Vec::new();
    let mut current = Some(program.to_owned());
    let mut is_trusted = inference.is_installed(program);
    for _ in 0..MAX_INTERPRETERS {
        let Some(path) = current.take() else { break };
        // A program of a workspace can be swapped at any time, so it is looked at once and held.
        let Some(held) = Held::find(&path).filter(Held::is_file) else { break };
        if inference.is_denied(&path) || inference.is_denied(held.path()) {
            break;
        }
        let own = inference.prefix(&path);
        readable.extend(own.clone());
        if inference.may_lead_to(held.path(), own.as_deref(), is_trusted) {
            readable.extend(inference.prefix(held.path()));
        }
        current = interpreter(&held, &mut SearchPath::of(inference.search_path))
            .filter(|next| inference.may_lead_to(next, own.as_deref(), is_trusted));
        is_trusted &= current.as_deref().is_some_and(|next| inference.is_installed(next));
    }
    readable.sort();
    readable.dedup();
    readable
}

impl Inference<'_> {
    fn is_denied(&self, path: &Path) -> bool {
        let real = Held::find(path).map_or_else(|| path.to_owned(), |held| held.path().to_owned());
        self.denied.iter().any(|denied| path.starts_with(denied) || real.starts_with(denied))
    }

    /// Whether a program lies where users and the system install programs, and no agent can write.
    fn is_installed(&self, program: &Path) -> bool {
        is_systems(program)
            || program.parent().is_some_and(|directory| {
                std::env::split_paths(self.search_path).any(|entry| entry == directory)
            })
    }

    /// Whether a script or a link may make this program readable. `beside` is the prefix of the script or the link.
    fn may_lead_to(&self, program: &Path, beside: Option<&Path>, is_trusted: bool) -> bool {
        let Some(held) = Held::find(program).filter(Held::is_executable) else { return false };
        if self.is_denied(program) || self.is_denied(held.path()) {
            return false;
        }
        let is_linked = held.path() != program;
        let is_beside = beside.is_some_and(|prefix| program.starts_with(prefix) && !is_linked);
        is_trusted || is_beside || self.is_installed(program) || is_known_interpreter(&held)
    }

    fn prefix(&self, program: &Path) -> Option<PathBuf> {
        prefix(program, &self.closed()).filter(|prefix| !self.is_denied(prefix))
    }

    /// What must not lie below anything that becomes readable.
    fn closed(&self) -> Vec<PathBuf> {
        self.home.map(Path::to_owned).into_iter().chain(self.denied.iter().cloned()).collect()
    }

    /// Whether a directory that a variable names can be shown. It may be set to the home directory by mistake.
    pub(crate) fn may_show(&self, directory: &Path) -> bool {
        let real = Held::find(directory).filter(Held::is_directory).map(|held| held.path().to_owned());
        real.is_some_and(|real| {
            directory.is_absolute()
                && !self.is_denied(directory)
                && !is_too_wide(directory, &self.closed())
                && !is_too_wide(&real, &self.closed())
        })
    }

    /// What a program on the search path needs that lies elsewhere: where a link leads, and the interpreter of a script.
    /// A link may go through another one on its way, such as `current` for the version in use.
    fn needed_elsewhere(&self, program: &Path, search_path: &mut SearchPath<'_>) -> Vec<PathBuf> {
        let Some(held) = Held::find(program).filter(Held::is_executable) else { return Vec::new() };
        let needed_to_run = self.needed_to_run(interpreter(&held, search_path));
        let named = std::fs::read_link(program).ok();
        let named = named.and_then(|target| Some(lexical(&program.parent()?.join(target))));
        let linked = named.into_iter().flat_map(|named| [named, held.path().to_owned()]);
        let linked = linked.filter(|path| !is_shown_anyway(path)).filter_map(|path| self.prefix(&path));
        linked.chain(needed_to_run).collect()
    }

    /// The same for a plain file of a directory, which is most of them and takes fewer looks.
    fn needed_by_plain(
        &self,
        directory: &Held,
        name: &OsStr,
        search_path: &mut SearchPath<'_>,
    ) -> Vec<PathBuf> {
        let mut head = [0; SHEBANG_BYTES];
        match directory.read_program(name, &mut head) {
            Some(length) => self.needed_to_run(interpreter_in(&head[..length], search_path)),
            None => Vec::new(),
        }
    }

    /// What a script needs because of its interpreter.
    fn needed_to_run(&self, interpreter: Option<PathBuf>) -> Vec<PathBuf> {
        let interpreter = interpreter
            .filter(|interpreter| !is_shown_anyway(interpreter))
            .filter(|interpreter| self.may_lead_to(interpreter, None, false));
        // The Python of a virtual environment is a link.
        let runtimes = interpreter.into_iter().flat_map(|interpreter| {
            let real = Held::find(&interpreter).map(|held| held.path().to_owned());
            std::iter::once(interpreter).chain(real)
        });
        let elsewhere = runtimes.filter(|path| !is_shown_anyway(path));
        elsewhere.filter_map(|path| self.prefix(&path)).collect()
    }
}

fn is_systems(path: &Path) -> bool {
    ["/usr", "/bin", "/sbin", "/lib", "/opt", "/nix/store", "/gnu/store", "/run/current-system"]
        .iter()
        .any(|system| path.starts_with(system))
}

/// Whether a path is readable in every fence, or no path that could be shown.
fn is_shown_anyway(path: &Path) -> bool {
    is_systems(path) || !path.is_absolute()
}

/// Whether a directory holds something that must stay closed, or everything.
fn is_too_wide(path: &Path, closed: &[PathBuf]) -> bool {
    path.parent().is_none() || closed.iter().any(|closed| closed.starts_with(path))
}

/// Whether a path leads to a file. Paths in workspaces are followed without trusting that they stay the same.
pub fn is_file(path: &Path) -> bool {
    Held::find(path).is_some_and(|held| held.is_file())
}

/// Whether a path leads to a file that this user may execute.
pub fn is_executable(path: &Path) -> bool {
    Held::find(path).is_some_and(|held| held.is_executable())
}

/// Whether a program is a binary with the name of an interpreter.
fn is_known_interpreter(program: &Held) -> bool {
    let mut magic = [0; 4];
    let is_binary = program.read_head(&mut magic) == Some(4) && &magic == b"\x7fELF";
    is_binary && program.path().file_name().is_some_and(is_interpreter_name)
}

/// The prefixes of every program on a search path, except those in the system's directories, which are readable
/// anyway.
pub(crate) fn readable_for_all(inference: Inference<'_>) -> Vec<PathBuf> {
    let mut readable = Vec::new();
    let mut search_path = SearchPath::of(inference.search_path);
    let mut seen = HashSet::new();
    let directories = std::env::split_paths(inference.search_path).filter(|path| !is_shown_anyway(path));
    for directory in directories.filter(|path| seen.insert(path.clone())) {
        let Some(held) = Held::find(&directory).filter(Held::is_directory) else { continue };
        let is_directory = |path: &PathBuf| Held::find(path).is_some_and(|held| held.is_directory());
        // Any name in it will do: what matters is where it lies. The directory may be a link.
        let any = [&directory, held.path()].map(|directory| inference.prefix(&directory.join("program")));
        readable.extend(any.into_iter().flatten().filter(is_directory));
        for (name, kind) in held.files().into_iter().take(MAX_PROGRAMS) {
            readable.extend(match kind {
                FileType::RegularFile => inference.needed_by_plain(&held, &name, &mut search_path),
                _ => inference.needed_elsewhere(&directory.join(name), &mut search_path),
            });
        }
    }
    readable.sort();
    readable.dedup();
    readable.truncate(MAX_PREFIXES);
    readable
}

/// `/opt/x/bin/tool` needs `/opt/x`; a tool straight in a home directory needs its own directory only.
fn prefix(program: &Path, closed: &[PathBuf]) -> Option<PathBuf> {
    let directory = program.parent()?;
    let is_usable = |path: &&Path| !is_too_wide(path, closed);
    if let Some(homebrew) = directory.ancestors().find_map(homebrew).filter(is_usable) {
        return Some(homebrew.to_owned());
    }
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
        _ if is_too_wide(directory, closed) => Some(program.to_owned()),
        _ => Some(directory.to_owned()),
    }
}

/// The prefix of Homebrew, if `directory` is the one in which it keeps programs. They use libraries and interpreters of
/// one another.
fn homebrew(directory: &Path) -> Option<&Path> {
    let prefix = directory.parent().filter(|_| directory.ends_with("Cellar"))?;
    is_executable(&prefix.join("bin/brew")).then_some(prefix)
}

fn is_project(directory: &Path) -> bool {
    ["package.json", "pyproject.toml"].iter().any(|name| is_file(&directory.join(name)))
}

/// Programs whose first word is a program itself.
const INTERPRETERS: &[&str] =
    &["bash", "bun", "dash", "deno", "node", "perl", "php", "python", "ruby", "sh", "tsx", "zsh"];

fn is_interpreter_name(name: &OsStr) -> bool {
    // As in `python3.12`.
    let name = name.to_str().unwrap_or_default().trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name)
}

/// The script that an interpreter is given: the first word that is no option, if it names a file. Returns its
/// place and its absolute path. Returns `None` for programs that are no interpreters.
pub fn script_among(program: &OsStr, arguments: &[OsString], directory: &Path) -> Option<(usize, PathBuf)> {
    if !is_interpreter_name(Path::new(program).file_name()?) {
        return None;
    }
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    let (place, word) = arguments.iter().enumerate().find(|(_, word)| !is_option(word))?;
    let path = directory.join(word);
    is_file(&path).then_some((place, path))
}

/// Finds programs on a search path, each name once: a version manager has a hundred scripts that name the same one.
struct SearchPath<'a> {
    directories: &'a OsStr,
    found: HashMap<String, Option<PathBuf>>,
}

impl<'a> SearchPath<'a> {
    fn of(directories: &'a OsStr) -> Self {
        Self { directories, found: HashMap::new() }
    }

    fn find(&mut self, name: &str) -> Option<PathBuf> {
        let look = || {
            let mut paths = std::env::split_paths(self.directories).map(|directory| directory.join(name));
            paths.find(|path| is_file(path))
        };
        self.found.entry(name.to_owned()).or_insert_with(look).clone()
    }
}

/// The program that a script asks for in its first line.
fn interpreter(script: &Held, search_path: &mut SearchPath<'_>) -> Option<PathBuf> {
    let mut head = [0; SHEBANG_BYTES];
    let length = script.read_head(&mut head)?;
    interpreter_in(&head[..length], search_path)
}

/// The same for a script that begins like this.
fn interpreter_in(head: &[u8], search_path: &mut SearchPath<'_>) -> Option<PathBuf> {
    let first = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(first).ok()?.strip_prefix("#!")?.trim();
    let mut words = line.split_ascii_whitespace();
    let program = Path::new(words.next()?);
    if program.file_name()? != "env" {
        return Some(program.to_owned());
    }
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    search_path.find(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn inference<'a>(search_path: &'a OsStr, denied: &'a [PathBuf]) -> Inference<'a> {
        Inference { search_path, home: None, denied }
    }

    fn make_executable(path: &Path) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A program of the workspace that starts `#!interpreter`, and what becomes readable because of it.
    fn readable_for_script(base: &Path, interpreter: &Path, denied: &[PathBuf]) -> Vec<PathBuf> {
        let script = base.join("project/tool/server");
        std::fs::create_dir_all(script.parent().unwrap()).unwrap();
        std::fs::write(&script, format!("#!{}\n", interpreter.display())).unwrap();
        make_executable(&script);
        readable_for(&script, inference(OsStr::new("/usr/bin"), denied))
    }

    #[test]
    fn a_script_cannot_make_readable_what_it_names() {
        let base = crate::test_directory::directory("toolchain-shebang");
        let keys = base.join("home/.ssh");
        std::fs::create_dir_all(&keys).unwrap();
        let key = keys.join("id_rsa");
        std::fs::write(&key, "secret").unwrap();
        make_executable(&key);
        let own = [base.join("project/tool")];
        assert_eq!(readable_for_script(&base, &key, std::slice::from_ref(&keys)), own, "denied");
        assert_eq!(readable_for_script(&base, &keys.join("missing"), &[]), own, "missing");
        let private = base.join("home/private/notes");
        std::fs::create_dir_all(private.parent().unwrap()).unwrap();
        std::fs::write(&private, "#!/bin/sh\n").unwrap();
        assert_eq!(readable_for_script(&base, &private, &[]), own, "not executable");
        make_executable(&private);
        assert_eq!(readable_for_script(&base, &private, &[]), own, "executable, but no interpreter");
        // The control: an interpreter that a user installed.
        let python = base.join("home/tools/python/bin/python3.12");
        std::fs::create_dir_all(python.parent().unwrap()).unwrap();
        std::fs::write(&python, "\x7fELF").unwrap();
        make_executable(&python);
        let shown = readable_for_script(&base, &python, &[]);
        assert_eq!(shown, [base.join("home/tools/python"), own[0].clone()]);
    }

    #[test]
    fn a_link_of_the_workspace_leads_to_interpreters_only() {
        let base = crate::test_directory::directory("toolchain-links");
        let environment = base.join("project/.venv/bin");
        std::fs::create_dir_all(&environment).unwrap();
        std::fs::create_dir_all(base.join("home/private")).unwrap();
        std::fs::create_dir_all(base.join("home/python/bin")).unwrap();
        let (private, python) = (base.join("home/private/tool"), base.join("home/python/bin/python3"));
        for program in [&private, &python] {
            std::fs::write(program, "\x7fELF").unwrap();
            make_executable(program);
        }
        let link = environment.join("python");
        let own = base.join("project/.venv");
        for (target, expected) in
            [(private, vec![own.clone()]), (python, vec![base.join("home/python"), own.clone()])]
        {
            let _ = std::fs::remove_file(&link);
            symlink(target, &link).unwrap();
            assert_eq!(readable_for(&link, inference(OsStr::new("/usr/bin"), &[])), expected);
        }
    }

    #[test]
    fn the_interpreter_of_a_script_is_readable_too() {
        let base = crate::test_directory::directory("toolchain");
        std::fs::create_dir_all(base.join("tools/bin")).unwrap();
        std::fs::create_dir_all(base.join("node/bin")).unwrap();
        std::fs::write(base.join("tools/bin/npx"), "#!/usr/bin/env node\n").unwrap();
        std::fs::write(base.join("node/bin/node"), "\x7fELF").unwrap();
        make_executable(&base.join("node/bin/node"));
        let search_path = base.join("node/bin");
        let readable = readable_for(&base.join("tools/bin/npx"), inference(search_path.as_os_str(), &[]));
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
        make_executable(&home.join(".local/share/tools/x/bin/x"));
        std::os::unix::fs::symlink(home.join(".local/share/tools/x/bin/x"), home.join(".local/bin/x"))
            .unwrap();
        let directories = [home.join(".cargo/bin"), home.join(".local/bin"), base.join("opt/node/bin")];
        let search_path = std::env::join_paths(directories).unwrap();
        let denied = [home.join(".cargo/credentials.toml"), home.join(".local/share/keyrings")];
        let inference = Inference { search_path: &search_path, home: Some(&home), denied: &denied };
        assert_eq!(
            readable_for_all(inference),
            [
                home.join(".cargo/bin"),
                home.join(".local/bin"),
                home.join(".local/share/tools/x"),
                base.join("opt/node"),
            ]
        );
    }

    fn make_program(path: &Path, content: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        make_executable(path);
    }

    #[test]
    fn links_and_scripts_of_the_search_path_bring_what_they_lead_to() {
        let base = crate::test_directory::directory("toolchain-elsewhere");
        let home = base.join("home");
        make_program(&home.join("conda/bin/python3.12"), "\x7fELF");
        make_program(&home.join("tools/x-1.0/bin/x"), "\x7fELF");
        symlink("x-1.0", home.join("tools/current")).unwrap();
        make_program(&home.join("private/run"), "#!/bin/sh\n");
        std::fs::create_dir_all(home.join("search")).unwrap();
        symlink("../tools/current/bin/x", home.join("search/x")).unwrap();
        let script = |interpreter: &str| format!("#!{}\n", home.join(interpreter).display());
        make_program(&home.join("search/conda"), &script("conda/bin/python3.12"));
        make_program(&home.join("search/other"), &script("private/run"));
        let search_path = home.join("search").into_os_string();
        let inference = Inference { search_path: &search_path, home: Some(&home), denied: &[] };
        let shown = ["conda", "search", "tools/current", "tools/x-1.0"].map(|name| home.join(name));
        assert_eq!(readable_for_all(inference), shown, "and no program that is no interpreter");
    }

    #[test]
    fn programs_of_homebrew_bring_all_of_it() {
        let base = crate::test_directory::directory("toolchain-homebrew");
        let prefix_of = |program: &Path| prefix(program, &[base.join("user")]);
        let node = base.join("brew/Cellar/node/24.9.0/bin/node");
        make_program(&node, "\x7fELF");
        assert_eq!(prefix_of(&node), Some(base.join("brew/Cellar/node/24.9.0")), "a directory of that name");
        make_program(&base.join("brew/bin/brew"), "#!/bin/sh\n");
        assert_eq!(prefix_of(&node), Some(base.join("brew")));
        assert_eq!(prefix(&node, &[base.join("brew/secret")]), Some(base.join("brew/Cellar/node/24.9.0")));
    }

    #[test]
    fn a_variable_cannot_show_the_home_directory() {
        let base = crate::test_directory::directory("toolchain-variables");
        let home = base.join("home");
        std::fs::create_dir_all(home.join(".nvm")).unwrap();
        std::fs::create_dir_all(home.join(".ssh")).unwrap();
        symlink(&home, base.join("link")).unwrap();
        let denied = [home.join(".ssh")];
        let inference = Inference { search_path: OsStr::new(""), home: Some(&home), denied: &denied };
        for path in [&home, &base, &base.join("link"), &home.join(".ssh"), &home.join("missing")] {
            assert!(!inference.may_show(path), "{}", path.display());
        }
        assert!(inference.may_show(&home.join(".nvm")));
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
