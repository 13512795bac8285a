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
async fn of_the_callers_git_settings_only_the_author_is_taken_along() {
    for run in FencedRun::in_each_tier().await {
        write_git_settings(&run);
        let ended = run.run(OFFLINE, ["git", "config", "--global", "--list"]).await.succeeded();
        ended.assert_stdout("user.name=Ada Fenced\nuser.email=ada@fence.example\n");
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
