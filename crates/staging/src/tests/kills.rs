//! The process is killed at every moment of an apply, an undo and a recovery. Afterwards the base is exactly as before or
//! exactly as after, and nothing is left.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::stage::{METHODS, Snapshot, Stage};
use crate::{ApplyRequest, Method, RecoveryOutcome, WorkspaceCopy, Workspaces};

const PROJECT: &str = r"
    mkdir -p src docs gone/below; echo main > src/main.rs; echo lib > src/lib.rs; ln -s src/main.rs link
    echo y > gone/below/file; echo z > becomes-directory; echo w > docs/page; echo m > merged
";
const WORK: &str = r"
    echo 2 > src/main.rs; rm src/lib.rs; ln -sf docs link; rm -r gone; echo 2 > src/new
    rm becomes-directory; mkdir -p becomes-directory/in; echo in > becomes-directory/in/file; chmod 500 becomes-directory/in
    rm -r docs; echo file > docs
";

/// What the process that is to be killed does.
const TASK: &str = "STAGING_TEST_TASK";

/// The part of these tests that runs in a process of its own, and ends with SIGKILL.
#[test]
fn child_that_kills_itself() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (kind, rest) = task.split_once(' ').unwrap();
    let (number, root) = rest.split_once(' ').unwrap();
    let number: usize = number.parse().unwrap();
    let seen = AtomicUsize::new(0);
    let hook = |_| {
        if seen.fetch_add(1, Ordering::Relaxed) == number {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    };
    let workspaces = Workspaces::open(Path::new(root)).unwrap();
    let copy = workspaces.list().unwrap().remove(0).unwrap();
    let request = ApplyRequest { include_executables: true, ..ApplyRequest::default() };
    let outcome = match kind {
        "apply" => copy.apply_with(&request, &|_| None, &hook).map(|_| ()),
        "undo" => copy.undo_with(&hook).map(|_| ()),
        _ => copy.recover_with(&hook).map(|_| ()),
    };
    outcome.unwrap();
}

/// Returns whether the child was killed before it came to its end.
pub(super) fn is_killed(kind: &str, number: usize, stage: &Stage) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "tests::kills::child_that_kills_itself", "--test-threads=1"]);
    child.env(TASK, format!("{kind} {number} {}", stage.workspaces.root().display()));
    let output = child.output().unwrap();
    let is_killed = output.status.signal() == Some(9);
    assert!(is_killed || output.status.success(), "{kind} {number}: {output:?}");
    is_killed
}

struct Scene {
    stage: Stage,
    copy: WorkspaceCopy,
    before: Snapshot,
    after: Snapshot,
}

fn scene(method: Method, is_state_elsewhere: bool) -> Scene {
    let stage = if is_state_elsewhere { Stage::with_state_elsewhere("kills") } else { Stage::new("kills") };
    stage.sh(PROJECT);
    let copy = stage.create(method);
    copy.sh(WORK);
    let (before, after) = (stage.snapshot(), copy.view(&stage.directory.join("view")));
    Scene { stage, copy, before, after }
}

impl Scene {
    /// Recovers, and checks that the base is as before or as after. Returns whether it is as after.
    fn recover(&self, at: &str) -> bool {
        let recovered = self.stage.workspaces.recover().unwrap();
        let is_whole = |outcome: &RecoveryOutcome| {
            matches!(outcome, RecoveryOutcome::Finished | RecoveryOutcome::RolledBack)
        };
        assert!(recovered.iter().all(|recovered| is_whole(&recovered.outcome)), "{at} {recovered:?}");
        assert!(self.stage.workspaces.recover().unwrap().is_empty(), "{at}");
        let now = self.stage.snapshot();
        assert!(now == self.before || now == self.after, "{at} {now:?}");
        now == self.after
    }

