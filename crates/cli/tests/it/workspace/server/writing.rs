//! `write_file`: new files and whole replacements, and which properties of an old file are kept.

use std::os::unix::fs::PermissionsExt;
use testkit::Project;

use serde_json::json;

use super::Desk;

#[tokio::test]
async fn a_new_file_is_created_with_the_directories_above_it() {
    let desk = Desk::empty().await;
    let written = desk.ok("write_file", json!({"path": "a/b/c.txt", "content": "one\ntwo\n"})).await;
    assert_eq!(desk.project.text("a/b/c.txt"), "one\ntwo\n");
    assert_eq!(written.data["created"], true);
    assert_eq!(written.data["edited"], true);
    assert_eq!(written.data["bytes_written"], 8);
    assert_eq!(written.data["lines_added"], 2);
    assert_eq!(written.data["changed_range"], json!({"start": 1, "end": 2}));
    assert_eq!(written.text, "created a/b/c.txt, lines 1 to 2 (+2 -0)");
    let read = desk.ok("read_file", json!({"path": "a/b/c.txt"})).await;
    assert_eq!(read.data["hash"], written.data["hash"]);
}

#[tokio::test]
async fn directories_are_not_created_if_that_is_not_wanted() {
    let desk = Desk::empty().await;
    let arguments = |path: &str| json!({"path": path, "content": "x", "create_dirs": false});
    desk.refused("write_file", arguments("a/b.txt"), "not_found").await;
    assert!(!desk.project.has("a"));
    desk.ok("write_file", arguments("b.txt")).await;
}

#[tokio::test]
async fn a_file_is_replaced_and_the_change_is_shown() {
    let project = Project::new("replace");
    project.write("a.txt", "one\ntwo\n");
    let desk = Desk::open(project).await;
    let written = desk.ok("write_file", json!({"path": "a.txt", "content": "one\n2\n"})).await;
    assert_eq!(desk.project.text("a.txt"), "one\n2\n");
    assert_eq!(written.data["created"], false);
    assert_eq!(written.data["lines_added"], 1);
    assert_eq!(written.data["lines_removed"], 1);
    let diff = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n";
    assert_eq!(written.data["diff"], diff);
    assert_eq!(written.text, format!("edited a.txt, line 2 (+1 -1)\n{diff}"));

    let again = desk.ok("write_file", json!({"path": "a.txt", "content": "one\n2\n"})).await;
    assert_eq!(again.data["edited"], false);
    assert_eq!(again.data["bytes_written"], 0);
    assert_eq!(again.text, "a.txt is as it was: nothing to change");
}

#[tokio::test]
async fn line_endings_byte_order_mark_and_permissions_of_an_old_file_are_kept() {
    let project = Project::new("keep");
    project.write("run.bat", b"\xEF\xBB\xBFold\r\nold\r\n");
    let mode = std::fs::Permissions::from_mode(0o751);
    std::fs::set_permissions(project.join("run.bat"), mode).unwrap();
    let desk = Desk::open(project).await;
    desk.ok("write_file", json!({"path": "run.bat", "content": "new\nneu: ü\n"})).await;
    assert_eq!(desk.project.bytes("run.bat"), b"\xEF\xBB\xBFnew\r\nneu: \xC3\xBC\r\n");
    let mode = desk.project.join("run.bat").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o751);
    let listed = desk.ok("list_dir", json!({"show_hidden": true})).await;
    assert_eq!(listed.column("entries", "name"), ["run.bat"], "no temporary file is left");
}

#[tokio::test]
async fn the_encoding_of_an_old_file_is_kept_or_the_write_refused() {
    let project = Project::new("encoding");
    project.write("old.txt", b"gr\xFCn\n");
    let desk = Desk::open(project).await;
    desk.ok("write_file", json!({"path": "old.txt", "content": "blau, grün und 5 €\n"})).await;
    assert_eq!(desk.project.bytes("old.txt"), b"blau, gr\xFCn und 5 \x80\n");
    let arguments = json!({"path": "old.txt", "content": "π\n"});
    let refused = desk.call("write_file", arguments).await;
    assert!(refused.is_error() && refused.text.contains("iconv"), "{}", refused.text);
    assert_eq!(desk.project.bytes("old.txt"), b"blau, gr\xFCn und 5 \x80\n");
}

