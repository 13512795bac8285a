//! Applies that fail in the middle: what they say, what they leave, and what is still possible afterwards.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::stage::{METHODS, Stage, directory, run, snapshot};
use crate::apply::Moment;
use crate::{
    ApplyError, ApplyRequest, Method, NewCopy, RecoveryOutcome, StagingError, Tree, WorkspaceCopy, Workspaces,
};

/// Runs a script in the base at one moment of an apply.
fn apply_with(stage: &Stage, copy: &WorkspaceCopy, at: Moment, script: &str) -> Result<(), ApplyError> {
    let hook = |now| {
        if now == at {
            stage.sh(script);
        }
    };
    let request = ApplyRequest { include_executables: true, ..ApplyRequest::default() };
    copy.apply_with(&request, &|_| None, &hook).map(|_| ())
}

/// Leaves an apply in the middle, as a kill does.
fn abandon(copy: &WorkspaceCopy, at: Moment) {
    let hook = |now| assert!(now != at, "the end of this process");
    let request = ApplyRequest { include_executables: true, ..ApplyRequest::default() };
    let ended = catch_unwind(AssertUnwindSafe(|| copy.apply_with(&request, &|_| None, &hook)));
    assert!(ended.is_err());
}

#[test]
fn an_apply_can_be_undone_after_a_later_one_failed() {
    for method in METHODS {
        let stage = Stage::new("later-failure");
        stage.sh("echo 1 > a; echo 1 > b; echo 1 > c");
        let copy = stage.create(method);
        let before = stage.snapshot();
        copy.sh("echo 2 > a");
        copy.apply_all().unwrap();
        copy.sh("echo 2 > b; echo 2 > c");
        let failed = apply_with(&stage, &copy, Moment::BeforeStep(1), "echo mine > c");
        assert!(matches!(failed, Err(ApplyError::Conflicts(_))), "{method} {failed:?}");
        assert_eq!(stage.snapshot()[Path::new("b")].2, b"1\n", "{method}");
        copy.undo().unwrap();
        let mut expected = before;
        expected.get_mut(Path::new("c")).unwrap().2 = b"mine\n".to_vec();
        assert_eq!(stage.snapshot(), expected, "{method}");
        let listed: Vec<String> = copy.listed().into_iter().map(|(_, path)| path).collect();
        assert_eq!(listed, ["a", "b", "c"], "{method}: all of it is a change again");
        assert_eq!(stage.leftovers(), Vec::<PathBuf>::new(), "{method}");
    }
}

#[test]
fn an_undo_gives_back_the_file_that_a_shut_directory_replaced() {
    for method in METHODS {
        let stage = Stage::new("shut-directory");
        stage.sh("echo 1 > d");
        let copy = stage.create(method);
        let before = stage.snapshot();
        copy.sh("rm d; mkdir d; chmod 600 d");
        copy.apply_all().unwrap();
        copy.undo().unwrap();
        assert_eq!(stage.snapshot(), before, "{method}");
    }
}

#[test]
fn originals_that_cannot_be_restored_are_kept_wherever_the_slots_are() {
    for is_elsewhere in [false, true] {
        let stage = if is_elsewhere { Stage::with_state_elsewhere("kept") } else { Stage::new("kept") };
        stage.sh("echo original > a; echo 1 > b");
        let copy = stage.create(Method::Copy);
        copy.sh("echo 2 > a; echo 2 > b");
        // One file is edited after it was replaced, another before.
        let failed = apply_with(&stage, &copy, Moment::AfterStep(0), "echo edited > a; echo mine > b");
        let Err(ApplyError::NotRestored { conflicts, kept }) = failed else { panic!("{failed:?}") };
        assert_eq!(conflicts.iter().map(|conflict| &conflict.path).collect::<Vec<_>>(), [Path::new("a")]);
        stage.workspaces.recover().unwrap();
        let snapshot = stage.snapshot();
        assert_eq!(snapshot[Path::new("a")].2, b"edited\n");
        assert_eq!(snapshot[Path::new("b")].2, b"mine\n");
        let slots =
            std::fs::read_dir(&kept).unwrap().map(|slot| std::fs::read(slot.unwrap().path()).unwrap());
        assert!(slots.into_iter().any(|content| content == b"original\n"), "{}", kept.display());
        // What is kept is no change of the base, and in no other copy.
        assert_eq!(copy.base_drift(&[]).unwrap().changed, [PathBuf::from("a"), PathBuf::from("b")]);
        let other = stage.create(Method::Copy);
        assert_eq!(other.view(&stage.directory.join("view")).len(), 2);
        std::fs::remove_dir_all(&kept).unwrap();
        if is_elsewhere {
            crate::removal::remove_tree(stage.workspaces.root()).unwrap();
        }
    }
}

