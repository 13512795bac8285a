//! Sessions of one gateway on different projects: each reaches only its own project.

use std::path::Path;

use serde_json::json;
use testkit::{Gateway, NEWEST, Project, RawClient, file_uri, roots};

use super::{Outcome, Session};

/// Opens a session whose client names these directories as its roots.
async fn open_with_roots(gateway: &Gateway, paths: &[&Path]) -> Session {
    let mut client: RawClient = gateway.client();
    client.open(json!({"roots": {}}), NEWEST).await;
    let answer = roots(paths);
    let exchange = client
        .call_tool_answering("session_info", json!({}), |question| {
            assert_eq!(question["method"], "roots/list");
            Ok(answer.clone())
        })
        .await;
    let info = Outcome::of("session_info", &exchange.response);
    assert!(!info.is_error(), "{}", info.text);
    Session { client }
}

async fn two_sessions() -> (Gateway, [(Project, Session); 2]) {
    let elsewhere = Project::new("elsewhere");
    let gateway = Gateway::built_in().current_dir(&elsewhere.path).start().await;
    let mut desks = Vec::new();
    for name in ["first", "second"] {
        let project = Project::new(name);
        project.write("notes.txt", format!("notes of the {name}\n"));
        project.write(&format!("only-{name}.txt"), "x\n");
        let session = open_with_roots(&gateway, &[&project.path]).await;
        desks.push((project, session));
    }
    let [first, second]: [(Project, Session); 2] = desks.try_into().ok().unwrap();
    (gateway, [first, second])
}

#[tokio::test]
async fn the_same_name_is_another_file_in_each_session() {
    let (_gateway, desks) = two_sessions().await;
    for ((project, session), name) in desks.iter().zip(["first", "second"]) {
        let read = session.ok("read_file", json!({"path": "notes.txt"})).await;
        assert_eq!(read.data["content"], format!("notes of the {name}\n"));
        let listed = session.ok("list_dir", json!({})).await;
        assert_eq!(listed.column("entries", "name"), ["notes.txt".to_owned(), format!("only-{name}.txt")]);
        let found = session.ok("grep_search", json!({"query": "notes of"})).await;
        assert_eq!(found.column("matches", "text"), [format!("notes of the {name}")]);
        session.ok("write_file", json!({"path": "mine.txt", "content": name})).await;
        assert_eq!(project.text("mine.txt"), name);
    }
    for ((project, session), name) in desks.iter().zip(["first", "second"]) {
        assert_eq!(project.text("mine.txt"), name);
        let diff = session.ok("session_diff", json!({})).await;
        assert_eq!(diff.column("files", "path"), ["mine.txt"]);
    }
}

#[tokio::test]
async fn no_tool_of_one_session_reaches_the_other_s_project() {
    let (_gateway, desks) = two_sessions().await;
    for (own, other) in [(0, 1), (1, 0)] {
        let session = &desks[own].1;
        let theirs = desks[other].0.join("notes.txt").display().to_string();
        let before = desks[other].0.text("notes.txt");
        for (tool, arguments) in [
            ("read_file", json!({"path": theirs})),
            ("write_file", json!({"path": theirs, "content": "x"})),
            ("edit_file", json!({"path": theirs, "code_edit": "x", "full_replace": true})),
            ("search_replace", json!({"path": theirs, "old_string": "notes", "new_string": "x"})),
            ("grep_search", json!({"query": "notes", "path": theirs})),
            ("file_info", json!({"path": theirs})),
            ("delete_file", json!({"path": theirs})),
            ("copy_file", json!({"source": theirs, "destination": "stolen.txt"})),
            ("move_file", json!({"source": theirs, "destination": "stolen.txt"})),
            ("list_dir", json!({"path": desks[other].0.path})),
            ("run_terminal_cmd", json!({"command": "ls", "cwd": desks[other].0.path})),
        ] {
            session.refused(tool, arguments, "outside_workspace").await;
        }
        assert_eq!(desks[other].0.text("notes.txt"), before);
        assert!(!desks[own].0.has("stolen.txt"));
    }
}

