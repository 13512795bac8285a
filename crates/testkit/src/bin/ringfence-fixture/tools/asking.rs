//! Tools that send a request to the client and report what came back, verbatim.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::outgoing::{ToolOutcome, text_outcome, text_result};
use crate::running_calls::{BlockingCall, ClientAnswer, WakeUp};
use crate::server::Server;
use crate::tools::arguments::parse_arguments;
use crate::tools::tool::{BlockingTool, Interruption, QuickTool};

pub(crate) fn find_quick(name: &str) -> Option<QuickTool> {
    Some(match name {
        "ask_unowned" => ask_unowned,
        "ask_unowned_result" => ask_unowned_result,
        _ => return None,
    })
}

pub(crate) fn find_blocking(name: &str) -> Option<BlockingTool> {
    (name == "ask").then_some(ask)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ask {
    kind: Kind,
    tag: String,
    ms: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Sampling,
    Elicitation,
    Roots,
    #[default]
    Ping,
}

impl Ask {
    fn method(&self) -> &'static str {
        match self.kind {
            Kind::Sampling => "sampling/createMessage",
            Kind::Elicitation => "elicitation/create",
            Kind::Roots => "roots/list",
            Kind::Ping => "ping",
        }
    }

    fn params(&self) -> Option<Value> {
        match self.kind {
            Kind::Sampling => Some(sampling_params(&self.tag)),
            Kind::Elicitation => Some(json!({
                "message": self.tag,
                "requestedSchema": {"type": "object", "properties": {"answer": {"type": "string"}}},
            })),
            Kind::Roots | Kind::Ping => None,
        }
    }
}

pub(crate) fn sampling_params(prompt: &str) -> Value {
    json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": prompt}}],
        "maxTokens": 100,
    })
}

fn ask(server: &Arc<Server>, call: &BlockingCall) -> Result<ToolOutcome, Interruption> {
    let ask: Ask = parse_arguments(&call.arguments)?;
    let answer = ask_client(server, call, ask.method(), ask.params().as_ref())?;
    Ok(text_outcome(raw_answer(answer)))
}

/// Sends a request on behalf of a call and waits for its answer or for the end of the call.
pub(crate) fn ask_client(
    server: &Server,
    call: &BlockingCall,
    method: &str,
    params: Option<&Value>,
) -> Result<ClientAnswer, Interruption> {
    server.client_requests.ask(&server.output, method, params, call.wake.clone());
    Ok(call.wait_for_answer()?)
}

fn raw_answer(answer: ClientAnswer) -> String {
    match answer {
        ClientAnswer::Result(raw) | ClientAnswer::Error(raw) => raw,
    }
}

fn ask_unowned(server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let ask: Ask = parse_arguments(arguments)?;
    *server.unowned_answer.lock() = None;
    let server = Arc::clone(server);
    let work = move || {
        std::thread::sleep(Duration::from_millis(ask.ms));
        ask_and_remember(&server, &ask);
    };
    Ok(ToolOutcome::ResultThenWork(text_result("will ask"), Box::new(work)))
}

fn ask_and_remember(server: &Server, ask: &Ask) {
    let (wake, mailbox) = channel();
    server.client_requests.ask(&server.output, ask.method(), ask.params().as_ref(), wake);
    if let Ok(WakeUp::Answered(answer)) = mailbox.recv() {
        *server.unowned_answer.lock() = Some(raw_answer(answer));
    }
}

fn ask_unowned_result(server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    let answer = server.unowned_answer.lock();
    Ok(text_outcome(answer.as_deref().unwrap_or("pending")))
}
