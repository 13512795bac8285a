//! Where a workspace begins: dirty or clean, at another commit, without git, in a linked worktree; what comes along.

use super::Desk;

#[test]
fn a_workspace_begins_with_the_project_as_it_is() {
    let desk = Desk::repository("as-it-is");
    desk.project.write("kept.txt", "uncommitted\n");
    desk.project.write("new.txt", "untracked\n");
    let made = desk.succeeds(&["start", "task", "--json"]).json();
    assert_eq!((made["name"].as_str(), made["method"].as_str()), (Some("task"), Some("overlay")), "{made}");
    assert_eq!(made["start"]["reference"], "refs/heads/main");
    assert_eq!(made["path"], desk.project.path.to_str().unwrap());
    assert_eq!(desk.agent("task", "cat kept.txt new.txt"), "uncommitted\nuntracked\n");
    desk.agent("task", "echo agent > kept.txt; rm new.txt");
    assert_eq!(desk.project.text("kept.txt"), "uncommitted\n");
    assert!(desk.project.has("new.txt"));
}

#[test]
fn every_method_gives_the_same_workspace() {
    for method in ["overlay", "copy"] {
        let desk = Desk::repository(method);
        desk.succeeds(&["start", "task", "--method", method]);
        assert_eq!(desk.succeeds(&["show", "task", "--json"]).json()["method"], method);
        desk.agent("task", "echo six >> kept.txt; echo new > new.txt; git status --porcelain");
        let stat = desk.succeeds(&["diff", "task", "--stat"]).stdout;
        assert!(stat.starts_with("M kept.txt\nA new.txt\n"), "{stat}");
        desk.succeeds(&["apply", "task"]);
        assert_eq!(desk.project.text("new.txt"), "new\n");
    }
    let desk = Desk::repository("reflink");
    let refused = desk.session(&["start", "task", "--method", "reflink"]);
    // It depends on the file system, and either way there is no half-made workspace.
    let expected = usize::from(refused.code == 0);
    let listed = desk.succeeds(&["list", "--json"]).json();
    assert_eq!(listed["workspaces"].as_array().unwrap().len(), expected, "{refused:?}");
}

#[test]
fn a_clean_workspace_has_the_commit_and_the_project_keeps_what_is_uncommitted() {
    let desk = Desk::repository("clean");
    desk.project.write("kept.txt", "one\ntwo\nthree\nfour\nFIVE\n");
    desk.project.write("untracked.txt", "of the user\n");
    desk.succeeds(&["start", "task", "--clean"]);
    assert_eq!(desk.agent("task", "cat kept.txt; ls"), "one\ntwo\nthree\nfour\nfive\nkept.txt\n");
    assert_eq!(
        desk.succeeds(&["diff", "task", "--stat"]).stdout,
        "# Never taken over: .git (of git; commits are merged)\n"
    );
    desk.agent("task", "sed -i s/one/ONE/ kept.txt; echo agent > untracked.txt");
    // The user's line and the agent's come together; a file that both made is a conflict, and then nothing changes.
    desk.fails(&["apply", "task"], "untracked.txt");
    assert_eq!(desk.project.text("kept.txt"), "one\ntwo\nthree\nfour\nFIVE\n");
    desk.succeeds(&["apply", "task", "--only", "kept.txt"]);
    assert_eq!(desk.project.text("kept.txt"), "ONE\ntwo\nthree\nfour\nFIVE\n");
    assert_eq!(desk.project.text("untracked.txt"), "of the user\n");
}

#[test]
fn a_workspace_begins_at_the_commit_that_it_is_told_to() {
    let desk = Desk::repository("at");
    desk.project.git(&["switch", "-qc", "topic"]);
    desk.project.write("topic.txt", "topic\n");
    desk.project.commit_all();
    desk.project.git(&["tag", "v1"]);
    desk.project.git(&["switch", "-q", "main"]);
    desk.succeeds(&["start", "branch", "--base", "topic"]);
    assert_eq!(desk.agent("branch", "git branch --show-current; cat topic.txt"), "topic\ntopic\n");
    desk.succeeds(&["start", "tag", "--base", "v1"]);
    assert_eq!(desk.agent("tag", "git branch --show-current; ls"), "kept.txt\ntopic.txt\n");
    // Only what the agent does is a change, not what the branches differ by.
    desk.agent("branch", "echo more > more.txt");
    let stat = desk.succeeds(&["diff", "branch", "--stat"]).stdout;
    assert!(stat.starts_with("A more.txt\n#"), "{stat}");
    assert_eq!(desk.project.git(&["branch", "--show-current"]), "main\n");
    desk.fails(&["start", "none", "--base", "nothing-of-that-name"], "no commit");
    desk.fails(&["start", "none", "--base=--output=x"], "no commit");
    assert_eq!(desk.succeeds(&["list", "--json"]).json()["workspaces"].as_array().unwrap().len(), 2);
}

#[test]
fn a_project_without_git_has_workspaces_too() {
    let desk = Desk::plain("no-git");
    desk.succeeds(&["start", "task"]);
    desk.agent("task", "echo six >> kept.txt");
    let diff = desk.succeeds(&["diff", "task"]).stdout;
    assert!(diff.contains("+six"), "{diff}");
    desk.succeeds(&["apply", "task"]);
    assert!(desk.project.text("kept.txt").ends_with("six\n"));
    desk.fails(&["merge", "task"], "no git repository");
    desk.fails(&["start", "other", "--clean"], "no git repository");
}

