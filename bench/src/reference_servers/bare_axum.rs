//! The baseline of every HTTP leg: an axum server that gives the fixture's answers itself, without a server process
//! behind it.
//!
//! It runs as a process of its own (`ringfence-bench bare-axum-server`) with two worker threads, and ends
//! when the benchmark that started it ends.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode, header};
use axum::routing::post;
use axum::serve::ListenerExt;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::{Error, WhileDoing};
use crate::mcp_client::messages::PROTOCOL_VERSION;

/// The longest text that `big` may ask for: every length is cached.
const LONGEST_TEXT: usize = 64 * 1024 * 1024;

#[derive(Debug, Default)]
struct BareServer {
    next_session: AtomicU64,
    texts: Mutex<HashMap<usize, Bytes>>,
}

pub(crate) fn run() -> Result<(), Error> {
    // The benchmark may be killed without a chance to clean up; this process must not outlive it.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .while_doing("tying the server to its parent")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve())
}

async fn serve() -> Result<(), Error> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    println!("{}", serde_json::json!({ "event": "listening", "url": url }));
    let listener = listener.tap_io(|stream| {
        // Without `TCP_NODELAY` the connection works, only more slowly.
        let _ = stream.set_nodelay(true);
    });
    let router = Router::new()
        .route("/mcp", post(answer_post).delete(StatusCode::OK))
        .with_state(Arc::new(BareServer::default()));
    Ok(axum::serve(listener, router).await?)
}

#[derive(Debug, Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: &'a str,
    #[serde(borrow, default)]
    params: Params<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    name: Option<&'a str>,
    #[serde(borrow, default)]
    arguments: Arguments<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    bytes: Option<usize>,
}

async fn answer_post(State(server): State<Arc<BareServer>>, body: Bytes) -> Response<Body> {
    let Ok(request) = serde_json::from_slice::<Request<'_>>(&body) else {
        return empty_answer(StatusCode::BAD_REQUEST);
    };
    let Some(id) = request.id else { return empty_answer(StatusCode::ACCEPTED) };
    if request.method == "initialize" {
        return initialize_answer(&server, id);
    }
    let arguments = request.params.arguments;
    match (request.params.name, arguments.text, arguments.bytes) {
        (Some("echo"), Some(text), _) => json_answer(Body::from(echo_result(id, text))),
        (Some("big"), _, Some(bytes)) if bytes <= LONGEST_TEXT => json_answer(big_result(&server, id, bytes)),
        _ => empty_answer(StatusCode::BAD_REQUEST),
    }
}

fn initialize_answer(server: &BareServer, id: &RawValue) -> Response<Body> {
    let session = server.next_session.fetch_add(1, Ordering::Relaxed);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"{PROTOCOL_VERSION}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"bare-axum","version":"0"}}}}}}"#
    );
    let mut answer = json_answer(Body::from(body));
    if let Ok(value) = format!("bare-{session:016x}").parse() {
        answer.headers_mut().insert("mcp-session-id", value);
    }
    answer
}

fn echo_result(id: &RawValue, text: &RawValue) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{text}}}]}}}}"#)
}

fn big_result(server: &BareServer, id: &RawValue, bytes: usize) -> Body {
    let before = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":""#);
    let parts = [Bytes::from(before), server.cached_text(bytes), Bytes::from_static(br#""}]}}"#)];
    Body::new(PartsBody { parts: VecDeque::from(parts) })
}

impl BareServer {
    fn cached_text(&self, bytes: usize) -> Bytes {
        let mut texts = self.texts.lock();
        texts.entry(bytes).or_insert_with(|| Bytes::from(vec![b'x'; bytes])).clone()
    }
}

/// A body in pieces with a known total length, so the cached text is not copied into each answer.
#[derive(Debug)]
struct PartsBody {
    parts: VecDeque<Bytes>,
}

impl hyper::body::Body for PartsBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.parts.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.parts.iter().map(|part| part.len() as u64).sum())
    }
}

fn json_answer(body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    answer
}

fn empty_answer(status: StatusCode) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer
}
