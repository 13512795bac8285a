//! Clients that are gone without a word: their servers are stopped, and their sessions go on when they come back.

use serde_json::json;
use testkit::{Gateway, NEWEST, Project, RawClient, node_binary, parts_dir, wait_until};
use tokio::process::Command;

/// A client that listens, as the official ones do.
async fn listening(gateway: &Gateway) -> (RawClient, testkit::EventStream) {
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    let events = client.listen().await;
    client.call_tool_for_text("echo", json!({"text": "here"})).await;
    (client, events)
}

#[tokio::test]
async fn the_server_of_a_vanished_client_is_stopped_and_comes_back_with_it() {
    let gateway = Gateway::builder().flags(["--client-grace", "1"]).start().await;
    let (gone, events) = listening(&gateway).await;
    let (present, _open) = listening(&gateway).await;
    let both = gateway.descendants().len();
    drop(events);
    gateway.wait_for_log("not in use; stopping it until the next call").await;
    wait_until("one server is left", async || gateway.descendants().len() == both / 2).await;
    assert_eq!(gateway.open_sessions().await, 2, "the session stays");
    // The control: a client that listens keeps its server.
    present.call_tool_for_text("echo", json!({"text": "still here"})).await;
    assert_eq!(gateway.descendants().len(), both / 2);
    assert!(!gateway.log().contains("generation=2"));
    let back = gone.call_tool_for_text("echo", json!({"text": "back"})).await;
    assert_eq!(back, "back", "a new server answers in the same session");
    gateway.wait_for_log("generation=2").await;
}

#[tokio::test]
async fn a_call_in_flight_keeps_its_server() {
    let gateway = Gateway::builder().flags(["--client-grace", "1"]).start().await;
    let (client, events) = listening(&gateway).await;
    let (other, others_events) = listening(&gateway).await;
    let slow = client.call_tool_for_text("sleep", json!({"ms": 4000}));
    drop((events, others_events));
    let (answer, _) = tokio::join!(slow, gateway.wait_for_log("stopping it until the next call"));
    assert!(!answer.is_empty(), "{answer}");
    drop(other);
}

/// What is left of clients that are gone for good: their records, and the homes of their servers.
#[tokio::test]
async fn after_fifty_vanished_clients_only_their_records_are_left() {
    const CLIENTS: usize = 50;
    let gateway = Gateway::builder().flags(["--client-grace", "1"]).start().await;
    let (first, events) = listening(&gateway).await;
    drop(events);
    wait_until("its server is stopped", async || gateway.descendants().is_empty()).await;
    let before = open_files(&gateway);
    let mut clients = Vec::new();
    for _ in 1..CLIENTS {
        let (client, events) = listening(&gateway).await;
        clients.push((client, events));
    }
    assert!(gateway.descendants().len() >= CLIENTS - 1, "the control: all but one have servers");
    let gone: Vec<RawClient> = clients.into_iter().map(|(client, _events)| client).collect();
    wait_until("no server is left", async || gateway.descendants().is_empty()).await;
    // The end of the first server may have had files open when they were counted.
    wait_until("nor a descriptor", async || open_files(&gateway) <= before).await;
    assert_eq!(homes_in_use(&gateway), CLIENTS, "each home is locked until its session ends");
    assert_eq!(gateway.open_sessions().await, CLIENTS as u64, "the sessions stay");
    for client in [&first, &gone[0]] {
        assert_eq!(client.call_tool_for_text("echo", json!({"text": "back"})).await, "back");
    }
}

fn descriptors(gateway: &Gateway) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().flatten();
    entries.filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.to_str()?.to_owned()))
}

fn is_home(target: &str) -> bool {
    target.contains("/ringfence/sessions/")
}

fn homes_in_use(gateway: &Gateway) -> usize {
    descriptors(gateway).filter(|target| is_home(target)).count()
}

/// How many other descriptors the gateway has, without those of its connections: this test has some open.
fn open_files(gateway: &Gateway) -> usize {
    descriptors(gateway).filter(|target| !is_home(target) && !target.starts_with("socket:")).count()
}

/// A real client that is killed sends no DELETE.
#[tokio::test]
async fn after_many_killed_clients_no_process_is_left() {
    const CLIENTS: usize = 10;
    let project = Project::new("vanished");
    let gateway = Gateway::built_in().flags(["--client-grace", "1"]).current_dir(&project.path).start().await;
    let script = "
        import { Client } from '@modelcontextprotocol/sdk/client/index.js';
        import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
        const client = new Client({ name: 'killed', version: '1' });
        await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[1])));
        await client.callTool({ name: 'list_dir', arguments: { path: '.' } });
        console.log('connected');
        setInterval(() => {}, 1000);";
    for _ in 0..CLIENTS {
        let mut command = Command::new(node_binary());
        command.args(["--input-type=module", "-e", script, gateway.url()]).current_dir(parts_dir());
        let mut client = command.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = tokio::io::BufReader::new(client.stdout.take().unwrap());
        let mut line = String::new();
        tokio::io::AsyncBufReadExt::read_line(&mut lines, &mut line).await.unwrap();
        assert_eq!(line, "connected\n");
        client.kill().await.unwrap();
    }
    assert_eq!(gateway.open_sessions().await, CLIENTS as u64);
    wait_until("no server is left", async || gateway.descendants().is_empty()).await;
    assert_eq!(gateway.open_sessions().await, CLIENTS as u64, "the sessions wait for their clients");
}
