//! Apply and undo.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::stage::{METHODS, Stage};
use crate::apply::Moment;
use crate::{ApplyError, ApplyRequest, ConflictReason, Method};

const PROJECT: &str = r"
    mkdir -p src/deep docs gone/below; printf '1\n2\n3\n4\n5\n6\n7\n8\n9\n' > src/main.rs; echo lib > src/lib.rs
    echo x > script; ln -s src/main.rs link; echo y > gone/below/file; echo z > becomes-directory; echo w > docs/page
    chmod 600 docs/page; : > nothing; ln -s nowhere link-becomes-tree
";
const WORK: &str = r"
    printf 'one\n2\n3\n4\n5\n6\n7\n8\n9\n' > src/main.rs; rm src/lib.rs; chmod 755 script; ln -sf docs link; rm -r gone
    rm becomes-directory; mkdir -p becomes-directory/in; echo in > becomes-directory/in/file; chmod 500 becomes-directory/in
    rm -r docs; echo file > docs; : > added-empty; mkdir -m 750 added-directory; echo filled > nothing
    rm link-becomes-tree; mkdir -p link-becomes-tree/in/deep
";

#[test]
fn the_base_gets_what_the_copy_shows_and_an_undo_gives_it_back() {
    for method in METHODS {
        let stage = Stage::new("apply");
        stage.sh(PROJECT);
        let copy = stage.create(method);
        copy.sh(WORK);
        let (before, view) = (stage.snapshot(), copy.view(&stage.directory.join("view")));
        let inode = stage.base.join("src/main.rs").metadata().unwrap().ino();
        copy.apply_all().unwrap();
        assert_eq!(stage.snapshot(), view, "{method}");
        assert!(copy.seen().is_empty() && copy.can_undo(), "{method}");
        copy.undo().unwrap();
        assert_eq!(stage.snapshot(), before, "{method}");
        assert_eq!(stage.base.join("src/main.rs").metadata().unwrap().ino(), inode, "the very same file");
        assert!(matches!(copy.undo(), Err(ApplyError::NothingToUndo)));
        assert_eq!(stage.leftovers(), Vec::<PathBuf>::new());
        copy.apply_all().unwrap();
        assert_eq!(stage.snapshot(), view, "{method}");
    }
}

#[test]
fn a_state_root_on_another_file_system_works_too() {
    let stage = Stage::with_state_elsewhere("elsewhere");
    stage.sh(PROJECT);
    let copy = stage.create(Method::Copy);
    copy.sh(WORK);
    let (before, view) = (stage.snapshot(), copy.view(&stage.directory.join("view")));
    copy.apply_all().unwrap();
    assert_eq!(stage.snapshot(), view);
    let slots = stage.leftovers();
    assert_eq!(slots.len(), 1);
    assert_eq!(std::fs::read(slots[0].join(".gitignore")).unwrap(), b"*\n");
    assert!(copy.seen().is_empty() && copy.base_drift(&[]).unwrap().changed.is_empty());
    copy.undo().unwrap();
    assert_eq!((stage.snapshot(), stage.leftovers()), (before, Vec::new()));
    copy.apply_all().unwrap();
    let root = stage.workspaces.root().to_owned();
    stage.workspaces.discard(copy, crate::Unsaved::default(), false).unwrap();
    assert_eq!(stage.leftovers(), Vec::<PathBuf>::new());
    crate::removal::remove_tree(&root).unwrap();
}

