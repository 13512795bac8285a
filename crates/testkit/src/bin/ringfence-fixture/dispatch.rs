//! The reading loop: one thread reads every line, answers quick requests in place, and gives blocking ones a
//! thread of their own. Output is flushed when no further complete line waits in the read buffer.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::incoming::{Message, ToolCallParams, parse_echo_call};
use crate::outgoing::{
    INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, RpcError, ToolOutcome, tool_error_result,
};
use crate::running_calls::{BlockingCall, ClientAnswer};
use crate::server::Server;
use crate::stubbornness::park_for_good;
use crate::tools::tool::{BlockingTool, Interruption};
use crate::{catalogue, prompts, resources, task_requests, tools};

const READ_BUFFER_BYTES: usize = 256 * 1024;

pub(crate) fn serve_standard_input(server: &Arc<Server>, input: File) {
    let mut reader = BufReader::with_capacity(READ_BUFFER_BYTES, input);
    let mut line = Vec::new();
    loop {
        line.clear();
        if matches!(reader.read_until(b'\n', &mut line), Ok(0) | Err(_)) {
            return;
        }
        server.record_received_line(&line);
        if !server.flags.no_initialize_answer {
            handle_line(server, &line);
        }
        if !reader.buffer().contains(&b'\n') {
            server.output.flush();
        }
    }
}

fn handle_line(server: &Arc<Server>, line: &[u8]) {
    if let Some((raw_id, raw_text)) = parse_echo_call(line) {
        return server.output.buffer_echo(raw_id, raw_text);
    }
    let message: Message<'_> = match serde_json::from_slice(line) {
        Ok(message) => message,
        Err(error) => return eprintln!("ringfence-fixture: unreadable line: {error}"),
    };
    match (&message.method, message.id) {
        (Some(method), Some(id)) => handle_request(server, id.get(), method, message.params),
        (Some(method), None) => handle_notification(server, method, message.params),
        (None, Some(id)) => handle_response(server, id.get(), &message),
        (None, None) => eprintln!("ringfence-fixture: neither a method nor an id"),
    }
}

fn handle_response(server: &Server, raw_id: &str, message: &Message<'_>) {
    let answer = match (message.result, message.error) {
        (Some(result), _) => ClientAnswer::Result(result.get().to_owned()),
        (None, Some(error)) => ClientAnswer::Error(error.get().to_owned()),
        (None, None) => ClientAnswer::Error("null".to_owned()),
    };
    server.client_requests.answer(raw_id, answer);
}

#[derive(Debug, Deserialize)]
struct CancelledParams<'line> {
    #[serde(borrow, rename = "requestId")]
    request_id: &'line RawValue,
}

fn handle_notification(server: &Server, method: &str, params: Option<&RawValue>) {
    let raw_params = params.map_or("{}", RawValue::get);
    if method == "notifications/cancelled"
        && let Ok(cancelled) = serde_json::from_str::<CancelledParams<'_>>(raw_params)
    {
        server.running_calls.cancel(cancelled.request_id.get());
    }
}

fn handle_request(server: &Arc<Server>, raw_id: &str, method: &str, params: Option<&RawValue>) {
    let raw_params = params.map_or("{}", RawValue::get);
    let handled = match method {
        "tools/call" => start_tool_call(server, raw_id, raw_params),
        "tasks/result" => task_requests::answer_when_finished(server, raw_id, raw_params),
        _ => answer_plain_request(server, method, raw_params)
            .map(|result| server.output.buffer_result(raw_id, &result)),
    };
    if let Err(error) = handled {
        server.output.buffer_error(raw_id, &error);
    }
}

