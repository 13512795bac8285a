//! How copies are made: secrets, tracked files, special files, full disks, large projects.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::stage::{METHODS, Stage};
use crate::{Cancel, Method, NewCopy, StagingError, Tree, Workspaces, can_reflink};

#[test]
fn secrets_stay_out_unless_they_are_tracked_or_named() {
    for method in METHODS {
        let stage = Stage::new("secrets");
        stage.sh(r"git init -q; mkdir -p a/b sub
            for f in .env .env.local .env.example a/b/server.pem tracked.pem id_rsa listed.key included.key; do echo secret > $f; done
            (cd sub; git init -q; echo secret > sub.pem; echo secret > own.pem; git add sub.pem)
            git add -f tracked.pem; printf '# comment\nincluded.*\n' > .worktreeinclude");
        let new = NewCopy { include_secrets: vec!["listed.key".into()], ..NewCopy::of(&stage.base, method) };
        let copy = stage.workspaces.create(new).unwrap();
        let left_out: Vec<_> =
            [".env", ".env.local", "a/b/server.pem", "id_rsa", "sub/own.pem"].map(PathBuf::from).into();
        assert_eq!(copy.record().left_out, left_out, "{method}");
        copy.sh("test ! -e .env; test ! -e a/b/server.pem; test ! -e sub/own.pem; cat tracked.pem listed.key included.key sub/sub.pem .env.example > /dev/null");
        assert!(copy.seen().is_empty(), "{method}: left out is not deleted: {:?}", copy.listed());
        // One of the agent's own takes no secret of the base's place, nor shows it.
        copy.sh("echo mine > .env; rm -r a; echo changed > tracked.pem");
        let changes = copy.seen();
        let own = changes.entry(Path::new(".env")).unwrap();
        let contents = changes.contents(own, 1000).unwrap();
        assert_eq!((contents.before, contents.after), (None, Some(b"mine\n".to_vec())), "{method}");
        assert!(copy.apply_all().is_err(), "{method}");
        let request = crate::ApplyRequest {
            only: vec!["a".into(), "tracked.pem".into()],
            ..crate::ApplyRequest::default()
        };
        copy.apply(&request, &|_| None).unwrap();
        assert_eq!(std::fs::read(stage.base.join("a/b/server.pem")).unwrap(), b"secret\n", "{method}");
    }
}

#[test]
fn a_copy_has_modes_times_links_holes_and_ignored_files() {
    let stage = Stage::new("whole-copy");
    stage.sh(r"mkdir -m 500 locked; mkdir -p node_modules/x; echo 1 > node_modules/x/y; ln -s nowhere broken; mkfifo fifo
        echo run > tool; chmod 755 tool; touch -d '2001-02-03 04:05:06' tool; truncate -s 64M sparse; echo end >> sparse");
    let copy = stage.create(Method::Copy);
    let Tree::Files { files, .. } = &copy.trees()[0] else { panic!() };
    let of = |name: &str| files.join(name).symlink_metadata().unwrap();
    assert_eq!(
        (of("locked").mode() & 0o777, of("tool").mode() & 0o777, of("tool").mtime()),
        (0o500, 0o755, 981_173_106)
    );
    assert!(of("broken").is_symlink() && of("node_modules/x/y").is_file());
    assert!(of("sparse").len() > 64 << 20 && of("sparse").blocks() * 512 < 1 << 20);
    assert_eq!(copy.record().not_copied, [PathBuf::from("fifo")]);
    assert!(stage.base.join("fifo").symlink_metadata().unwrap().file_type().is_fifo());
    assert!(copy.seen().is_empty() && copy.seen().left_aside.is_empty());
    assert!(!can_reflink(Path::new("/proc/self"), stage.workspaces.root()));
}

#[test]
fn git_directories_outside_the_base_come_along() {
    for method in METHODS {
        let stage = Stage::new("beside");
        stage.sh("git init -q; mkdir part; echo 1 > part/.env.local; echo 1 > part/prod.pem; git add -f part/prod.pem");
        let beside =
            vec![crate::NewTree { base: stage.base.join(".git"), worktree: Some(stage.base.clone()) }];
        let new = NewCopy { beside, ..NewCopy::of(&stage.base.join("part"), method) };
        let copy = stage.workspaces.create(new).unwrap();
        assert_eq!(copy.trees().len(), 2);
        assert_eq!(copy.trees()[1].base(), stage.base.join(".git"));
        assert_eq!(copy.record().left_out, [PathBuf::from(".env.local")], "{method}");
    }
}

#[test]
fn fifty_thousand_files_take_little_room() {
    let stage = Stage::new("many-files");
    for directory in 0..500 {
        let directory = stage.base.join(format!("d{directory}"));
        std::fs::create_dir(&directory).unwrap();
        for file in 0..100 {
            std::fs::write(directory.join(format!("f{file}")), "").unwrap();
        }
    }
    let copy = stage.create(Method::Overlay);
    assert!(copy.disk_use().unwrap() <= 1 << 20, "{}", copy.disk_use().unwrap());
    assert!(copy.seen().is_empty());
    copy.sh("for i in $(seq 0 499); do echo x > d$i/f1; echo x > d$i/new; done");
    assert_eq!(copy.seen().entries.len(), 1000);
    let view = copy.view(&stage.directory.join("view"));
    copy.apply_all().unwrap();
    assert!(copy.seen().is_empty());
    assert_eq!(stage.snapshot(), view);
}

#[test]
fn twenty_copies_of_one_project_do_not_cross() {
    let stage = Stage::new("twenty");
    stage.sh("mkdir d; for i in $(seq 0 19); do echo base > d/$i; done; echo base > shared");
    let copies: Vec<_> = (0..20).map(|number| (number, stage.create(METHODS[number % 2]))).collect();
    std::thread::scope(|scope| {
        for (number, copy) in &copies {
            scope.spawn(move || {
                copy.sh(&format!(
                    "echo {number} > d/{number}; echo {number} > shared; grep -qx {number} shared"
                ));
                let request =
                    crate::ApplyRequest { only: vec!["d".into()], ..crate::ApplyRequest::default() };
                assert_eq!(
                    copy.apply(&request, &|_| None).unwrap().paths,
                    [PathBuf::from(format!("d/{number}"))]
                );
            });
        }
    });
    for (number, copy) in &copies {
        assert_eq!(
            std::fs::read_to_string(stage.base.join(format!("d/{number}"))).unwrap(),
            format!("{number}\n")
        );
        assert_eq!(copy.listed().len(), 1);
    }
    assert_eq!(std::fs::read(stage.base.join("shared")).unwrap(), b"base\n");
}

#[test]
fn a_cancelled_copy_leaves_nothing() {
    let stage = Stage::new("cancelled");
    stage.sh("echo 1 > a");
    let cancel = Cancel::default();
    cancel.cancel();
    let new = NewCopy { cancel, ..NewCopy::of(&stage.base, Method::Copy) };
    assert!(matches!(stage.workspaces.create(new), Err(StagingError::Cancelled)));
    assert!(stage.workspaces.list().unwrap().is_empty());
    assert_eq!(stage.leftovers(), Vec::<PathBuf>::new());
}

const FULL: &str = "STAGING_TEST_FULL_DISK";

/// Runs in a mount namespace whose state root is a small file system.
#[test]
fn child_with_a_full_disk() {
    let Ok(places) = std::env::var(FULL) else { return };
    let (root, base) = places.split_once(':').unwrap();
    let workspaces = Workspaces::open(Path::new(root)).unwrap();
    let refused = workspaces.create(NewCopy::of(Path::new(base), Method::Copy));
    let Err(error @ StagingError::NoSpace { .. }) = refused else { panic!("{refused:?}") };
    assert!(error.hint().is_some());
    assert_eq!(std::fs::read_dir(root).unwrap().count(), 0, "nothing is left");
    std::fs::remove_file(Path::new(base).join("large")).unwrap();
    workspaces.create(NewCopy::of(Path::new(base), Method::Copy)).unwrap();
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    let stage = Stage::new("full-disk");
    stage.sh("head -c 4000000 /dev/urandom > large; echo 1 > small");
    let root = stage.workspaces.root();
    let script = "mount -t tmpfs -o size=2m,mode=700 tmpfs \"$1\"; exec \"$2\" --exact tests::creating::child_with_a_full_disk";
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-euc", script, "sh"]).arg(root).arg(std::env::current_exe().unwrap());
    super::stage::run(command.env(FULL, format!("{}:{}", root.display(), stage.base.display())));
}
