//! Parts for the tests of the machines: a context, clients and messages, without a process or a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use identity::{Instance, Principal, SessionId, SessionKey};
use upstream::{Lifecycle, Program, Upstream};
use wire::{ClientCapabilities, InitializeParams, Message, Notification, Request, Response};

use crate::client::{Call, Client};
use crate::gateway_context::GatewayContext;
use crate::plan::{ServerSet, Terms};
use crate::record::{Contexts, SessionRecord};
use crate::registry::{Caller, Sessions};
use crate::scope::{OnRootsChange, RootsChoice, ScopeRules};
use crate::session_context::SessionContext;
use crate::settings::Settings;
use crate::stream::StreamReader;

pub(crate) fn context() -> Arc<GatewayContext> {
    context_with(Settings::default())
}

pub(crate) fn context_with(settings: Settings) -> Arc<GatewayContext> {
    GatewayContext::new(settings, rules(), None, None)
}

/// Rules that allow any directory and have no default.
pub(crate) fn rules() -> ScopeRules {
    ScopeRules {
        roots: RootsChoice::First,
        on_change: OnRootsChange::Terminate,
        default: None,
        allowed: Vec::new(),
        session_workspace: None,
        copies: None,
        names: BTreeMap::new(),
        host_environment: Arc::new(fence::HostEnvironment::of_this_process().unwrap()),
    }
}

/// A client that can be asked everything.
pub(crate) fn client(context: &Arc<GatewayContext>) -> Arc<Client> {
    let capabilities = json_capabilities(r#"{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}"#);
    Client::new(context, record(), capabilities, Instant::now())
}

pub(crate) fn json_capabilities(capabilities: &str) -> ClientCapabilities {
    let text =
        format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{capabilities},"clientInfo":{{}}}}"#);
    let request = request(0, "initialize", &text);
    InitializeParams::read(request.params()).unwrap().capabilities
}

pub(crate) fn record() -> SessionRecord {
    SessionRecord {
        key: SessionKey { principal: Principal::anonymous(), id: SessionId::random() },
        instance: Instance::random(),
        is_instance_named: false,
        client: "test/1".to_owned(),
        opened: jiff::Timestamp::now(),
        epoch: 0,
        initialize: Arc::new(request(0, "initialize", "{}")),
        expects_initialize: false,
        answer: None,
        version: None,
        scope: None,
        contexts: Contexts::default(),
        context: SessionContext::default(),
        subscriptions: BTreeSet::new(),
        log_level: None,
        end: None,
    }
}

/// An upstream that is never started.
pub(crate) fn upstream(lifecycle: Lifecycle) -> Arc<Upstream> {
    let program = Program {
        program: OsString::from("server"),
        arguments: Vec::new(),
        variables: Vec::new(),
        readable: Vec::new(),
        directory: None,
        fence: None,
        explains_refusals: false,
        keeps_state: false,
        preparation: None,
    };
    Arc::new(Upstream::process("server".to_owned(), program, lifecycle))
}

/// A call of a client, and what arrives for it.
pub(crate) fn call(client: &Arc<Client>, request: &Request) -> (Arc<Call>, StreamReader) {
    client.begin_call(request, false).unwrap()
}

pub(crate) fn message(text: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

pub(crate) fn request(id: u64, method: &str, params: &str) -> Request {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    match message(&text) {
        Message::Request(request) => request,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn notification(method: &str, params: &str) -> Notification {
    match message(&format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)) {
        Message::Notification(notification) => notification,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn response(id: u64, result: &str) -> Response {
    match message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)) {
        Message::Response(response) => response,
        other => panic!("{other:?}"),
    }
}

/// The next message that a reader has, as text.
pub(crate) fn next_text(reader: &mut StreamReader) -> Option<String> {
    use std::task::{Context, Poll, Waker};
    match reader.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(crate::Next::Message(delivery)) => {
            Some(String::from_utf8(delivery.text.into_bytes().to_vec()).unwrap())
        }
        _ => None,
    }
}

// Parts for the tests of workers.

/// An answer to `initialize` with these capabilities.
pub(crate) fn initialize_result(version: &str, capabilities: &str) -> wire::InitializeResult {
    let text =
        format!(r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{{}}}}"#);
    wire::InitializeResult::read(&text).unwrap()
}

/// An id as it stands in JSON, so that `1` and `"1"` differ.
pub(crate) fn id(json: &str) -> wire::Id {
    wire::Id::from_raw(&serde_json::value::RawValue::from_string(json.to_owned()).unwrap()).unwrap()
}

/// What the next message that a reader has says.
pub(crate) fn next_json(reader: &mut StreamReader) -> serde_json::Value {
    serde_json::from_str(&next_text(reader).expect("a message")).unwrap()
}

/// A gateway for several servers, of which there are none: its sessions live without a process.
pub(crate) fn sessions(settings: Settings, rules: ScopeRules) -> Arc<Sessions> {
    Sessions::new(no_servers(), settings, rules, None, None)
}

pub(crate) fn no_servers() -> ServerSet {
    let terms = Terms {
        names: config::NameMode::Prefix,
        secrets: config::Secrets::default(),
        local_is_here: true,
        storage: None,
    };
    ServerSet::Many { servers: Vec::new(), terms }
}

/// A caller who names nothing but itself.
pub(crate) fn caller(principal: &str) -> Caller {
    Caller {
        principal: Principal::named(principal).unwrap(),
        instance: None,
        workspace: None,
        contexts: Contexts::default(),
    }
}

pub(crate) fn initialize(capabilities: &str) -> Request {
    let params = format!(
        r#"{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"clientInfo":{{"name":"test","version":"1"}}}}"#
    );
    request(0, "initialize", &params)
}

/// Waits until everything that a gateway does on its own is done.
pub(crate) async fn settle(context: &GatewayContext) {
    context.tasks.close();
    context.tasks.wait().await;
    context.tasks.reopen();
}

/// The last moment before a deadline.
pub(crate) fn just_before(deadline: Instant) -> Instant {
    deadline.checked_sub(Duration::from_nanos(1)).unwrap()
}
