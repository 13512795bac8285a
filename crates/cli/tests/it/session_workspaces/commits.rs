//! Merging the commits of a workspace: what arrives, what is refused, and that nothing of it executes on the host.

use std::path::PathBuf;
use std::process::Command;

use super::Desk;

const COMMIT: &str = "git -c user.name=agent -c user.email=agent@example.com commit -q";

#[test]
fn commits_go_to_a_branch_and_nothing_is_checked_out() {
    let desk = Desk::repository("merge");
    desk.project.write("kept.txt", "uncommitted\n");
    desk.succeeds(&["start", "task", "--clean"]);
    desk.fails(&["merge", "task"], "no commits that the project does not have");
    desk.agent("task", &format!("echo 1 > a.txt; git add a.txt; {COMMIT} -m first; echo 2 > b.txt; git add b.txt; {COMMIT} -m second"));
    let merged = desk.succeeds(&["merge", "task", "--json"]).json();
    assert_eq!(merged["branch"], "ringfence/task");
    assert_eq!(merged["commits"].as_array().unwrap().len(), 2, "{merged}");
    assert_eq!(desk.project.git(&["log", "--format=%s", "main..ringfence/task"]), "second\nfirst\n");
    assert_eq!(desk.project.text("kept.txt"), "uncommitted\n");
    assert_eq!(
        (desk.project.has("a.txt"), desk.project.git(&["branch", "--show-current"])),
        (false, "main\n".to_owned())
    );
    desk.project.git(&["fsck", "--full", "--strict"]);
    // More commits move the branch on; others need --force.
    desk.agent("task", &format!("{COMMIT} --allow-empty -m third"));
    desk.succeeds(&["merge", "task"]);
    desk.agent("task", &format!("{COMMIT} --amend --allow-empty -m replaced"));
    desk.fails(&["merge", "task"], "has other commits");
    desk.succeeds(&["merge", "task", "--force"]);
    assert_eq!(desk.project.git(&["log", "-1", "--format=%s", "ringfence/task"]), "replaced\n");
    desk.agent("task", &format!("{COMMIT} --allow-empty -m last"));
    desk.fails(&["merge", "task", "--into", "main"], "is checked out");
    desk.fails(&["merge", "task", "--into", "a..b"], "no name for a branch");
    desk.fails(&["merge", "task", "--into=-d"], "no name for a branch");
    desk.fails(&["merge", "task", "--branch", "nothing"], "no commit");
    desk.succeeds(&["merge", "task", "--into", "topic/other"]);
    let refs = desk.project.git(&["for-each-ref", "--format=%(refname)"]);
    assert_eq!(refs, "refs/heads/main\nrefs/heads/ringfence/task\nrefs/heads/topic/other\n");
}

#[test]
fn a_workspace_of_a_repository_without_commits_has_its_first_one() {
    let desk = Desk::plain("unborn");
    desk.project.git(&["init", "-q", "-b", "main"]);
    desk.succeeds(&["start", "task"]);
    desk.agent("task", &format!("git add kept.txt; {COMMIT} -m root"));
    desk.succeeds(&["merge", "task"]);
    assert_eq!(desk.project.git(&["log", "--format=%s", "ringfence/task"]), "root\n");
}

