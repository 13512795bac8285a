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
            match tree.read(Path::new("d/file"), 100) {
                Ok(bytes) => plain += usize::from(bytes == b"plain\n"),
                Err(_) => {}
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
