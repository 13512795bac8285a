//! Discarding, restoring, pruning, notes: what is never lost.

use super::Desk;

#[test]
fn unsaved_work_is_kept_until_the_user_insists() {
    let desk = Desk::repository("unsaved");
    for name in ["files", "commits", "nothing", "merged"] {
        desk.succeeds(&["start", name]);
    }
    desk.agent("files", "echo work > work.txt");
    for name in ["commits", "merged"] {
        desk.agent(name, &format!("git -c user.name=a -c user.email=a@b commit -q --allow-empty -m {name}"));
    }
    desk.succeeds(&["merge", "merged"]);
    desk.fails(&["discard", "files"], "1 changed paths");
    desk.fails(&["discard", "commits"], "1 commits");
    desk.succeeds(&["discard", "nothing"]);
    desk.succeeds(&["discard", "merged"]);
    desk.succeeds(&["discard", "files", "--force"]);
    let listed = desk.succeeds(&["list"]).stdout;
    assert!(listed.contains("files is in the trash until"), "{listed}");
    desk.succeeds(&["restore", "files"]);
    assert_eq!(desk.agent("files", "cat work.txt"), "work\n");
}

#[test]
fn a_name_is_free_again_and_the_trash_gives_back_what_was_discarded_last() {
    let desk = Desk::plain("names");
    for round in ["first", "second"] {
        desk.succeeds(&["start", "task"]);
        desk.agent("task", &format!("echo {round} > round.txt"));
        desk.succeeds(&["discard", "task", "--force"]);
    }
    desk.succeeds(&["restore", "task"]);
    assert_eq!(desk.agent("task", "cat round.txt"), "second\n");
    desk.fails(&["restore", "task"], "already");
}

#[test]
fn prune_removes_what_is_old_or_large_and_never_work() {
    let desk = Desk::repository("prune");
    for name in ["idle", "busy"] {
        desk.succeeds(&["start", name]);
    }
    desk.agent("busy", "head -c 3000000 /dev/urandom > big.bin");
    let kept = desk.succeeds(&["prune", "--older-than", "1h", "--json"]).json();
    assert_eq!(kept["removed"], serde_json::json!([]), "{kept}");
    let dry = desk.succeeds(&["prune", "--size", "1M", "--dry-run", "--json"]).json();
    assert_eq!(dry["removed"], serde_json::json!(["idle"]), "{dry}");
    assert!(dry["kept"].to_string().contains("busy"), "{dry}");
    assert_eq!(desk.succeeds(&["list", "--json"]).json()["workspaces"].as_array().unwrap().len(), 2);
    desk.succeeds(&["prune", "--size", "1M", "--force"]);
    assert_eq!(desk.succeeds(&["list", "--json"]).json()["workspaces"], serde_json::json!([]));
    // Nothing is left on the disk but the locks of the directory.
    let left: Vec<_> =
        std::fs::read_dir(desk.workspaces()).unwrap().flatten().filter(|it| it.path().is_dir()).collect();
    assert!(left.iter().all(|entry| entry.file_name() == "trash"), "{left:?}");
}

#[test]
fn notes_and_the_history_outlive_everything() {
    let desk = Desk::plain("notes");
    desk.succeeds(&["start", "task"]);
    desk.succeeds(&["note", "task", "reviewed by Ada"]);
    desk.agent("task", "echo x > x.txt");
    desk.succeeds(&["apply", "task"]);
    let log = desk.succeeds(&["log", "task"]).stdout;
    for line in ["made by", "note: reviewed by Ada", "1 paths were taken over"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    let history = desk.succeeds(&["log", "task", "--json"]).json();
    assert!(history["history"].as_array().unwrap().len() >= 3, "{history}");
}

#[test]
fn a_project_that_was_replaced_is_not_touched() {
    let desk = Desk::plain("replaced");
    let (project, aside) = (desk.project.join("inner"), desk.project.join("aside"));
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("a.txt"), "a\n").unwrap();
    assert_eq!(desk.session_in(&project, &["start", "task"]).code, 0);
    desk.agent("task", "echo agent > a.txt");
    std::fs::rename(&project, &aside).unwrap();
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("a.txt"), "another project\n").unwrap();
    for words in [&["apply", "task"][..], &["diff", "task"], &["run", "task", "--", "true"]] {
        desk.fails(words, "another directory took its place");
    }
    assert_eq!(std::fs::read_to_string(project.join("a.txt")).unwrap(), "another project\n");
    std::fs::remove_dir_all(&project).unwrap();
    std::fs::rename(&aside, &project).unwrap();
    desk.succeeds(&["apply", "task"]);
    assert_eq!(std::fs::read_to_string(project.join("a.txt")).unwrap(), "agent\n");
}
