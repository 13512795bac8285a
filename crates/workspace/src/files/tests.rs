//! The resolver without a fence: how paths may be spelled, where links may lead, and what a write leaves behind.
//! Every refusal has a control that succeeds.

mod links;
mod spellings;
mod writes;

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Expected, FileMode, Parents, PathError, SessionPath, Target, Workspace};

const SECRET: &str = "unreadable from inside";

/// `ws` with a few files in it, and `outside` and `ws-evil` with a secret each.
struct Ground {
    base: PathBuf,
    workspace: Workspace,
}

impl Ground {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Beside the test binary, which is writable inside a fence too.
        let target = std::env::current_exe().unwrap().parent().unwrap().canonicalize().unwrap();
        let base = target.join(format!("files-test-{}-{number}", std::process::id()));
        drop(std::fs::remove_dir_all(&base));
        for directory in ["ws/d/e", "outside/d", "ws-evil"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        for (file, contents) in [
            ("ws/a.txt", "a"),
            ("ws/d/b.txt", "b"),
            ("ws/d/e/c.txt", "c"),
            ("ws/..foo", "dots"),
            ("outside/secret", SECRET),
            ("outside/d/secret", SECRET),
            ("ws-evil/a.txt", SECRET),
        ] {
            std::fs::write(base.join(file), contents).unwrap();
        }
        let workspace = Workspace::open(&[base.join("ws")]).unwrap();
        Self { base, workspace }
    }

    fn inside(&self, name: impl AsRef<Path>) -> PathBuf {
        self.base.join("ws").join(name)
    }

    fn outside(&self, name: impl AsRef<Path>) -> PathBuf {
        self.base.join("outside").join(name)
    }

    fn link(&self, name: &str, to: impl AsRef<Path>) {
        std::os::unix::fs::symlink(to, self.inside(name)).unwrap();
    }

    fn path(&self, text: &str) -> SessionPath {
        self.workspace.path(text).unwrap()
    }

    fn read(&self, text: &str) -> Result<String, PathError> {
        let mut found = self.workspace.path(text).and_then(|path| self.workspace.open_file(&path))?;
        let mut contents = String::new();
        found.file.read_to_string(&mut contents).unwrap();
        Ok(contents)
    }

    /// The code of the error with which reading a path fails.
    fn code(&self, text: &str) -> &'static str {
        match self.read(text) {
            Ok(contents) => panic!("{text:?} was read: {contents}"),
            Err(error) => error.code(),
        }
    }

    fn write_target(&self, text: &str, parents: Parents) -> Result<Target, PathError> {
        self.workspace.path(text).and_then(|path| self.workspace.write_target(&path, parents))
    }

    fn target(&self, text: &str) -> Result<Target, PathError> {
        self.workspace.path(text).and_then(|path| self.workspace.target(&path, Parents::Expect))
    }

    fn write(&self, text: &str, contents: &str) -> Result<bool, PathError> {
        let target = self.write_target(text, Parents::Create)?;
        self.workspace.write(&target, contents.as_bytes(), Expected::Anything).map(|written| written.is_new)
    }

    /// Everything outside with its contents, for a later comparison.
    fn everything_outside(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut found: Vec<_> =
            ["outside", "ws-evil"].iter().flat_map(|name| contents_below(&self.base.join(name))).collect();
        found.sort();
        found
    }

    /// The names in a directory of the workspace.
    fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.inside(directory)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.base));
    }
}

fn contents_below(directory: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            found.extend(contents_below(&path));
            found.push((path, None));
        } else {
            let contents = std::fs::read(&path).unwrap();
            found.push((path, Some(contents)));
        }
    }
    found
}

fn name_of(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
