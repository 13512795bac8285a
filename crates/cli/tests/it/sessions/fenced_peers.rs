//! A program inside a fence must not use a gateway, where it could open a session with a wider scope than its own.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{
    NEWEST, StdioClient, descendants, fixture_binary, process_exists, ringfence_binary, wait_until,
    within_deadline,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use super::Site;

fn initialize(address: &str, headers: &str) -> String {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {"name": "inside", "version": "1"}},
    })
    .to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{headers}Connection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn get(address: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
}

/// Sends a request to the gateway from a server behind it, and returns the answer.
async fn from_inside(site: &Site, request: &str) -> String {
    let client = site.gateway.open().await;
    let address = site.address();
    let answer = client.call_tool("tcp_exchange", json!({"address": address, "send": request})).await;
    assert_eq!(client.delete().await.status, 204);
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_fenced_server_is_refused_on_every_route() {
    for tier in ["a", "b"] {
        let site = Site::start("fenced-peer", &["--tier", tier, "--allow-root"]).await;
        let address = site.address();
        let other = site.directory.join("other");
        std::fs::create_dir(&other).unwrap();
        let wider = format!("Ringfence-Workspace: {}\r\n", other.display());
        for request in [
            initialize(&address, ""),
            initialize(&address, &wider),
            get(&address, "/health"),
            get(&address, "/sessions"),
            get(&address, "/metrics"),
        ] {
            let answer = from_inside(&site, &request).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "tier {tier}, {request}: {answer}");
            assert!(answer.contains("inside a fence"), "tier {tier}: {answer}");
        }
        assert_eq!(site.gateway.counter("sessions_opened").await, 5, "only those of this test");
        site.gateway.wait_for_log("from inside a fence").await;
        assert_eq!(site.denials("fenced_peer").await, 5);
    }
}

#[tokio::test]
async fn the_same_server_without_a_fence_is_let_in() {
    let site = Site::start("open-peer", &["--unfenced"]).await;
    let answer = from_inside(&site, &initialize(&site.address(), "")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "the control: {answer}");
    assert!(answer.to_lowercase().contains("mcp-session-id"), "{answer}");
}

/// A client that exits normally, or is killed, may close its connection before the gateway has looked who it is.
#[tokio::test]
async fn a_client_that_connects_and_closes_at_once_is_no_security_error() {
    const CLIENTS: u64 = 200;
    let site = Site::start("closed-at-once", &["--tier", "a", "--allow-root", "--log-level", "debug"]).await;
    let address = site.address();
    for client in 0..CLIENTS {
        let stream = std::net::TcpStream::connect(&address).unwrap();
        if client % 2 == 0 {
            // Asks for something, and does not wait for the answer.
            std::io::Write::write_all(&mut &stream, get(&address, "/health").as_bytes()).unwrap();
        }
    }
    site.gateway.wait_for_log("closed before it could be judged").await;
    let answer = from_inside(&site, &get(&address, "/health")).await;
    assert!(is_refused(&answer), "the control: {answer}");
    site.gateway.wait_for_log("refused a connection from inside a fence").await;
    let log = site.gateway.log();
    assert_eq!(log.matches("refused a connection").count(), 1, "{log}");
    assert_eq!(site.denials("fenced_peer").await, 1);
}

/// A client that waits for a line of input, sends one request, and prints the answer.
fn client_script(address: &str, request: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap();
    let request = request.replace("\r\n", "\\r\\n");
    format!("read go; exec 8<>/dev/tcp/{host}/{port}; printf '{request}' >&8; cat <&8")
}

/// Starts a command whose last argument is the client.
fn start_client(command: &mut Command, address: &str) -> Child {
    start_client_with(command, address, &get(address, "/health"))
}

fn start_client_with(command: &mut Command, address: &str, request: &str) -> Child {
    command.args(["bash", "-c", &client_script(address, request)]).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Lets the client go on, and returns the answer.
async fn answer_to(mut client: Child) -> String {
    client.stdin.take().unwrap().write_all(b"go\n").await.unwrap();
    let output = within_deadline("the client ends", client.wait_with_output()).await.unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The names under which supervisors are registered.
fn registered(own: &Path) -> usize {
    let is_name = |name: &str| name.starts_with(|first: char| first.is_ascii_digit());
    let entries = std::fs::read_dir(own.join("supervisors")).into_iter().flatten().flatten();
    entries.filter(|entry| is_name(entry.file_name().to_str().unwrap())).count()
}

fn is_refused(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 403 ") && answer.contains("inside a fence")
}

/// The finding: a process in a fence of another command opens a session, in any directory that it likes.
#[tokio::test]
async fn no_process_in_a_fence_of_ringfence_run_opens_a_session() {
    let site = Site::start("peer-of-run-opens", &["--unfenced"]).await;
    let address = site.address();
    let wider = site.directory.join("wider");
    std::fs::create_dir(&wider).unwrap();
    let request = initialize(&address, &format!("Ringfence-Workspace: {}\r\n", wider.display()));
    for tier in ["a", "b"] {
        let run = &mut site.command(&["run", "--tier", tier, "--allow-root", "--net", "all", "--"]);
        let answer = answer_to(start_client_with(run, &address, &request)).await;
        assert!(is_refused(&answer), "tier {tier}: {answer}");
    }
    let answer = answer_to(start_client_with(&mut Command::new("env"), &address, &request)).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "the control: {answer}");
}

#[tokio::test]
async fn a_fence_of_ringfence_run_is_refused_also_where_it_is_not_registered() {
    let site = Site::start("peer-of-run", &["--unfenced"]).await;
    let answer = answer_to(start_client(&mut Command::new("env"), &site.address())).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "the control: {answer}");
    for tier in ["a", "b"] {
        for is_known in [true, false] {
            let run = &mut site.command(&["run", "--tier", tier, "--allow-root", "--net", "all", "--"]);
            let client = start_client(run, &site.address());
            wait_until("it is registered", async || registered(&site.own()) == 1).await;
            if !is_known {
                std::fs::remove_dir_all(site.own().join("supervisors")).unwrap();
            }
            let answer = answer_to(client).await;
            assert!(is_refused(&answer), "tier {tier}, registered: {is_known}: {answer}");
            assert_eq!(registered(&site.own()), 0, "it has ended");
        }
    }
}

