//! Reviewing, applying, undoing and comparing.

use std::os::unix::fs::PermissionsExt as _;

use super::Desk;

#[test]
fn a_diff_is_what_git_can_apply() {
    let desk = Desk::repository("diff");
    desk.project.write("gone.txt", "gone\n");
    desk.project.write("moved.txt", "content that stays the same while the file moves\n".repeat(5));
    desk.project.commit_all();
    desk.succeeds(&["start", "task"]);
    desk.agent(
        "task",
        "sed -i s/three/THREE/ kept.txt; rm gone.txt; mv moved.txt other.txt; printf '\\0\\1' > image.bin; \
         echo '#!/bin/sh' > tool; chmod +x tool; mkdir -p a/b; echo deep > 'a/b/with space.txt'",
    );
    let diff = desk.succeeds(&["diff", "task"]).stdout;
    for line in
        ["-three", "+THREE", "deleted file", "rename to other.txt", "image.bin", "new file mode 100755"]
    {
        assert!(diff.contains(line), "{line}: {diff}");
    }
    let stat = desk.succeeds(&["diff", "task", "--stat", "--only", "a"]).stdout;
    assert!(stat.contains("A a/b/with space.txt") && !stat.contains("kept.txt"), "{stat}");
    assert_eq!(desk.session(&["diff", "task", "--exit-code"]).code, 1);

    desk.succeeds(&["apply", "task", "--dry-run"]);
    assert!(desk.project.has("gone.txt"), "a dry run changes nothing");
    desk.succeeds(&["apply", "task"]);
    assert!(!desk.project.has("gone.txt") && !desk.project.has("moved.txt") && desk.project.has("other.txt"));
    assert_eq!(desk.project.bytes("image.bin"), [0, 1]);
    assert_eq!(desk.project.join("tool").metadata().unwrap().permissions().mode() & 0o111, 0o111);
    assert_eq!(desk.project.text("a/b/with space.txt"), "deep\n");
    assert_eq!(desk.session(&["diff", "task", "--exit-code"]).code, 0, "everything is taken over");

    desk.succeeds(&["undo", "task"]);
    assert_eq!(desk.project.git(&["status", "--porcelain"]), "", "as it was");
    desk.fails(&["undo", "task"], "no apply to undo");
}

#[test]
fn only_what_was_reviewed_is_taken_over() {
    let desk = Desk::plain("reviewed");
    desk.succeeds(&["start", "task"]);
    desk.agent("task", "echo good > good.txt");
    let fingerprint =
        desk.succeeds(&["diff", "task", "--json"]).json()["fingerprint"].as_str().unwrap().to_owned();
    desk.agent("task", "echo evil > evil.txt");
    desk.fails(&["apply", "task", "--reviewed", &fingerprint], "other changes than those that were reviewed");
    assert!(!desk.project.has("good.txt") && !desk.project.has("evil.txt"));
    let now = desk.succeeds(&["diff", "task", "--json"]).json()["fingerprint"].as_str().unwrap().to_owned();
    desk.succeeds(&["apply", "task", "--reviewed", &now]);
    assert!(desk.project.has("evil.txt"), "the control");
}

#[test]
fn what_the_host_would_execute_is_left_out_and_said() {
    let desk = Desk::repository("executed");
    desk.project.git(&["config", "core.hooksPath", "tools/hooks"]);
    desk.succeeds(&["start", "task"]);
    desk.agent(
        "task",
        "mkdir -p .vscode tools/hooks; echo '{}' > .vscode/tasks.json; echo 'echo hooked' > tools/hooks/pre-commit; \
         chmod +x tools/hooks/pre-commit; echo '* filter=x' > .gitattributes; echo ok > plain.txt",
    );
    let applied = desk.succeeds(&["apply", "task", "--json"]).json();
    assert_eq!(applied["paths"], serde_json::json!(["plain.txt"]), "{applied}");
    let left = applied["executables_left_out"].to_string();
    for file in [".vscode/tasks.json", "tools/hooks/pre-commit", ".gitattributes"] {
        assert!(left.contains(file) && !desk.project.has(file), "{file}: {left}");
    }
    desk.succeeds(&["apply", "task", "--include-executables"]);
    assert!(desk.project.has("tools/hooks/pre-commit"), "the control");
}

#[test]
fn what_the_project_changed_meanwhile_is_merged_or_refused() {
    let desk = Desk::repository("meanwhile");
    desk.succeeds(&["start", "task"]);
    desk.agent("task", "sed -i s/one/ONE/ kept.txt; echo new > new.txt");
    desk.project.write("kept.txt", "one\ntwo\nthree\nfour\nFIVE\n");
    let shown = desk.succeeds(&["show", "task"]).stdout;
    assert!(shown.contains("meanwhile") && shown.contains("kept.txt"), "{shown}");
    let applied = desk.succeeds(&["apply", "task"]).stdout;
    assert!(applied.contains("merged with the project's own changes"), "{applied}");
    assert_eq!(desk.project.text("kept.txt"), "ONE\ntwo\nthree\nfour\nFIVE\n");
    desk.agent("task", "sed -i s/two/agent/ kept.txt; echo more > more.txt");
    desk.project.write("kept.txt", "ONE\nhuman\nthree\nfour\nFIVE\n");
    desk.fails(&["apply", "task"], "kept.txt (both changed the same lines)");
    assert!(!desk.project.has("more.txt"), "all or nothing");
}

#[test]
fn two_workspaces_are_compared_with_each_other() {
    let desk = Desk::plain("compare");
    for name in ["a", "b"] {
        desk.succeeds(&["start", name]);
    }
    assert_eq!(desk.session(&["compare", "a", "b"]).code, 0);
    desk.agent("a", "sed -i s/one/ONE/ kept.txt; echo same > same.txt; echo only > only-a.txt");
    desk.agent("b", "echo same > same.txt");
    let compared = desk.session(&["compare", "a", "b"]);
    assert_eq!(compared.code, 1, "{compared:?}");
    assert!(compared.stdout.contains("-ONE\n+one\n two\n"), "{compared:?}");
    assert!(compared.stdout.contains("only-a.txt") && !compared.stdout.contains("same.txt"), "{compared:?}");
    let named = desk.session(&["compare", "a", "b", "--json"]).json();
    assert_eq!(named["differing"], serde_json::json!(["kept.txt", "only-a.txt"]));
}

#[test]
fn names_of_files_do_not_control_the_terminal() {
    let desk = Desk::plain("names");
    desk.succeeds(&["start", "task"]);
    desk.agent("task", "touch \"$(printf 'a\\033[2Jb')\"");
    for words in [&["diff", "task", "--stat"][..], &["apply", "task"]] {
        let ended = desk.succeeds(words);
        assert!(!ended.stdout.contains('\u{1b}') && ended.stdout.contains("[2Jb"), "{ended:?}");
    }
}