#[test]
fn only_what_is_selected_is_taken_over() {
    for method in METHODS {
        let stage = Stage::new("selection");
        stage.sh("mkdir src; echo 1 > src/a.rs; echo 1 > b.rs; echo 1 > c.txt");
        let copy = stage.create(method);
        copy.sh("echo 2 > src/a.rs; echo 2 > b.rs; echo 2 > c.txt; mkdir -p new/deep; echo 2 > new/deep/d; echo 2 > new/e");
        let only = |only: &[&str]| ApplyRequest {
            only: only.iter().map(PathBuf::from).collect(),
            ..ApplyRequest::default()
        };
        let missing = copy.apply(&only(&["src/", "nowhere"]), &|_| None);
        assert!(matches!(missing, Err(ApplyError::NothingMatches { .. })), "{missing:?}");
        assert_eq!(stage.snapshot()[Path::new("src/a.rs")].2, b"1\n");
        let dry = ApplyRequest { dry_run: true, ..only(&["src/"]) };
        assert_eq!(copy.apply(&dry, &|_| None).unwrap().paths, [PathBuf::from("src/a.rs")]);
        assert_eq!(stage.snapshot()[Path::new("src/a.rs")].2, b"1\n");
        copy.apply(&only(&["src/", "new/deep/d"]), &|_| None).unwrap();
        let now = stage.snapshot();
        assert_eq!(now[Path::new("src/a.rs")].2, b"2\n");
        assert_eq!(now[Path::new("new/deep/d")].2, b"2\n");
        assert!(now[Path::new("b.rs")].2 == b"1\n" && !now.contains_key(Path::new("new/e")), "{method}");
        copy.apply(&only(&["*.rs"]), &|_| None).unwrap();
        assert_eq!(copy.listed().len(), 2, "{method} {:?}", copy.listed());
    }
}

#[test]
fn other_changes_than_the_reviewed_ones_are_refused() {
    let stage = Stage::new("reviewed");
    stage.sh("echo 1 > a");
    let copy = stage.create(Method::Overlay);
    copy.sh("echo 2 > a");
    let reviewed = Some(copy.seen().fingerprint());
    copy.sh("echo 3 > a");
    let request = ApplyRequest { reviewed, ..ApplyRequest::default() };
    assert!(matches!(copy.apply(&request, &|_| None), Err(ApplyError::NotAsReviewed)));
    let request = ApplyRequest { reviewed: Some(copy.seen().fingerprint()), ..request };
    copy.apply(&request, &|_| None).unwrap();
    assert_eq!(std::fs::read(stage.base.join("a")).unwrap(), b"3\n");
}

/// What the base's `src/main.rs` had at the start.
fn ancestor(path: &Path) -> Option<Vec<u8>> {
    (path == Path::new("src/main.rs")).then(|| b"1\n2\n3\n4\n5\n6\n7\n8\n9\n".to_vec())
}

#[test]
fn changes_of_both_sides_are_merged_and_the_next_apply_loses_nothing() {
    for method in METHODS {
        let stage = Stage::new("merge");
        stage.sh(PROJECT);
        let copy = stage.create(method);
        copy.sh("sed -i s/1/one/ src/main.rs");
        stage.sh("sed -i s/9/nine/ src/main.rs");
        assert_eq!(copy.base_drift(&[]).unwrap().changed, [PathBuf::from("src/main.rs")]);
        let mine = stage.snapshot();
        let refused = copy.apply(&ApplyRequest::default(), &|_| None);
        let Err(ApplyError::Conflicts(conflicts)) = refused else { panic!("{refused:?}") };
        assert_eq!(conflicts[0].reason, ConflictReason::BothChanged);
        assert_eq!(stage.snapshot(), mine);
        let applied = copy.apply(&ApplyRequest::default(), &ancestor).unwrap();
        assert_eq!(applied.merged, [PathBuf::from("src/main.rs")]);
        let text = || String::from_utf8(std::fs::read(stage.base.join("src/main.rs")).unwrap()).unwrap();
        assert_eq!(text(), "one\n2\n3\n4\n5\n6\n7\n8\nnine\n");
        assert!(copy.seen().is_empty(), "{method}: it is taken over");
        // Both go on. The content that was merged is the ancestor now.
        copy.sh("sed -i s/5/five/ src/main.rs");
        stage.sh("sed -i s/nine/NINE/ src/main.rs");
        copy.apply(&ApplyRequest::default(), &|_| None).unwrap();
        assert_eq!(text(), "one\n2\n3\n4\nfive\n6\n7\n8\nNINE\n", "{method}");
        copy.undo().unwrap();
        assert_eq!(text(), "one\n2\n3\n4\n5\n6\n7\n8\nNINE\n", "{method}");
        copy.apply(&ApplyRequest::default(), &|_| None).unwrap();
        assert_eq!(text(), "one\n2\n3\n4\nfive\n6\n7\n8\nNINE\n", "{method}");
    }
}