#[tokio::test]
async fn sandboxes_of_others_are_not_taken_for_fences() {
    let site = Site::start("peer-sandboxed", &["--unfenced"]).await;
    for sandbox in [
        &["unshare", "--user", "--pid", "--mount", "--uts", "--fork", "--"][..],
        &["setpriv", "--no-new-privs", "--"],
        &["prlimit", "--core=0", "--msgqueue=0", "--"],
        &["env", "-i"],
    ] {
        let mut command = Command::new(sandbox[0]);
        let answer = answer_to(start_client(command.args(&sandbox[1..]), &site.address())).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{sandbox:?}: {answer}");
    }
}

#[tokio::test]
async fn fences_of_stdio_and_of_another_gateway_are_refused_also_where_they_are_not_registered() {
    let site = Site::start("peer-of-others", &["--unfenced"]).await;
    let exchange = json!({"address": site.address(), "send": get(&site.address(), "/health")});
    let text =
        |answer: &Value| answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    for fence in ["--tier=a", "--tier=b", "--unfenced"] {
        let mut stdio = site.command(&["stdio", fence, "--allow-root", "--"]);
        let (mut client, _) = StdioClient::open(stdio.arg(fixture_binary()), json!({})).await;
        let other = Site::start("peer-of-gateway", &[fence, "--allow-root"]).await;
        let remote = other.gateway.open().await;
        for is_known in [true, false] {
            if !is_known {
                let _ = std::fs::remove_dir_all(site.own().join("supervisors"));
            }
            let id = client.send_call("tcp_exchange", &exchange).await;
            let answer = client.next_response().await;
            assert_eq!(answer["id"], id);
            let from_stdio = text(&answer);
            assert_eq!(registered(&site.own()), usize::from(is_known && fence != "--unfenced"));
            let from_gateway = text(&remote.call_tool("tcp_exchange", exchange.clone()).await);
            for answer in [from_stdio, from_gateway] {
                let is_as_expected = if fence == "--unfenced" {
                    answer.starts_with("HTTP/1.1 200 ")
                } else {
                    is_refused(&answer)
                };
                assert!(is_as_expected, "{fence}, registered: {is_known}: {answer}");
            }
        }
    }
}

#[tokio::test]
async fn an_orphan_of_a_killed_supervisor_is_still_inside_its_fence() {
    let site = Site::start("peer-orphan", &["--unfenced"]).await;
    let project = site.directory.join("project");
    // The client is a grandchild of the command, in a session of its own, and has its input and output in files.
    let script = format!("mkfifo go; setsid bash -c '{}' <go >answer & echo $!; wait", orphan_script(&site));
    let run = ["run", "--tier", "a", "--allow-root", "--net", "all", "--", "bash", "-c", &script];
    let mut run = site.command(&run).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(run.stdout.take().unwrap()).lines();
    let orphan = within_deadline("the client starts", output.next_line()).await.unwrap().unwrap();
    let orphan: u32 = orphan.parse().unwrap();
    let supervisor = descendants(run.id().unwrap())[0];
    kill_process(Pid::from_raw(i32::try_from(supervisor).unwrap()).unwrap(), Signal::KILL).unwrap();
    run.wait().await.unwrap();
    assert!(process_exists(orphan), "the control: it outlives its supervisor");
    std::fs::write(project.join("go"), "go\n").unwrap();
    wait_until("it has ended", async || !process_exists(orphan)).await;
    let answer = std::fs::read_to_string(project.join("answer")).unwrap();
    assert!(is_refused(&answer), "{answer}");
}

/// Like the other client, for a script in single quotes.
fn orphan_script(site: &Site) -> String {
    client_script(&site.address(), &get(&site.address(), "/health")).replace('\'', "\"")
}

#[tokio::test]
async fn the_proxy_of_a_fence_is_no_way_round() {
    let site = Site::start("proxy-peer", &["--net", "http", "--allow-host", "127.0.0.1"]).await;
    let address = site.address();
    let client = site.gateway.open().await;
    let environment = client.call_tool_for_text("environment", json!({})).await;
    let variables: Value = serde_json::from_str(&environment).unwrap();
    let proxy = variables["http_proxy"].as_str().or(variables["HTTP_PROXY"].as_str()).unwrap();
    let proxy = proxy.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let request =
        format!("GET http://{address}/health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = client.call_tool("tcp_exchange", json!({"address": proxy, "send": request})).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(!text.contains("200 OK") && !text.ends_with("OK"), "{answer}");
}

#[tokio::test]
async fn the_gateways_own_port_is_not_mirrored_into_fences() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port().to_string()
    };
    let serve = |mirrored: &str| {
        let mut command = tokio::process::Command::new(ringfence_binary());
        command.args(["serve", "--net", "localhost", "--host-port", mirrored, "--port", &port, "--"]);
        command.arg(fixture_binary()).stdin(Stdio::null()).kill_on_drop(true).output()
    };
    let refused = serve(&port).await.unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("is the port of this gateway"), "{stderr}");
}
