//! The shell of a session cannot reach the server that started it: neither its output nor its memory nor its
//! limits, and not by a signal. As a control, the same commands reach a child of the shell.

use serde_json::json;

use super::ground::{Ground, INSIDE, Server, tiers};

/// Printed by an attempt that succeeded.
const REACHED: &str = "REACHED-it";

/// Attempts on the process `$p`, each harmless enough to try on the server. None traces, because the fence forbids
/// all tracing and there could be no control; the kernel guards memory maps and descriptors by the same check.
const ATTEMPTS: &[(&str, &str)] = &[
    ("write to its output", r#"printf '{"jsonrpc":"2.0","id":"forged","result":{}}\n' >> /proc/$p/fd/1"#),
    ("signal", "kill -0 $p"),
    ("wake", "kill -CONT $p"),
    ("see its files", "readlink /proc/$p/fd/1"),
    ("read its memory map", "test -n \"$(cat /proc/$p/maps)\""),
    ("read its environment", "test -n \"$(tr -d '\\0' < /proc/$p/environ)\""),
];

async fn output_of(server: &mut Server, script: &str) -> String {
    let arguments = json!({ "command": script, "wait_seconds": 45 });
    let result = server.call("run_terminal_cmd", arguments).await;
    result["structuredContent"]["output"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

async fn assert_out_of_reach(server: &mut Server, title: &str) {
    // The server is the parent of its shells; its pid keeps the attempts away from the processes of other tests.
    let found = output_of(server, "echo $PPID; tr '\\0' ' ' < /proc/$PPID/cmdline").await;
    let (pid, command) = found.split_once('\n').unwrap_or_else(|| panic!("{title}: {found}"));
    assert!(command.contains("ringfence workspace"), "{title}: {found}");
    for (what, attempt) in ATTEMPTS {
        let output = output_of(server, &format!("p={pid}\n{attempt} && echo {REACHED}")).await;
        assert!(!output.contains(REACHED), "{title}: {what}: {output}");
        // The control: the same attempt on a child of the shell.
        let own = format!(
            "sleep 60 > own-output & p=$!\n\
             until read -r name < /proc/$p/comm && test \"$name\" = sleep; do :; done\n\
             {attempt} && echo {REACHED}; kill $p"
        );
        let output = output_of(server, &own).await;
        assert!(output.contains(REACHED), "{title}: {what}, on a process of its own: {output}");
    }
    assert_eq!(server.ok("read_file", json!({ "path": "f" })).await["content"], INSIDE, "{title}");
}

/// The fence forbids a process to change the limits of another, even of a child; it may lower its own.
#[tokio::test]
async fn the_shell_cannot_lower_the_limits_of_the_server() {
    for tier in tiers() {
        let ground = Ground::new("shell-limits");
        let mut server = ground.fenced(&tier).await;
        for limit in ["--nofile=512:512", "--core=0:0"] {
            let output =
                output_of(&mut server, &format!("prlimit --pid $PPID {limit} && echo {REACHED}")).await;
            assert!(!output.contains(REACHED), "{tier:?} {limit}: {output}");
            let own = format!("prlimit {limit} true && echo {REACHED}");
            let output = output_of(&mut server, &own).await;
            assert!(output.contains(REACHED), "{tier:?} {limit}, on itself: {output}");
        }
    }
}

#[tokio::test]
async fn the_shell_cannot_reach_the_server_that_started_it() {
    for tier in tiers() {
        let ground = Ground::new("shell-reach");
        let mut server = ground.fenced(&tier).await;
        assert_out_of_reach(&mut server, &format!("{tier:?}")).await;
    }
}

#[tokio::test]
async fn the_shell_cannot_leave_the_workspace() {
    for tier in tiers() {
        let ground = Ground::new("shell-writes");
        let before = ground.outside();
        let mut server = ground.fenced(&tier).await;
        for command in [
            "echo x > ../outside/f",
            "rm ../outside/f",
            "ln -s ../outside l && echo x > l/new",
            "cd ../outside && touch new",
        ] {
            let result = server.call("run_terminal_cmd", json!({ "command": command })).await;
            assert_eq!(result["isError"], true, "{tier:?} {command}: {result}");
        }
        assert_eq!(ground.outside(), before, "{tier:?}");
        server.ok("run_terminal_cmd", json!({ "command": "echo x > dir/new" })).await;
        assert!(ground.inside("dir/new").exists());
    }
}
