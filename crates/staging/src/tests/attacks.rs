//! Both sides are swapped by attackers while they are read and written. Each attack has a control that succeeds on code
//! that follows paths.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::stage::{METHODS, Stage};
use crate::held_tree::HeldTree;
use crate::{ApplyError, ApplyRequest, Method};

const ROUNDS: usize = 10_000;

/// Runs `act` while another thread exchanges two names, again and again.
fn while_swapping(top: &Path, names: [&str; 2], act: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let [one, other] = names.map(|name| top.join(name));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let _ = rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &other, flags);
            }
        });
        act();
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_file_of_the_copy_that_is_swapped_for_a_link_is_not_followed() {
    let stage = Stage::new("swapped-file");
    std::fs::write(stage.directory.join("secret"), "secret").unwrap();
    stage.sh("mkdir d; echo plain > d/file; ln -s ../../secret d/other; mkdir -p e/d; echo plain > e/d/file; ln -s ../../ e/link");
    std::fs::write(stage.directory.join("file"), "secret").unwrap();
    let tree = HeldTree::open(&stage.base).unwrap();
    let (mut plain, mut leaked) = (0, 0);
    while_swapping(&stage.base.join("d"), ["file", "other"], || {
        for _ in 0..ROUNDS {
            if let Ok(bytes) = tree.read(Path::new("d/file"), 100) {
                plain += usize::from(bytes == b"plain\n");
            }
            assert_ne!(tree.read(Path::new("d/file"), 100).ok().as_deref(), Some(&b"secret"[..]));
            leaked +=
                usize::from(std::fs::read(stage.base.join("d/file")).is_ok_and(|bytes| bytes == b"secret"));
        }
    });
    assert!(plain > 0 && leaked > 0, "the control: {plain} {leaked}");
    // The same with a directory on the way.
    let mut leaked = 0;
    while_swapping(&stage.base.join("e"), ["d", "link"], || {
        for _ in 0..ROUNDS {
            assert_ne!(tree.read(Path::new("e/d/file"), 100).ok().as_deref(), Some(&b"secret"[..]));
            leaked +=
                usize::from(std::fs::read(stage.base.join("e/d/file")).is_ok_and(|bytes| bytes == b"secret"));
        }
    });
    assert!(leaked > 0, "the control");
}

#[test]
fn a_directory_of_the_base_that_is_swapped_for_a_link_leads_no_write_outside() {
    let stage = Stage::new("swapped-directory");
    let outside = stage.directory.join("outside");
    std::fs::create_dir(&outside).unwrap();
    stage.sh("mkdir d; ln -s ../outside link");
    let tree = HeldTree::open(&stage.base).unwrap();
    let slots = stage.directory.join("slots");
    std::fs::create_dir(&slots).unwrap();
    let slots = HeldTree::open(&slots).unwrap().directory(Path::new("")).unwrap();
    let (mut put, mut escaped) = (0, 0);
    while_swapping(&stage.base, ["d", "link"], || {
        for round in 0..ROUNDS {
            let name = format!("slot-{round}");
            let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
            rustix::fs::openat(&slots, &name, flags, rustix::fs::Mode::RWXU).unwrap();
            let path = Path::new("d/file");
            if let Ok((parent, last)) = tree.parent_of(path) {
                put += usize::from(rustix::fs::renameat(&slots, &name, &parent, last).is_ok());
            }
            let _ = rustix::fs::unlinkat(&slots, &name, rustix::fs::AtFlags::empty());
            assert!(!outside.join("file").exists(), "round {round}");
            if std::fs::write(stage.base.join("d/control"), "x").is_ok() {
                escaped += usize::from(std::fs::remove_file(outside.join("control")).is_ok());
            }
        }
    });
    assert!(put > 0 && escaped > 0, "the control: {put} {escaped}");
}

#[test]
fn applies_while_the_base_is_attacked_write_nothing_outside() {
    for method in METHODS {
        let stage = Stage::new("attacked-base");
        let outside = stage.directory.join("outside");
        std::fs::create_dir_all(outside.join("sub")).unwrap();
        std::fs::write(outside.join("file"), "theirs").unwrap();
        stage.sh("mkdir -p d/sub; echo 1 > d/file; echo 1 > d/sub/deep; ln -s ../outside link");
        let copy = stage.create(method);
        let mut refused = 0;
        while_swapping(&stage.base, ["d", "link"], || {
            for round in 0..100 {
                // Outside the swapped names the copy is as its agent leaves it.
                let script = format!("echo {round} > new-{round}");
                copy.sh(&format!(
                    "[ -d d/sub ] && [ ! -L d ] && echo {round} > d/sub/new-{round} || true; {script}"
                ));
                refused += usize::from(copy.apply_all().is_err());
                assert_eq!(std::fs::read(outside.join("file")).unwrap(), b"theirs");
                assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 2);
                assert_eq!(std::fs::read_dir(outside.join("sub")).unwrap().count(), 0);
            }
        });
        stage.workspaces.recover().unwrap();
        let _ = refused;
    }
}

