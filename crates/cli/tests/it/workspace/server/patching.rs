//! `apply_patch`: diffs over several files, applied completely or not at all.

use std::os::unix::fs::PermissionsExt;
use testkit::Project;

use serde_json::json;

use super::{Desk, numbered};

async fn desk() -> Desk {
    let project = Project::new("patch");
    project.write("a.txt", numbered(20, "line "));
    project.write("b.txt", "old b\n");
    project.write("gone.txt", "nothing\nmuch\n");
    project.write("before.txt", "same\n");
    Desk::open(project).await
}

const PATCH: &str = "\
diff --git a/a.txt b/a.txt
--- a/a.txt
+++ b/a.txt
@@ -4,3 +4,3 @@ a heading
 line 4
-line 5
+line five
 line 6
diff --git a/dir/new.txt b/dir/new.txt
new file mode 100644
--- /dev/null
+++ b/dir/new.txt
@@ -0,0 +1,2 @@
+new
+file
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1,2 +0,0 @@
-nothing
-much
diff --git a/before.txt b/after.txt
similarity index 100%
rename from before.txt
rename to after.txt
";

#[tokio::test]
async fn one_patch_changes_creates_deletes_and_renames() {
    let desk = desk().await;
    let applied = desk.ok("apply_patch", json!({"patch": PATCH})).await;
    assert_eq!(applied.column("files", "status"), ["modified", "added", "deleted", "renamed"]);
    assert_eq!(applied.column("files", "path"), ["a.txt", "dir/new.txt", "gone.txt", "after.txt"]);
    assert!(desk.project.text("a.txt").contains("line 4\nline five\nline 6\n"));
    assert_eq!(desk.project.text("dir/new.txt"), "new\nfile\n");
    assert!(!desk.project.has("gone.txt") && !desk.project.has("before.txt"));
    assert_eq!(desk.project.text("after.txt"), "same\n");
    assert!(applied.text.contains("deleted gone.txt"), "{}", applied.text);
    assert!(applied.text.contains("renamed before.txt to after.txt"), "{}", applied.text);
}

#[tokio::test]
async fn a_hunk_goes_where_its_lines_are() {
    let desk = desk().await;
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -2,3 +2,4 @@\n line 14\n+between\n line 15\n line 16\n";
    let applied = desk.ok("apply_patch", json!({"diff": patch})).await;
    assert_eq!(applied.data["files"][0]["offsets"], json!([12]));
    assert!(desk.project.text("a.txt").contains("line 14\nbetween\nline 15\n"));
}

#[tokio::test]
async fn a_patch_that_does_not_fit_leaves_everything_unchanged() {
    let desk = desk().await;
    let before = desk.project.text("a.txt");
    let patch = format!(
        "{PATCH}diff --git a/b.txt b/b.txt\n--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-another b\n+new b\n"
    );
    let refused = desk.refused("apply_patch", json!({"patch": patch}), "patch_mismatch").await;
    assert_eq!(refused.data["path"], "b.txt");
    assert!(refused.text.contains("`another b` is expected at line 1"), "{}", refused.text);
    assert_eq!(desk.project.text("a.txt"), before);
    assert!(!desk.project.has("dir") && !desk.project.has("after.txt"));
    assert!(desk.project.has("gone.txt") && desk.project.has("before.txt"));
    desk.ok("apply_patch", json!({"patch": patch.replace("another b", "old b")})).await;
    assert_eq!(desk.project.text("b.txt"), "new b\n");
}

#[tokio::test]
async fn new_files_take_the_place_of_nothing() {
    let desk = desk().await;
    let patch = |name: &str| format!("--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+new\n");
    desk.refused("apply_patch", json!({"patch": patch("b.txt")}), "already_exists").await;
    assert_eq!(desk.project.text("b.txt"), "old b\n");
    desk.ok("apply_patch", json!({"patch": patch("c.txt")})).await;
}

#[tokio::test]
async fn a_patch_can_be_tried() {
    let desk = desk().await;
    let before = desk.project.text("a.txt");
    let tried = desk.ok("apply_patch", json!({"patch": PATCH, "dry_run": true})).await;
    assert_eq!(tried.data["dry_run"], true);
    assert_eq!(tried.column("files", "status"), ["modified", "added", "deleted", "renamed"]);
    assert_eq!(desk.project.text("a.txt"), before);
    assert!(!desk.project.has("dir") && desk.project.has("gone.txt") && desk.project.has("before.txt"));
}