#[test]
fn a_recovery_without_its_slots_tells_what_is_lost_and_ends() {
    let stage = Stage::with_state_elsewhere("no-slots");
    stage.sh("echo 1 > a; echo 1 > b");
    let copy = stage.create(Method::Copy);
    copy.sh("echo 2 > a; echo 2 > b");
    abandon(&copy, Moment::AfterStep(0));
    // As `git clean -dx` does.
    let slots = stage.leftovers().into_iter().find(|path| path.starts_with(&stage.base)).unwrap();
    std::fs::remove_dir_all(slots).unwrap();
    let recovered = stage.workspaces.recover().unwrap();
    let [recovered] = &recovered[..] else { panic!("{recovered:?}") };
    let RecoveryOutcome::NotRestored { conflicts, kept } = &recovered.outcome else {
        panic!("{recovered:?}")
    };
    assert_eq!(conflicts.iter().map(|conflict| &conflict.path).collect::<Vec<_>>(), [Path::new("a")]);
    std::fs::remove_dir_all(kept).unwrap();
    assert!(stage.workspaces.recover().unwrap().is_empty());
    // It goes on from where it is.
    assert_eq!(copy.apply_all().unwrap().paths, [PathBuf::from("b")]);
    // An undo whose originals are gone is no undo, and the next apply works.
    copy.sh("echo 3 > c");
    let request = ApplyRequest { only: vec!["c".into()], ..ApplyRequest::default() };
    copy.apply(&request, &|_| None).unwrap();
    std::fs::remove_dir_all(&stage.leftovers()[0]).unwrap();
    assert!(matches!(copy.undo(), Err(ApplyError::NothingToUndo)));
    copy.sh("echo 4 > c");
    copy.apply(&request, &|_| None).unwrap();
    assert_eq!(std::fs::read(stage.base.join("c")).unwrap(), b"4\n");
    crate::removal::remove_tree(stage.workspaces.root()).unwrap();
}

const FULL: &str = "STAGING_TEST_FULL_APPLY";

/// Runs in a mount namespace where base and state root are on one small file system, which has ever less room.
#[test]
fn child_that_applies_on_a_full_disk() {
    let Ok(top) = std::env::var(FULL) else { return };
    let top = Path::new(&top);
    let (base, filler) = (top.join("project"), top.join("filler"));
    std::fs::create_dir(&base).unwrap();
    for number in 0..20 {
        std::fs::write(base.join(format!("f{number}")), "before").unwrap();
    }
    let workspaces = Workspaces::open(&top.join("state")).unwrap();
    let copy = workspaces.create(NewCopy::of(&base, Method::Copy)).unwrap();
    for number in 0..20 {
        copy.sh(&format!("head -c 6000 /dev/zero > f{number}; echo x > new{number}"));
    }
    let (before, after) = (snapshot(&base), copy.view(&top.join("view")));
    let [mut told, mut done] = [0, 0];
    for free in (0..90).rev() {
        let file = std::fs::File::create(&filler).unwrap();
        let pages = free_pages(top);
        file.set_len(0).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, (pages - free).max(1) * 4096)
            .unwrap();
        let outcome = copy.apply_all();
        drop(file);
        std::fs::remove_file(&filler).unwrap();
        let (was_applied, at) = (outcome.is_ok(), format!("{free} pages: {outcome:?}"));
        if let Err(error) = &outcome {
            assert!(matches!(error, ApplyError::Staging(StagingError::NoSpace { .. })), "{at}");
            assert!(error.hint().is_some(), "{at}");
        }
        workspaces.recover().unwrap();
        // Without the contents, which are long.
        let is_as_expected = snapshot(&base) == if was_applied { after.clone() } else { before.clone() };
        assert!(is_as_expected, "{at}");
        if was_applied {
            copy.undo().unwrap();
            done += 1;
        } else {
            told += 1;
        }
        assert_eq!(copy.listed().len(), 40, "{at}");
    }
    assert!(told > 5 && done > 5, "both happen: {told} {done}");
}

