//! `run_terminal_cmd`: a command's output, working directory and view of the machine.

use serde_json::json;
use testkit::{Gateway, Project, wait_until};

use super::{Desk, Session};

#[tokio::test]
async fn output_and_error_come_in_order_with_the_exit_code() {
    let desk = Desk::empty().await;
    let ran = desk.ok("run_terminal_cmd", json!({"command": "echo one; echo two >&2; echo three"})).await;
    assert_eq!(ran.data["output"], "one\ntwo\nthree\n");
    assert_eq!(ran.data["status"], "exited");
    assert_eq!(ran.data["exit_code"], 0);
    assert_eq!(ran.data["output_bytes"], 14);
    assert_eq!(ran.data["omitted_bytes"], 0);
    assert_eq!(ran.data["directory"], ".");
    assert!(ran.text.starts_with("one\ntwo\nthree\n[exit code 0, "), "{}", ran.text);
}

#[tokio::test]
async fn a_command_that_fails_is_an_error_with_its_output() {
    let desk = Desk::empty().await;
    let ran = desk.call("run_terminal_cmd", json!({"command": "echo oops >&2; exit 7"})).await;
    assert!(ran.is_error());
    assert_eq!(ran.data["exit_code"], 7);
    assert!(ran.text.starts_with("oops\n[exited with code 7, "), "{}", ran.text);
    let ran = desk.call("run_terminal_cmd", json!({"command": "kill -SEGV $$"})).await;
    assert!(ran.is_error());
    assert_eq!((&ran.data["status"], &ran.data["signal"]), (&json!("signalled"), &json!("SIGSEGV")));
    assert!(ran.data.get("exit_code").is_none(), "{}", ran.data);
    let ran = desk.call("run_terminal_cmd", json!({"command": "no-such-program"})).await;
    assert_eq!(ran.data["exit_code"], 127);
    desk.refused("run_terminal_cmd", json!({"command": "  "}), "bad_arguments").await;
}

#[tokio::test]
async fn the_other_name_of_the_tool_works_the_same() {
    let desk = Desk::empty().await;
    let ran = desk.ok("sandboxed_shell", json!({"script": "printf 'a\\nb\\n' | wc -l && echo \"$0\""})).await;
    assert!(ran.data["output"].as_str().unwrap().starts_with("2\n"), "{}", ran.data);
    let ran = desk.call("sandboxed_shell", json!({"command": "exit 3"})).await;
    assert_eq!(ran.data["exit_code"], 3);
}

#[tokio::test]
async fn a_command_runs_in_the_workspace_or_in_a_directory_of_it() {
    let project = Project::new("directory");
    project.write("sub/a.txt", "x");
    let desk = Desk::open(project).await;
    assert_eq!(desk.run("pwd -P").await, desk.project.path.to_string_lossy());
    let ran = desk.ok("run_terminal_cmd", json!({"command": "ls", "cwd": "sub"})).await;
    assert_eq!((&ran.data["output"], &ran.data["directory"]), (&json!("a.txt\n"), &json!("sub")));
    let within = |directory: &str| json!({"command": "ls", "working_directory": directory});
    desk.refused("run_terminal_cmd", within("sub/a.txt"), "not_a_directory").await;
    desk.refused("run_terminal_cmd", within("missing"), "not_found").await;
    desk.refused("run_terminal_cmd", within("/etc"), "outside_workspace").await;
}

#[tokio::test]
async fn standard_input_is_closed_and_nobody_is_asked() {
    let desk = Desk::empty().await;
    assert_eq!(desk.run("cat; echo done").await, "done");
    assert_eq!(desk.run("read answer || echo nobody").await, "nobody");
    assert_eq!(desk.run("test -t 0 || test -t 1 || echo no terminal").await, "no terminal");
}

#[tokio::test]
async fn the_environment_is_the_session_s_own() {
    let project = Project::new("environment");
    let gateway = Gateway::built_in()
        .current_dir(&project.path)
        .env("SECRET_OF_THE_GATEWAY", "do not tell")
        .env("PASSED_ON", "passed")
        .flags(["--env", "PASSED_ON", "--env", "SET=set"])
        .start()
        .await;
    let (session, other) = (Session::open(&gateway).await, Session::open(&gateway).await);
    let environment = session.run("env").await;
    assert!(!environment.contains("do not tell"), "{environment}");
    assert!(environment.contains("PASSED_ON=passed") && environment.contains("SET=set"), "{environment}");
    let home = session.run("echo \"$HOME\"").await;
    assert_ne!(Some(home.as_str()), std::env::var("HOME").ok().as_deref());
    session.run("echo private > \"$HOME/note\" && echo private > \"${TMPDIR:-/tmp}/note\"").await;
    assert_eq!(session.run("cat \"$HOME/note\" \"${TMPDIR:-/tmp}/note\"").await, "private\nprivate");
    let seen = other.run(&format!("cat {home}/note \"${{TMPDIR:-/tmp}}/note\" 2>&1; ls \"$HOME\"")).await;
    assert!(!seen.contains("private"), "{seen}");
}

