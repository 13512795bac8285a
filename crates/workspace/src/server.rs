//! The MCP server on stdin and stdout: reads messages, answers short calls at once and runs long ones on threads.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use wire::{ErrorReply, Id, InitializeParams, LineBuffer, Message, Notification, Request, code, method};

use crate::completion;
use crate::context::ServerContext;
use crate::output::{Batch, Output, invalid_params};
use crate::resources::{self, ResourceError};
use crate::subscriptions::Subscriptions;
use crate::tools::{
    self, Answer, Arguments, Call, Cancellation, Pace, Progress, ResultForm, TOOLS, Tool, ToolError,
    take_session,
};

/// Long calls that may run at the same time.
const MAX_LONG_CALLS: usize = 32;
/// How long running calls may take to stop after the client has gone.
const LAST_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes per read.
const PIECE: usize = 64 * 1024;

/// A call with this in its `_meta` gets its result as data too.
const STRUCTURED: &str = "io.ringfence/structured";

/// Instructions for the model, in the answer to `initialize`.
const INSTRUCTIONS: &str = "Tools for the files of one workspace and for shell commands in it. Relative paths start at the \
workspace; nothing outside can be reached. Prefer search_replace or multi_edit for small changes and edit_file with \
`// ... existing code ...` markers for larger ones; every edit reports where it landed. Commands that take longer than a few \
seconds return an operation id for await_operation.";

pub(crate) struct Server {
    context: Arc<ServerContext>,
    output: Arc<Output>,
    /// Running long calls, by request id.
    calls: Mutex<HashMap<Id, Cancellation>>,
    call_ended: Condvar,
    subscriptions: Subscriptions,
    /// Completed by the first `tools/list`.
    first_list: Once,
}

impl Server {
    pub(crate) fn new(context: ServerContext, output: Arc<Output>) -> Arc<Self> {
        let context = Arc::new(context);
        let subscriptions = Subscriptions::new(Arc::clone(&context), Arc::clone(&output));
        Arc::new(Self {
            context,
            output,
            calls: Mutex::default(),
            call_ended: Condvar::new(),
            subscriptions,
            first_list: Once::new(),
        })
    }

    /// Serves until the client closes its end.
    pub(crate) fn run(self: &Arc<Self>, input: impl Read) -> std::io::Result<()> {
        let outcome = self.read_all(input);
        self.finish();
        outcome
    }