#[tokio::test]
async fn no_command_of_one_session_reaches_the_other_s_project_or_processes() {
    let (_gateway, desks) = two_sessions().await;
    let background = json!({"command": "exec -a a-mark-of-the-second sleep 10000", "is_background": true});
    desks[1].1.ok("run_terminal_cmd", background).await;
    let theirs = desks[1].0.path.display();
    let script = format!(
        "cat {theirs}/notes.txt; ls {theirs}; echo x > {theirs}/new.txt; ln -s {theirs} link; cat link/notes.txt; \
         cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo tried"
    );
    let tried = desks[0].1.run_to_end(&script).await;
    let output = tried.data["output"].as_str().unwrap();
    assert!(output.contains("tried"), "{output}");
    assert!(!output.contains("notes of the second") && !output.contains("only-second"), "{output}");
    assert!(!output.contains("a-mark-of-the-second"), "{output}");
    assert!(!desks[1].0.has("new.txt"));
    // The file tools do not follow a link there that a command made.
    desks[0].1.refused("read_file", json!({"path": "link/notes.txt"}), "outside_workspace").await;
    assert_eq!(desks[0].1.run("cat notes.txt").await, "notes of the first");
    assert_eq!(desks[1].1.run("cat notes.txt").await, "notes of the second");
}

#[tokio::test]
async fn resources_of_a_session_are_its_own() {
    let (_gateway, desks) = two_sessions().await;
    for (own, other) in [(0, 1), (1, 0)] {
        let (project, session) = &desks[own];
        let listed = session.client.request("resources/list", None).await.to_string();
        assert!(listed.contains(&project.uri("notes.txt")), "{listed}");
        assert!(!listed.contains(&file_uri(&desks[other].0.path)), "{listed}");
        let params = json!({"uri": desks[other].0.uri("notes.txt")});
        let answer = session.client.request("resources/read", Some(params)).await;
        assert_eq!(answer["error"]["data"]["code"], "outside_workspace", "{answer}");
    }
}

#[tokio::test]
async fn with_all_roots_absolute_paths_reach_each_and_relative_ones_the_first() {
    let elsewhere = Project::new("elsewhere");
    let gateway = Gateway::built_in().flags(["--roots", "all"]).current_dir(&elsewhere.path).start().await;
    let (first, second) = (Project::new("first"), Project::new("second"));
    first.write("a.txt", "of the first\n");
    second.write("a.txt", "of the second\n");
    let session = open_with_roots(&gateway, &[&first.path, &second.path]).await;
    let info = session.ok("session_info", json!({})).await;
    assert_eq!(info.data["workspace"], json!([first.path, second.path]));
    let content =
        async |path: &Path| session.ok("read_file", json!({"path": path})).await.data["content"].clone();
    assert_eq!(content(Path::new("a.txt")).await, "of the first\n");
    assert_eq!(content(&first.join("a.txt")).await, "of the first\n");
    assert_eq!(content(&second.join("a.txt")).await, "of the second\n");
    session.ok("write_file", json!({"path": "new.txt", "content": "relative"})).await;
    session.ok("write_file", json!({"path": second.join("new.txt"), "content": "absolute"})).await;
    assert_eq!(
        (first.text("new.txt"), second.text("new.txt")),
        ("relative".to_owned(), "absolute".to_owned())
    );
    let found = session.ok("grep_search", json!({"query": "of the", "path": second.path})).await;
    assert_eq!(found.column("matches", "text"), ["of the second"]);
    let ran = session.ok("run_terminal_cmd", json!({"command": "pwd -P", "cwd": second.path})).await;
    assert_eq!(ran.data["output"], format!("{}\n", second.path.display()));
    assert_eq!(session.run("pwd -P").await, first.path.to_string_lossy());
    // No other directory can be reached.
    session.refused("list_dir", json!({"path": elsewhere.path}), "outside_workspace").await;
    let diff = session.ok("session_diff", json!({"stat": true})).await;
    assert_eq!(diff.list("files").len(), 2, "{}", diff.text);
}

#[tokio::test]
async fn files_are_moved_and_copied_from_one_root_to_the_other() {
    let elsewhere = Project::new("elsewhere");
    let gateway = Gateway::built_in().flags(["--roots", "all"]).current_dir(&elsewhere.path).start().await;
    let (first, second) = (Project::new("first"), Project::new("second"));
    second.write("a.txt", "of the second\n");
    let session = open_with_roots(&gateway, &[&first.path, &second.path]).await;
    let to = |name: &str| json!({"source": second.join("a.txt"), "destination": name});
    session.ok("copy_file", to("copied.txt")).await;
    assert_eq!(first.text("copied.txt"), "of the second\n");
    session.ok("move_file", to("moved.txt")).await;
    assert_eq!(first.text("moved.txt"), "of the second\n");
    assert!(!second.has("a.txt"));
}