#[test]
fn a_linked_worktree_and_a_folder_of_a_repository_commit_in_their_workspace() {
    let desk = Desk::repository("worktree");
    let linked = testkit::workspace_dir("linked");
    std::fs::remove_dir(linked.path()).unwrap();
    desk.project.git(&["worktree", "add", "-q", "-b", "side", linked.path().to_str().unwrap()]);
    desk.project.write("folder/inner.txt", "inner\n");
    desk.project.commit_all();
    for (name, directory, file) in [
        ("linked", linked.path().to_owned(), "kept.txt"),
        ("folder", desk.project.join("folder"), "inner.txt"),
    ] {
        let refs = desk.project.git(&["for-each-ref"]);
        let started = desk.session_in(&directory, &["start", name]);
        assert_eq!(started.code, 0, "{started:?}");
        desk.agent(
            name,
            &format!("echo agent >> {file}; git -c user.name=a -c user.email=a@b commit -qam agent; git log -1 --format=%s"),
        );
        assert_eq!(desk.project.git(&["for-each-ref"]), refs, "{name}: the commit stays in the workspace");
        desk.succeeds(&["merge", name]);
        let branch = desk.project.git(&["log", "-1", "--format=%s", &format!("ringfence/{name}")]);
        assert_eq!(branch, "agent\n", "{name}");
    }
}

#[test]
fn secrets_stay_out_unless_they_are_named() {
    let desk = Desk::repository("secrets");
    desk.project.write(".gitignore", ".env*\n*.pem\n");
    for file in [".env", ".env.local", "server.pem"] {
        desk.project.write(file, "secret\n");
    }
    desk.project.write(".worktreeinclude", ".env.local\n");
    let made = desk.succeeds(&["start", "task", "--include-secret", "server.pem", "--json"]).json();
    assert_eq!(made["left_out"], serde_json::json!([".env"]), "{made}");
    assert_eq!(
        desk.agent("task", "ls -A"),
        ".env.local\n.git\n.gitignore\n.worktreeinclude\nkept.txt\nserver.pem\n"
    );
    // The agent's own file of that name is no way to the user's.
    desk.agent("task", "echo mine > .env");
    let diff = desk.succeeds(&["diff", "task", "--include-ignored"]).stdout;
    assert!(!diff.contains("secret"), "{diff}");
}

#[test]
fn the_set_up_command_runs_inside_and_its_output_is_kept() {
    let desk = Desk::plain("set-up");
    let outside = desk.home.join("outside");
    let script =
        format!("echo installing; echo deps > deps.txt; echo x > {} || echo refused", outside.display());
    desk.succeeds(&["start", "task", "--set-up", &script]);
    assert!(!outside.exists() && !desk.project.has("deps.txt"));
    assert_eq!(desk.agent("task", "cat deps.txt"), "deps\n");
    let log = desk.succeeds(&["log", "task"]).stdout;
    assert!(log.contains("installing\n") && log.contains("refused") && log.contains("exit code 0"), "{log}");
    desk.fails(&["start", "broken", "--set-up", "exit 3"], "exit code 3");
    assert_eq!(desk.succeeds(&["show", "broken", "--json"]).json()["set_up"]["exit_code"], 3);
}

#[test]
fn bad_input_is_refused_with_a_hint() {
    let desk = Desk::plain("bad");
    desk.succeeds(&["start", "task"]);
    for (words, said) in [
        (&["start", "task"][..], "already"),
        (&["diff", "nothing"], "no session workspace"),
        (&["apply", "nothing"], "no session workspace"),
        (&["restore", "nothing"], "no session workspace"),
        (&["apply", "task", "--only", "no-such-file"], "nothing that changed matches"),
        (&["diff", "task", "--only", "["], "no pattern"),
        (&["start", "root", "--project", "/"], ""),
        (&["start", "gone", "--project", "/no/such/directory"], ""),
        (&["run", "task", "--scope", "/tmp", "--", "true"], "--scope"),
    ] {
        let ended = desk.fails(words, said);
        assert!(ended.stderr.contains("hint:"), "{words:?}: {ended:?}");
    }
    for words in
        [&["start", "a/b"][..], &["start", "task", "--method", "magic"], &["prune", "--older-than", "soon"]]
    {
        assert_eq!(desk.session(words).code, 2, "{words:?}");
    }
}

#[test]
fn load_of_fifty_thousand_files_is_a_small_workspace_with_what_changed() {
    const DIRECTORIES: usize = 500;
    const FILES_IN_EACH: usize = 100;
    let desk = Desk::repository("large");
    for directory in 0..DIRECTORIES {
        for file in 0..FILES_IN_EACH {
            desk.project.write(&format!("src/{directory}/{file}.txt"), format!("{directory} {file}\n"));
        }
    }
    desk.project.commit_all();
    desk.succeeds(&["start", "task", "--method", "overlay"]);
    let unchanged = desk.succeeds(&["show", "task", "--json"]).json();
    assert!(unchanged["disk_bytes"].as_u64().unwrap() <= 1 << 20, "{unchanged}");
    assert_eq!(unchanged["changes"], 0);
    desk.agent(
        "task",
        "echo agent > src/17/42.txt; rm src/18/1.txt; rm -r src/19; git add -A; git status --short | wc -l",
    );
    let stat = desk.succeeds(&["diff", "task", "--stat"]).stdout;
    assert_eq!(stat.lines().filter(|line| line.starts_with("D ")).count(), 1 + 1 + FILES_IN_EACH, "{stat}");
    assert!(stat.starts_with("M src/17/42.txt\n"), "{stat}");
    desk.succeeds(&["apply", "task"]);
    assert_eq!(desk.project.text("src/17/42.txt"), "agent\n");
    assert!(!desk.project.has("src/19") && desk.project.has("src/20/99.txt"));
}