#[tokio::test]
async fn a_file_that_is_not_the_expected_one_is_left_alone() {
    let project = Project::new("hash");
    project.write("a.txt", "one\n");
    let desk = Desk::open(project).await;
    let hash = desk.ok("read_file", json!({"path": "a.txt"})).await.data["hash"].clone();
    let write = |path: &str| json!({"path": path, "content": "mine\n", "expected_hash": hash});
    desk.project.write("a.txt", "theirs\n");
    let refused = desk.refused("write_file", write("a.txt"), "changed_since_read").await;
    assert!(refused.text.contains("read it again"), "{}", refused.text);
    desk.refused("write_file", write("missing.txt"), "changed_since_read").await;
    assert_eq!(desk.project.text("a.txt"), "theirs\n");
    assert!(!desk.project.has("missing.txt"));

    desk.project.write("a.txt", "one\n");
    desk.ok("write_file", write("a.txt")).await;
    assert_eq!(desk.project.text("a.txt"), "mine\n");
}

#[tokio::test]
async fn a_dry_run_shows_the_change_and_writes_nothing() {
    let project = Project::new("dry");
    project.write("a.txt", "one\n");
    let desk = Desk::open(project).await;
    let write = |path: &str| json!({"path": path, "content": "two\n", "dry_run": true});
    let shown = desk.ok("write_file", write("a.txt")).await;
    assert_eq!(shown.data["dry_run"], true);
    assert_eq!(shown.data["edited"], false);
    assert_eq!(shown.data["bytes_written"], 0);
    assert!(shown.data["diff"].as_str().unwrap().contains("-one\n+two\n"));
    assert!(shown.text.starts_with("would edit a.txt, line 1 (+1 -1)\n"), "{}", shown.text);
    let shown = desk.ok("write_file", write("new/b.txt")).await;
    assert!(shown.text.starts_with("would create new/b.txt"), "{}", shown.text);
    assert_eq!(shown.data["created"], false);
    assert_eq!(desk.project.text("a.txt"), "one\n");
    assert!(!desk.project.has("new"));
}

#[tokio::test]
async fn text_may_take_the_place_of_binary_data() {
    let project = Project::new("binary");
    project.write("data", b"\0\x01\x02\xFF");
    let desk = Desk::open(project).await;
    let written = desk.ok("write_file", json!({"path": "data", "content": "text\n"})).await;
    assert_eq!(desk.project.text("data"), "text\n");
    assert!(written.text.contains("which was no text"), "{}", written.text);
}

#[tokio::test]
async fn nothing_is_written_over_a_directory_or_outside() {
    let project = Project::new("outside");
    project.write("dir/a.txt", "x");
    let elsewhere = Project::new("elsewhere");
    let desk = Desk::open(project).await;
    let write = |path: &str| json!({"path": path, "content": "x"});
    desk.refused("write_file", write("dir"), "is_a_directory").await;
    desk.refused("write_file", write("dir/a.txt/b"), "not_a_directory").await;
    let path = elsewhere.join("a.txt").display().to_string();
    desk.refused("write_file", write(&path), "outside_workspace").await;
    desk.refused("write_file", write("../a.txt"), "outside_workspace").await;
    std::os::unix::fs::symlink(&elsewhere.path, desk.project.join("link")).unwrap();
    desk.refused("write_file", write("link/a.txt"), "outside_workspace").await;
    assert!(!elsewhere.has("a.txt"));
    desk.ok("write_file", write("dir/b.txt")).await;
}

#[tokio::test]
async fn a_write_through_a_link_changes_what_the_link_leads_to() {
    let project = Project::new("link");
    project.write("real/a.txt", "one\n");
    std::os::unix::fs::symlink("real/a.txt", project.join("link.txt")).unwrap();
    let desk = Desk::open(project).await;
    desk.ok("write_file", json!({"path": "link.txt", "content": "two\n"})).await;
    assert_eq!(desk.project.text("real/a.txt"), "two\n");
    assert!(desk.project.join("link.txt").symlink_metadata().unwrap().is_symlink());
}