fn free_pages(top: &Path) -> u64 {
    let file_system = rustix::fs::statvfs(top).unwrap();
    file_system.f_bfree * file_system.f_frsize / 4096
}

#[test]
fn on_a_disk_that_becomes_full_an_apply_is_whole_or_never_was() {
    let top = directory("full-apply");
    let script = "mount -t tmpfs -o size=2m,mode=700 tmpfs \"$1\"; exec \"$2\" --exact tests::failing::child_that_applies_on_a_full_disk";
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-euc", script, "sh"]).arg(&top).arg(std::env::current_exe().unwrap());
    run(command.env(FULL, &top));
    std::fs::remove_dir(top).unwrap();
}

#[test]
fn a_base_that_cannot_be_written_is_told_and_keeps_everything() {
    for method in METHODS {
        let stage = Stage::new("read-only-base");
        stage.sh("mkdir d; echo 1 > a; echo 1 > d/b");
        let copy = stage.create(method);
        copy.sh("echo 2 > a; echo 2 > d/b; echo 2 > d/c");
        let before = stage.snapshot();
        // Not even root writes there.
        let is_set = |on: &str| {
            Command::new("chattr")
                .args([on])
                .arg(stage.base.join("d"))
                .status()
                .is_ok_and(|status| status.success())
        };
        assert!(is_set("+i"), "the file system of the checkout has immutable directories");
        let refused = copy.apply_all();
        assert!(is_set("-i"));
        let error = refused.unwrap_err();
        assert!(error.to_string().contains("d/b") || error.to_string().contains("d/c"), "{error}");
        assert_eq!(stage.snapshot(), before, "{method}");
        assert_eq!(stage.leftovers(), Vec::<PathBuf>::new(), "{method}");
        copy.apply_all().unwrap();
    }
}

#[test]
fn a_mount_in_the_base_is_named_and_stays_as_it_is() {
    let top = directory("mounts");
    let script = "mkdir -p \"$1/project/mnt\"; mount -t tmpfs tmpfs \"$1/project/mnt\"; echo inside > \"$1/project/mnt/file\"; exec \"$2\" --exact tests::failing::child_with_a_mount";
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-euc", script, "sh"]).arg(&top).arg(std::env::current_exe().unwrap());
    run(command.env(MOUNT, &top));
    crate::removal::remove_tree(&top).unwrap();
}

const MOUNT: &str = "STAGING_TEST_MOUNT";

#[test]
fn child_with_a_mount() {
    let Ok(top) = std::env::var(MOUNT) else { return };
    let top = Path::new(&top);
    let base = top.join("project");
    for method in METHODS {
        std::fs::write(base.join("plain"), "1").unwrap();
        let workspaces = Workspaces::open(&top.join(format!("state-{method}"))).unwrap();
        let copy = workspaces.create(NewCopy::of(&base, method)).unwrap();
        // A kernel makes no overlay over the mounts of another namespace, so this is written as it would.
        let tree = match &copy.trees()[0] {
            Tree::Overlay { upper, .. } => upper.clone(),
            Tree::Files { files, .. } => files.clone(),
        };
        std::fs::create_dir_all(tree.join("mnt")).unwrap();
        std::fs::write(tree.join("mnt/file"), "x").unwrap();
        std::fs::write(tree.join("plain"), "2\n").unwrap();
        let changes = copy.seen();
        let aside: Vec<_> =
            changes.left_aside.iter().map(|left| (left.path.as_path(), left.reason)).collect();
        assert!(
            aside.iter().any(|(path, reason)| path.starts_with("mnt")
                && *reason == crate::LeftAsideReason::OtherFileSystem),
            "{method} {aside:?}"
        );
        copy.apply_all().unwrap();
        assert_eq!(std::fs::read(base.join("plain")).unwrap(), b"2\n");
        assert_eq!(std::fs::read(base.join("mnt/file")).unwrap(), b"inside\n", "{method}");
    }
}

