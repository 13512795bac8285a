//! What changed in a copy is told apart, the same with every method.

use std::path::Path;

use super::stage::{METHODS, Stage, odd_name};
use crate::changes::ChangeKind::{Added, Deleted, ModeChanged, Modified, TypeChanged};
use crate::changes::{ContentKind, LeftAside, LeftAsideReason};
use crate::{BaseState, ChangeOptions, DiffOptions, Method};

const PROJECT: &str = r"
    mkdir -p src/deep docs empty gone/below odd
    printf 'one\ntwo\n' > src/main.rs; echo lib > src/lib.rs; printf 'a\0b' > logo.png
    echo moved content > old-name; echo x > script; ln -s src/main.rs link; echo y > gone/below/file
    echo z > becomes-directory; echo w > docs/page; : > nothing; echo same > touched; echo m > only-mode
";

const WORK: &str = r#"
    printf 'one\n2\n' > src/main.rs; rm src/lib.rs; printf 'a\0c' > logo.png
    mv old-name src/deep/new-name; chmod 755 only-mode; ln -sf docs/page link; rm -r gone
    rm becomes-directory; mkdir becomes-directory; echo in > becomes-directory/in
    rm -r docs; echo file > docs; : > added-empty; mkdir added-directory; mkfifo fifo
    cp touched t2; cp t2 touched; rm t2; mkdir .git; echo ref > .git/HEAD
    echo 'build' > Makefile; printf 'x' > 'with space and "quote"'; echo ü > ünï
"#;

#[test]
fn every_kind_of_change_is_told() {
    for method in METHODS {
        let stage = Stage::new("kinds");
        stage.sh(PROJECT);
        let copy = stage.create(method);
        assert!(copy.seen().is_empty(), "{method}");
        copy.sh(WORK);
        let mut expected: Vec<_> = [
            (Added, "Makefile"),
            (Added, "added-directory"),
            (Added, "added-empty"),
            (TypeChanged, "becomes-directory"),
            (Added, "becomes-directory/in"),
            (TypeChanged, "docs"),
            (Deleted, "docs/page"),
            (Deleted, "gone"),
            (Deleted, "gone/below"),
            (Deleted, "gone/below/file"),
            (Modified, "link"),
            (Modified, "logo.png"),
            (Deleted, "old-name"),
            (ModeChanged, "only-mode"),
            (Added, "src/deep/new-name"),
            (Deleted, "src/lib.rs"),
            (Modified, "src/main.rs"),
            (Added, "with space and \"quote\""),
            (Added, "ünï"),
        ]
        .map(|(kind, path)| (kind, path.to_owned()))
        .into();
        expected.sort_by(|one, other| Path::new(&one.1).cmp(Path::new(&other.1)));
        assert_eq!(copy.listed(), expected, "{method}");
        let changes = copy.seen();
        let fifo = LeftAside { path: "fifo".into(), reason: LeftAsideReason::Fifo };
        assert!(changes.left_aside.contains(&fifo), "{method} {:?}", changes.left_aside);
        let entry = |path: &str| changes.entry(Path::new(path)).unwrap();
        assert_eq!(entry("src/deep/new-name").renamed_from.as_deref(), Some(Path::new("old-name")));
        assert_eq!(entry("logo.png").content, ContentKind::Binary);
        assert!(entry("Makefile").executed_later && !entry("src/main.rs").executed_later);
        assert!(changes.entries.iter().all(|change| change.base == BaseState::AsAtStart), "{method}");
    }
}

#[test]
fn the_diff_is_one_that_git_applies() {
    for method in METHODS {
        let stage = Stage::new("git-diff");
        stage.sh("printf 'one\\ntwo\\n' > a; echo old > b; echo run > c; printf 'no newline' > d; mkdir e; echo f > e/f");
        stage.sh("cp -a . ../other");
        let copy = stage.create(method);
        copy.sh("printf 'one\\n2\\n' > a; rm b; chmod 755 c; printf 'still no newline' > d; mv e/f 'e/\"g\" ü'; printf 'x\\n' > \"$(printf 'n\\newline\\377')\"; ln -s a l");
        let mut diff = Vec::new();
        copy.seen().write_diff(&mut diff, &DiffOptions::default()).unwrap();
        std::fs::write(stage.directory.join("patch"), &diff).unwrap();
        let other = stage.directory.join("other");
        super::stage::run(
            std::process::Command::new("git")
                .args(["apply", "../patch"])
                .current_dir(&other)
                .env("GIT_CEILING_DIRECTORIES", &stage.directory),
        );
        assert_eq!(
            super::stage::snapshot(&other),
            copy.view(&stage.directory.join("view")),
            "{method} {}",
            String::from_utf8_lossy(&diff)
        );
    }
}

