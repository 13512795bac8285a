//! A shell, git, Python and Node run by a plain user, even if root runs the tests.

use crate::fence::escapes::ground::{callers, copy_program};

use super::fenced_run::FencedRun;

async fn runs_of_plain_users() -> Vec<FencedRun> {
    let mut runs = Vec::new();
    for caller in callers().into_iter().filter(|caller| !caller.is_root()) {
        for tier in ["a", "b"] {
            runs.push(FencedRun::new(tier, caller).await);
        }
    }
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_user_has_a_shell_git_python_and_node() {
    for run in runs_of_plain_users().await {
        let settings = "[user]\n\tname = Plain\n\temail = plain@fence.example\n";
        std::fs::write(run.ground.home().join(".gitconfig"), settings).unwrap();
        copy_program(&testkit::node_binary(), &run.ground.programs()).await;
        run.ground.belongs_to_caller();
        for options in [&["--net", "none"][..], &["--net", "all"], &["--read-mode", "strict"]] {
            let script = "echo text > file && (sort file | cat) && stat -c %u file > owner && \
                          test \"$(cat owner)\" = \"$(id -u)\" && echo owned";
            run.sh(options, script).await.succeeded().assert_stdout("text\nowned\n");

            let script = "rm -rf repository && git init --quiet repository && cd repository && \
                          git commit --quiet --allow-empty --message first && git log --format='%an %s'";
            run.sh(options, script).await.succeeded().assert_stdout("Plain first\n");

            let script = "import subprocess, sqlite3, tempfile
with tempfile.NamedTemporaryFile('w+') as file:
    print(file.write('text'), subprocess.check_output(['echo', 'child'], text=True), end='')";
            run.run(options, ["python3", "-c", script]).await.succeeded().assert_stdout("4 child\n");

            let node = run.ground.programs().join("node");
            let script = "const { execFileSync } = require('child_process');
                fs.writeFileSync(fs.mkdtempSync(os.tmpdir() + '/x-') + '/file', 'text');
                console.log(execFileSync('echo', ['child']).toString().trim(), crypto.randomUUID().length)";
            let node = run.run(options, [node.to_str().unwrap(), "-e", script]).await.succeeded();
            node.assert_stdout("child 36\n");
        }
    }
}
