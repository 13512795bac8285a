//! The raw client against a server that plays back prepared responses and records the requests.

use serde_json::{Value, json};
use testkit::{RawClient, ReplyBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Serves one connection per response, then returns the requests it got.
async fn play_back(responses: Vec<String>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let mut requests = Vec::new();
        for response in responses {
            let (mut connection, _) = listener.accept().await.unwrap();
            requests.push(read_request(&mut connection).await);
            connection.write_all(response.as_bytes()).await.unwrap();
        }
        requests
    });
    (url, served)
}

async fn read_request(connection: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        let mut piece = [0; 4096];
        let count = connection.read(&mut piece).await.unwrap();
        assert_ne!(count, 0, "the request is complete");
        request.extend_from_slice(&piece[..count]);
    }
}

fn accepted() -> String {
    "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned()
}

fn json_response(headers: &str, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
}

/// A stream of events, which ends with the connection.
fn event_response(events: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{events}")
}

#[tokio::test]
async fn session_and_version_are_sent_after_the_handshake() {
    let result = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    let initialized =
        json_response("mcp-session-id: s1\r\n", &json!({"jsonrpc": "2.0", "id": 1, "result": result}));
    let pong = json_response("", &json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    let (url, served) = play_back(vec![initialized, accepted(), pong]).await;
    let mut client = RawClient::new(url);
    let opened = client.open(json!({}), "2025-11-25").await;
    assert_eq!((opened.protocol_version.as_str(), opened.session_id.as_deref()), ("2025-06-18", Some("s1")));
    assert_eq!(client.request("ping", None).await["result"], json!({}));
    let requests = served.await.unwrap();
    assert!(!requests[0].contains("mcp-session-id"));
    assert!(requests[2].contains("mcp-session-id: s1\r\n"));
    assert!(requests[2].contains("mcp-protocol-version: 2025-06-18\r\n"));
}

#[tokio::test]
async fn any_header_can_be_set_and_left_out() {
    let (url, served) = play_back(vec![accepted(), accepted()]).await;
    let client = RawClient::new(url);
    let reply = client.post("{}").header("host", "evil.example").header("origin", "null").await;
    assert_eq!(reply.status, 202);
    assert!(matches!(reply.body, ReplyBody::Empty));
    client.post("{}").without_header("host").without_header("accept").await;
    let requests = served.await.unwrap();
    assert!(requests[0].contains("host: evil.example\r\n") && requests[0].contains("origin: null\r\n"));
    assert!(!requests[1].contains("host:") && !requests[1].contains("accept:"));
}

#[tokio::test]
async fn a_call_answers_the_server_and_survives_a_closed_stream() {
    let question = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}});
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"content": []}});
    let first =
        event_response(&format!("id: e0\ndata: \n\nid: e1\ndata: {question}\n\n: alive\n\ndata: {note}\n\n"));
    let second = event_response(&format!("id: e2\ndata: {answer}\n\n"));
    let (url, served) = play_back(vec![first, accepted(), second]).await;
    let client = RawClient::new(url);
    let exchange = client.call_tool_answering("x", json!({}), |_| Ok(json!({"roots": []}))).await;
    assert_eq!(exchange.response, answer);
    assert_eq!((exchange.notifications, exchange.server_requests), (vec![note], vec![question]));
    assert_eq!(exchange.resumptions, 1);
    let requests = served.await.unwrap();
    assert!(requests[1].ends_with(r#"{"id":"q","jsonrpc":"2.0","result":{"roots":[]}}"#), "{}", requests[1]);
    assert!(requests[2].starts_with("GET ") && requests[2].contains("last-event-id: e1\r\n"));
}
