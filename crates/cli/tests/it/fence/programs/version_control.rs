//! git in the scope, with the caller as author.

use super::fenced_run::FencedRun;

const OFFLINE: &[&str] = &["--net", "none"];

fn write_git_settings(run: &FencedRun) {
    let settings = "[user]\n\tname = Ada Fenced\n\temail = ada@fence.example\n[core]\n\tsshCommand = never\n";
    std::fs::write(run.ground.home().join(".gitconfig"), settings).unwrap();
    run.ground.belongs_to_caller();
}

#[tokio::test(flavor = "multi_thread")]
async fn git_commits_as_the_caller_and_clones_inside_the_scope() {
    for run in FencedRun::in_each_tier().await {
        write_git_settings(&run);
        let script = "set -e
            git init --quiet origin
            cd origin
            echo text > file
            git add file
            git commit --quiet --message first
            git log --format='%an <%ae> %s'
            cd ..
            git clone --quiet origin clone
            cat clone/file
            git -C clone log --format=%cn";
        let ended = run.sh(OFFLINE, script).await.succeeded();
        ended.assert_stdout("Ada Fenced <ada@fence.example> first\ntext\nAda Fenced\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_callers_git_settings_no_program_is_taken_along() {
    for run in FencedRun::in_each_tier().await {
        write_git_settings(&run);
        // Away from any repository around the scope.
        let ended = run.sh(OFFLINE, "cd / && git config --global --list").await.succeeded();
        let of_fence = |line: &&str| line.starts_with("gpg.");
        let (of_fence, taken): (Vec<_>, Vec<_>) = ended.stdout.lines().partition(of_fence);
        assert_eq!(taken, ["user.name=Ada Fenced", "user.email=ada@fence.example"], "{ended:?}");
        assert_eq!(of_fence.len(), 3, "the programs that sign: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_can_be_written_and_run_by_default() {
    for run in FencedRun::in_each_tier().await {
        write_git_settings(&run);
        let script = "set -e
            git init --quiet
            printf '#!/bin/sh\\necho hooked > hooked\\n' > .git/hooks/pre-commit
            chmod +x .git/hooks/pre-commit
            git commit --quiet --allow-empty --message first
            cat hooked";
        run.sh(OFFLINE, script).await.succeeded().assert_stdout("hooked\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn protected_metadata_is_read_only_and_commits_still_work() {
    let [tier_a, tier_b] = FencedRun::in_each_tier().await;
    for run in [&tier_a, &tier_b] {
        write_git_settings(run);
        let _ = run.run(OFFLINE, ["git", "init", "--quiet"]).await.succeeded();
    }
    let options = [OFFLINE, &["--protect-metadata"]].concat();
    let refused = tier_a.run(&options, ["true"]).await;
    refused.assert_code(125);
    assert!(refused.stderr.contains("scope_metadata") && refused.stderr.contains("hint: "), "{refused:?}");

    let script = "python3 - <<'END'
import errno
for name in ('.git/hooks/pre-commit', '.git/config'):
    try:
        open(name, 'a')
        print(name, 'is writable')
    except OSError as error:
        print(name, errno.errorcode[error.errno])
END
        echo text > file && git add file && git commit --quiet --message first && git log --format=%s";
    let protected = tier_b.sh(&options, script).await.succeeded();
    protected.assert_stdout(".git/hooks/pre-commit EROFS\n.git/config EROFS\nfirst\n");
}

/// Without mounts nothing keeps the hooks of a repository outside the scope, so there it can only be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_linked_worktree_is_read_in_each_tier_and_committed_to_where_hooks_can_be_kept() {
    let [tier_a, tier_b] = FencedRun::in_each_tier().await;
    for run in [&tier_a, &tier_b] {
        write_git_settings(run);
        let base = run.ground.scope();
        let main = base.parent().unwrap().join(format!("main-{}", run.tier));
        let script = format!(
            "set -e; git init -q {main}; cd {main}; git -c user.name=x -c user.email=x commit -q --allow-empty -m first
             rm -rf {tree}; git worktree add -q {tree}",
            main = main.display(),
            tree = base.display()
        );
        let made = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        run.ground.belongs_to_caller();
        let read = run.sh(OFFLINE, "git log --format=%s && git status --porcelain").await.succeeded();
        read.assert_stdout("first\n");
        let commit = "echo x > file && git add file && git commit -qm second";
        let hook = format!("touch {}/.git/hooks/pre-commit", main.display());
        let (committed, hooked) = (run.sh(OFFLINE, commit).await, run.sh(OFFLINE, &hook).await);
        assert_eq!(committed.code == Some(0), run.tier == "b", "{committed:?}");
        assert_ne!(hooked.code, Some(0), "{hooked:?}");
    }
}
