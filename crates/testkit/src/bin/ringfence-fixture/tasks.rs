//! Tasks of revision 2025-11-25, for the one tool that supports them: `sleep`.

use std::sync::mpsc::Sender;

use parking_lot::{Condvar, Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::outgoing::{INVALID_PARAMS, RpcError, to_json};
use crate::running_calls::WakeUp;

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
        self.last_updated_at = now();
    }
}

impl Tasks {
    /// Adds a running task; returns its id and description.
    pub(crate) fn add(&self, ttl: Value, wake: Sender<WakeUp>) -> (String, Value) {
        let mut tasks = self.lock();
        let id = format!("task-{}-{}", std::process::id(), tasks.len() + 1);
        let now = now();
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

    pub(crate) fn finish(&self, id: &str, status: &'static str, result: Option<String>) {
        let mut tasks = self.lock();
        if let Some(task) = tasks.iter_mut().find(|task| task.id == id && !task.is_terminal()) {
            task.finish(status, result);
        }
        self.changed.notify_all();
    }

    pub(crate) fn get_result(&self, params: &Value) -> Result<String, RpcError> {
        let tasks = self.lock();
        find(&tasks, params).map(|task| to_json(&task.describe()))
    }

    pub(crate) fn list_result(&self) -> String {
        let descriptions: Vec<Value> = self.lock().iter().map(Task::describe).collect();
        to_json(&json!({ "tasks": descriptions }))
    }

    pub(crate) fn cancel_result(&self, params: &Value) -> Result<String, RpcError> {
        let mut tasks = self.lock();
        let id = find(&tasks, params)?.id.clone();
        let Some(task) = tasks.iter_mut().find(|task| task.id == id && !task.is_terminal()) else {
            return Err(RpcError::new(INVALID_PARAMS, "the task has already ended"));
        };
        task.finish("cancelled", None);
        drop(task.wake.send(WakeUp::Cancelled));
        let description = to_json(&task.describe());
        self.changed.notify_all();
        Ok(description)
    }

    /// The id of the task that the parameters name.
    pub(crate) fn id_of(&self, params: &Value) -> Result<String, RpcError> {
        find(&self.lock(), params).map(|task| task.id.clone())
    }

    /// Blocks until the task is over; `None` if it was cancelled.
    pub(crate) fn wait_for_result(&self, id: &str) -> Option<String> {
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

fn find<'tasks>(tasks: &'tasks [Task], params: &Value) -> Result<&'tasks Task, RpcError> {
    let id = params["taskId"].as_str().unwrap_or_default();
    tasks
        .iter()
        .find(|task| task.id == id)
        .ok_or_else(|| RpcError::new(INVALID_PARAMS, format!("unknown task: {id}")))
}

/// The current time in UTC, to the second.
fn now() -> String {
    jiff::Timestamp::now().strftime("%FT%TZ").to_string()
}
