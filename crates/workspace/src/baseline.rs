//! A git snapshot of the workspace from before the first shell command. The journal knows what the file tools
//! change; what a command changes shows only in a comparison.
//!
//! The snapshot is an index of its own, with an object store of its own for what is not in the repository's, so that the
//! repository itself is not written. The first command waits for it, so it takes one process of git, and a second one
//! only where files differ from the repository's index; the rest is left to the comparison.

use parking_lot::{Mutex, MutexGuard};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::files::Workspace;
use crate::journal::Original;
use crate::shell::Operations;
use crate::state::{KeptSnapshot, State as KeptState, is_object_name};

/// Time limit for one snapshot or comparison.
const PATIENCE: Duration = Duration::from_secs(10);
/// Uncommitted files are copied into the store, up to this many bytes.
const MAX_UNCOMMITTED: u64 = 64 * 1024 * 1024;
/// Why an earlier server's snapshot is not there.
const NOT_KEPT: &str = "the server was restarted, and has no snapshot from before the first command: none could be taken, or it was too large to be kept";
/// Changed files that are reported at most.
const MAX_DIFFERENCES: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct Baseline {
    state: Mutex<State>,
    /// Keeps it for a later server of the session.
    kept: Arc<KeptState>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    NotTaken,
    Taken {
        /// The tree that the index of the snapshot describes, if it is known already.
        tree: Option<String>,
        store: Store,
    },
    /// By an earlier server. Its objects are read again when they are needed.
    Kept {
        tree: String,
    },
    Impossible(&'static str),
}

/// The longest name of a directory that is read.
const MAX_PATH: u64 = 4096;
/// The index of the snapshot, in its store.
const BEFORE: &str = "before";
/// The index of what it is compared with.
const NOW: &str = "now";

/// Our own indexes and object store, beside the repository's. Dropping this removes them.
#[derive(Debug)]
struct Store {
    directory: PathBuf,
    /// The repository's index.
    index: PathBuf,
    /// The repository's object store.
    shared: PathBuf,
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Store {
    /// The objects that only this store has, by their names.
    fn own_objects(&self) -> Vec<(String, Vec<u8>)> {
        let mut objects = Vec::new();
        let list = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
        for first in list(&self.directory.join("objects")) {
            for rest in list(&first.path()) {
                let name = format!("{}{}", first.file_name().display(), rest.file_name().display());
                let is_file = rest.file_type().is_ok_and(|kind| kind.is_file());
                if is_file
                    && is_object_name(&name)
                    && let Ok(contents) = std::fs::read(rest.path())
                {
                    objects.push((name, contents));
                }
            }
        }
        objects
    }

    /// Puts objects in that an earlier store had. One that is missing shows when git looks for it.
    fn put(&self, objects: Vec<(String, Vec<u8>)>) {
        for (name, contents) in objects {
            let (first, rest) = name.split_at(2);
            let directory = self.directory.join("objects").join(first);
            let _ = std::fs::create_dir(&directory);
            let _ = std::fs::write(directory.join(rest), contents);
        }
    }
}

/// What commands changed: paths below the first root, each with its original, and whether the list is complete.
pub(crate) type Differences = (Vec<(PathBuf, Original)>, bool);

impl Baseline {
    /// Goes on with the snapshot of an earlier server of the session, if it took one.
    pub(crate) fn keeping(kept: &Arc<KeptState>, snapshot: Option<KeptSnapshot>) -> Self {
        let state = match snapshot {
            None => State::NotTaken,
            Some(KeptSnapshot::Tree(tree)) => State::Kept { tree },
            Some(KeptSnapshot::Missing) => State::Impossible(NOT_KEPT),
        };
        Self { state: Mutex::new(state), kept: Arc::clone(kept) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Takes the snapshot, before the first command. Later calls do nothing.
    pub(crate) fn take(&self, access: GitAccess<'_>) {
        let mut state = self.lock();
        if matches!(*state, State::NotTaken) {
            let git = Git { access, until: Instant::now() + PATIENCE };
            *state = match git.new_store().and_then(|store| git.snapshot(&store, BEFORE).map(|()| store)) {
                Ok(store) => State::Taken { tree: self.keep(&git, &store), store },
                Err(reason) => {
                    self.kept.note_missing_snapshot();
                    State::Impossible(reason)
                }
            };
        }
    }

    /// What changed since the snapshot. `Ok(None)`: no command was run. `Err`: why the changes are unknown.
    pub(crate) fn differences(&self, access: GitAccess<'_>) -> Result<Option<Differences>, &'static str> {
        // Holds the lock to the end, because there is only one index.
        let mut state = self.lock();
        if let State::Kept { tree } = &*state {
            let git = Git { access, until: Instant::now() + PATIENCE };
            let store = git.new_store()?;
            store.put(self.kept.snapshot_objects());
            *state = State::Taken { tree: Some(tree.clone()), store };
        }
        match &*state {
            // It has just been taken.
            State::Kept { .. } => Err("there is no snapshot"),
            State::NotTaken => Ok(None),
            State::Impossible(reason) => Err(reason),
            State::Taken { tree, store } => {
                let git = Git { access, until: Instant::now() + PATIENCE };
                git.snapshot(store, NOW)?;
                let before = tree.clone().map_or_else(|| git.tree(store, BEFORE), Ok)?;
                git.differences(store, &before, &git.tree(store, NOW)?).map(Some)
            }
        }
    }

    /// Keeps the snapshot for a later server of the session, if it can have one. Returns its tree then.
    fn keep(&self, git: &Git<'_>, store: &Store) -> Option<String> {
        let tree = self.kept.is_kept().then(|| git.tree(store, BEFORE))?.ok();
        match &tree {
            Some(tree) => self.kept.note_snapshot(tree, &store.own_objects()),
            None => self.kept.note_missing_snapshot(),
        }
        tree
    }

    /// Removes the snapshot.
    pub(crate) fn forget(&self) {
        *self.lock() = State::Impossible("the session is over");
    }
}

/// Whether a git directory has its objects in itself. A fence says so in a file that git would take for the name of
/// another directory.
fn is_its_own_common_directory(repository: &Path) -> bool {
    let path = repository.join("commondir");
    let names_itself = || std::fs::read(&path).is_ok_and(|name| name.trim_ascii() == b".");
    let is_its_own = match path.symlink_metadata() {
        // A pipe would not end.
        Ok(found) => found.is_file() && found.len() < MAX_PATH && names_itself(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    repository.is_dir() && is_its_own
}

/// What git is run with.
#[derive(Clone, Copy)]
pub(crate) struct GitAccess<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) operations: &'a Operations,
    /// The server runs inside a fence.
    pub(crate) is_fenced: bool,
}

/// Git, run like the client's commands, until a deadline.
struct Git<'a> {
    access: GitAccess<'a>,
    until: Instant,
}

impl Git<'_> {
    fn new_store(&self) -> Result<Store, &'static str> {
        let root = self.access.workspace.roots().next().ok_or("there is no workspace")?;
        let repository = root.join(".git");
        let is_placeholder = repository.is_dir() && !repository.join("HEAD").exists();
        if is_placeholder || !repository.exists() {
            return Err("the workspace is not the top of a git repository");
        }
        let (index, shared) = self.index_and_objects(&repository)?;
        // Inside a fence, HOME belongs to the session and has more room than its temporary directory.
        let home = std::env::var_os("HOME").filter(|_| self.access.is_fenced).map(PathBuf::from);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let name = format!(".ringfence-baseline-{}-{now}", std::process::id());
        let directory = home.unwrap_or_else(std::env::temp_dir).join(name);
        let store = Store { directory, index, shared };
        let make = |path: &Path| std::fs::DirBuilder::new().mode(0o700).create(path);
        make(&store.directory)
            .and_then(|()| make(&store.directory.join("objects")))
            .map_err(|_| "temporary files cannot be created")?;
        Ok(store)
    }

    /// Where the repository has its index and its objects. Asks git only where they are not in the directory itself.
    fn index_and_objects(&self, repository: &Path) -> Result<(PathBuf, PathBuf), &'static str> {
        if is_its_own_common_directory(repository) {
            return Ok((repository.join("index"), repository.join("objects")));
        }
        let places =
            self.run(None, "rev-parse --path-format=absolute --git-path index --git-path objects")?;
        let places = String::from_utf8_lossy(&places).into_owned();
        let (index, objects) =
            places.trim_end().split_once('\n').ok_or("the output of git could not be read")?;
        Ok((index.into(), objects.into()))
    }

    /// Writes the current workspace, without ignored files, into an index of the store.
    fn snapshot(&self, store: &Store, index: &str) -> Result<(), &'static str> {
        let differs = self.differs_from_index()?;
        // A copy of the repository's index lets git read only the files that changed.
        let _ = std::fs::copy(&store.index, store.directory.join(index));
        if differs {
            self.run(Some((store, index)), "add --all")?;
        }
        Ok(())
    }

    /// The id of the tree that an index of the store describes. Objects that were removed since are no obstacle.
    fn tree(&self, store: &Store, index: &str) -> Result<String, &'static str> {
        let tree = self.run(Some((store, index)), "write-tree --missing-ok")?;
        Ok(String::from_utf8_lossy(&tree).trim_end().to_owned())
    }

    /// Whether a file of the workspace differs from the repository's index. Refuses too many uncommitted bytes to copy.
    fn differs_from_index(&self) -> Result<bool, &'static str> {
        let listed = self.run(None, "ls-files -z --others --modified --exclude-standard")?;
        let root = self.access.workspace.roots().next().ok_or("there is no workspace")?;
        let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        let size =
            |path: &[u8]| root.join(OsStr::from_bytes(path)).symlink_metadata().map_or(0, |file| file.len());
        let total: u64 = paths.map(size).fold(0, u64::saturating_add);
        if total > MAX_UNCOMMITTED {
            return Err("the uncommitted files are too large to keep");
        }
        Ok(!listed.is_empty())
    }

    fn differences(&self, store: &Store, before: &str, now: &str) -> Result<Differences, &'static str> {
        let compare = format!("diff-tree -r -z --no-renames --no-ext-diff {before} {now}");
        let listed = self.run(Some((store, NOW)), &compare)?;
        // Each entry is `:mode mode blob blob status`, NUL, the path, NUL.
        let mut fields = listed.split(|byte| *byte == 0);
        let mut differences = Vec::new();
        while let (Some(about), Some(path)) = (fields.next(), fields.next()) {
            if differences.len() == MAX_DIFFERENCES {
                return Ok((differences, false));
            }
            let about = String::from_utf8_lossy(about);
            let mut words = about.split(' ');
            let (blob, status) = (words.nth(2).unwrap_or_default(), words.nth(1).unwrap_or_default());
            let before = match status {
                "A" => Original::Nothing,
                _ => self
                    .run(Some((store, NOW)), &format!("cat-file blob {blob}"))
                    .map_or(Original::Unkept, Original::Contents),
            };
            differences.push((PathBuf::from(OsStr::from_bytes(path)), before));
        }
        Ok((differences, true))
    }

    /// Runs git without the repository's hooks and file monitor. Its filters do run, confined like any command.
    fn run(&self, store: Option<(&Store, &str)>, arguments: &str) -> Result<Vec<u8>, &'static str> {
        let script = format!(
            "exec git -c core.fsmonitor=false -c core.hooksPath=/dev/null -c safe.directory='*' {arguments} 2>/dev/null"
        );
        let mut environment = vec![("GIT_OPTIONAL_LOCKS".to_owned(), "0".to_owned())];
        if let Some((store, index)) = store {
            let text = |path: &Path| path.to_string_lossy().into_owned();
            environment.extend([
                ("GIT_INDEX_FILE".to_owned(), text(&store.directory.join(index))),
                ("GIT_OBJECT_DIRECTORY".to_owned(), text(&store.directory.join("objects"))),
                ("GIT_ALTERNATE_OBJECT_DIRECTORIES".to_owned(), text(&store.shared)),
            ]);
        }
        let workspace = self.access.workspace;
        let root = workspace.path(".").and_then(|path| workspace.open_directory(&path));
        let root = root.map_err(|_| "the workspace cannot be read")?;
        let output = self.access.operations.run_internally(script, root, environment, self.until);
        output.ok_or("git is missing, or could not compare the workspace in time")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_git_directory_with_objects_elsewhere_is_left_to_git() {
        let directory = std::env::temp_dir().join(format!("ringfence-baseline-test-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let own_with = |name: &str| {
            std::fs::write(directory.join("commondir"), name).unwrap();
            is_its_own_common_directory(&directory)
        };
        assert!(own_with(".\n") && !own_with("../..\n") && !own_with(""));
        std::fs::remove_file(directory.join("commondir")).unwrap();
        assert!(is_its_own_common_directory(&directory));
        assert!(!is_its_own_common_directory(&directory.join("missing")));
        std::fs::remove_dir(&directory).unwrap();
    }
}
