//! `create_directory`, `move_file`, `copy_file` and `delete_file`.

use std::os::unix::fs::PermissionsExt;
use testkit::Project;

use serde_json::{Value, json};

use super::Desk;

fn project() -> Project {
    let project = Project::new("move");
    project.write("a.txt", "a\n");
    project.write("b.txt", "b\n");
    project.write("dir/c.txt", "c\n");
    project
}

fn from_to(source: &str, destination: &str) -> Value {
    json!({"source": source, "destination": destination})
}

#[tokio::test]
async fn a_directory_is_created_with_those_above_it() {
    let desk = Desk::open(project()).await;
    let made = desk.ok("create_directory", json!({"path": "x/y/z"})).await;
    assert_eq!((&made.data["created"], made.text.as_str()), (&json!(true), "created x/y/z/"));
    assert!(desk.project.join("x/y/z").is_dir());
    let again = desk.ok("create_directory", json!({"path": "x/y/z"})).await;
    assert_eq!((&again.data["created"], again.text.as_str()), (&json!(false), "x/y/z/ was there already"));
    desk.refused("create_directory", json!({"path": "p/q", "recursive": false}), "not_found").await;
    desk.ok("create_directory", json!({"path": "p", "recursive": false})).await;
    assert!(desk.call("create_directory", json!({"path": "a.txt"})).await.is_error());
    desk.refused("create_directory", json!({"path": "../up"}), "outside_workspace").await;
    assert!(!desk.project.path.parent().unwrap().join("up").exists());
}

#[tokio::test]
async fn files_and_directories_are_moved_in_one_step() {
    let desk = Desk::open(project()).await;
    let moved = desk.ok("move_file", from_to("a.txt", "new/place/a2.txt")).await;
    assert_eq!(moved.text, "moved a.txt to new/place/a2.txt");
    assert_eq!(moved.data, from_to("a.txt", "new/place/a2.txt"));
    assert_eq!(desk.project.text("new/place/a2.txt"), "a\n");
    assert!(!desk.project.has("a.txt"));
    desk.ok("move_file", json!({"source_path": "dir", "target_path": "directory"})).await;
    assert_eq!(desk.project.text("directory/c.txt"), "c\n");
    assert!(!desk.project.has("dir"));
}

#[tokio::test]
async fn nothing_is_replaced_unless_that_is_wanted() {
    for tool in ["move_file", "copy_file"] {
        let desk = Desk::open(project()).await;
        let refused = desk.refused(tool, from_to("a.txt", "b.txt"), "already_exists").await;
        assert!(refused.data["hint"].as_str().unwrap().contains("overwrite"), "{}", refused.data);
        assert_eq!(desk.project.text("b.txt"), "b\n");
        desk.refused(tool, from_to("missing.txt", "c.txt"), "not_found").await;
        let nowhere = json!({"source": "a.txt", "destination": "x/a.txt", "create_dirs": false});
        desk.refused(tool, nowhere, "not_found").await;
        assert!(desk.project.has("a.txt"));
        desk.ok(tool, json!({"source": "a.txt", "destination": "b.txt", "overwrite": true})).await;
        assert_eq!(desk.project.text("b.txt"), "a\n");
    }
}

#[tokio::test]
async fn nothing_is_moved_or_copied_in_or_out() {
    let elsewhere = Project::new("elsewhere");
    elsewhere.write("secret.txt", "secret\n");
    let outside = elsewhere.join("secret.txt").display().to_string();
    for tool in ["move_file", "copy_file"] {
        let desk = Desk::open(project()).await;
        desk.refused(tool, from_to(&outside, "mine.txt"), "outside_workspace").await;
        let into = elsewhere.join("a.txt").display().to_string();
        desk.refused(tool, from_to("a.txt", &into), "outside_workspace").await;
        assert!(desk.project.has("a.txt") && !desk.project.has("mine.txt"));
        desk.ok(tool, from_to("a.txt", "mine.txt")).await;
    }
    assert_eq!(elsewhere.text("secret.txt"), "secret\n");
    assert!(!elsewhere.has("a.txt"));
}

#[tokio::test]
async fn a_file_is_copied_with_its_permissions_and_all_its_bytes() {
    let project = project();
    let data: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    project.write("tool.bin", &data);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(project.join("tool.bin"), mode).unwrap();
    let desk = Desk::open(project).await;
    let copied = desk.ok("copy_file", from_to("tool.bin", "bin/tool")).await;
    assert_eq!(copied.data["bytes_written"], 3_000_000);
    assert_eq!(desk.project.bytes("bin/tool"), data);
    assert!(desk.project.has("tool.bin"));
    let mode = desk.project.join("bin/tool").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    desk.refused("copy_file", from_to("dir", "dir2"), "is_a_directory").await;
}

#[tokio::test]
async fn a_file_is_deleted_and_a_directory_is_not() {
    let project = project();
    std::os::unix::fs::symlink("b.txt", project.join("link")).unwrap();
    let desk = Desk::open(project).await;
    let deleted = desk.ok("delete_file", json!({"target_file": "a.txt"})).await;
    assert_eq!((&deleted.data["deleted"], deleted.text.as_str()), (&json!(true), "deleted a.txt"));
    assert!(!desk.project.has("a.txt"));
    desk.refused("delete_file", json!({"path": "a.txt"}), "not_found").await;
    let refused = desk.refused("delete_file", json!({"path": "dir"}), "is_a_directory").await;
    assert!(refused.data["hint"].as_str().unwrap().contains("rm -r"), "{}", refused.data);
    assert!(desk.project.has("dir/c.txt"));
    desk.ok("delete_file", json!({"path": "link"})).await;
    assert!(!desk.project.has("link") && desk.project.has("b.txt"), "the link goes, not what it leads to");
}
