//! Files that programs outside obey: sessions cannot change or make them, git goes on working inside, and nothing that a
//! session writes is executed by git outside. Each attack succeeds where the operator allows it.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use testkit::{Gateway, Project, wait_until};

use super::{Desk, Session};

/// The names that are kept at the top of a workspace, spelled out: a name that is dropped must be noticed.
const KEPT: [&str; 13] = [
    ".git",
    ".vscode",
    ".cursor",
    ".idea",
    ".claude",
    ".codex",
    ".gemini",
    ".mcp.json",
    ".devcontainer",
    ".devcontainer.json",
    ".husky",
    ".envrc",
    ".ringfence.yaml",
];

fn repository(name: &str) -> Project {
    let project = Project::new(name);
    project.write("a.txt", "one\n");
    project.commit_all();
    project.git(&["config", "user.name", "Ada"]);
    project.git(&["config", "user.email", "ada@example.org"]);
    project
}

fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn git_goes_on_working_inside() {
    let desk = Desk::open(repository("git-inside")).await;
    let script = "set -e
        echo two >> a.txt && git commit -qam second
        git checkout -qb topic && echo topic > topic.txt && git add . && git commit -qm topic
        git checkout -q - && echo main > main.txt && git add . && git commit -qm main
        git merge -q --no-edit topic
        git checkout -q topic && echo more >> topic.txt && git commit -qam more
        git rebase -q -
        git checkout -q - && git merge -q topic
        echo dirty >> a.txt && git stash -q && git stash pop -q && git checkout -q a.txt
        git tag -m tag v1 && git branch -d topic -q
        git worktree add -q tree && cd tree && echo tree > tree.txt && git add . && git commit -qm tree && cd ..
        git merge -q tree && git worktree remove tree && git branch -qD tree
        git reset -q --soft HEAD~1 && git commit -qm again && git gc -q";
    // git says that it cannot forget what the configuration has about the deleted branches.
    desk.run(script).await;
    assert_eq!(desk.run("git status --porcelain").await, "");
    let subjects = desk.project.git(&["log", "--format=%s"]);
    for subject in ["second", "topic", "main", "more", "again"] {
        assert!(subjects.lines().any(|line| line == subject), "{subject}: {subjects}");
    }
    desk.project.git(&["fsck", "--strict"]);
    let refused = desk.run_to_end("git config core.fsmonitor /bin/true").await;
    assert_ne!(refused.data["exit_code"], 0, "{}", refused.text);
}

/// What a session does to have git outside execute a program, and what a user does then. `MARK` stands for a path
/// outside the scope, which only a program outside can make.
struct Attack {
    name: &'static str,
    prepare: fn(&Project),
    inside: &'static str,
    outside: &'static str,
}

const PLAIN: fn(&Project) = |_| {};

const COMMIT: &str = "git commit -q --allow-empty -m x";
const HOOK: &str = "printf '#!/bin/sh\\ntouch MARK\\n'";

fn attacks() -> impl Iterator<Item = Attack> {
    attacks_on_the_repository().into_iter().chain(attacks_by_detours())
}

fn attacks_on_the_repository() -> Vec<Attack> {
    vec![
        Attack {
            name: "hook",
            prepare: PLAIN,
            inside: "mkdir -p .git/hooks; HOOK > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
            outside: COMMIT,
        },
        Attack {
            name: "hook, with the parent renamed",
            prepare: PLAIN,
            inside: "mv .git .g; cp -r .g .git; mkdir -p .git/hooks; HOOK > .git/hooks/pre-commit;
                     chmod +x .git/hooks/pre-commit",
            outside: COMMIT,
        },
        Attack {
            name: "fsmonitor",
            prepare: PLAIN,
            inside: "git config core.fsmonitor 'touch MARK;:'",
            outside: "git status",
        },
        Attack {
            name: "fsmonitor, with the configuration replaced",
            prepare: PLAIN,
            inside: "cp .git/config c; git config -f c core.fsmonitor 'touch MARK;:'; mv -f c .git/config",
            outside: "git status",
        },
        Attack {
            name: "ssh command",
            prepare: PLAIN,
            inside: "git config core.sshCommand 'touch MARK;false'; git remote add o ssh://none.invalid/x",
            outside: "git fetch o",
        },
        Attack {
            name: "filter",
            prepare: PLAIN,
            inside: "git config filter.x.clean 'touch MARK;cat'; echo '* filter=x' > .gitattributes; echo y >> a.txt",
            outside: "git add -A",
        },
        Attack {
            name: "a filter of the user, by the attributes of the repository",
            prepare: PLAIN,
            inside: "mkdir -p .git/info; echo '* filter=x' > .git/info/attributes; echo y >> a.txt",
            outside: "git -c filter.x.clean='touch MARK;cat' add -A",
        },
        Attack {
            name: "alias",
            prepare: PLAIN,
            inside: "git config alias.st '!touch MARK'",
            outside: "git st",
        },
    ]
}