#[test]
fn commits_that_change_what_the_host_executes_are_shown_first() {
    let desk = Desk::repository("executables");
    desk.succeeds(&["start", "task"]);
    desk.agent(
        "task",
        &format!("mkdir .vscode; echo '{{}}' > .vscode/tasks.json; git add -A; {COMMIT} -m tasks"),
    );
    desk.fails(&["merge", "task"], ".vscode/tasks.json");
    assert_eq!(desk.project.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main\n");
    desk.succeeds(&["merge", "task", "--include-executables"]);
    assert!(
        desk.project.git(&["for-each-ref", "--format=%(refname)"]).contains("ringfence/task"),
        "the control"
    );
}

/// Everything that git obeys in a repository, written by an agent. `MARK` is touched if it runs.
const ATTACKS: &[(&str, &str)] = &[
    ("fsmonitor", "git config core.fsmonitor 'touch MARK; false'"),
    (
        "hooks",
        "for h in pre-commit post-commit post-checkout reference-transaction pre-auto-gc post-index-change; do \
               printf '#!/bin/sh\\ntouch MARK\\n' > .git/hooks/$h; chmod +x .git/hooks/$h; done",
    ),
    (
        "hooks-path",
        "mkdir h; for h in reference-transaction post-checkout; do printf '#!/bin/sh\\ntouch MARK\\n' > h/$h; \
                    chmod +x h/$h; done; git config core.hooksPath h",
    ),
    ("pager", "git config core.pager 'touch MARK; cat'; git config pager.log 'touch MARK; cat'"),
    (
        "diff",
        "git config diff.external 'touch MARK'; git config diff.x.textconv 'touch MARK; cat'; echo '* diff=x' > .git/info/attributes",
    ),
    (
        "filter",
        "git config filter.x.clean 'touch MARK; cat'; git config filter.x.smudge 'touch MARK; cat'; \
                mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
    ),
    ("alias", "git config alias.rev-parse '!touch MARK'; git config alias.log '!touch MARK'"),
    (
        "ssh",
        "git config core.sshCommand 'touch MARK'; git config remote.origin.url ssh://x/y; git config remote.origin.uploadpack 'touch MARK'",
    ),
    (
        "editor",
        "git config core.editor 'touch MARK'; git config gpg.program 'touch MARK'; git config log.showSignature true",
    ),
    ("include", "echo '[core]\n fsmonitor = touch MARK' > evil; git config include.path ../evil"),
    ("alternates", "mkdir -p .git/objects/info; echo /etc > .git/objects/info/alternates"),
    ("replace", "git replace --graft HEAD; git config core.useReplaceRefs true"),
    ("gitfile", "mv .git elsewhere; echo 'gitdir: elsewhere' > .git"),
];

#[test]
fn nothing_that_git_obeys_in_a_workspace_executes_on_the_host() {
    for (name, attack) in ATTACKS {
        let desk = Desk::repository("attacks");
        let mark = desk.home.join("mark");
        let before = desk.project.git(&["config", "--local", "--list"]);
        desk.succeeds(&["start", "task", "--method", "copy"]);
        desk.agent("task", &format!("echo agent > agent.txt; git add agent.txt; {COMMIT} -m agent"));
        desk.agent("task", &attack.replace("MARK", mark.to_str().unwrap()));
        for words in [
            &["show", "task"][..],
            &["list"],
            &["diff", "task"],
            &["merge", "task", "--include-executables"],
            &["apply", "task", "--include-executables"],
            &["discard", "task"],
            &["prune", "--older-than", "1h"],
            &["log", "task"],
        ] {
            let ended = desk.session(words);
            assert!(!mark.exists(), "{name}: {words:?} executed it: {ended:?}");
        }
        desk.project.git(&["status", "--porcelain"]);
        assert!(!mark.exists(), "{name}: it came over into the project");
        assert_eq!(desk.project.git(&["config", "--local", "--list"]), before, "{name}");
        desk.project.git(&["fsck", "--full"]);
    }
}

/// The control: the same files obeyed by a git that runs outside.
#[test]
fn the_same_settings_execute_where_git_runs_outside() {
    for name in ["fsmonitor", "hooks", "filter", "alias", "include"] {
        let (_, attack) = ATTACKS.iter().find(|(known, _)| known == &name).unwrap();
        let desk = Desk::repository("controls");
        let mark = desk.home.join("mark");
        let script = attack.replace("MARK", mark.to_str().unwrap());
        let run = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).current_dir(&desk.project.path).env("HOME", desk.home.path());
            command.output().unwrap();
        };
        run(&script);
        run(&format!(
            "echo changed > kept.txt; git status; git add kept.txt; {COMMIT} -m x; git log; git xlog; git rev-parse HEAD"
        ));
        // git lets no alias hide one of its own commands, so that attack fails even here.
        assert_eq!(mark.exists(), name != "alias", "{name}");
    }
}

#[test]
fn objects_that_fsck_refuses_do_not_arrive() {
    let desk = Desk::repository("fsck");
    desk.succeeds(&["start", "task"]);
    // A submodule whose URL is an option, and a file that would be a hook.
    desk.agent(
        "task",
        &format!(
            "printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = --upload-pack=touch\\n' > .gitmodules; git add .gitmodules; {COMMIT} -m evil"
        ),
    );
    desk.fails(&["merge", "task", "--include-executables"], "git could not accept the commits");
    desk.succeeds(&["start", "tree"]);
    desk.agent(
        "tree",
        "blob=$(echo evil | git hash-object -w --stdin); \
             inner=$(printf '100644 blob %s\\tconfig\\n' $blob | git mktree); \
             outer=$(printf '040000 tree %s\\t.git\\n' $inner | git mktree); \
             commit=$(git -c user.name=a -c user.email=a@b commit-tree -m evil -p HEAD $outer); git update-ref HEAD $commit",
    );
    desk.fails(&["merge", "tree", "--include-executables"], "git could not accept the commits");
    assert_eq!(desk.project.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main\n");
}

#[test]
fn a_commit_whose_parts_are_missing_does_not_arrive() {
    let desk = Desk::repository("missing");
    desk.succeeds(&["start", "task"]);
    desk.agent(
        "task",
        "tree=$(printf '100644 blob 1234567890123456789012345678901234567890\\tlost\\n' | git mktree --missing); \
         commit=$(git -c user.name=a -c user.email=a@b commit-tree -m lost -p HEAD $tree); git update-ref HEAD $commit",
    );
    let refused = desk.session(&["merge", "task"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert_eq!(desk.project.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main\n");
}

#[test]
fn a_hook_of_the_project_does_not_run_for_what_comes_from_a_workspace() {
    use std::os::unix::fs::PermissionsExt as _;
    let desk = Desk::repository("own-hook");
    let mark = desk.home.join("mark");
    let hook: PathBuf = desk.project.join(".git/hooks/reference-transaction");
    std::fs::write(&hook, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    desk.succeeds(&["start", "task"]);
    desk.agent("task", "git config core.hooksPath /dev/null");
    desk.agent("task", &format!("{COMMIT} --allow-empty -m agent"));
    desk.succeeds(&["merge", "task"]);
    assert!(!mark.exists());
    desk.project.git(&["branch", "control"]);
    assert!(mark.exists(), "the control");
}