    /// From wherever the base is: to the new state, back, and to the new state again.
    fn go_on(&self, is_after: bool, at: &str) {
        if !is_after {
            assert_eq!(self.stage.leftovers(), Vec::<PathBuf>::new(), "{at}");
            self.copy.apply_all().unwrap_or_else(|error| panic!("{at} {error:?}"));
        }
        assert_eq!(self.stage.snapshot(), self.after, "{at}");
        assert!(self.copy.seen().is_empty(), "{at} {:?}", self.copy.listed());
        self.copy.undo().unwrap_or_else(|error| panic!("{at} {error:?}"));
        assert_eq!(self.stage.snapshot(), self.before, "{at}");
        assert_eq!(self.stage.leftovers(), Vec::<PathBuf>::new(), "{at}");
        assert!(self.copy.base_drift(&[]).unwrap().changed.is_empty(), "{at}");
    }
}

#[test]
fn an_apply_that_is_killed_at_any_moment_is_finished_or_never_was() {
    for (method, is_state_elsewhere) in [(METHODS[0], false), (METHODS[1], false), (METHODS[1], true)] {
        let scene = scene(method, is_state_elsewhere);
        let mut outcomes = [0, 0];
        for number in 0.. {
            let at = format!("{method}, apply killed at {number}");
            let is_killed = is_killed("apply", number, &scene.stage);
            let is_after = scene.recover(&at);
            outcomes[usize::from(is_after)] += 1;
            scene.go_on(is_after, &at);
            if !is_killed {
                break;
            }
        }
        assert!(outcomes[0] >= 2 && outcomes[1] > 20, "{outcomes:?}");
        if is_state_elsewhere {
            crate::removal::remove_tree(scene.stage.workspaces.root()).unwrap();
        }
    }
}

#[test]
fn an_undo_that_is_killed_at_any_moment_is_finished_or_never_was() {
    for method in METHODS {
        let scene = scene(method, false);
        for number in 0.. {
            let at = format!("{method}, undo killed at {number}");
            scene.copy.apply_all().unwrap();
            let is_killed = is_killed("undo", number, &scene.stage);
            let is_after = scene.recover(&at);
            scene.go_on(is_after, &at);
            if !is_killed {
                break;
            }
        }
    }
}

#[test]
fn a_recovery_that_is_killed_is_recovered_from() {
    let scene = scene(Method::Overlay, false);
    // In the middle of the steps.
    for first in [3, 12, 25] {
        for number in 0.. {
            let at = format!("apply killed at {first}, recovery killed at {number}");
            assert!(is_killed("apply", first, &scene.stage));
            let is_killed = is_killed("recover", number, &scene.stage);
            let is_after = scene.recover(&at);
            scene.go_on(is_after, &at);
            if !is_killed {
                break;
            }
        }
    }
}

#[test]
fn a_base_that_has_moved_on_after_a_kill_is_rolled_back_and_keeps_what_is_new() {
    for method in METHODS {
        let scene = scene(method, false);
        if let Some((number, edit, path)) = [
            (8, "echo edited > src/main.rs", "src/main.rs"),
            (30, "echo edited > src/main.rs", "src/main.rs"),
        ]
        .into_iter()
        .next()
        {
            assert!(is_killed("apply", number, &scene.stage), "{number}");
            scene.stage.sh(edit);
            scene.stage.workspaces.recover().unwrap();
            let mut now = scene.stage.snapshot();
            let edited = now.remove(Path::new(path)).unwrap();
            assert_eq!(edited.2, b"edited\n");
            let mut before = scene.before.clone();
            let original = before.remove(Path::new(path)).unwrap();
            assert_eq!(now, before, "{method} {number}");
            let kept = scene.copy.directory().join("kept");
            let is_kept = kept.exists();
            if is_kept {
                // The original is still to be had.
                let slots = std::fs::read_dir(&kept)
                    .unwrap()
                    .flatten()
                    .flat_map(|slots| std::fs::read_dir(slots.path()).unwrap());
                let contents: Vec<_> =
                    slots.flatten().map(|slot| std::fs::read(slot.path()).unwrap_or_default()).collect();
                assert!(contents.contains(&original.2), "{method} {number}");
                std::fs::remove_dir_all(kept).unwrap();
            }
            scene.stage.sh("echo main > src/main.rs");
            return;
        }
    }
}