/// Attacks through what the repository leads to.
fn attacks_by_detours() -> Vec<Attack> {
    vec![
        Attack {
            name: "configuration from elsewhere",
            prepare: PLAIN,
            inside: "cp -r .git evil; git config -f evil/config core.fsmonitor 'touch MARK;:'; echo ../evil > .git/commondir",
            outside: "git status",
        },
        Attack {
            name: "hooks path",
            prepare: |project| {
                project.write("tools/hooks/README", "hooks of the team\n");
                project.git(&["config", "core.hooksPath", "tools/hooks"]);
            },
            inside: "HOOK > tools/hooks/pre-commit; chmod +x tools/hooks/pre-commit;
                     mv tools t; mkdir -p tools/hooks; HOOK > tools/hooks/pre-commit; chmod +x tools/hooks/pre-commit",
            outside: COMMIT,
        },
        Attack {
            name: "included configuration that is missing",
            prepare: |project| drop(project.git(&["config", "include.path", "../team.gitconfig"])),
            inside: "rm -f team.gitconfig; printf '[core]\\n\\tfsmonitor = touch MARK;:\\n' > team.gitconfig",
            outside: "git status",
        },
        Attack {
            name: "husky",
            prepare: |project| drop(project.git(&["config", "core.hooksPath", ".husky/_"])),
            inside: "mkdir -p .husky/_; HOOK > .husky/_/pre-commit; chmod +x .husky/_/pre-commit",
            outside: COMMIT,
        },
        Attack {
            name: "submodule",
            prepare: add_submodule,
            inside: "git config -f .git/modules/sub/config core.fsmonitor 'touch MARK;:'",
            outside: "git status",
        },
        Attack {
            name: "hook of a submodule",
            prepare: add_submodule,
            inside: "mkdir -p .git/modules/sub/hooks; HOOK > .git/modules/sub/hooks/pre-commit;
                     chmod +x .git/modules/sub/hooks/pre-commit",
            outside: "cd sub && git -c user.name=x -c user.email=x@example.org commit -q --allow-empty -m x",
        },
        Attack {
            name: "submodule that is led elsewhere",
            prepare: add_submodule,
            inside: "cp -r .git/modules/sub evil; git config -f evil/config core.fsmonitor 'touch MARK;:';
                     git config -f evil/config core.worktree ../sub; rm -f sub/.git; echo 'gitdir: ../evil' > sub/.git",
            outside: "git status",
        },
        Attack {
            name: "a repository where there was none",
            prepare: |project| std::fs::remove_dir_all(project.join(".git")).unwrap(),
            inside: "git init -q; git config core.fsmonitor 'touch MARK;:'",
            outside: "git status",
        },
        Attack {
            name: "the workspace itself as a repository",
            prepare: PLAIN,
            inside: "rm .git/HEAD; git init -q --bare .; git config -f config core.bare false;
                     git config -f config core.worktree .; git config -f config core.fsmonitor 'touch MARK;:'",
            outside: "git status",
        },
        Attack {
            name: "the script that a hook is a link to",
            prepare: |project| {
                project.write("scripts/check", "#!/bin/sh\n");
                std::fs::create_dir_all(project.join(".git/hooks")).unwrap();
                symlink("../../scripts/check", project.join(".git/hooks/pre-commit")).unwrap();
            },
            inside: "HOOK > scripts/check; chmod +x scripts/check",
            outside: COMMIT,
        },
    ]
}

fn add_submodule(project: &Project) {
    let library = Project::new("library");
    library.write("lib.txt", "x\n");
    library.commit_all();
    let url = library.path.to_str().unwrap();
    project.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", url, "sub"]);
    project.git(&["commit", "--quiet", "--message", "submodule"]);
}

