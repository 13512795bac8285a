//! What a shared upstream must not mix up: whose subscription, whose log level, whose task.

use std::collections::{HashMap, HashSet, VecDeque};

use identity::SessionId;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use wire::{ErrorReply, Id, LogLevel, Outcome, Request, Response, Text, code, method, read_object};

use crate::messages;
use crate::settings::{MAX_SUBSCRIPTIONS, MAX_TASKS};

/// What to do with a client's request.
#[derive(Debug)]
pub(crate) enum Admission {
    Forward(Purpose),
    /// The client wants its own level; the upstream logs at the lowest that any client asked for.
    ForwardLevel {
        own: LogLevel,
        upstream: LogLevel,
    },
    /// The upstream need not hear of it; the result is `{}`.
    AnswerEmpty,
    Refuse(ErrorReply),
}

/// What the answer to a call is for, beside passing it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Plain,
    Subscribe(String),
    ListTasks,
    /// The answer may name a task, which then belongs to the caller.
    StartTask,
}

#[derive(Debug, Default)]
pub(crate) struct SharedState {
    subscribers: HashMap<String, HashSet<SessionId>>,
    levels: HashMap<SessionId, LogLevel>,
    task_owners: HashMap<String, SessionId>,
    /// Tasks in the order of their creation, to forget the oldest first.
    task_order: VecDeque<String>,
}

impl SharedState {
    /// Decides about a request. Tasks are told apart only where several sessions share the upstream; subscriptions and
    /// log levels are remembered for any upstream, because a later generation must hear them again.
    pub(crate) fn admit(&mut self, session: SessionId, request: &Request, is_shared: bool) -> Admission {
        match request.method.as_str() {
            method::SUBSCRIBE => self.admit_subscribe(session, request),
            method::UNSUBSCRIBE => self.admit_unsubscribe(session, request),
            method::SET_LEVEL => self.admit_level(session, request),
            _ if !is_shared => Admission::Forward(Purpose::Plain),
            method::TASKS_GET | method::TASKS_RESULT | method::TASKS_CANCEL => {
                self.admit_task(session, request)
            }
            method::TASKS_LIST => Admission::Forward(Purpose::ListTasks),
            _ if request.wants_task() => Admission::Forward(Purpose::StartTask),
            _ => Admission::Forward(Purpose::Plain),
        }
    }

    fn admit_subscribe(&self, session: SessionId, request: &Request) -> Admission {
        let Some(uri) = request.uri() else { return Admission::Forward(Purpose::Plain) };
        let held = self.subscribers.values().filter(|sessions| sessions.contains(&session)).count();
        if held >= MAX_SUBSCRIPTIONS {
            let message = format!("a session may hold at most {MAX_SUBSCRIPTIONS} subscriptions");
            return Admission::Refuse(ErrorReply::new(code::SERVER_ERROR, message));
        }
        Admission::Forward(Purpose::Subscribe(uri))
    }

    /// Takes in a subscription that a client had before its session was restored. Returns whether it is the first one.
    pub(crate) fn restore_subscription(&mut self, session: SessionId, uri: &str) -> bool {
        let sessions = self.subscribers.entry(uri.to_owned()).or_default();
        sessions.insert(session) && sessions.len() == 1
    }

    fn admit_unsubscribe(&mut self, session: SessionId, request: &Request) -> Admission {
        let Some(uri) = request.uri() else { return Admission::Forward(Purpose::Plain) };
        let Some(sessions) = self.subscribers.get_mut(&uri) else {
            return Admission::Forward(Purpose::Plain);
        };
        sessions.remove(&session);
        if sessions.is_empty() {
            self.subscribers.remove(&uri);
            Admission::Forward(Purpose::Plain)
        } else {
            Admission::AnswerEmpty
        }
    }

    fn admit_level(&mut self, session: SessionId, request: &Request) -> Admission {
        let Some(level) = request.level() else { return Admission::Forward(Purpose::Plain) };
        Admission::ForwardLevel { own: level, upstream: self.note_level(session, level) }
    }

    /// The level that serves all clients, now that this one wants another.
    pub(crate) fn note_level(&mut self, session: SessionId, level: LogLevel) -> LogLevel {
        self.levels.insert(session, level);
        self.levels.values().copied().min().unwrap_or(level)
    }