/// Answers requests that need only their parameters.
fn answer_plain_request(server: &Server, method: &str, raw_params: &str) -> Result<String, RpcError> {
    let params: Value = serde_json::from_str(raw_params)
        .map_err(|error| RpcError::new(INVALID_REQUEST, format!("unreadable params: {error}")))?;
    let nothing = || Ok("{}".to_owned());
    match method {
        "initialize" => Ok(server.initialize(&params)),
        "ping" => nothing(),
        "logging/setLevel" if server.set_log_level(params["level"].as_str().unwrap_or_default()) => nothing(),
        "logging/setLevel" => Err(RpcError::new(INVALID_PARAMS, "unknown log level")),
        "tools/list" => Ok(catalogue::tools_list_result().to_owned()),
        "prompts/list" => Ok(prompts::list_result()),
        "prompts/get" => prompts::get_result(&params),
        "completion/complete" => prompts::completion_result(&params),
        "resources/list" => Ok(resources::list_result()),
        "resources/templates/list" => Ok(resources::templates_list_result()),
        "resources/read" => resources::read_result(&params),
        "resources/subscribe" => resources::subscribe(server, &params).and_then(|()| nothing()),
        "resources/unsubscribe" => resources::unsubscribe(server, &params).and_then(|()| nothing()),
        "tasks/get" => server.tasks.get_result(&params),
        "tasks/list" => Ok(server.tasks.list_result()),
        "tasks/cancel" => server.tasks.cancel_result(&params),
        _ => Err(RpcError::new(METHOD_NOT_FOUND, format!("Method not found: {method}"))),
    }
}

fn start_tool_call(server: &Arc<Server>, raw_id: &str, raw_params: &str) -> Result<(), RpcError> {
    let params: ToolCallParams<'_> = serde_json::from_str(raw_params)
        .map_err(|error| RpcError::new(INVALID_PARAMS, format!("unreadable call: {error}")))?;
    let arguments = params.arguments.map_or("{}", RawValue::get);
    if let Some(raw_task) = params.task {
        return task_requests::start(server, raw_id, &params.name, raw_task.get(), arguments);
    }
    if let Some(tool) = tools::find_quick(&params.name) {
        let outcome = tool(server, arguments);
        finish_quick_call(server, raw_id, outcome);
        return Ok(());
    }
    let Some(tool) = tools::find_blocking(&params.name) else {
        return Err(RpcError::new(INVALID_PARAMS, format!("Unknown tool: {}", params.name)));
    };
    let raw_token = params.meta.and_then(|meta| meta.progress_token).map(|token| token.get().to_owned());
    start_blocking_call(server, raw_id, tool, BlockingCall::new(arguments.to_owned(), raw_token));
    Ok(())
}

fn finish_quick_call(server: &Server, raw_id: &str, outcome: Result<ToolOutcome, String>) {
    match outcome {
        Ok(ToolOutcome::Result(result)) => server.output.buffer_result(raw_id, &result),
        Ok(ToolOutcome::SharedResult(result)) => server.output.buffer_result(raw_id, &result),
        Ok(ToolOutcome::ResultThenExit(result, code)) => {
            server.output.buffer_result(raw_id, &result);
            server.output.flush();
            std::process::exit(code);
        }
        Ok(ToolOutcome::ResultThenStopReading(result)) => {
            server.output.buffer_result(raw_id, &result);
            server.output.flush();
            park_for_good();
        }
        Ok(ToolOutcome::ResultThenWork(result, work)) => {
            server.output.buffer_result(raw_id, &result);
            server.output.flush();
            std::thread::spawn(work);
        }
        Err(complaint) => server.output.buffer_result(raw_id, &tool_error_result(&complaint)),
    }
}

fn start_blocking_call(server: &Arc<Server>, raw_id: &str, tool: BlockingTool, call: BlockingCall) {
    server.running_calls.begin(raw_id, call.wake.clone());
    let (server, raw_id) = (Arc::clone(server), raw_id.to_owned());
    std::thread::spawn(move || {
        let outcome = tool(&server, &call);
        server.running_calls.end(&raw_id);
        match outcome {
            Ok(outcome) => finish_quick_call(&server, &raw_id, Ok(outcome)),
            Err(Interruption::Failed(complaint)) => finish_quick_call(&server, &raw_id, Err(complaint)),
            Err(Interruption::Cancelled) => {}
        }
        server.output.flush();
    });
}