#[test]
fn conflicts_refuse_the_whole_apply() {
    for method in METHODS {
        for (mine, theirs, reason) in [
            ("sed -i s/1/uno/ src/main.rs", "sed -i s/1/one/ src/main.rs", ConflictReason::SameLines),
            ("rm src/main.rs", "sed -i s/1/one/ src/main.rs", ConflictReason::DeletedInBase),
            ("echo 1 > src/lib.rs", "rm src/lib.rs", ConflictReason::DeletedInCopy),
            ("echo mine > both", "echo theirs > both", ConflictReason::BothAdded),
            ("ln -sf script link", "ln -sf docs link", ConflictReason::BothChanged),
            ("rm script; mkdir script", "echo theirs > script", ConflictReason::TypeDiffers),
            ("mkdir new", "echo theirs > new", ConflictReason::TypeDiffers),
        ] {
            let stage = Stage::new("conflict");
            stage.sh(PROJECT);
            let copy = stage.create(method);
            copy.sh(&format!("{theirs}; echo 2 > aaa-first; echo 2 > zzz-last"));
            stage.sh(mine);
            let before = stage.snapshot();
            let refused = copy.apply(&ApplyRequest::default(), &ancestor);
            let Err(error @ ApplyError::Conflicts(_)) = refused else {
                panic!("{method} {mine}: {refused:?}")
            };
            assert!(error.hint().is_some());
            let ApplyError::Conflicts(conflicts) = error else { unreachable!() };
            assert_eq!(
                conflicts.iter().map(|conflict| conflict.reason).collect::<Vec<_>>(),
                [reason],
                "{method} {mine}"
            );
            assert_eq!(stage.snapshot(), before, "{method} {mine}");
            assert_eq!(stage.leftovers(), Vec::<PathBuf>::new());
        }
    }
}

#[test]
fn what_only_the_base_changed_stays() {
    for method in METHODS {
        let stage = Stage::new("moved-on");
        stage.sh(PROJECT);
        let copy = stage.create(method);
        copy.sh("echo 2 > script; rm -r gone");
        stage.sh("echo new > fresh; echo 2 > docs/page; rm nothing; echo also > gone/also; sed -i s/9/nine/ src/main.rs");
        let applied = copy.apply_all().unwrap();
        assert_eq!(applied.directories_kept, [PathBuf::from("gone")], "{method}");
        let now = stage.snapshot();
        assert_eq!(now[Path::new("script")].2, b"2\n");
        assert_eq!(now[Path::new("gone/also")].2, b"also\n");
        assert!(
            now.contains_key(Path::new("fresh")) && !now.contains_key(Path::new("gone/below")),
            "{method}"
        );
        assert_eq!(now[Path::new("docs/page")].2, b"2\n");
        assert!(copy.seen().is_empty(), "{method} {:?}", copy.listed());
    }
}

#[test]
fn an_editor_that_saves_during_an_apply_loses_nothing() {
    for method in METHODS {
        // In place with another size, in place with the same, and by renaming.
        for save in ["printf 'mine, longer\\n' > b", "printf '9\\n' > b", "echo mine > .b.swp; mv .b.swp b"] {
            for moment in [
                Moment::JournalWritten,
                Moment::BeforeStep(1),
                Moment::InStep(1),
                Moment::AfterStep(1),
                Moment::AfterStep(2),
            ] {
                let stage = Stage::new("editor");
                stage.sh("echo 1 > a; echo 1 > b; echo 1 > c");
                let copy = stage.create(method);
                copy.sh("echo 2 > a; echo 2 > b; echo 2 > c");
                let before = stage.snapshot();
                let hook = |now| {
                    if now == moment {
                        stage.sh(save);
                    }
                };
                let refused = copy.apply_with(&ApplyRequest::default(), &|_| None, &hook);
                let mut expected = before.clone();
                let mine = if save.contains("longer") {
                    "mine, longer\n"
                } else if save.contains('9') {
                    "9\n"
                } else {
                    "mine\n"
                };
                expected.get_mut(Path::new("b")).unwrap().2 = mine.into();
                let at = format!("{method} {save} {moment:?}");
                assert!(refused.is_err(), "{at}");
                assert_eq!(stage.snapshot(), expected, "{at}");
            }
        }
    }
}

