//! `session_diff`: exactly the changes that the session made, by its tools and by its commands.

use serde_json::json;
use testkit::Project;

use super::Desk;

fn repository() -> Project {
    let project = Project::new("diff");
    project.write("a.txt", "one\ntwo\nthree\n");
    project.write("b.txt", "b\n");
    project.write("gone.txt", "gone\n");
    project.write(".gitignore", "out/\n");
    project.commit_all();
    project
}

#[tokio::test]
async fn nothing_has_changed_at_first() {
    let desk = Desk::open(repository()).await;
    let diff = desk.ok("session_diff", json!({})).await;
    assert_eq!(diff.text, "nothing has changed");
    assert_eq!((&diff.data["files"], &diff.data["commands"]), (&json!([]), &json!("none were run")));
    desk.run("true").await;
    let diff = desk.ok("session_diff", json!({})).await;
    assert_eq!((&diff.data["files"], &diff.data["commands"]), (&json!([]), &json!("included")));
}

#[tokio::test]
async fn changes_by_tools_and_by_commands_are_shown_together() {
    let desk = Desk::open(repository()).await;
    let edit = json!({"path": "a.txt", "old_string": "two", "new_string": "TWO"});
    desk.ok("search_replace", edit).await;
    desk.run("echo more >> b.txt && echo new > by-command.txt && rm gone.txt && mkdir out && touch out/x")
        .await;
    desk.ok("write_file", json!({"path": "dir/by-tool.txt", "content": "new\n"})).await;
    let diff = desk.ok("session_diff", json!({})).await;
    let expected = [
        ("modified", "a.txt", 1, 1),
        ("modified", "b.txt", 1, 0),
        ("added", "by-command.txt", 1, 0),
        ("added", "dir/by-tool.txt", 1, 0),
        ("deleted", "gone.txt", 0, 1),
    ];
    let expected: Vec<_> = expected
        .map(|(status, path, added, removed)| {
            json!({"path": path, "status": status, "lines_added": added, "lines_removed": removed})
        })
        .to_vec();
    assert_eq!(diff.list("files"), expected);
    let text = diff.data["diff"].as_str().unwrap();
    assert!(text.contains("--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"), "{text}");
    assert!(diff.text.contains("modified a.txt (+1 -1)\n"), "{}", diff.text);
    assert_eq!(diff.data["commands"], "included");

    let stat = desk.ok("session_diff", json!({"stat": true})).await;
    assert!(stat.data.get("diff").is_none() && !stat.text.contains("@@"), "{}", stat.text);
    assert_eq!(stat.list("files"), expected);
    let below = desk.ok("session_diff", json!({"path": "dir"})).await;
    assert_eq!(below.column("files", "path"), ["dir/by-tool.txt"]);
}

#[tokio::test]
async fn what_was_dirty_before_the_session_is_not_its_change() {
    let project = repository();
    project.write("a.txt", "one\nchanged before\nthree\n");
    project.write("untracked.txt", "from before\n");
    project.write("staged.txt", "staged before\n");
    project.git(&["add", "staged.txt"]);
    std::fs::remove_file(project.join("gone.txt")).unwrap();
    let before = project.git(&["status", "--porcelain"]);
    let desk = Desk::open(project).await;
    desk.run("echo x >> b.txt").await;
    let diff = desk.ok("session_diff", json!({})).await;
    assert_eq!(diff.column("files", "path"), ["b.txt"], "{}", diff.text);

    let edit = json!({"path": "a.txt", "old_string": "three", "new_string": "3"});
    desk.ok("search_replace", edit).await;
    desk.run("echo x >> untracked.txt").await;
    let diff = desk.ok("session_diff", json!({})).await;
    assert_eq!(diff.column("files", "path"), ["a.txt", "b.txt", "untracked.txt"]);
    let text = diff.data["diff"].as_str().unwrap();
    assert!(text.contains(" changed before\n-three\n+3\n"), "{text}");
    assert!(text.contains(" from before\n+x\n") && !text.contains("+from before"), "{text}");
    // `session_diff` only read the repository's own index.
    let now = desk.project.git(&["status", "--porcelain"]);
    assert_eq!(now, format!(" M a.txt\n M b.txt\n{}", before.strip_prefix(" M a.txt\n").unwrap()));
}

#[tokio::test]
async fn a_commit_or_a_change_taken_back_is_seen_for_what_it_is() {
    let project = repository();
    project.git(&["config", "user.name", "Test"]);
    project.git(&["config", "user.email", "test@example.com"]);
    let desk = Desk::open(project).await;
    desk.run("echo x >> b.txt && git commit --quiet --all --message committed").await;
    let diff = desk.ok("session_diff", json!({})).await;
    assert_eq!(diff.column("files", "path"), ["b.txt"], "committed is changed all the same");
    let edit = |old: &str, new: &str| json!({"path": "a.txt", "old_string": old, "new_string": new});
    desk.ok("search_replace", edit("one", "eins")).await;
    desk.ok("search_replace", edit("eins", "one")).await;
    let diff = desk.ok("session_diff", json!({})).await;
    assert_eq!(diff.column("files", "path"), ["b.txt"], "taken back is not changed");
}

#[tokio::test]
async fn moves_copies_and_deletions_are_shown() {
    let desk = Desk::open(repository()).await;
    desk.ok("move_file", json!({"source": "a.txt", "destination": "moved.txt"})).await;
    desk.ok("copy_file", json!({"source": "b.txt", "destination": "copy.txt"})).await;
    desk.ok("delete_file", json!({"path": "gone.txt"})).await;
    let diff = desk.ok("session_diff", json!({})).await;
    assert_eq!(diff.column("files", "path"), ["a.txt", "copy.txt", "gone.txt", "moved.txt"]);
    assert_eq!(diff.column("files", "status"), ["deleted", "added", "deleted", "added"]);
}

#[tokio::test]
async fn without_a_repository_the_tools_are_known_and_commands_are_told_not_to_be() {
    let project = Project::new("plain");
    project.write("a.txt", "one\n");
    let desk = Desk::open(project).await;
    desk.ok("write_file", json!({"path": "a.txt", "content": "two\n"})).await;
    let diff = desk.ok("session_diff", json!({})).await;
    assert_eq!(diff.column("files", "path"), ["a.txt"]);
    desk.run("echo x > by-command.txt").await;
    let diff = desk.ok("session_diff", json!({})).await;
    assert_eq!(diff.column("files", "path"), ["a.txt"]);
    let reason = diff.data["commands"].as_str().unwrap();
    assert!(reason.contains("not the top of a git repository"), "{reason}");
    assert!(diff.text.contains("what commands changed is not in it"), "{}", diff.text);
}

#[tokio::test]
async fn binary_changes_are_named() {
    let project = repository();
    project.write("data.bin", b"\0\x01\x02");
    let desk = Desk::open(project).await;
    desk.run("true && printf '\\000\\007' > data.bin").await;
    let diff = desk.ok("session_diff", json!({})).await;
    assert_eq!(diff.column("files", "path"), ["data.bin"]);
    assert_eq!(diff.data["diff"], "data.bin: binary\n");
}

#[tokio::test]
async fn the_files_of_a_moved_directory_are_shown() {
    let project = repository();
    project.write("dir/c.txt", "c\n");
    let desk = Desk::open(project).await;
    desk.ok("move_file", json!({"source": "dir", "destination": "moved"})).await;
    let diff = desk.ok("session_diff", json!({})).await;
    assert_eq!(diff.column("files", "path"), ["dir/c.txt", "moved/c.txt"], "{}", diff.text);
    assert_eq!(diff.column("files", "status"), ["deleted", "added"]);
}
