//! Programs under strict reads, with private temporary files, and without any.

use testkit::{node_binary, python_binary};

use super::fenced_run::FencedRun;

const STRICT: &[&str] = &["--net", "none", "--read-mode", "strict"];
const NO_TEMPORARY_FILES: &[&str] = &["--net", "none", "--no-temp-files"];

#[tokio::test(flavor = "multi_thread")]
async fn programs_start_with_strict_reads_wherever_they_are_installed() {
    for run in FencedRun::in_each_tier().await {
        let node = node_binary();
        let sum = run.run(STRICT, [node.to_str().unwrap(), "-p", "require('os').cpus().length > 0"]).await;
        sum.succeeded().assert_stdout("true\n");
        run.run(STRICT, ["node", "-p", "1 + 1"]).await.succeeded().assert_stdout("2\n");
        let python = python_binary();
        let script = "import json, sqlite3, ssl, mcp; print('imported')";
        let imported = run.run(STRICT, [python.to_str().unwrap(), "-c", script]).await;
        imported.succeeded().assert_stdout("imported\n");
        let git = run.run(STRICT, ["git", "init", "--quiet", "repository"]).await.succeeded();
        assert!(run.in_scope("repository/.git/HEAD").is_file(), "{git:?}");
        let script = "echo text > file && sort file | tr a-z A-Z && id -u > /dev/null && date > /dev/null";
        run.sh(STRICT, script).await.succeeded().assert_stdout("TEXT\n");
        let npx = run.run(STRICT, ["npx", "--version"]).await.succeeded();
        assert!(npx.stdout.contains('.'), "{npx:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_reads_stop_at_other_projects_and_the_home() {
    for run in FencedRun::in_each_tier().await {
        let (project, note) = (run.ground.outside().join("source"), run.ground.home().join("note"));
        std::fs::write(&project, "another project\n").unwrap();
        std::fs::write(&note, "of the caller\n").unwrap();
        run.write_in_scope("own", "own\n");
        run.ground.belongs_to_caller();
        let script = format!(
            "cat own; for file in '{}' '{}'; do cat \"$file\" || echo refused; done; ls '{}' | grep note || echo refused",
            project.display(),
            note.display(),
            run.ground.home().display()
        );
        let strict = run.sh(STRICT, &script).await.succeeded();
        strict.assert_stdout("own\nrefused\nrefused\nrefused\n");
        let named = ["--read", project.to_str().unwrap()];
        let strict = run.sh(&[STRICT, &named].concat(), &script).await.succeeded();
        strict.assert_stdout("own\nanother project\nrefused\nrefused\n");
        let open = run.sh(&["--net", "none", "--read-mode", "open"], &script).await.succeeded();
        assert!(open.stdout.starts_with("own\nanother project\nof the caller\n"), "{open:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_files_are_private_and_gone_afterwards() {
    for run in FencedRun::in_each_tier().await {
        let script = "set -e; file=$(mktemp); echo text > \"$file\"; cat \"$file\"; echo \"$TMPDIR\"; \
                      test \"$TMPDIR\" = \"$TMP\" && test \"$TMPDIR\" = \"$TEMP\"; echo \"$file\"; \
                      cp /bin/true \"$TMPDIR/program\"; \"$TMPDIR/program\" && echo executed";
        let ended = run.sh(&["--net", "none"], script).await.succeeded();
        let lines: Vec<&str> = ended.stdout.lines().collect();
        let [text, directory, file, executed] = lines[..] else { panic!("{ended:?}") };
        assert_eq!((text, executed), ("text", "executed"), "{ended:?}");
        assert!(file.starts_with(directory) && !std::path::Path::new(file).exists(), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_temporary_files_writing_one_fails_and_memory_files_work() {
    for run in FencedRun::in_each_tier().await {
        let mktemp = run.run(NO_TEMPORARY_FILES, ["mktemp"]).await;
        mktemp.assert_code(1);
        let script = "echo \"${TMPDIR-unset} ${TMP-unset} ${TEMP-unset}\"
            for directory in /tmp /var/tmp /dev/shm; do
                (echo x > $directory/ringfence-no-temp) 2> /dev/null || echo refused
            done";
        let written = run.sh(NO_TEMPORARY_FILES, script).await.succeeded();
        written.assert_stdout("unset unset unset\nrefused\nrefused\nrefused\n");
        let node = "try { fs.mkdtempSync(os.tmpdir() + '/x-') } catch (error) { console.log(error.code) }";
        let expected = if run.tier == "a" { "EACCES\n" } else { "EROFS\n" };
        let node = run.run(NO_TEMPORARY_FILES, ["node", "-e", node]).await.succeeded();
        node.assert_stdout(expected);
        let memory = "import os
descriptor = os.memfd_create('x')
os.write(descriptor, open('/bin/true', 'rb').read())
os.set_inheritable(descriptor, True)
print(os.spawnv(os.P_WAIT, f'/proc/self/fd/{descriptor}', ['true']))";
        let memory = run.run(NO_TEMPORARY_FILES, ["python3", "-c", memory]).await.succeeded();
        memory.assert_stdout("0\n");
    }
}

/// The finding: agents' and database credentials were readable with open reads, which were the default of `run`.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_agents_and_databases_cannot_be_read() {
    const FILES: [&str; 6] = [
        ".claude/.credentials.json",
        ".claude.json",
        ".codex/auth.json",
        ".gemini/oauth_creds.json",
        ".config/github-copilot/hosts.json",
        ".pgpass",
    ];
    for run in FencedRun::in_each_tier().await {
        let home = run.ground.home();
        for name in FILES.iter().chain(&["plain.txt"]) {
            let path = home.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "content\n").unwrap();
        }
        run.ground.belongs_to_caller();
        for name in FILES {
            let path = home.join(name);
            for mode in ["open", "strict"] {
                let ended =
                    run.run(&["--net", "none", "--read-mode", mode], ["cat", path.to_str().unwrap()]).await;
                assert!(ended.code != Some(0) && ended.stdout.is_empty(), "{name}, {mode}: {ended:?}");
            }
        }
        let plain = home.join("plain.txt");
        let options = ["--net", "none", "--read-mode", "open", "--read", plain.to_str().unwrap()];
        let control = run.run(&options, ["cat", plain.to_str().unwrap()]).await.succeeded();
        control.assert_stdout("content\n");
    }
}

/// The finding: a file of the scope could be denied, and was readable again after an editor had saved it.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_scope_is_not_called_denied_if_that_does_not_last() {
    for run in FencedRun::in_each_tier().await {
        run.write_in_scope(".env", "SECRET\n");
        let denied = run.in_scope(".env");
        let options = ["--net", "none", "--deny-read", denied.to_str().unwrap()];
        let refused = run.run(&options, ["cat", ".env"]).await;
        refused.assert_code(125);
        assert!(refused.stderr.contains("deny_read") && refused.stderr.contains("hint: "), "{refused:?}");
        if run.tier == "b" {
            let accepted = [&options[..], &["--allow-degraded", "deny_read", "--report", "--json"]].concat();
            let ended = run.run(&accepted, ["cat", ".env"]).await;
            assert!(!ended.stdout.contains("SECRET"), "{ended:?}");
            let report = ended.report();
            let protections = report["protections"].as_array().unwrap();
            let status = protections.iter().find(|protection| protection["name"] == "deny_read").unwrap();
            assert_eq!(status["status"], "partial", "{report}");
        }
    }
}