#[test]
fn odd_names_and_long_paths_are_seen_and_taken_over() {
    for method in METHODS {
        let stage = Stage::new("odd-names");
        std::fs::write(stage.base.join(odd_name()), "before").unwrap();
        let copy = stage.create(method);
        // Longer than the kernel takes in one call. Without -P, shells hand it the whole path.
        copy.sh(r#"printf after > "$(printf 'odd\377\nname')"
            n=$(printf '%0200d' 0); i=0; while [ $i -lt 25 ]; do mkdir "$n"; cd -P "$n"; i=$((i+1)); done; echo deep > end"#);
        let changes = copy.seen();
        assert_eq!(changes.entries.len(), 27, "{method}");
        let json = serde_json::to_value(&changes).unwrap();
        let odd = json["entries"].as_array().unwrap().iter().find(|entry| entry["path"].is_object()).unwrap();
        assert_eq!(odd["path"]["base64"], "b2Rk/wpuYW1l");
        copy.apply_all().unwrap();
        assert_eq!(std::fs::read(stage.base.join(odd_name())).unwrap(), b"after");
        assert!(copy.seen().is_empty(), "{method}");
        stage.sh("n=$(printf '%0200d' 0); i=0; while [ $i -lt 25 ]; do cd -P \"$n\"; i=$((i+1)); done; test \"$(cat end)\" = deep");
        copy.undo().unwrap();
        assert_eq!(stage.snapshot().len(), 1, "{method}");
    }
}

#[test]
fn an_opaque_directory_hides_what_was_below_it() {
    let stage = Stage::new("opaque");
    stage.sh("mkdir -p d/sub; echo 1 > d/one; echo 2 > d/two; echo 3 > d/sub/three");
    let copy = stage.create(Method::Overlay);
    copy.sh("rm -r d; mkdir d; echo new > d/one");
    let upper = stage.workspaces.root().join(copy.record().id.as_str()).join("project/upper/d");
    assert!(upper.is_dir() && !upper.join("two").exists(), "it is opaque, without whiteouts");
    let expected = [(Modified, "d/one"), (Deleted, "d/sub"), (Deleted, "d/sub/three"), (Deleted, "d/two")];
    assert_eq!(copy.listed(), expected.map(|(kind, path)| (kind, path.to_owned())));
    let view = copy.view(&stage.directory.join("view"));
    copy.apply_all().unwrap();
    assert_eq!(stage.snapshot(), view);
}

#[test]
fn ignored_files_are_counted_and_not_taken_over() {
    for method in METHODS {
        let stage = Stage::new("ignored");
        stage.sh("git init -q; printf 'target/\\n*.log\\n' > .gitignore; mkdir -p target sub; echo b > target/built; echo t > kept.log; git add -f kept.log; printf '!own.log\\n' > sub/.gitignore");
        let copy = stage.create(method);
        copy.sh("echo c > target/built; echo d > target/more; echo e > x.log; echo f > kept.log; echo g > sub/own.log; echo h > sub/y.log");
        let expected = [(Modified, "kept.log"), (Added, "sub/own.log")];
        assert_eq!(copy.listed(), expected.map(|(kind, path)| (kind, path.to_owned())), "{method}");
        let ignored: Vec<_> =
            copy.seen().ignored.iter().map(|tree| (tree.path.clone(), tree.files)).collect();
        assert_eq!(ignored, [("sub/y.log".into(), 1), ("target".into(), 2), ("x.log".into(), 1)], "{method}");
        copy.apply_all().unwrap();
        assert_eq!(std::fs::read(stage.base.join("target/built")).unwrap(), b"b\n");
        let all = copy.changes(&ChangeOptions { include_ignored: true, ..ChangeOptions::default() }).unwrap();
        assert_eq!(all.entries.len(), 4, "{method}");
        let request = crate::ApplyRequest { include_ignored: true, ..crate::ApplyRequest::default() };
        copy.apply(&request, &|_| None).unwrap();
        assert_eq!(std::fs::read(stage.base.join("target/more")).unwrap(), b"d\n");
    }
}

#[test]
fn what_programs_outside_would_execute_is_shown_apart_and_stays_out() {
    for method in METHODS {
        let stage = Stage::new("executed");
        stage.sh("mkdir -p hooks-of-mine editor; ln -s editor .vscode; echo a > plain; git init -q");
        let copy = stage.create(method);
        copy.sh(r"mkdir -p .husky deep/.idea docs/repo/objects docs/repo/refs .github/workflows harmless
            echo 1 > .husky/pre-commit; echo 2 > deep/.idea/run.xml; echo 3 > .github/workflows/ci.yml
            echo 'ref: refs/heads/x' > docs/repo/HEAD; printf '[core]\n fsmonitor = evil\n' > docs/repo/config
            echo 4 > editor/tasks.json; echo 5 > hooks-of-mine/pre-push; echo '* filter=x' > .gitattributes
            ln -s /etc/passwd outside; ln -s ../../up up; ln -s .git/hooks into-git; ln -s plain inside
            echo 6 > harmless/HEAD; echo b > plain; echo evil > .git/hooks/post-checkout");
        let options = ChangeOptions { executed: vec!["hooks-of-mine".into()], ..ChangeOptions::default() };
        let changes = copy.changes(&options).unwrap();
        let plain: Vec<_> = changes.entries.iter().filter(|change| !change.executed_later).collect();
        let plain: Vec<&str> = plain.iter().map(|change| change.path.to_str().unwrap()).collect();
        assert_eq!(plain, ["deep", "docs", "harmless", "harmless/HEAD", "inside", "plain"], "{method}");
        let request =
            crate::ApplyRequest { executed: options.executed.clone(), ..crate::ApplyRequest::default() };
        let applied = copy.apply(&request, &|_| None).unwrap();
        assert_eq!(applied.paths.len(), 6, "{method}");
        assert!(applied.executables_left_out.contains(&"docs/repo/config".into()));
        for absent in [".husky", "docs/repo", "outside", "editor/tasks.json", ".git/hooks/post-checkout"] {
            assert!(stage.base.join(absent).symlink_metadata().is_err(), "{method} {absent}");
        }
        // The control: with consent they come, but nothing of git itself.
        copy.apply(&crate::ApplyRequest { include_executables: true, ..request }, &|_| None).unwrap();
        assert!(
            stage.base.join("docs/repo/config").exists() && stage.base.join(".husky/pre-commit").exists()
        );
        assert!(!stage.base.join(".git/hooks/post-checkout").exists(), "{method}");
    }
}