#[tokio::test]
async fn commands_write_only_in_the_workspace_and_read_no_keys() {
    let desk = Desk::empty().await;
    let outside = Project::new("outside");
    outside.write("key", "a secret\n");
    let path = outside.path.display();
    let ran = desk.run_to_end(&format!("cat {path}/key; echo x > {path}/new; echo tried")).await;
    let output = ran.data["output"].as_str().unwrap();
    assert!(output.ends_with("tried\n") && !output.contains("a secret"), "{output}");
    assert!(!outside.has("new"));
    desk.run("echo inside > new").await;
    assert_eq!(desk.project.text("new"), "inside\n");
}

#[tokio::test]
async fn of_a_long_output_beginning_and_end_are_shown() {
    let desk = Desk::empty().await;
    let ran = desk.run_to_end("seq 1 100000; echo last >&2").await;
    let output = ran.data["output"].as_str().unwrap();
    assert!(output.starts_with("1\n2\n3\n"), "{}", &output[..100]);
    assert!(output.ends_with("99999\n100000\nlast\n"), "{}", &output[output.len() - 100..]);
    assert_eq!(ran.data["output_bytes"], 588_895 + 5);
    let omitted = ran.data["omitted_bytes"].as_u64().unwrap();
    assert!(omitted > 400_000, "{omitted}");
    assert!(output.contains(&format!("[... {omitted} bytes left out here ...]")), "the gap is marked");
    assert!(output.len() < 140_000, "{}", output.len());
}

#[tokio::test]
async fn colours_and_progress_bars_are_shown_as_a_terminal_would_leave_them() {
    let desk = Desk::empty().await;
    let shown = desk.run(r"printf '\033[31mred\033[0m\n10%%\r100%%\n'").await;
    assert_eq!(shown, "red\n100%");
}

#[tokio::test]
async fn everything_that_a_session_started_ends_with_it() {
    let desk = Desk::empty().await;
    let arguments =
        json!({"command": "sleep 10000 & setsid sleep 10000 & sleep 10000", "is_background": true});
    desk.ok("run_terminal_cmd", arguments).await;
    wait_until("the command has begun", async || sleepers(&desk.gateway).len() == 3).await;
    assert!(desk.client.delete().await.status.is_success());
    wait_until("nothing is left", async || desk.gateway.descendants().is_empty()).await;
}

/// The `sleep` processes below the gateway.
pub(super) fn sleepers(gateway: &Gateway) -> Vec<u32> {
    let is_sleep = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim_end() == "sleep"
    };
    gateway.descendants().into_iter().filter(is_sleep).collect()
}

#[tokio::test]
async fn a_command_that_the_fence_stopped_says_so_and_names_the_option() {
    let project = Project::new("refused-by-fence");
    project.git(&["init", "--quiet"]);
    let desk = Desk::with_flags(project, &["--net", "none"]).await;
    for (command, said) in [
        ("touch /usr/share/planted", "--write DIR"),
        ("python3 -c \"open('/usr/share/planted', 'w')\"", "--write DIR"),
        ("echo x > .git/hooks/post-commit", "--allow-metadata .git"),
        ("mkdir .vscode/x", "--allow-metadata .vscode"),
        ("git clone https://example.org/x.git", "--net"),
    ] {
        let ran = desk.call("run_terminal_cmd", json!({"command": command, "wait_seconds": 45})).await;
        assert!(
            ran.is_error() && ran.text.contains("[ringfence: ") && ran.text.contains(said),
            "{}",
            ran.text
        );
    }
    // The control: what fails for another reason is not blamed on the fence.
    for command in ["cat missing", "mkdir a && chmod 0 a && false", "python3 -c 'raise SystemExit(3)'"] {
        let ran = desk.call("run_terminal_cmd", json!({"command": command, "wait_seconds": 45})).await;
        assert!(ran.is_error() && !ran.text.contains("ringfence"), "{}", ran.text);
    }
}