#[tokio::test]
async fn the_format_of_codex_is_understood() {
    let desk = desk().await;
    let patch = "\
*** Begin Patch
*** Update File: a.txt
@@
 line 4
-line 5
+line five
 line 6
*** Add File: dir/new.txt
+new
*** Delete File: gone.txt
*** End Patch
";
    let applied = desk.ok("apply_patch", json!({"input": patch})).await;
    assert_eq!(applied.column("files", "status"), ["modified", "added", "deleted"]);
    assert!(desk.project.text("a.txt").contains("line 4\nline five\nline 6\n"));
    assert_eq!(desk.project.text("dir/new.txt"), "new\n");
    assert!(!desk.project.has("gone.txt"));
}

#[tokio::test]
async fn what_git_diff_prints_in_one_session_applies_in_another() {
    let source = Project::new("source");
    source.write("src/lib.rs", "fn a() {}\n\nfn b() {}\n");
    source.commit_all();
    let patched = Project::new("patched");
    patched.write("src/lib.rs", "// a comment more\nfn a() {}\n\nfn b() {}\n");
    let first = Desk::open(source).await;
    first
        .ok("search_replace", json!({"path": "src/lib.rs", "old_string": "fn b()", "new_string": "fn c()"}))
        .await;
    first.ok("write_file", json!({"path": "src/new.rs", "content": "fn n() {}\n"})).await;
    first.run("git add --intent-to-add .").await;
    let patch = format!("{}\n", first.run("git diff").await);
    let second = Desk::open(patched).await;
    second.ok("apply_patch", json!({"patch": patch})).await;
    assert_eq!(second.project.text("src/lib.rs"), "// a comment more\nfn a() {}\n\nfn c() {}\n");
    assert_eq!(second.project.text("src/new.rs"), "fn n() {}\n");
}

#[tokio::test]
async fn what_is_no_patch_or_leads_outside_is_refused() {
    let desk = desk().await;
    desk.refused("apply_patch", json!({"patch": "hello\n"}), "patch_malformed").await;
    let outside = "--- /dev/null\n+++ b/../outside.txt\n@@ -0,0 +1 @@\n+new\n";
    desk.refused("apply_patch", json!({"patch": outside}), "outside_workspace").await;
    let binary = "diff --git a/b.bin b/b.bin\nBinary files a/b.bin and b/b.bin differ\n";
    desk.refused("apply_patch", json!({"patch": binary}), "patch_binary").await;
}

#[tokio::test]
async fn a_program_that_is_renamed_by_a_patch_stays_executable() {
    let project = Project::new("mode");
    project.write("old.sh", "#!/bin/sh\n");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(project.join("old.sh"), mode).unwrap();
    let desk = Desk::open(project).await;
    let patch = "diff --git a/old.sh b/new.sh\nsimilarity index 100%\nrename from old.sh\nrename to new.sh\n";
    desk.ok("apply_patch", json!({"patch": patch})).await;
    let mode = desk.project.join("new.sh").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[tokio::test]
async fn a_new_program_is_executable_if_the_patch_says_so() {
    let desk = Desk::empty().await;
    let patch = "diff --git a/n.sh b/n.sh\nnew file mode 100755\n--- /dev/null\n+++ b/n.sh\n@@ -0,0 +1 @@\n+#!/bin/sh\n";
    desk.ok("apply_patch", json!({"patch": patch})).await;
    let mode = desk.project.join("n.sh").metadata().unwrap().permissions().mode();
    assert_ne!(mode & 0o100, 0, "{mode:o}");
}

#[tokio::test]
async fn a_patch_that_fails_on_the_way_leaves_no_directories_behind() {
    let desk = desk().await;
    let new = |name: &str| format!("--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n");
    let patch = format!("{}{}", new("fresh/deep/a.txt"), new("b.txt/below"));
    let refused = desk.refused("apply_patch", json!({"patch": patch}), "not_a_directory").await;
    assert!(refused.text.contains("nothing was changed"), "{}", refused.text);
    assert!(!desk.project.has("fresh"), "a directory is left");
    desk.ok("apply_patch", json!({"patch": new("fresh/deep/a.txt")})).await;
}