#[test]
fn an_agent_that_swaps_its_files_during_an_apply_gets_nothing_of_the_host_into_the_base() {
    let stage = Stage::new("attacked-upper");
    std::fs::write(stage.directory.join("secret"), "secret").unwrap();
    stage.sh("mkdir d; echo 1 > d/file");
    let copy = stage.create(Method::Overlay);
    let upper = copy.directory().join("project/upper");
    let mut taken = 0;
    for round in 0..100 {
        copy.sh(&format!("mkdir -p d; echo {round} > d/file"));
        std::fs::write(upper.join("d/plain"), format!("{round}")).unwrap();
        let _ = std::os::unix::fs::symlink(stage.directory.join("secret"), upper.join("d/leak"));
        while_swapping(&upper.join("d"), ["plain", "leak"], || {
            match copy.apply(&ApplyRequest::default(), &|_| None) {
                Ok(applied) => taken += applied.paths.len(),
                Err(ApplyError::CopyChanged { .. } | ApplyError::Conflicts(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        });
        for name in ["d/plain", "d/leak", "d/file"] {
            let path = stage.base.join(name);
            let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
            assert!(!is_link, "links that lead outside need consent");
            assert_ne!(std::fs::read(&path).ok().as_deref(), Some(&b"secret"[..]));
        }
    }
    assert!(taken > 0);
}

#[test]
fn what_an_agent_writes_meanwhile_is_never_taken_over_in_part() {
    let stage = Stage::new("torn");
    stage.sh("printf 'AAAAAAAA' > file");
    let copy = stage.create(Method::Copy);
    let file = copy.directory().join("project/tree/file");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut letter = 0;
            while !is_over.load(Ordering::Relaxed) {
                letter = (letter + 1) % 26;
                let text = vec![b'A' + letter; 100_000];
                std::fs::write(stage.directory.join("next"), text).unwrap();
                std::fs::rename(stage.directory.join("next"), &file).unwrap();
            }
        });
        for _ in 0..60 {
            let _ = copy.apply(&ApplyRequest::default(), &|_| None);
            let bytes = std::fs::read(stage.base.join("file")).unwrap();
            assert!(bytes.iter().all(|byte| *byte == bytes[0]) && [8, 100_000].contains(&bytes.len()));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Maps a file, and writes its two contents in turn, whenever a line comes.
const MAPPER: &str = "import mmap, sys
with open(sys.argv[1], 'r+b') as file: memory = mmap.mmap(file.fileno(), 0)
for content in sys.argv[2:]:
    sys.stdin.readline(); memory[:] = content.encode(); print('written', flush=True)";

struct Mapper(std::process::Child, std::io::Lines<std::io::BufReader<std::process::ChildStdout>>);

impl Mapper {
    fn of(file: &Path, contents: &[&str]) -> Self {
        let mut command = std::process::Command::new("python3");
        command.args(["-c", MAPPER]).arg(file).args(contents);
        let pipe = std::process::Stdio::piped;
        let mut child = command.stdin(pipe()).stdout(pipe()).spawn().unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        Self(child, lines)
    }

    fn write_next(&mut self) {
        std::io::Write::write_all(self.0.stdin.as_mut().unwrap(), b"\n").unwrap();
        assert_eq!(self.1.next().unwrap().unwrap(), "written");
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn what_is_written_behind_the_times_of_a_file_is_not_as_reviewed() {
    // tmpfs notes no write through a mapping, other file systems note the first.
    let stage = Stage::with_state_elsewhere("mapped");
    stage.sh("echo before > file; echo content > moved; echo 12345 > mode");
    let copy = stage.create(Method::Copy);
    let tree = copy.directory().join("project/tree");
    copy.sh("echo benign > file; mv moved renamed; chmod 755 mode");
    for (name, harmless, evil) in [
        ("file", "benign\n", "evil!!\n"),
        ("renamed", "content\n", "contest\n"),
        ("mode", "12345\n", "evil!\n"),
    ] {
        let path = tree.join(name);
        let mut mapper = Mapper::of(&path, &[harmless, evil, harmless, evil]);
        mapper.write_next();
        let reviewed = copy.seen();
        let mut diff = Vec::new();
        reviewed.write_diff(&mut diff, &crate::DiffOptions::default()).unwrap();
        mapper.write_next();
        // Also where the fingerprint is taken only now, it is that of what was shown.
        let request = ApplyRequest { reviewed: Some(reviewed.fingerprint()), ..ApplyRequest::default() };
        let looks = |changes: &crate::Changes| {
            changes.entry(Path::new(name)).map(|change| format!("{:?}", change.seen))
        };
        let seen = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!(
            looks(&reviewed),
            looks(&copy.seen()),
            "the control: nothing but the content tells ({seen:?})"
        );
        let refused = copy.apply(&request, &|_| None);
        assert!(matches!(refused, Err(ApplyError::NotAsReviewed)), "{name} {refused:?}");
        // The same after the fingerprint was compared.
        mapper.write_next();
        let mapper = std::sync::Mutex::new(mapper);
        let hook = |now| {
            if now == crate::apply::Moment::SlotsMade {
                mapper.lock().unwrap().write_next();
            }
        };
        let refused = copy.apply_with(&request, &|_| None, &hook);
        assert!(matches!(refused, Err(ApplyError::CopyChanged { .. })), "{name} {refused:?}");
        assert_eq!(std::fs::read(stage.base.join("file")).unwrap(), b"before\n");
        std::fs::write(&path, harmless).unwrap();
    }
    let reviewed = Some(copy.seen().fingerprint());
    copy.apply(&ApplyRequest { reviewed, ..ApplyRequest::default() }, &|_| None).unwrap();
    assert_eq!(std::fs::read(stage.base.join("file")).unwrap(), b"benign\n");
    crate::removal::remove_tree(stage.workspaces.root()).unwrap();
}

#[test]
fn links_that_lead_outside_by_a_detour_need_consent() {
    for method in METHODS {
        let stage = Stage::new("detours");
        stage.sh("mkdir -p a/b/c; echo 1 > a/file; mkdir real; ln -s conf .vscode; ln -s real conf");
        let copy = stage.create(method);
        copy.sh(
            r"ln -s ../.. a/b/top; ln -s top/../secret a/b/behind; ln -s ../../../secret a/b/straight; ln -s ../../a/file a/b/inside
            ln -s /etc/passwd absolute; ln -s b/../file a/detour; ln -s .GIT/hooks shouted; echo x > real/tasks.json",
        );
        let changes = copy.seen();
        let needs = |path: &str| changes.entry(Path::new(path)).unwrap().executed_later;
        for outside in ["a/b/behind", "a/b/straight", "absolute", "a/detour", "shouted"] {
            assert!(needs(outside), "{method} {outside}");
        }
        assert!(needs("real/tasks.json"), "{method}: where a link of a link leads");
        assert!(!needs("a/b/inside") && !needs("a/b/top"), "{method}");
        copy.apply(&ApplyRequest::default(), &|_| None).unwrap();
        // The control: the kernel would have gone there.
        std::os::unix::fs::symlink("top/../secret", stage.base.join("a/b/control")).unwrap();
        std::fs::write(stage.directory.join("secret"), "secret").unwrap();
        assert_eq!(std::fs::read(stage.base.join("a/b/control")).unwrap(), b"secret");
        for entry in ["a/b/behind", "a/b/straight"] {
            assert!(stage.base.join(entry).symlink_metadata().is_err(), "{method} {entry}");
        }
    }
}

#[test]
fn what_is_read_where_a_program_is_started_needs_consent_however_it_is_spelled() {
    let stage = Stage::new("spellings");
    let copy = stage.create(Method::Overlay);
    copy.sh(
        "for path in .GIT/hooks/pre-commit sub/.Git/config GIT~1/config .VSCode/tasks.json deep/.cargo/config.toml \
             rust-toolchain.toml p.code-workspace sub/.yarnrc.yml .worktreeinclude .gdbinit deep/.Husky/pre-push; do
             mkdir -p \"$(dirname $path)\"; echo x > $path; done; mkdir src; echo x > src/main.rs; echo x > .gitignore",
    );
    let changes = copy.seen();
    let files = changes.entries.iter().filter(|change| change.kind == crate::ChangeKind::Added);
    let plain: Vec<_> =
        files.filter(|change| !change.executed_later).map(|change| change.path.to_str().unwrap()).collect();
    assert_eq!(plain, [".gitignore", "deep", "src", "src/main.rs", "sub"]);
}

#[test]
fn an_agent_cannot_make_the_marks_of_the_kernel() {
    let stage = Stage::new("marks");
    stage.sh("mkdir -p d/sub untouched; echo 1 > d/one; echo 1 > d/sub/two; echo 1 > plain; echo 1 > untouched/file");
    let copy = stage.create(Method::Overlay);
    copy.sh(
        r#"mknod whiteout c 0 0 2> /dev/null && exit 1
        echo 2 > d/one; echo 2 > plain
        python3 - <<'END'
import os
for path, name in [("d", "opaque"), ("d/sub", "opaque"), ("plain", "whiteout"), ("d/one", "metacopy"), ("d", "redirect")]:
    for value in [b"y", b"x", b"/etc"]:
        for attribute in ["user.overlay." + name, "trusted.overlay." + name]:
            try: os.setxattr(path, attribute, value)
            except OSError: pass
END
        mv d e; ln plain linked"#,
    );
    let (view, changes) = (copy.view(&stage.directory.join("view")), copy.seen());
    assert!(changes.left_aside.is_empty(), "{:?}", changes.left_aside);
    copy.apply_all().unwrap();
    assert_eq!(stage.snapshot(), view, "what is reviewed and taken over is what the copy shows");
    // The control: the same marks in the upper directory, which no fence shows, hide what is below them.
    let upper = copy.directory().join("project/upper");
    std::fs::create_dir(upper.join("untouched")).unwrap();
    super::stage::run(std::process::Command::new("python3").args([
        "-c",
        "import os, sys; os.setxattr(sys.argv[1], 'user.overlay.opaque', b'y')",
        upper.join("untouched").to_str().unwrap(),
    ]));
    assert!(copy.view(&stage.directory.join("view")).len() < view.len());
}