    fn admit_task(&self, session: SessionId, request: &Request) -> Admission {
        match request.task_id() {
            Some(task) if self.task_owners.get(&task) == Some(&session) => Admission::Forward(Purpose::Plain),
            _ => Admission::Refuse(ErrorReply::new(code::INVALID_PARAMS, "Task not found")),
        }
    }

    /// Learns from the answer to a call, and takes out of it what belongs to others.
    pub(crate) fn filter_answer(
        &mut self,
        session: SessionId,
        purpose: &Purpose,
        response: &Response,
        client_id: &Id,
    ) -> Text {
        if let Outcome::Result(result) = response.outcome() {
            match purpose {
                Purpose::Plain => {}
                Purpose::Subscribe(uri) => {
                    self.subscribers.entry(uri.clone()).or_default().insert(session);
                }
                Purpose::StartTask => self.learn_task(session, result),
                Purpose::ListTasks => return self.own_tasks(session, result, client_id),
            }
        }
        response.with_id(client_id)
    }

    fn learn_task(&mut self, session: SessionId, result: &str) {
        #[derive(serde::Deserialize)]
        struct Created {
            task: Task,
        }
        let Ok(created) = read_object::<Created>(result) else { return };
        self.task_owners.insert(created.task.id.clone(), session);
        self.task_order.push_back(created.task.id);
        if self.task_order.len() > MAX_TASKS
            && let Some(oldest) = self.task_order.pop_front()
        {
            self.task_owners.remove(&oldest);
        }
    }

    fn own_tasks(&self, session: SessionId, result: &str, client_id: &Id) -> Text {
        let is_own = |task: &&&RawValue| {
            read_object::<Task>(task.get()).is_ok_and(|task| self.task_owners.get(&task.id) == Some(&session))
        };
        let mut fields: HashMap<String, &RawValue> = serde_json::from_str(result).unwrap_or_default();
        let tasks: Vec<&RawValue> =
            fields.get("tasks").and_then(|tasks| serde_json::from_str(tasks.get()).ok()).unwrap_or_default();
        let own: Vec<&RawValue> = tasks.iter().filter(is_own).copied().collect();
        let own = serde_json::value::to_raw_value(&own).unwrap_or_default();
        fields.insert("tasks".to_owned(), &own);
        let result = serde_json::to_string(&fields).unwrap_or_default();
        messages::result(client_id, &result).into()
    }

    pub(crate) fn task_owner(&self, task: &str) -> Option<SessionId> {
        self.task_owners.get(task).copied()
    }

    pub(crate) fn subscribers(&self, uri: &str) -> impl Iterator<Item = SessionId> {
        self.subscribers.get(uri).into_iter().flatten().copied()
    }

    /// Whether a client wants log messages of this level. One that never said gets all.
    pub(crate) fn wants_log(&self, session: SessionId, level: Option<LogLevel>) -> bool {
        match (self.levels.get(&session), level) {
            (Some(wanted), Some(level)) => level >= *wanted,
            _ => true,
        }
    }

    /// What a restarted upstream must be told again: method and parameters.
    pub(crate) fn replay(&self) -> Vec<(&'static str, Value)> {
        let subscriptions = self.subscribers.keys().map(|uri| (method::SUBSCRIBE, json!({ "uri": uri })));
        let level =
            self.levels.values().min().map(|level| (method::SET_LEVEL, json!({ "level": level.as_str() })));
        subscriptions.chain(level).collect()
    }

    /// Forgets a session. Returns the resources that have no subscriber left.
    pub(crate) fn forget(&mut self, session: SessionId) -> Vec<String> {
        self.levels.remove(&session);
        self.task_owners.retain(|_, owner| *owner != session);
        self.task_order.retain(|task| self.task_owners.contains_key(task));
        for sessions in self.subscribers.values_mut() {
            sessions.remove(&session);
        }
        self.subscribers.extract_if(|_, sessions| sessions.is_empty()).map(|(uri, _)| uri).collect()
    }
}

#[derive(serde::Deserialize)]
struct Task {
    #[serde(rename = "taskId")]
    id: String,
}

#[cfg(test)]
mod tests;
