//! The command line: exit codes, hints, the line with the address, and logs.

use std::ffi::OsStr;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use testkit::{
    Gateway, NEWEST, RawClient, descendants, fixture_binary, ringfence_binary, wait_until, within_deadline,
    workspace_dir,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

fn ringfence(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(ringfence_binary());
    command
        .args(arguments)
        .env_remove("SURELY_ABSENT")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs ringfence until it exits.
async fn run(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    let child = ringfence(arguments).spawn().unwrap();
    within_deadline("ringfence exits", child.wait_with_output()).await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Asserts the exit code, that nothing is on stdout, and that stderr has all of `parts`.
async fn assert_fails(arguments: &[&OsStr], code: i32, parts: &[&str]) {
    let output = run(arguments).await;
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
    for part in parts {
        assert!(stderr.contains(part), "{arguments:?}: no {part:?} in {stderr}");
    }
}

/// A running ringfence, and the first line it printed.
struct Started {
    child: Child,
    stdout: BufReader<ChildStdout>,
    first_line: String,
}

impl Started {
    async fn new(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let mut command = ringfence(arguments);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut first_line = String::new();
        within_deadline("the first line is printed", stdout.read_line(&mut first_line)).await.unwrap();
        Self { child, stdout, first_line }
    }

    fn event(&self) -> Value {
        serde_json::from_str(&self.first_line).unwrap_or_else(|error| panic!("{error}: {}", self.first_line))
    }

    async fn client(&self) -> RawClient {
        let mut client = RawClient::new(self.event()["url"].as_str().unwrap());
        client.open(json!({}), NEWEST).await;
        client
    }

    /// Ends it with SIGTERM and returns the rest of its stdout.
    async fn end(mut self) -> String {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut rest = String::new();
        within_deadline("stdout ends", self.stdout.read_to_string(&mut rest)).await.unwrap();
        let status = within_deadline("ringfence exits", self.child.wait()).await.unwrap();
        assert_eq!(status.code(), Some(0));
        rest
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_arguments_are_named_with_a_hint_and_exit_code_2() {
    let directory = workspace_dir("command-line");
    let plain_file = directory.join("server.sh");
    std::fs::write(&plain_file, "#!/bin/sh\n").unwrap();
    let (plain, plain_text) = (plain_file.as_os_str(), plain_file.to_str().unwrap());
    let fixture = fixture_binary();
    let fixture = fixture.to_str().unwrap();
    let cases: &[(&[&str], &[&str])] = &[
        (&["serve", "--block-tool", "reed_file"], &["there is no tool `reed_file`", "hint: "]),
        (&["serve", "--durable-writes", "--", fixture], &["options of the built-in server", "hint: leave"]),
        (&[], &["error: nothing to do", "hint: ringfence --help"]),
        (
            &["serve", "--", "no-such-program-anywhere"],
            &["`no-such-program-anywhere`: no such program", "hint: install"],
        ),
        (&["serve", "--", "/no/such/program"], &["`/no/such/program`: no such program", "hint: "]),
        (&["--mode", "stdio", "--", "no-such-program-anywhere"], &["no such program", "hint: install"]),
        (&["serve", "--", plain_text], &["the file is not executable", "hint: make it executable: chmod +x"]),
        (
            &["serve", "--host", "0.0.0.0", "--", fixture],
            &["refusing to listen on 0.0.0.0", "hint: anybody who reaches the address", "--auth-token-file"],
        ),
        (&["serve", "--host", "::", "--", fixture], &["refusing to listen on ::", "hint: "]),
        (&["serve", "--host", "192.0.2.1", "--", fixture], &["refusing to listen on 192.0.2.1", "hint: "]),
        (
            &["--mode", "http", "--http-host", "0.0.0.0", "--", fixture],
            &["refusing to listen on 0.0.0.0", "hint: "],
        ),
        (&["serve", "--env", "SURELY_ABSENT", "--", fixture], &["--env SURELY_ABSENT", "hint: set it"]),
        (&["serve", "--shared", "--session-isolation", "--", fixture], &["cannot be used with"]),
        (&["serve", "--timeout", "0", "--", fixture], &["--timeout", "number of seconds"]),
        (&["serve", "--port", "70000", "--", fixture], &["--port"]),
        (
            &["serve", "--allowed-origin", "app.example", "--", fixture],
            &["--allowed-origin", "https://app.example"],
        ),
        (&["serve", "--allowed-host", "user@host", "--", fixture], &["--allowed-host"]),
        (&["serve", "--no-such-flag", "--", fixture], &["--no-such-flag"]),
        (&["frobnicate"], &["frobnicate"]),
        (&["srve"], &["'srve'", "a similar command exists: 'ringfence serve'"]),
        (&["sesions", "list"], &["'ringfence sessions'"]),
        (&["serve", "--prot", "1"], &["a similar argument exists: '--port'"]),
        (
            &["serve", "--port", "0", "npx", "-y", "some-server"],
            &["comes after '--': 'ringfence serve --port 0 -- npx -y some-server'"],
        ),
        (&["run", "ls", "-l"], &["'ringfence run -- ls -l'"]),
    ];
    for (arguments, parts) in cases {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        assert_fails(&arguments, 2, parts).await;
    }
    assert_fails(&["serve".as_ref(), "--".as_ref(), plain], 2, &[plain_text]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_port_is_named_with_a_hint_and_exit_code_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let fixture = fixture_binary();
    let arguments = ["serve".as_ref(), "--port".as_ref(), port.as_ref(), "--".as_ref(), fixture.as_os_str()];
    let hint = format!("hint: port {port} is taken; choose another with --port");
    assert_fails(&arguments, 1, &["error: cannot listen on 127.0.0.1:", &hint]).await;
    drop(taken);
    let started = Started::new(arguments).await;
    assert!(started.first_line.contains(&format!(":{port}/mcp")), "{}", started.first_line);
    started.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_loopback_address_may_be_bound() {
    for host in ["localhost", "127.0.0.2"] {
        let fixture = fixture_binary();
        let started = Started::new(
            ["serve", "--host", host, "--port", "0", "--json", "--"]
                .map(OsStr::new)
                .into_iter()
                .chain([fixture.as_os_str()]),
        )
        .await;
        let client = started.client().await;
        assert_eq!(client.call_tool_for_text("echo", json!({"text": host})).await, host);
        started.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_is_printed_on_one_line_of_text() {
    let fixture = fixture_binary();
    let started = Started::new(["serve", "--port", "0", "--", fixture.to_str().unwrap()]).await;
    let line = &started.first_line;
    let port: u16 = line
        .strip_prefix("ringfence listening on http://127.0.0.1:")
        .and_then(|rest| rest.strip_suffix("/mcp   (health: /health)\n"))
        .and_then(|port| port.parse().ok())
        .unwrap_or_else(|| panic!("{line:?}"));
    assert_ne!(port, 0);
    let client = RawClient::new(format!("http://127.0.0.1:{port}/mcp"));
    assert_eq!(client.get_stream(None).path("/health").await.raw, b"OK");
    assert_eq!(started.end().await, "", "one line and nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_is_printed_on_one_line_of_json() {
    let fixture = fixture_binary();
    let started = Started::new(["serve", "--port", "0", "--json", "--", fixture.to_str().unwrap()]).await;
    let event = started.event();
    let url = event["url"].as_str().unwrap();
    let base = url.strip_suffix("/mcp").unwrap_or_else(|| panic!("{event}"));
    assert_eq!(event["event"], "listening");
    assert_eq!(event["health"].as_str().unwrap(), format!("{base}/health"));
    assert_eq!((&event["lifecycle"], &event["pid"]), (&json!("session"), &json!(started.child.id())));
    assert_eq!(started.end().await, "", "one line and nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_founding_http_command_line_shares_unless_told_to_isolate() {
    for (isolation, lifecycle) in [(None, "shared"), (Some("--session-isolation"), "session")] {
        let fixture = fixture_binary();
        let arguments = ["--mode", "http", "--http-port", "0", "--json", "--unfenced"];
        let arguments = arguments.into_iter().chain(isolation);
        let arguments = arguments.chain(["--", fixture.to_str().unwrap()]);
        let started = Started::new(arguments).await;
        assert_eq!(started.event()["lifecycle"], lifecycle);
        let (first, second) = (started.client().await, started.client().await);
        assert_ne!(first.session_id(), second.session_id());
        let pids = [
            first.call_tool_for_text("pid", json!({})).await,
            second.call_tool_for_text("pid", json!({})).await,
        ];
        assert_eq!(pids[0] == pids[1], lifecycle == "shared", "{pids:?}");
        started.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_isolates_unless_told_to_share() {
    for (flag, lifecycle) in
        [(None, "session"), (Some("--session-isolation"), "session"), (Some("--shared"), "shared")]
    {
        let gateway = Gateway::unfenced().flags(flag).start().await;
        assert_eq!(gateway.listening_event()["lifecycle"], lifecycle);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_founding_stdio_command_line_speaks_on_its_own_pipes() {
    let fixture = fixture_binary();
    let mut command = ringfence(["--mode", "stdio", "--", fixture.to_str().unwrap()]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": NEWEST, "capabilities": {}}});
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(format!("{initialize}\n").as_bytes()).await.unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    within_deadline("initialize is answered", stdout.read_line(&mut line)).await.unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(answer["result"]["serverInfo"]["name"], "ringfence-fixture");
    drop(stdin);
    assert_eq!(within_deadline("ringfence exits", child.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn help_shows_examples_and_every_flag_that_the_documentation_promises() {
    let cases: &[(&[&str], &[&str])] = &[
        (
            &["--help"],
            &["Examples:", "ringfence serve -- npx", "Exit codes:", "--mode", "serve", "completions"],
        ),
        (
            &["serve", "--help-all"],
            &[
                "Examples:",
                "ringfence serve --shared",
                "--host",
                "--port",
                "--session-isolation",
                "--shared",
                "--timeout",
                "--max-timeout",
                "--env",
                "--allowed-host",
                "--allowed-origin",
                "--log-format",
                "COMMAND",
            ],
        ),
    ];
    for (arguments, parts) in cases {
        let output = run(*arguments).await;
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
        let help = text(&output.stdout);
        for part in *parts {
            assert!(help.contains(part), "{arguments:?}: no {part:?} in {help}");
        }
    }
    let version = run(["--version"]).await;
    assert_eq!(text(&version.stdout), concat!("ringfence ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_are_printed_for_a_shell() {
    for (shell, part) in
        [("bash", "complete -F _ringfence"), ("zsh", "#compdef ringfence"), ("fish", "complete -c ringfence")]
    {
        let output = run(["completions", shell]).await;
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = text(&output.stdout);
        for part in [part, "session-isolation", "help-all"] {
            assert!(script.contains(part), "{shell}: no {part} in {script}");
        }
    }
    assert_fails(&["completions".as_ref(), "tcsh".as_ref()], 2, &["tcsh"]).await;
}

/// Loads the completions into a shell as a user does, and returns what it offers for the last word.
const COMPLETE_IN_BASH: &str = r#"
source /dev/stdin
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_ringfence "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_completes_the_options_that_only_help_all_shows_and_help_all_itself() {
    let script = run(["completions", "bash"]).await.stdout;
    for (line, offered) in [
        ("ringfence serve --help", "--help-all\n--help\n"),
        ("ringfence --help-", "--help-all\n"),
        ("ringfence serve --park", "--park-after\n"),
        ("ringfence serve --nothing-begins-so", "\n"),
    ] {
        let mut bash = Command::new("bash");
        bash.args(["-c", COMPLETE_IN_BASH, "bash"]).args(line.split(' '));
        let mut bash = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        bash.stdin.take().unwrap().write_all(&script).await.unwrap();
        let ended = within_deadline("bash exits", bash.wait_with_output()).await.unwrap();
        assert_eq!(text(&ended.stdout), offered, "{line}");
    }
}

/// Runs a session that triggers almost every log message; returns its id.
async fn live_through_everything(gateway: &Gateway) -> String {
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    let id = client.session_id().unwrap().to_owned();
    client.call_tool_for_text("echo", json!({"text": "x"})).await;
    client.respond(&json!(77), json!({})).await;
    client.post("nonsense").await;
    client.call_tool_for_text("raw_stdout", json!({"line": "garbage"})).await;
    client.call_tool_for_text("stderr_flood", json!({"bytes": 100})).await;
    client.call_tool("sleep", json!({"ms": 3_600_000})).await;
    client.call_tool("crash", json!({"stderr": "last words\n"})).await;
    client.call_tool_for_text("echo", json!({"text": "x"})).await;
    client.get_stream(Some("99-99")).await;
    client.delete().await;
    client.post_request(&json!(1), "ping", None).await;
    gateway.wait_for_log("session ended").await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_in_json_are_one_object_per_line() {
    let mut gateway = Gateway::unfenced()
        .flags(["--log-format", "json", "--log-level", "debug", "--timeout", "5"])
        .start()
        .await;
    live_through_everything(&gateway).await;
    gateway.terminate().await;
    let log = gateway.log();
    assert!(log.lines().count() > 5, "{log}");
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(entry["level"].is_string() && entry["timestamp"].is_string(), "{line}");
        assert!(entry["message"].is_string(), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_hold_neither_session_ids_nor_values_of_variables() {
    for format in ["text", "json"] {
        let mut gateway = Gateway::unfenced()
            .flags(["--log-format", format, "--log-level", "debug", "--timeout", "5"])
            .flags(["--env", "TOKEN=hunter2", "--env", "PASSED"])
            .env("PASSED", "hunter2")
            .start()
            .await;
        let id = live_through_everything(&gateway).await;
        gateway.terminate().await;
        let log = gateway.log();
        assert!(log.contains("session opened") && log.contains("s-"), "a handle is shown instead: {log}");
        assert!(log.contains("last words") && log.contains("timed out"), "all of it was logged: {log}");
        for part in [id.as_str(), &id[..8], &id[24..], "hunter2"] {
            assert!(!log.contains(part), "{format}: {part} in {log}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_level_leaves_out_what_is_less_severe() {
    let mut quiet = Gateway::unfenced().flags(["--log-level", "error"]).start().await;
    let mut client = quiet.client();
    client.open(json!({}), NEWEST).await;
    client.call_tool("crash", json!({"stderr": "last words\n"})).await;
    quiet.wait_for_log("exited with code 3").await;
    quiet.terminate().await;
    assert!(!quiet.log().contains("INFO"), "{}", quiet.log());
    let usual = Gateway::unfenced().start().await;
    usual.client().open(json!({}), NEWEST).await;
    usual.wait_for_log("INFO").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_found_on_the_path_that_the_server_gets() {
    let fixture = fixture_binary();
    let path = format!("--env=PATH={}", fixture.parent().unwrap().display());
    assert_fails(&["serve".as_ref(), "--".as_ref(), "ringfence-fixture".as_ref()], 2, &["no such program"])
        .await;
    for fence in [None, Some("--unfenced")] {
        let arguments = ["serve", "--port", "0", "--json"].into_iter().chain(fence);
        let arguments = arguments.chain([path.as_str(), "--", "ringfence-fixture"]);
        let started = Started::new(arguments).await;
        let client = started.client().await;
        let answer = client.call_tool_for_text("echo", json!({"text": "found"})).await;
        assert_eq!(answer, "found");
        let pid = started.child.id().unwrap();
        if fence.is_some() {
            // The probe's process may still be running.
            wait_until("one server runs", async || descendants(pid).len() == 1).await;
        }
        started.end().await;
        wait_until("nothing is left", async || descendants(pid).is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn help_shows_what_matters_and_help_all_the_rest_in_groups() {
    for ask in ["--help", "-h"] {
        let short = text(&run(["serve", ask]).await.stdout);
        assert!(short.contains("--sandbox-scope") && short.contains("--auth-token-file"), "{short}");
        assert!(short.contains("ringfence serve --help-all") && !short.contains("--park-after"), "{short}");
    }
    let all = run(["serve", "--help-all"]).await;
    assert_eq!(all.status.code(), Some(0));
    let all = text(&all.stdout);
    for part in ["--park-after", "Who may connect:", "Network of the fence:", "Where sessions work:"] {
        assert!(all.contains(part), "{part}: {all}");
    }
    let top = text(&run(["--help"]).await.stdout);
    assert!(top.contains("register") && !top.contains("--park-after"), "{top}");
    // An option of the server's own command is not ours.
    let refused = run(["serve", "--", "no-such-program-anywhere", "--help-all"]).await;
    assert_eq!(refused.status.code(), Some(2));
}
