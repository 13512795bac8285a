//! `list_dir`, `directory_tree` and `file_info`: names and metadata, without contents.

use std::os::unix::fs::PermissionsExt;
use testkit::Project;

use serde_json::{Value, json};

use super::Desk;

fn project() -> Project {
    let project = Project::new("list");
    project.write("src/main.rs", "fn main() {}\n");
    project.write("src/deep/er/mod.rs", "x\n");
    project.write("README.md", "readme\n");
    project.write(".hidden", "x");
    project.write("target/out.o", "x");
    project.write(".gitignore", "target/\n");
    std::os::unix::fs::symlink("README.md", project.join("link")).unwrap();
    project
}

#[tokio::test]
async fn a_directory_is_listed_with_directories_first() {
    let desk = Desk::open(project()).await;
    let listed = desk.ok("list_dir", json!({})).await;
    assert_eq!(listed.text, "src/\ntarget/\nREADME.md (7 bytes)\nlink -> README.md");
    assert_eq!(listed.column("entries", "name"), ["src", "target", "README.md", "link"]);
    assert_eq!(listed.column("entries", "type"), ["directory", "directory", "file", "symlink"]);
    assert_eq!(listed.data["entries"][2]["size"], 7);
    assert_eq!(listed.data["entries"][3]["target"], "README.md");
    assert_eq!(listed.data["total_entries"], 4);
    assert_eq!(listed.data["truncated"], false);

    let hidden = desk.ok("list_dir", json!({"path": ".", "show_hidden": true})).await;
    let names = hidden.column("entries", "name");
    assert!(names.contains(&".hidden".to_owned()) && names.contains(&".gitignore".to_owned()), "{names:?}");
    let below = desk.ok("list_dir", json!({"relative_workspace_path": "src"})).await;
    assert_eq!(below.text, "deep/\nmain.rs (13 bytes)");
}

#[tokio::test]
async fn what_is_no_directory_is_not_listed() {
    let desk = Desk::open(project()).await;
    desk.refused("list_dir", json!({"path": "README.md"}), "not_a_directory").await;
    let refused = desk.refused("list_dir", json!({"path": "srcs"}), "not_found").await;
    assert_eq!(refused.data["hint"], "there is `src`");
    desk.refused("list_dir", json!({"path": "/etc"}), "outside_workspace").await;
    std::fs::create_dir(desk.project.join("nothing")).unwrap();
    assert_eq!(desk.ok("list_dir", json!({"path": "nothing"})).await.text, "(empty)");
}

#[tokio::test]
async fn a_huge_directory_is_counted_and_shown_in_part() {
    let project = Project::new("huge");
    for number in 0..1005 {
        project.write(&format!("f{number:04}"), "");
    }
    let desk = Desk::open(project).await;
    let listed = desk.ok("list_dir", json!({})).await;
    assert_eq!(listed.data["total_entries"], 1005);
    assert_eq!(listed.list("entries").len(), 1000);
    assert_eq!(listed.data["truncated"], true);
    assert!(listed.text.ends_with("… and 5 more"), "{}", &listed.text[listed.text.len() - 40..]);
}

#[tokio::test]
async fn a_tree_is_an_outline_without_what_is_hidden_or_ignored() {
    let desk = Desk::open(project()).await;
    let tree = desk.ok("directory_tree", json!({})).await;
    assert_eq!(tree.text, "README.md\nlink\nsrc/\n  deep/\n    er/\n  main.rs");
    let entries = ["README.md", "link", "src/", "src/deep/", "src/deep/er/", "src/main.rs"];
    assert_eq!(tree.data["entries"], json!(entries));
    assert_eq!(tree.data["truncated"], false);

    let deep = desk.ok("directory_tree", json!({"path": "src", "depth": 5})).await;
    assert_eq!(deep.data["entries"], json!(["deep/", "deep/er/", "deep/er/mod.rs", "main.rs"]));
    let shallow = desk.ok("directory_tree", json!({"depth": 1, "include_ignored": true})).await;
    assert_eq!(shallow.data["entries"], json!(["README.md", "link", "src/", "target/"]));
    let hidden = desk.ok("directory_tree", json!({"depth": 1, "include_hidden": true})).await;
    assert!(hidden.list("entries").contains(&json!(".hidden")), "{}", hidden.data);
}

#[tokio::test]
async fn a_tree_that_is_cut_says_so() {
    let desk = Desk::open(project()).await;
    let tree = desk.ok("directory_tree", json!({"limit": 2})).await;
    assert_eq!(tree.data["entries"], json!(["README.md", "link"]));
    assert_eq!(tree.data["truncated"], true);
    assert!(tree.text.contains("there is more"), "{}", tree.text);
    desk.refused("directory_tree", json!({"limit": 0}), "bad_arguments").await;
    desk.refused("directory_tree", json!({"path": "README.md"}), "not_a_directory").await;
}

#[tokio::test]
async fn a_path_is_described_without_its_contents() {
    let project = project();
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(project.join("README.md"), mode).unwrap();
    let desk = Desk::open(project).await;
    let info = desk.ok("file_info", json!({"path": "README.md"})).await;
    assert_eq!(info.data["exists"], true);
    assert_eq!(info.data["type"], "file");
    assert_eq!(info.data["size"], 7);
    assert_eq!(info.data["mode"], "0640");
    assert_eq!(info.data["links"], 1);
    assert_eq!(info.data["uri"], desk.project.uri("README.md"));
    assert!(info.data["modified"].as_u64().is_some_and(|time| time > 1_600_000_000), "{}", info.data);
    assert!(info.text.starts_with("README.md: file, 7 bytes, mode 0640"), "{}", info.text);
    assert_eq!(desk.ok("file_info", json!({"path": "src"})).await.data["type"], "directory");
    assert_eq!(desk.ok("file_info", json!({"path": "."})).await.data["type"], "directory");
}

#[tokio::test]
async fn a_link_is_described_as_a_link_with_what_it_leads_to() {
    let project = project();
    std::os::unix::fs::symlink("/etc/hostname", project.join("away")).unwrap();
    std::os::unix::fs::symlink("nowhere", project.join("dangling")).unwrap();
    let desk = Desk::open(project).await;
    let info = async |path: &str| desk.ok("file_info", json!({"path": path})).await.data;
    let link = info("link").await;
    assert_eq!((&link["type"], &link["leads_to"]["type"]), (&json!("symlink"), &json!("file")));
    assert_eq!(link["leads_to"]["size"], 7);
    assert_eq!(info("away").await["leads_to"]["code"], "outside_workspace");
    assert_eq!(info("dangling").await["leads_to"]["code"], "not_found");
}

#[tokio::test]
async fn a_missing_path_is_told_to_be_missing_and_one_outside_is_an_error() {
    let desk = Desk::open(project()).await;
    let info = desk.ok("file_info", json!({"path": "READM.md"})).await;
    assert_eq!(info.data["exists"], Value::Bool(false));
    assert_eq!(info.text, "READM.md does not exist; there is README.md");
    desk.refused("file_info", json!({"path": "/etc/passwd"}), "outside_workspace").await;
}
