//! The requests around tasks that need a thread: starting one, and waiting for its result.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::outgoing::{INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, ToolOutcome, to_json, tool_error_result};
use crate::running_calls::BlockingCall;
use crate::server::Server;
use crate::tools;
use crate::tools::tool::Interruption;

/// Answers a `tools/call` that asks for a task, and runs the tool in the background.
pub(crate) fn start(
    server: &Arc<Server>,
    raw_call_id: &str,
    tool: &str,
    raw_task: &str,
    arguments: &str,
) -> Result<(), RpcError> {
    let Some(tool) = tools::find_task(tool) else {
        return Err(RpcError::new(METHOD_NOT_FOUND, format!("{tool} does not run as a task")));
    };
    let wish: Value = serde_json::from_str(raw_task).unwrap_or_default();
    let call = BlockingCall::new(arguments.to_owned(), None);
    let (id, description) = server.tasks.add(wish["ttl"].clone(), call.wake.clone());
    server.output.buffer_result(raw_call_id, &to_json(&json!({ "task": description })));
    let server = Arc::clone(server);
    std::thread::spawn(move || {
        let finished = match tool(&server, &call) {
            Ok(ToolOutcome::Result(result)) => ("completed", Some(result)),
            Ok(_) => ("completed", None),
            Err(Interruption::Cancelled) => ("cancelled", None),
            Err(Interruption::Failed(text)) => ("failed", Some(tool_error_result(&text))),
        };
        server.tasks.finish(&id, finished.0, finished.1);
    });
    Ok(())
}

/// `tasks/result` blocks until the task is over, so it waits on a thread of its own.
pub(crate) fn answer_when_finished(
    server: &Arc<Server>,
    raw_id: &str,
    raw_params: &str,
) -> Result<(), RpcError> {
    let params: Value = serde_json::from_str(raw_params).unwrap_or_default();
    let task_id = server.tasks.id_of(&params)?;
    let (server, raw_id) = (Arc::clone(server), raw_id.to_owned());
    std::thread::spawn(move || {
        match server.tasks.wait_for_result(&task_id) {
            Some(result) => server.output.buffer_result(&raw_id, &with_related_task(&result, &task_id)),
            None => {
                server.output.buffer_error(&raw_id, &RpcError::new(INVALID_PARAMS, "the task was cancelled"));
            }
        }
        server.output.flush();
    });
    Ok(())
}

fn with_related_task(result: &str, task_id: &str) -> String {
    let mut result: Value = serde_json::from_str(result).expect("a tool's result is JSON");
    result["_meta"] = json!({"io.modelcontextprotocol/related-task": {"taskId": task_id}});
    to_json(&result)
}