/// Runs one attack. Returns whether a program ran outside.
async fn runs_outside(attack: &Attack, flags: &[&str]) -> bool {
    let project = repository("attack");
    (attack.prepare)(&project);
    let marks = testkit::workspace_dir("marks");
    let mark: PathBuf = marks.as_ref().join("mark");
    let text = |text: &str| text.replace("HOOK", HOOK).replace("MARK", mark.to_str().unwrap());
    let desk = Desk::with_flags(project, flags).await;
    // Fails where it is refused.
    desk.run_to_end(&text(attack.inside)).await;
    assert!(!mark.exists(), "{}: made from inside", attack.name);
    let home = testkit::workspace_dir("home-outside");
    let used = Command::new("sh")
        .args(["-c", &text(attack.outside)])
        .current_dir(&desk.project.path)
        .env("HOME", home.as_ref())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "x")
        .env("GIT_AUTHOR_EMAIL", "x@example.org")
        .output()
        .unwrap();
    assert!(used.status.code().is_some());
    mark.exists()
}

#[tokio::test]
async fn git_outside_executes_nothing_that_a_session_wrote() {
    for attack in attacks() {
        assert!(!runs_outside(&attack, &[]).await, "{}", attack.name);
    }
}

/// The control: the attacks are real.
#[tokio::test]
async fn each_attack_succeeds_where_metadata_may_be_changed() {
    for attack in attacks() {
        assert!(runs_outside(&attack, &["--allow-metadata"]).await, "{}", attack.name);
    }
}

#[tokio::test]
async fn no_name_can_be_made_replaced_or_removed() {
    let project = Project::new("kept-names");
    project.write(".vscode/settings.json", "{}\n");
    project.write(".mcp.json", "{}\n");
    let desk = Desk::open(project).await;
    for name in KEPT {
        let script = format!(
            "touch {name}/x; rm -rf {name}; rmdir {name}; mv {name} moved; ln -sfT /tmp {name}; echo x > {name};
             mkdir {name}; mv -T new {name}; true"
        );
        desk.run(&format!("rm -rf new; mkdir new; touch new/x; {script}")).await;
        assert!(!desk.project.has(&format!("{name}/x")) && !desk.project.has("moved"), "{name}");
    }
    assert_eq!(desk.project.text(".vscode/settings.json"), "{}\n");
    assert_eq!(desk.project.text(".mcp.json"), "{}\n");
    for path in [".vscode/tasks.json", ".claude/settings.json", ".git/hooks/pre-commit"] {
        let refused = desk.refused("write_file", json!({"path": path, "content": "x"}), "read_only").await;
        let name = path.split('/').next().unwrap();
        assert!(refused.text.contains(&format!("--allow-metadata {name}")), "{}", refused.text);
    }
    // What agents change every day stays writable.
    for path in ["AGENTS.md", ".github/workflows/ci.yml", "package.json"] {
        desk.ok("write_file", json!({"path": path, "content": "x\n"})).await;
    }
}

#[tokio::test]
async fn one_name_can_be_allowed() {
    let desk = Desk::with_flags(Project::new("allowed-name"), &["--allow-metadata", ".claude"]).await;
    desk.ok("write_file", json!({"path": ".claude/settings.json", "content": "{}"})).await;
    desk.refused("write_file", json!({"path": ".vscode/tasks.json", "content": "{}"}), "read_only").await;
    assert_eq!(desk.project.text(".claude/settings.json"), "{}");
    let failed = Gateway::built_in().flags(["--allow-metadata", "nothing"]).try_start().await.err().unwrap();
    assert!(format!("{failed:?}").contains(".claude"), "{failed:?}");
}

#[tokio::test]
async fn placeholders_go_with_the_last_session() {
    let project = Project::new("placeholders");
    project.write("a.txt", "a\n");
    let gateway = Gateway::built_in().current_dir(&project.path).start().await;
    let (first, second) = (Session::open(&gateway).await, Session::open(&gateway).await);
    for session in [&first, &second] {
        session.run("true").await;
    }
    assert!(project.join(".vscode").is_dir() && project.join(".mcp.json").is_dir());
    first.client.delete().await;
    second.refused("write_file", json!({"path": ".vscode/tasks.json", "content": "x"}), "read_only").await;
    std::fs::write(project.join(".vscode/settings.json"), "{}").unwrap();
    second.client.delete().await;
    wait_until("the placeholders are removed", async || names_in(&project.path) == [".vscode", "a.txt"])
        .await;
}

