//! What the built-in server still knows after a restart of the gateway or of itself, where it keeps that, and that
//! nothing of the session but the server reaches it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, Project, RawClient, wait_until};

use super::Site;

/// The result of a call as data.
async fn data(client: &RawClient, tool: &str, arguments: Value) -> Value {
    client.call_tool(tool, arguments).await["result"]["structuredContent"].clone()
}

/// What a call says, also if it failed.
fn words(response: &Value) -> &str {
    response["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {response}"))
}

async fn session(gateway: &Gateway) -> RawClient {
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    client
}

/// Starts a command that says something and runs on. Returns its id.
async fn background(client: &RawClient, command: &str) -> String {
    let started = json!({"command": command, "is_background": true});
    data(client, "run_terminal_cmd", started).await["operation_id"].as_str().unwrap().to_owned()
}

/// Waits until the state files hold these words of a command, which the server writes soon after it has read them.
async fn wait_for_kept(place: &Path, words: &str) {
    wait_until("the output is kept", async || {
        state_files(place).iter().any(|file| {
            fs::read(file).is_ok_and(|bytes| bytes.windows(words.len()).any(|part| part == words.as_bytes()))
        })
    })
    .await;
}

fn list(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// All state files of sessions.
fn state_files(place: &Path) -> Vec<PathBuf> {
    list(place).iter().flat_map(|session| list(session)).flat_map(|server| list(&server)).collect()
}

impl Site {
    fn servers(&self) -> PathBuf {
        self.state.join("sessions/servers")
    }
}

fn repository(site: &Site) {
    site.project.write("tool.txt", "one\ntwo\n");
    site.project.write("command.txt", "a\n");
    site.project.write("untracked.txt", "");
    site.project.commit_all();
    site.project.write("untracked.txt", "changed before the session\n");
}

/// `session_diff` without what differs between two looks.
async fn diff(client: &RawClient) -> Value {
    let diff = data(client, "session_diff", json!({})).await;
    assert_eq!(diff["commands"], "included", "{diff}");
    diff
}

#[tokio::test]
async fn changes_commands_and_hashes_are_known_after_the_gateway_was_killed() {
    let mut site = Site::new("built-in");
    repository(&site);
    let mut gateway = site.start(Gateway::built_in()).await;
    let client = session(&gateway).await;
    let hash = data(&client, "read_file", json!({"path": "tool.txt"})).await["hash"].clone();
    let edit = json!({"path": "tool.txt", "old_string": "two", "new_string": "TWO"});
    client.call_tool_for_text("search_replace", edit).await;
    client.call_tool_for_text("write_file", json!({"path": "new.txt", "content": "new\n"})).await;
    let done = data(&client, "run_terminal_cmd", json!({"command": "echo b >> command.txt; exit 3"})).await;
    assert_eq!((&done["operation_id"], &done["exit_code"]), (&json!("op-1"), &json!(3)));
    assert_eq!(background(&client, "echo last words; sleep 1000").await, "op-2");
    let before = diff(&client).await;
    assert_eq!(before["files"].as_array().unwrap().len(), 3, "the control: {before}");
    assert!(data(&client, "session_info", json!({})).await["restored"].is_null());
    wait_for_kept(&site.servers(), "last words\n").await;
    gateway.kill().await;
    let mut gateway = site.start(Gateway::built_in()).await;

    assert_eq!(diff(&client).await, before);
    let lost = client.call_tool("await_operation", json!({"operation_id": "op-2"})).await;
    assert_eq!(lost["result"]["isError"], true);
    let text = words(&lost);
    let fields = &lost["result"]["structuredContent"];
    assert_eq!((&fields["status"], &fields["output"]), (&json!("lost"), &json!("last words\n")), "{fields}");
    assert_eq!(fields["command"], "echo last words; sleep 1000");
    assert!(fields["started"].as_str().unwrap().starts_with("20"), "{fields}");
    for part in ["last words", "op-2 is lost", "outcome is unknown", "and the command with it", "sleep 1000"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let cancelled = data(&client, "cancel_operation", json!({"operation_id": "op-2"})).await;
    assert_eq!(cancelled["status"], "lost");
    let ended = client.call_tool("operation_status", json!({"operation_id": "op-1"})).await;
    assert!(ended["result"]["isError"].is_null(), "{ended}");
    assert_eq!(ended["result"]["structuredContent"]["exit_code"], 3, "{ended}");
    let unknown = data(&client, "operation_status", json!({"operation_id": "op-9"})).await;
    assert_eq!(unknown["code"], "unknown_operation", "the control");
    assert_eq!(background(&client, "true").await, "op-3", "no number is used twice");
    let listed = data(&client, "operation_status", json!({})).await;
    let ids: Vec<&str> = listed["operations"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["operation_id"].as_str())
        .collect();
    assert_eq!(ids, ["op-3", "op-2", "op-1"]);
    let info = client.call_tool("session_info", json!({})).await;
    let restored = json!({"servers": 1, "changed_files": 2, "operations": 2, "lost_operations": 1});
    assert_eq!(info["result"]["structuredContent"]["restored"], restored);
    assert!(words(&info).contains("of which 1 are lost"), "{info}");

    // A hash is of the contents, and guards a file also after a restart.
    let stale = json!({"path": "tool.txt", "content": "x\n", "full_replace": true, "expected_hash": hash});
    assert_eq!(data(&client, "edit_file", stale).await["code"], "changed_since_read");

    gateway.kill().await;
    let _gateway = site.start(Gateway::built_in()).await;
    assert_eq!(diff(&client).await["files"], before["files"], "and once more");
    let lost = data(&client, "operation_status", json!({"operation_id": "op-2"})).await;
    assert_eq!(lost["status"], "lost");
}

#[tokio::test]
async fn a_command_that_a_gateway_ended_is_lost_for_that_reason() {
    let mut site = Site::new("told-to-end");
    let mut gateway = site.start(Gateway::built_in()).await;
    let client = session(&gateway).await;
    let id = background(&client, "echo under way; sleep 1000").await;
    wait_for_kept(&site.servers(), "under way\n").await;
    gateway.terminate().await;
    assert!(!state_files(&site.servers()).is_empty(), "a gateway that ends keeps the state");
    let _gateway = site.start(Gateway::built_in()).await;
    let lost = data(&client, "operation_status", json!({"operation_id": id})).await;
    assert_eq!((&lost["status"], &lost["output"]), (&json!("lost"), &json!("under way\n")), "{lost}");
    assert!(lost["reason"].as_str().is_some_and(|reason| reason.contains("was ended, because")), "{lost}");
}

#[tokio::test]
async fn a_server_that_crashed_or_rested_is_followed_by_one_that_knows_also_without_a_store() {
    let project = Project::new("crashed");
    project.write("tool.txt", "before\n");
    let gateway = Gateway::built_in().flags(["--client-grace", "1"]).current_dir(&project.path).start().await;
    assert_eq!(gateway.report().await["store"], "none", "the control");
    let client = session(&gateway).await;
    client.call_tool_for_text("delete_file", json!({"path": "tool.txt"})).await;
    let crashed = background(&client, "sleep 1000").await;
    let server = *gateway.descendants().iter().find(|pid| is_server(**pid)).expect("the server runs");
    kill(server);
    gateway.wait_for_log("killed by signal 9").await;
    let lost = data(&client, "operation_status", json!({"operation_id": crashed})).await;
    assert!(
        lost["reason"].as_str().is_some_and(|reason| reason.contains("killed or crashed")),
        "{lost} {}",
        gateway.log()
    );
    let rested = background(&client, "sleep 1000").await;
    drop(client.listen().await);
    wait_until("the server rests", async || gateway.descendants().is_empty()).await;
    let lost = data(&client, "operation_status", json!({"operation_id": rested})).await;
    assert!(lost["reason"].as_str().is_some_and(|reason| reason.contains("was ended, because")), "{lost}");
    let files = data(&client, "session_diff", json!({})).await["files"].clone();
    assert_eq!((&files[0]["path"], &files[0]["status"]), (&json!("tool.txt"), &json!("deleted")));
}

fn is_server(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|word| word == b"workspace")
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn the_state_of_a_session_goes_with_it_and_what_belongs_to_none_goes_at_start() {
    let mut site = Site::new("state-ends");
    let mut gateway = site.start(Gateway::built_in()).await;
    let (first, second) = (session(&gateway).await, session(&gateway).await);
    for (client, name) in [(&first, "a"), (&second, "b")] {
        client.call_tool_for_text("write_file", json!({"path": name, "content": "x"})).await;
    }
    assert_eq!(list(&site.servers()).len(), 2);
    assert_eq!(first.delete().await.status, 204);
    wait_until("its state is gone", async || list(&site.servers()).len() == 1).await;
    gateway.kill().await;
    let stray = site.servers().join("00".repeat(32)).join("x");
    fs::create_dir_all(&stray).unwrap();
    fs::create_dir(site.servers().join("no key")).unwrap();
    let gateway = site.start(Gateway::built_in()).await;
    assert_eq!(list(&site.servers()).len(), 1, "{:?}", list(&site.servers()));
    assert!(gateway.log().contains("there is no such session"), "{}", gateway.log());
    // The one that is left is that of the other session, which has not come back yet.
    assert_eq!(data(&second, "session_diff", json!({})).await["files"][0]["path"], "b");
    assert_eq!(second.delete().await.status, 204);
    wait_until("its state is gone", async || list(&site.servers()).is_empty()).await;
}

#[tokio::test]
async fn sessions_that_share_a_server_or_need_none_keep_no_state_beside_the_store() {
    for lifecycle in ["workspace", "shared", "call"] {
        let mut site = Site::new(lifecycle);
        let gateway = site.start(Gateway::built_in().flags(["--lifecycle", lifecycle])).await;
        let client = session(&gateway).await;
        client.call_tool_for_text("write_file", json!({"path": "a", "content": "x"})).await;
        assert!(site.project.join("a").exists(), "the control");
        assert_eq!(list(&site.servers()), Vec::<PathBuf>::new(), "{lifecycle}");
    }
}

#[tokio::test]
async fn damaged_state_is_set_aside_and_named_and_the_session_goes_on() {
    let mut site = Site::new("state-damaged");
    let mut gateway = site.start(Gateway::built_in()).await;
    let client = session(&gateway).await;
    for name in ["a", "b", "c"] {
        client.call_tool_for_text("write_file", json!({"path": name, "content": "x"})).await;
    }
    gateway.kill().await;
    let file =
        state_files(&site.servers()).into_iter().find(|file| file.metadata().unwrap().len() > 0).unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let place = bytes.len() - 100;
    bytes[place] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let mut gateway = site.start(Gateway::built_in()).await;
    let files = data(&client, "session_diff", json!({})).await["files"].as_array().unwrap().len();
    assert!((1..3).contains(&files), "what is before the damage is known: {files}");
    gateway.wait_for_log("the state of the session is damaged in file").await;
    assert_eq!(fs::read(&file).unwrap(), bytes, "it is left for a look");
    client.call_tool_for_text("write_file", json!({"path": "d", "content": "x"})).await;
    gateway.kill().await;
    for file in state_files(&site.servers()) {
        fs::write(file, "nothing of ours ".repeat(1000)).unwrap();
    }
    let gateway = site.start(Gateway::built_in()).await;
    assert_eq!(data(&client, "session_diff", json!({})).await["files"], json!([]));
    gateway.wait_for_log("the state of the session is damaged in file").await;
    client.call_tool_for_text("write_file", json!({"path": "e", "content": "x"})).await;
    assert_eq!(data(&client, "session_diff", json!({})).await["files"][0]["path"], "e");
}

/// The commands of the session run beside the server, with the same rights but in a domain of their own.
#[tokio::test]
async fn no_command_reaches_the_state_of_its_session() {
    for tier in ["a", "b"] {
        let mut site = Site::new("state-reached");
        let gateway = site.start(Gateway::built_in().flags(["--tier", tier, "--allow-root"])).await;
        let client = session(&gateway).await;
        let secret = "what only the state holds";
        site.project.write("a.txt", secret);
        client.call_tool_for_text("delete_file", json!({"path": "a.txt"})).await;
        let holds =
            |file: &&PathBuf| fs::read(file).unwrap().windows(secret.len()).any(|w| w == secret.as_bytes());
        let files = state_files(&site.servers());
        let file =
            files.iter().find(holds).expect("the control: outside it can be read").display().to_string();
        let before = fs::read(&file).unwrap();
        // The control: the descriptors are there, in the server and in no other process.
        let has_it = |pid: &u32| {
            list(&PathBuf::from(format!("/proc/{pid}/fd")))
                .iter()
                .any(|link| fs::read_link(link).is_ok_and(|target| target.starts_with(site.servers())))
        };
        let holders: Vec<u32> = gateway.descendants().into_iter().filter(has_it).collect();
        assert!(holders.len() == 1 && is_server(holders[0]), "tier {tier}: {holders:?}");
        let script = format!(
            "ls -l /proc/[0-9]*/fd | grep -q servers/ && echo FOUND
             for link in /proc/$PPID/fd/[3-9] /proc/$PPID/fd/1[0-9]; do cat \"$link\"; echo x >> \"$link\"; done
             cat '{file}'; echo x >> '{file}'; rm -f '{file}'; ls '{}'
             env | grep RINGFENCE_STATE; ls -l /proc/self/fd | grep -c servers/; sleep 1000 & echo \"the end\"",
            site.servers().display()
        );
        let tried =
            client.call_tool("run_terminal_cmd", json!({"command": script, "wait_seconds": 45})).await;
        let text = words(&tried);
        assert!(text.contains("the end"), "tier {tier}: {text}");
        for sign in ["FOUND", secret, "RINGFENCE_STATE="] {
            assert!(!text.contains(sign), "tier {tier}, {sign}: {text}");
        }
        assert!(fs::read(&file).unwrap().starts_with(&before), "tier {tier}: only the server has written");
        // With a command running and its fork server there.
        let holders: Vec<u32> = gateway.descendants().into_iter().filter(has_it).collect();
        assert_eq!(holders.len(), 1, "tier {tier}: {holders:?}");
        // Its file tools reach it no more.
        for path in [file.clone(), format!("/proc/self/fd/{}", 3)] {
            let read = client.call_tool("read_file", json!({"path": path})).await;
            assert_eq!(read["result"]["isError"], true, "{read}");
        }
    }
}