    fn read_all(self: &Arc<Self>, mut input: impl Read) -> std::io::Result<()> {
        let mut lines = LineBuffer::new(wire::MAX_MESSAGE_BYTES);
        let mut piece = vec![0; PIECE];
        loop {
            let length = match input.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            lines.space().extend_from_slice(&piece[..length]);
            while let Some(line) = lines.next_line() {
                match line {
                    Ok(line) if line.is_empty() => {}
                    Ok(line) => self.receive(line),
                    Err(too_long) => {
                        let error = ErrorReply::new(code::INVALID_REQUEST, too_long.to_string());
                        self.output.refuse(too_long.leading_id().as_ref(), &error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Cancels running calls, ends all commands and removes temporary files.
    fn finish(&self) {
        for call in self.lock_calls().values() {
            call.cancel();
        }
        self.context.operations.end_all();
        self.context.baseline.forget();
        let until = Instant::now() + LAST_PATIENCE;
        let mut calls = self.lock_calls();
        while !calls.is_empty() && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            self.call_ended.wait_for(&mut calls, left);
        }
    }

    fn lock_calls(&self) -> MutexGuard<'_, HashMap<Id, Cancellation>> {
        self.calls.lock()
    }

    fn receive(self: &Arc<Self>, line: bytes::Bytes) {
        match Message::parse(line) {
            Ok(Message::Request(request)) => self.receive_request(&request),
            Ok(Message::Notification(notification)) => self.receive_notification(&notification),
            Ok(Message::Response(response)) => self.context.gateway.take(&response),
            Err(malformed) => {
                let error = ErrorReply::new(malformed.code, malformed.to_string());
                self.output.refuse(malformed.id.as_ref(), &error);
            }
        }
    }

    fn receive_notification(&self, notification: &Notification) {
        if notification.method == method::CANCELLED
            && let Some(id) = notification.cancelled_request()
            && let Some(call) = self.lock_calls().get(&id)
        {
            call.cancel();
        }
    }

    fn receive_request(self: &Arc<Self>, request: &Request) {
        let answer = match request.method.as_str() {
            method::INITIALIZE => initialize(request),
            method::PING => Ok(json!({})),
            "tools/list" => return self.list_tools(&request.id),
            method::TOOLS_CALL => return self.call_tool(request),
            "resources/list" => {
                return self.in_background(request, |server, params| {
                    resources::list(&server.context, params).map_err(Into::into)
                });
            }
            "resources/templates/list" => Ok(resources::templates(&self.context)),
            method::RESOURCES_READ => resources::read(&self.context, request.params()).map_err(Into::into),
            method::SUBSCRIBE => self.subscriptions.subscribe(request.params()).map_err(Into::into),
            method::UNSUBSCRIBE => self.subscriptions.unsubscribe(request.params()).map_err(Into::into),
            "completion/complete" => completion::complete(&self.context, request.params()),
            other => Err(ErrorReply::new(code::METHOD_NOT_FOUND, format!("there is no method `{other}`"))),
        };
        self.respond(&request.id, answer);
    }

    fn respond(&self, id: &Id, answer: Result<Value, ErrorReply>) {
        match answer {
            Ok(result) => self.output.answer(id, &result),
            Err(error) => self.output.refuse(Some(id), &error),
        }
    }

    /// Serializes one tool after the other: all of them at once would be most of the memory that a worker ever
    /// needs.
    fn list_tools(&self, id: &Id) {
        let mut batch = Batch::default();
        batch.answer_with(id, |line| {
            line.extend_from_slice(b"{\"tools\":[");
            for (place, tool) in TOOLS.iter().filter(|tool| self.context.offers(tool.name)).enumerate() {
                if place > 0 {
                    line.push(b',');
                }
                let _ = serde_json::to_writer(&mut *line, &tool.to_json(self.context.results));
            }
            line.extend_from_slice(b"]}");
        });
        self.output.send(&batch);
        // This is the longest usual answer, and most clients ask once: return its memory to the system.
        drop(batch);
        self.first_list.call_once(fence::give_back_memory);
    }

    fn call_tool(self: &Arc<Self>, request: &Request) {
        #[derive(Deserialize)]
        struct Params {
            name: String,
            #[serde(default)]
            arguments: Value,
            #[serde(default, rename = "_meta")]
            meta: Map<String, Value>,
        }
        let params: Params = match serde_json::from_str(request.params_text().unwrap_or("{}")) {
            Ok(params) => params,
            Err(error) => return self.respond(&request.id, Err(invalid_params(&error.to_string()))),
        };
        let Some(tool) = tools::find(&params.name).filter(|tool| self.context.offers(tool.name)) else {
            return self.respond(&request.id, Err(no_such_tool(&params.name)));
        };
        let progress = request.wants_progress().and_then(|token| {
            let token = serde_json::from_slice(&token).ok()?;
            Some(Progress { token, output: Arc::clone(&self.output) })
        });
        let asks_for_data = params.meta.get(STRUCTURED).is_some_and(|asked| *asked == true);
        let results = if asks_for_data { ResultForm::TextAndData } else { self.context.results };
        let job = Job { id: request.id.clone(), tool, arguments: params.arguments, progress, results };
        if tool.pace == Pace::Brief {
            return self.work(job, &Cancellation::default());
        }
        self.on_a_thread(&request.id, move |server, cancellation| server.work(job, cancellation));
    }

    /// Runs `work` on a thread of its own, so that other requests do not wait for it.
    fn on_a_thread(self: &Arc<Self>, id: &Id, work: impl FnOnce(&Arc<Self>, &Cancellation) + Send + 'static) {
        let cancellation = Cancellation::default();
        {
            let mut calls = self.lock_calls();
            if calls.len() >= MAX_LONG_CALLS {
                drop(calls);
                let error = ErrorReply::new(
                    code::INTERNAL_ERROR,
                    format!("{MAX_LONG_CALLS} calls are already running"),
                );
                return self.respond(id, Err(error));
            }
            calls.insert(id.clone(), cancellation.clone());
        }
        let (server, own_id) = (Arc::clone(self), id.clone());
        let started = std::thread::Builder::new().spawn(move || {
            work(&server, &cancellation);
            server.lock_calls().remove(&own_id);
            server.call_ended.notify_all();
        });
        if let Err(error) = started {
            self.lock_calls().remove(id);
            self.respond(
                id,
                Err(ErrorReply::new(
                    code::INTERNAL_ERROR,
                    format!("cannot start a thread for the call: {error}"),
                )),
            );
        }
    }

    fn in_background(
        self: &Arc<Self>,
        request: &Request,
        work: impl FnOnce(&Arc<Self>, Option<&RawValue>) -> Result<Value, ErrorReply> + Send + 'static,
    ) {
        let (id, params) = (request.id.clone(), request.params().map(ToOwned::to_owned));
        self.on_a_thread(&request.id, move |server, cancellation| {
            let answer = work(server, params.as_deref());
            if !cancellation.is_cancelled() {
                server.respond(&id, answer);
            }
        });
    }

    fn work(&self, job: Job, cancellation: &Cancellation) {
        let Job { id, tool, mut arguments, progress, results } = job;
        let call = Call::new(&self.context, cancellation, progress);
        let outcome = take_session(&self.context.identity, &mut arguments)
            .and_then(|()| Arguments::read(tool.takes, arguments).map_err(ToolError::from))
            .and_then(|arguments| run_safely(tool, &call, &arguments));
        let answer = outcome.unwrap_or_else(|error| {
            if let Some(path) = &error.path {
                call.report("refused", || path.clone(), 0, error.code);
            }
            error.into_answer()
        });
        let mut batch = Batch::default();
        Self::report(&mut batch, &id, tool, &call);
        if !cancellation.is_cancelled() {
            batch.answer(&id, &answer.to_result(results));
        }
        self.output.send(&batch);
    }

    /// Adds the report of file operations for the gateway, ahead of the answer for the client.
    fn report(batch: &mut Batch, id: &Id, tool: &Tool, call: &Call<'_>) {
        let operations = call.take_reports();
        if !operations.is_empty() {
            let id: Value = serde_json::from_str(id.as_json()).unwrap_or_default();
            let params = json!({ "requestId": id, "tool": tool.name, "operations": operations });
            batch.notify(method::FILE_OPERATIONS, &params);
        }
    }
}

/// Turns a panic in a tool into an error, so that the session survives it.
fn run_safely(tool: &Tool, call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    catch_unwind(AssertUnwindSafe(|| (tool.run)(call, arguments))).unwrap_or_else(|_| {
        Err(ToolError::new(
            "internal_error",
            "the tool failed because of a bug in ringfence; please report it",
        ))
    })
}

/// A tool call that is ready to run.
struct Job {
    id: Id,
    tool: &'static Tool,
    arguments: Value,
    progress: Option<Progress>,
    results: ResultForm,
}

fn initialize(request: &Request) -> Result<Value, ErrorReply> {
    let params = InitializeParams::read(request.params()).map_err(|reason| invalid_params(&reason))?;
    Ok(json!({
        "protocolVersion": params.version().as_str(),
        "capabilities": {
            "tools": {},
            "resources": { "subscribe": true },
            "completions": {},
        },
        "serverInfo": {
            "name": "ringfence-workspace",
            "title": "ringfence workspace",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "instructions": INSTRUCTIONS,
    }))
}

fn no_such_tool(name: &str) -> ErrorReply {
    let names = tools::all_names();
    let is_known = names.contains(&name);
    let nearest = similar::get_close_matches(name, &names, 1, 0.6);
    let message = match (is_known, nearest.first()) {
        (true, _) => format!("the operator does not offer the tool `{name}` here"),
        (false, Some(nearest)) => format!("Unknown tool: `{name}`; there is `{nearest}`"),
        (false, None) => format!("Unknown tool: `{name}`"),
    };
    invalid_params(&message)
}

impl From<ResourceError> for ErrorReply {
    fn from(error: ResourceError) -> Self {
        error.to_reply()
    }
}
