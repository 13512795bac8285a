//! Shell scripts, exit codes, and the files that commands leave.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

use tokio::process::Command;

use super::fenced_run::FencedRun;

const OFFLINE: &[&str] = &["--net", "none"];

#[tokio::test(flavor = "multi_thread")]
async fn pipelines_redirections_here_documents_and_jobs_work() {
    let script = "set -e
        printf 'b\\na\\nb\\n' | sort | uniq -c | tr -s ' ' > counted
        cat counted
        echo discarded > /dev/null
        ls /nonexistent 2> /dev/null || echo absent
        echo to stderr > /dev/stderr
        echo to stdout > /dev/stdout
        cat <<END
here is $((40 + 2))
END
        (echo one > first) & (echo two > second) & wait
        cat first second
        (exit 7) & wait $! || echo job $?
        head -c 10 /dev/zero | wc -c
        head -c 10 /dev/urandom | wc -c
        mkfifo fifo; echo through a fifo > fifo & cat fifo";
    for run in FencedRun::in_each_tier().await {
        let ended = run.sh(OFFLINE, script).await.succeeded();
        ended.assert_stdout(
            " 1 a\n 2 b\nabsent\nto stdout\nhere is 42\none\ntwo\njob 7\n10\n10\nthrough a fifo\n",
        );
        assert!(ended.stderr.contains("to stderr\n"), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_bash_has_works_too() {
    let script = "set -o pipefail
        diff <(echo same) <(echo same) && echo no difference
        echo split | tee >(tr a-z A-Z > upper) > /dev/null
        cat <<< 'here string'
        false | true || echo pipe ${PIPESTATUS[*]}
        coproc cat; echo to a coprocess >&${COPROC[1]}; read -r line <&${COPROC[0]}; echo \"$line\"
        time -p true 2> /dev/null
        echo $((2 ** 10)) ${BASH_VERSINFO[0]} | cut -d ' ' -f 1";
    for run in FencedRun::in_each_tier().await {
        let ended = run.run(OFFLINE, ["bash", "-c", script]).await.succeeded();
        ended.assert_stdout("no difference\nhere string\npipe 1 0\nto a coprocess\n1024\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxed_shell_runs_a_script_in_its_working_directory() {
    for run in FencedRun::in_each_tier().await {
        let chained = run.sandboxed_shell(OFFLINE, "mkdir made && cd made && pwd && touch file").await;
        let made = run.in_scope("made");
        chained.succeeded().assert_stdout(&format!("{}\n", made.display()));
        assert!(made.join("file").is_file());
        run.sandboxed_shell(OFFLINE, "false && echo never").await.assert_code(1);
        run.sandboxed_shell(OFFLINE, "echo a | grep -q b").await.assert_code(1);
        run.sandboxed_shell(OFFLINE, "false | exit 5").await.assert_code(5);
        let outside = run.ground.outside().join("file");
        let denied = run.sandboxed_shell(OFFLINE, &format!("echo x > {}", outside.display())).await;
        assert!(denied.code.is_some_and(|code| code != 0) && !outside.exists(), "{denied:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_is_the_commands_own() {
    for run in FencedRun::in_each_tier().await {
        for (script, code) in [
            ("exit 0", 0),
            ("exit 3", 3),
            ("exit 126", 126),
            ("exit 255", 255),
            ("kill -KILL $$", 137),
            ("kill -TERM $$", 143),
            ("kill -INT $$", 130),
            ("nonexistent-command", 127),
        ] {
            let ended = run.sh(OFFLINE, script).await;
            assert_eq!(ended.code, Some(code), "{script}: {ended:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_has_a_code_of_its_own_and_a_hint() {
    for run in FencedRun::in_each_tier().await {
        run.write_in_scope("not-executable", "text");
        let cases: [(&[&str], &str, i32); 4] = [
            (&[], "./not-executable", 126),
            (&[], "./nonexistent", 127),
            (&[], "nonexistent-command", 127),
            (&["--scope", "/nonexistent"], "true", 125),
        ];
        for (options, program, code) in cases {
            let ended = run.run(&[OFFLINE, options].concat(), [program]).await;
            assert_eq!(ended.code, Some(code), "{program}: {ended:?}");
            assert!(ended.stderr.contains("ringfence: ") && ended.stderr.contains("hint: "), "{ended:?}");
            ended.assert_stdout("");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_without_its_interpreter_cannot_be_started() {
    for run in FencedRun::in_each_tier().await {
        run.write_in_scope("script", "#!/nonexistent/interpreter\n");
        let script = run.in_scope("script");
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        let ended = run.run(OFFLINE, ["./script"]).await;
        assert!(matches!(ended.code, Some(126 | 127)), "{ended:?}");
        assert!(ended.stderr.contains("ringfence: "), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_have_the_callers_umask_and_owner() {
    let owner = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    for run in FencedRun::in_each_tier().await {
        for (umask, file_mode, directory_mode) in [("027", 0o640, 0o750), ("002", 0o664, 0o775)] {
            let (file, directory) = (format!("file-{umask}"), format!("directory-{umask}"));
            let inside = format!("umask && : > {file} && mkdir {directory}");
            let fenced = run.command(OFFLINE, ["sh", "-c", &inside]);
            // A shell sets the umask, because no safe API sets it for a child.
            let mut caller = Command::new("sh");
            caller.arg("-c").arg(format!("umask {umask}; exec \"$@\"")).arg("sh");
            caller.arg(fenced.as_std().get_program()).args(fenced.as_std().get_args());
            for (name, value) in fenced.as_std().get_envs() {
                caller.env(name, value.unwrap_or_default());
            }
            caller.current_dir(run.ground.scope()).kill_on_drop(true);
            caller.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let ended = run.finish(caller).await.succeeded();
            ended.assert_stdout(&format!("0{umask}\n"));
            for (name, mode) in [(file, file_mode), (directory, directory_mode)] {
                let metadata = run.in_scope(&name).metadata().unwrap();
                assert_eq!(metadata.mode() & 0o7777, mode, "{name}: {ended:?}");
                assert_eq!((metadata.uid(), metadata.gid()), (owner, group), "{name}: {ended:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_links_and_renames_are_kept_in_the_scope() {
    let script = "set -e
        mkdir -p tree/a/b
        echo text > tree/a/b/file
        chmod 755 tree/a/b/file
        ln tree/a/b/file tree/hard
        ln -s a/b/file tree/soft
        mv tree/a tree/moved
        mv tree/moved/b tree/b
        cat tree/hard
        readlink tree/soft
        stat -c '%a %h' tree/b/file
        touch -d '2001-02-03 04:05:06 UTC' tree/b/file
        TZ=UTC stat -c %y tree/b/file | cut -c 1-19
        tar -cf archive.tar tree && mkdir out && tar -xf archive.tar -C out && cat out/tree/b/file
        cp -a tree copy && rm -r tree && test -L copy/soft && echo copied";
    for run in FencedRun::in_each_tier().await {
        let ended = run.sh(OFFLINE, script).await.succeeded();
        ended.assert_stdout("text\na/b/file\n755 2\n2001-02-03 04:05:06\ntext\ncopied\n");
    }
}
