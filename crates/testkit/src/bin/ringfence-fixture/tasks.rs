//! Tasks of revision 2025-11-25, for the one tool that supports them: `sleep`.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use serde_json::{Value, json};

use crate::call_tools;
use crate::outgoing::{Failure, INVALID_PARAMS, METHOD_NOT_FOUND, ToolOutcome, to_json, tool_error_result};
use crate::running_calls::{BlockingCall, WakeUp};
use crate::server::Server;
use crate::timestamp;

#[derive(Debug, Default)]
pub(crate) struct Tasks {
    tasks: Mutex<Vec<Task>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Task {
    id: String,
    status: &'static str,
    created_at: String,
    last_updated_at: String,
    ttl: Value,
    result: Option<String>,
    wake: Sender<WakeUp>,
}

impl Task {
    fn describe(&self) -> Value {
        json!({
            "taskId": self.id,
            "status": self.status,
            "createdAt": self.created_at,
            "lastUpdatedAt": self.last_updated_at,
            "ttl": self.ttl,
            "pollInterval": 100,
        })
    }

    fn is_terminal(&self) -> bool {
        self.status != "working"
    }

    fn finish(&mut self, status: &'static str, result: Option<String>) {
        self.status = status;
        self.result = result;
        self.last_updated_at = timestamp::now();
    }
}

impl Tasks {
    /// Answers a `tools/call` that asks for a task, and runs the tool behind it.
    pub(crate) fn start(
        &self,
        server: &Arc<Server>,
        raw_call_id: &str,
        tool: &str,
        raw_task: &str,
        arguments: &str,
    ) -> Result<(), Failure> {
        let Some(tool) = call_tools::find_blocking(tool) else {
            return Err(Failure::new(METHOD_NOT_FOUND, format!("{tool} does not run as a task")));
        };
        let wish: Value = serde_json::from_str(raw_task).unwrap_or_default();
        let call = BlockingCall::new(arguments.to_owned(), None);
        let (id, description) = self.add(wish["ttl"].clone(), call.wake.clone());
        server.output.buffer_result(raw_call_id, &to_json(&json!({ "task": description })));
        let server = Arc::clone(server);
        std::thread::spawn(move || {
            let finished = match tool(&server, &call) {
                Ok(ToolOutcome::Result(result)) => ("completed", Some(result)),
                Ok(_) => ("completed", None),
                Err(crate::dispatch::Interruption::Cancelled) => ("cancelled", None),
                Err(crate::dispatch::Interruption::Failed(text)) => {
                    ("failed", Some(tool_error_result(&text)))
                }
            };
            server.tasks.finish(&id, finished.0, finished.1);
        });
        Ok(())
    }

    fn add(&self, ttl: Value, wake: Sender<WakeUp>) -> (String, Value) {
        let mut tasks = self.lock();
        let id = format!("task-{}-{}", std::process::id(), tasks.len() + 1);
        let now = timestamp::now();
        let task = Task {
            id: id.clone(),
            status: "working",
            created_at: now.clone(),
            last_updated_at: now,
            ttl,
            result: None,
            wake,
        };
        let description = task.describe();
        tasks.push(task);
        (id, description)
    }

    fn finish(&self, id: &str, status: &'static str, result: Option<String>) {
        let mut tasks = self.lock();
        if let Some(task) = tasks.iter_mut().find(|task| task.id == id && !task.is_terminal()) {
            task.finish(status, result);
        }
        self.changed.notify_all();
    }

    pub(crate) fn get_result(&self, params: &Value) -> Result<String, Failure> {
        let tasks = self.lock();
        find(&tasks, params).map(|task| to_json(&task.describe()))
    }

    pub(crate) fn list_result(&self) -> String {
        let descriptions: Vec<Value> = self.lock().iter().map(Task::describe).collect();
        to_json(&json!({ "tasks": descriptions }))
    }

    pub(crate) fn cancel_result(&self, params: &Value) -> Result<String, Failure> {
        let mut tasks = self.lock();
        let id = find(&tasks, params)?.id.clone();
        let Some(task) = tasks.iter_mut().find(|task| task.id == id && !task.is_terminal()) else {
            return Err(Failure::new(INVALID_PARAMS, "the task has already ended"));
        };
        task.finish("cancelled", None);
        drop(task.wake.send(WakeUp::Cancelled));
        let description = to_json(&task.describe());
        self.changed.notify_all();
        Ok(description)
    }

    /// `tasks/result` blocks until the task is over, so it waits on a thread of its own.
    pub(crate) fn answer_when_finished(
        &self,
        server: &Arc<Server>,
        raw_id: &str,
        raw_params: &str,
    ) -> Result<(), Failure> {
        let params: Value = serde_json::from_str(raw_params).unwrap_or_default();
        let task_id = find(&self.lock(), &params)?.id.clone();
        let (server, raw_id) = (Arc::clone(server), raw_id.to_owned());
        std::thread::spawn(move || {
            match server.tasks.wait_for_result(&task_id) {
                Some(result) => server.output.buffer_result(&raw_id, &with_related_task(&result, &task_id)),
                None => server
                    .output
                    .buffer_failure(&raw_id, &Failure::new(INVALID_PARAMS, "the task was cancelled")),
            }
            server.output.flush();
        });
        Ok(())
    }

    fn wait_for_result(&self, id: &str) -> Option<String> {
        let is_working =
            |tasks: &mut Vec<Task>| tasks.iter().any(|task| task.id == id && !task.is_terminal());
        let mut tasks = self.lock();
        self.changed.wait_while(&mut tasks, is_working);
        tasks.iter().find(|task| task.id == id).and_then(|task| task.result.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Task>> {
        self.tasks.lock()
    }
}

fn find<'tasks>(tasks: &'tasks [Task], params: &Value) -> Result<&'tasks Task, Failure> {
    let id = params["taskId"].as_str().unwrap_or_default();
    tasks
        .iter()
        .find(|task| task.id == id)
        .ok_or_else(|| Failure::new(INVALID_PARAMS, format!("unknown task: {id}")))
}

fn with_related_task(result: &str, task_id: &str) -> String {
    let mut result: Value = serde_json::from_str(result).expect("a tool's result is JSON");
    result["_meta"] = json!({"io.modelcontextprotocol/related-task": {"taskId": task_id}});
    to_json(&result)
}