#[test]
fn a_shared_project_stays_the_groups() {
    assert!(rustix::process::geteuid().is_root(), "the tests of fences need root, too");
    // An overlay needs every owner to be in its user namespace, which the fence sees to.
    for method in [Method::Copy] {
        let stage = Stage::new("shared-project");
        stage.sh("mkdir d e; echo 1 > d/a; chown -R 65534:65534 .; chmod 2775 d e");
        let copy = stage.create(method);
        copy.sh("echo 2 > d/a; echo 2 > d/b; ln -s a d/l; mkdir d/sub; echo 2 > d/sub/c; chmod 755 e");
        copy.apply_all().unwrap();
        let of = |name: &str| stage.base.join(name).symlink_metadata().unwrap();
        for name in ["d/a", "d/b", "d/l", "d/sub", "d/sub/c"] {
            assert_eq!((of(name).uid(), of(name).gid()), (65534, 65534), "{method} {name}");
        }
        assert_eq!(of("e").permissions().mode() & 0o7777, 0o2755, "{method}");
        assert_eq!(of("d/sub").permissions().mode() & 0o2000, 0o2000, "{method}: as made in d");
        copy.undo().unwrap();
        assert_eq!((of("d/a").uid(), of("e").permissions().mode() & 0o7777), (65534, 0o2775), "{method}");
    }
}

#[test]
fn an_unreadable_file_keeps_no_other_from_being_taken_over() {
    let top = directory("unreadable");
    std::fs::set_permissions(&top, PermissionsExt::from_mode(0o777)).unwrap();
    let script = "exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$1\" --exact tests::failing::child_of_a_plain_user";
    let mut command = Command::new("sh");
    command.args(["-euc", script, "sh"]).arg(std::env::current_exe().unwrap());
    run(command.env(PLAIN, &top));
    crate::removal::remove_tree(&top).unwrap();
}

const PLAIN: &str = "STAGING_TEST_PLAIN_USER";

/// Runs as a user whom permissions concern.
#[test]
fn child_of_a_plain_user() {
    let Ok(top) = std::env::var(PLAIN) else { return };
    let top = Path::new(&top);
    for method in METHODS {
        let base = top.join(format!("project-{method}"));
        std::fs::create_dir(&base).unwrap();
        run(Command::new("sh")
            .current_dir(&base)
            .args(["-euc", "echo 1 > a; mkdir shut e; echo 1 > shut/f; chmod 555 shut"]));
        let workspaces = Workspaces::open(&top.join(format!("state-{method}"))).unwrap();
        let copy = workspaces.create(NewCopy::of(&base, method)).unwrap();
        copy.sh("echo 2 > a; echo x > secret; chmod 000 secret; chmod 755 shut; echo 2 > shut/f; echo 2 > shut/g; chmod 300 e");
        let unreadable =
            crate::LeftAside { path: "secret".into(), reason: crate::LeftAsideReason::Unreadable };
        assert!(copy.seen().left_aside.contains(&unreadable), "{method} {:?}", copy.seen().left_aside);
        copy.apply_all().unwrap();
        for name in ["a", "shut/f", "shut/g"] {
            assert_eq!(std::fs::read(base.join(name)).unwrap(), b"2\n", "{method} {name}");
        }
        copy.undo().unwrap();
        let mode = |name: &str| base.join(name).metadata().unwrap().mode() & 0o777;
        assert_eq!(
            (mode("shut"), mode("e"), base.join("shut/g").exists()),
            (0o555, 0o755, false),
            "{method}"
        );
        // A directory that stays shut refuses the whole apply.
        copy.sh("chmod 755 shut; rm -f shut/g; echo 3 > shut/g; chmod 555 shut");
        let refused = copy.apply_all().unwrap_err();
        assert!(refused.to_string().contains("shut/"), "{refused}");
        assert_eq!(std::fs::read(base.join("a")).unwrap(), b"1\n", "{method}");
    }
}
