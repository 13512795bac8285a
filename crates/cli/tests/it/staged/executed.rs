//! What an agent leaves in its copy for programs outside: nothing of it is executed after an apply, and each attack is one
//! that would have worked in the project itself.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use staging::Method;

use super::{Site, at_session, open_copy, shell};

/// What an agent writes, and what a human does afterwards. `MARK` is the file that shows that something was executed.
struct Attack {
    name: &'static str,
    agent: &'static str,
    human: &'static str,
}

const ATTACKS: &[Attack] = &[
    Attack {
        name: "a hook",
        agent: "printf '#!/bin/sh\ntouch MARK\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
        human: "git -c core.hooksPath=.git/hooks commit -qm x --allow-empty",
    },
    Attack {
        name: "a hook where the project keeps its own",
        agent: "printf '#!/bin/sh\ntouch MARK\n' > tools/hooks/pre-push; cp tools/hooks/pre-push tools/hooks/pre-commit; chmod +x tools/hooks/*",
        human: "git -c core.hooksPath=tools/hooks commit -qm x --allow-empty",
    },
    Attack {
        name: "core.fsmonitor",
        agent: "git config core.fsmonitor 'touch MARK #'",
        human: "git status --short",
    },
    Attack {
        name: "core.sshCommand",
        agent: "git config core.sshCommand 'touch MARK #'; git remote add evil ssh://host.invalid/x",
        human: "git fetch -q evil",
    },
    Attack {
        name: "a filter",
        agent: "git config filter.evil.clean 'touch MARK; cat'; echo '* filter=evil' > .gitattributes",
        human: "echo more >> kept.txt; git add kept.txt",
    },
    Attack {
        name: "attributes alone, of a filter that the human has",
        agent: "echo '* filter=human' > .gitattributes; mkdir -p deep; echo '* filter=human' > deep/.gitattributes; echo x > deep/file",
        human: "git -c filter.human.clean='touch MARK; cat' add -A",
    },
    Attack { name: "an alias", agent: "git config alias.st '!touch MARK'", human: "git st" },
    Attack {
        name: "a program that shows differences",
        agent: "git config diff.external 'touch MARK; true'",
        human: "echo more >> kept.txt; git diff",
    },
    Attack {
        name: "an included configuration",
        agent: "printf '[alias]\n st = !touch MARK\n' > team.gitconfig",
        human: "git -c include.path=\"$PWD/team.gitconfig\" st",
    },
    Attack {
        name: "the URL of a submodule",
        agent: "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),m; mkdir -p m
            printf '[submodule \"m\"]\n path = m\n url = ext::sh -c touch%% MARK\n' > .gitmodules",
        human: "git -c protocol.ext.allow=always submodule update --init",
    },
    Attack {
        name: "a repository in the tree",
        agent: "mkdir sub; git init -q sub; git -C sub config core.fsmonitor 'touch MARK #'",
        human: "cd sub && git status --short",
    },
    Attack {
        name: "a repository in disguise",
        agent: "mkdir docs; git init -q --bare docs/api; git config -f docs/api/config core.bare false
            git config -f docs/api/config core.worktree ..; git config -f docs/api/config core.fsmonitor 'touch MARK #'",
        human: "cd docs/api && git status --short",
    },
    Attack {
        name: "another git directory",
        agent: "cp -r .git other; git config -f other/config core.fsmonitor 'touch MARK #'; rm -rf .git; echo 'gitdir: other' > .git",
        human: "git status --short",
    },
    Attack {
        name: "a setting of Cargo",
        agent: "mkdir -p .cargo; printf '[alias]\nevil = \"MARK\"\n' > .cargo/config.toml",
        human: "test -e .cargo/config.toml && touch MARK",
    },
    Attack {
        name: "tasks of an editor",
        agent: "mkdir -p .vscode; echo '{\"command\": \"touch MARK\", \"runOn\": \"folderOpen\"}' > .vscode/tasks.json",
        human: "test -e .vscode/tasks.json && touch MARK",
    },
    Attack {
        name: "a link to what the human writes",
        agent: "ln -s MARK notes.txt; ln -s .. up",
        human: "test -L notes.txt && echo text > notes.txt; test -L up && touch up/mark-by-detour && touch MARK",
    },
];