#[test]
fn an_undo_is_refused_once_the_files_were_changed() {
    for method in METHODS {
        let stage = Stage::new("late-undo");
        stage.sh("echo 1 > a; echo 1 > b");
        let copy = stage.create(method);
        copy.sh("echo 2 > a; echo 2 > b; mkdir d; echo 2 > d/x");
        copy.apply_all().unwrap();
        stage.sh("echo 3 > a");
        let now = stage.snapshot();
        assert!(matches!(copy.undo(), Err(ApplyError::Conflicts(_))));
        assert_eq!(stage.snapshot(), now);
        stage.sh("echo 2 > a");
        assert!(
            matches!(copy.undo(), Err(ApplyError::Conflicts(_))),
            "{method}: the same content at another time"
        );
    }
}

#[test]
fn hard_links_and_holes_are_files_of_their_own() {
    for method in METHODS {
        let stage = Stage::new("links-and-holes");
        stage.sh("echo 1 > a; ln a b; truncate -s 64M sparse; echo end >> sparse");
        let copy = stage.create(method);
        copy.sh("echo 2 > a; truncate -s 96M sparse; echo end >> sparse");
        copy.apply_all().unwrap();
        let (a, b) = (stage.base.join("a"), stage.base.join("b"));
        assert_eq!(
            (std::fs::read(&a).unwrap(), a.metadata().unwrap().nlink()),
            (b"2\n".to_vec(), 1),
            "{method}"
        );
        let sparse = stage.base.join("sparse").metadata().unwrap();
        assert!(sparse.len() > 96 << 20 && sparse.blocks() * 512 < 1 << 20, "{method} {}", sparse.blocks());
        copy.undo().unwrap();
        assert_eq!(std::fs::read(&b).unwrap(), b"1\n");
        assert_eq!(a.metadata().unwrap().ino(), b.metadata().unwrap().ino(), "{method}: linked again");
    }
}

#[test]
fn set_user_id_is_never_taken_over() {
    for method in METHODS {
        let stage = Stage::new("set-uid");
        stage.sh("echo 1 > a");
        let copy = stage.create(method);
        copy.sh("echo 2 > a; chmod 4755 a; echo x > n; chmod 2755 n");
        copy.apply_all().unwrap();
        for name in ["a", "n"] {
            assert_eq!(stage.base.join(name).metadata().unwrap().mode() & 0o7777, 0o755, "{method}");
        }
    }
}

#[test]
fn a_base_that_was_replaced_is_refused() {
    let stage = Stage::new("replaced");
    stage.sh("echo 1 > a");
    let copy = stage.create(Method::Copy);
    copy.sh("echo 2 > a");
    std::fs::rename(&stage.base, stage.directory.join("moved")).unwrap();
    std::fs::create_dir(&stage.base).unwrap();
    stage.sh("echo 1 > a");
    let refused = copy.apply_all();
    assert!(
        matches!(refused, Err(ApplyError::Staging(crate::StagingError::BaseReplaced { .. }))),
        "{refused:?}"
    );
    std::fs::remove_dir_all(&stage.base).unwrap();
    std::os::unix::fs::symlink(stage.directory.join("moved"), &stage.base).unwrap();
    assert!(copy.apply_all().is_err(), "nor is a link followed");
    std::fs::remove_file(&stage.base).unwrap();
    std::fs::rename(stage.directory.join("moved"), &stage.base).unwrap();
    copy.apply_all().unwrap();
}