#[tokio::test]
async fn sessions_that_overlap_need_the_same_names_and_leave_none() {
    let project = Project::new("placeholders-overlap");
    let gateway = Gateway::built_in().current_dir(&project.path).start().await;
    let mut sessions = vec![Session::open(&gateway).await];
    sessions[0].run("true").await;
    let names = names_in(&project.path);
    assert!(names.contains(&".vscode".to_owned()), "{names:?}");
    for _ in 0..4 {
        let session = Session::open(&gateway).await;
        session.run("true").await;
        assert_eq!(names_in(&project.path), names);
        sessions.push(session);
    }
    for session in sessions {
        session.client.delete().await;
    }
    wait_until("the placeholders are removed", async || names_in(&project.path).is_empty()).await;
}

#[tokio::test]
async fn a_gateway_that_ends_leaves_no_placeholder() {
    let project = Project::new("placeholders-end");
    let mut gateway = Gateway::built_in().current_dir(&project.path).start().await;
    let (ended, open) = (Session::open(&gateway).await, Session::open(&gateway).await);
    for session in [&ended, &open] {
        session.run("true").await;
    }
    ended.client.delete().await;
    assert!(project.join(".vscode").is_dir());
    assert!(gateway.terminate().await.success());
    assert_eq!(names_in(&project.path), Vec::<String>::new());
}

#[tokio::test]
async fn placeholders_of_a_killed_gateway_are_removed_by_the_next() {
    let (project, caches) = (Project::new("placeholders-killed"), testkit::workspace_dir("caches-killed"));
    let start = || {
        let builder = Gateway::built_in().current_dir(&project.path).env("XDG_CACHE_HOME", caches.as_ref());
        builder.start()
    };
    let mut gateway = start().await;
    Session::open(&gateway).await.run("true").await;
    let fenced = gateway.descendants();
    gateway.kill().await;
    assert!(project.join(".vscode").is_dir());
    wait_until("its fences have ended", async || {
        fenced.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    })
    .await;
    let _next = start().await;
    assert_eq!(names_in(&project.path), Vec::<String>::new());
}

/// An editor or git that replaces a file takes the mount away with it. The server ends before it can use that.
#[tokio::test]
async fn a_file_that_is_replaced_outside_stays_kept() {
    let project = Project::new("replaced-outside");
    project.write(".mcp.json", "{}\n");
    let desk = Desk::open(project).await;
    let before = desk.run("echo $$; touch .mcp.json || echo refused").await;
    assert!(before.ends_with("refused"), "{before}");
    desk.project.write("saved", "{\"saved\": true}\n");
    std::fs::rename(desk.project.join("saved"), desk.project.join(".mcp.json")).unwrap();
    desk.gateway.wait_for_log("was replaced outside the fence that keeps it").await;
    wait_until("the server has ended", async || desk.gateway.log().contains("replaced")).await;
    let arguments = json!({"path": ".mcp.json", "content": "x"});
    // The call that meets the end of the server fails, the next one has a new server.
    let mut outcome = desk.client.call_tool("write_file", arguments.clone()).await;
    for _ in 0..5 {
        if outcome["result"].is_object() {
            break;
        }
        outcome = desk.client.call_tool("write_file", arguments.clone()).await;
    }
    assert_eq!(outcome["result"]["structuredContent"]["code"], "read_only", "{outcome}");
    assert_eq!(desk.project.text(".mcp.json"), "{\"saved\": true}\n");
}

#[tokio::test]
async fn changed_files_that_programs_outside_obey_are_named() {
    let desk = Desk::open(repository("to-review")).await;
    desk.ok("write_file", json!({"path": "AGENTS.md", "content": "x\n"})).await;
    desk.run("echo x > a.txt; mkdir .github; echo x > .github/ci.yml").await;
    let diff = desk.ok("session_diff", json!({})).await;
    assert_eq!(diff.data["executed_later"], json!([".github/ci.yml", "AGENTS.md"]));
    assert!(diff.text.contains("review before use"), "{}", diff.text);
    desk.run("git init -q nested").await;
    desk.client.delete().await;
    let warning = desk.gateway.wait_for_log("programs outside obey them").await;
    for name in ["AGENTS.md", ".github/ci.yml", "nested/.git/config"] {
        assert!(warning.contains(name), "{name}: {warning}");
    }
    assert!(!warning.contains("a.txt"), "{warning}");
}
