//! A client's machine simulated by the test, which speaks the attachment protocol and has one tool, `where`.

use std::sync::{Arc, Mutex};
use testkit::NEWEST;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use upstream::Frame;

/// An attached machine, which detaches when dropped.
pub(super) struct Machine {
    serving: AbortHandle,
    /// The calls that it received.
    calls: Arc<Mutex<Vec<Value>>>,
}

impl Machine {
    /// Attaches to a session of the gateway at `url`. Fails with the HTTP status if the gateway refuses.
    pub(super) async fn attach(url: &str, id: &str, token: Option<&str>, name: &str) -> Result<Self, u16> {
        let url = url.replacen("http", "ws", 1).replace("/mcp", &format!("/session/{id}/attach"));
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", "ringfence.attach.1".parse().unwrap());
        if let Some(token) = token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let (mut socket, _) = match tokio_tungstenite::connect_async(request).await {
            Ok(connected) => connected,
            Err(tungstenite::Error::Http(response)) => return Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        };
        socket.send(Message::Text(json!(["local"]).to_string().into())).await.unwrap();
        let calls = Arc::default();
        let serving = tokio::spawn(serve(socket, name.to_owned(), Arc::clone(&calls))).abort_handle();
        Ok(Self { serving, calls })
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    mut socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    name: String,
    calls: Arc<Mutex<Vec<Value>>>,
) {
    while let Some(Ok(message)) = socket.next().await {
        let Message::Binary(frame) = message else { continue };
        let Some(Frame::Line { channel, line }) = Frame::decode(&frame) else { continue };
        let message: Value = serde_json::from_slice(&line).unwrap();
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": NEWEST,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "machine", "version": "0"},
            }),
            Some("tools/list") => json!({"tools": [{"name": "where", "inputSchema": {"type": "object"}}]}),
            Some("tools/call") => {
                calls.lock().unwrap().push(message.clone());
                // Leave the call unanswered.
                if message["params"]["arguments"]["forever"] == true {
                    continue;
                }
                json!({"content": [{"type": "text", "text": name}]})
            }
            _ => continue,
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        let line = Bytes::from(answer.to_string());
        if socket.send(Message::Binary(Frame::Line { channel, line }.encode())).await.is_err() {
            return;
        }
    }
}