const PROJECT: &str = "git init -q -b main; git config user.name H; git config user.email h@example.org
    mkdir -p tools/hooks; printf '#!/bin/sh\n' > tools/hooks/pre-push; git config core.hooksPath tools/hooks
    printf '# nothing yet\n' > team.gitconfig; git config include.path ../team.gitconfig
    git add -A; git commit -qm start; git config --unset core.hooksPath; git config --unset include.path";

/// Runs a script as the human would, on the host. Whether it fails does not matter.
fn on_host(directory: &Path, script: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(directory).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", directory.parent().unwrap());
    command.env("GIT_TERMINAL_PROMPT", "0").output().unwrap();
}

/// The project's settings, which name its own hooks and an included file.
fn set_up(site: &Site) {
    on_host(site.path(), PROJECT);
    on_host(site.path(), "git config core.hooksPath tools/hooks; git config include.path ../team.gitconfig");
    assert!(site.project.has(".git/HEAD") && site.project.has("tools/hooks/pre-push"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_changed_in_a_copy_is_executed_after_an_apply() {
    for method in [Method::Overlay, Method::Copy] {
        for attack in ATTACKS {
            let site = Site::new("executed");
            set_up(&site);
            let mark = site.state.join("mark");
            let with_mark = |script: &str| script.replace("MARK", mark.to_str().unwrap());
            let control = site.state.join("control");
            on_host(site.path(), &format!("cp -a . '{}'", control.display()));
            site.copy("task", method);
            let gateway = site.serve().flag("--allow-apply").start().await;
            let client = open_copy(&gateway, "task").await;
            shell(&client, &format!("{}; echo work > work.txt", with_mark(attack.agent))).await;
            let (status, applied) = at_session(&client, "POST", "apply", None).await;
            assert_eq!(status, 200, "{method}, {}: {applied}", attack.name);
            assert!(site.project.has("work.txt"), "{method}, {}: the rest comes", attack.name);
            on_host(site.path(), &with_mark(attack.human));
            assert!(!mark.exists(), "{method}, {}: executed after {applied}", attack.name);
            // The control: in the project itself the same would have been executed.
            on_host(&control, &with_mark(attack.agent));
            on_host(&control, &with_mark(attack.human));
            assert!(mark.exists(), "{}: the control", attack.name);
        }
    }
}

#[tokio::test]
async fn with_consent_what_is_executed_comes_and_gits_own_files_still_do_not() {
    let site = Site::new("consent");
    set_up(&site);
    site.copy("task", Method::Overlay);
    let gateway = site.serve().flag("--allow-apply").start().await;
    let client = open_copy(&gateway, "task").await;
    shell(
        &client,
        "echo 'exit 0' >> tools/hooks/pre-push; git config alias.st '!false'; echo x > .git/hooks/pre-commit; mkdir .vscode; echo {} > .vscode/tasks.json",
    )
    .await;
    let (status, report) = at_session(&client, "GET", "changes?diff=true", None).await;
    assert_eq!(status, 200, "{report}");
    let entries = report["changes"]["entries"].as_array().unwrap();
    assert!(entries.iter().all(|entry| entry["executed_later"] == true), "{report}");
    let reviewed = report["fingerprint"].as_str().unwrap();
    shell(&client, "echo 'touch /tmp/evil' >> tools/hooks/pre-push").await;
    let all = json!({"includeExecutables": true, "reviewed": reviewed});
    let (status, refused) = at_session(&client, "POST", "apply", Some(all)).await;
    assert_eq!(status, 409, "other content than was looked at: {refused}");
    let (_, report) = at_session(&client, "GET", "changes", None).await;
    let all = json!({"includeExecutables": true, "reviewed": report["fingerprint"]});
    let (status, applied) = at_session(&client, "POST", "apply", Some(all)).await;
    assert_eq!(status, 200, "{applied}");
    assert!(site.project.has(".vscode/tasks.json"));
    assert!(site.project.text("tools/hooks/pre-push").contains("exit 0"));
    assert!(!site.project.has(".git/hooks/pre-commit"));
    assert!(!site.project.text(".git/config").contains("alias"));
}
