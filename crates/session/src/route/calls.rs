//! The client's requests to several servers: each goes to the server that [`Merge`](super::merge::Merge) names, or is
//! answered by the gateway.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use audit::CallOutcome;
use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use wire::{ErrorReply, Outcome, Request, Text, code, method};

use super::aggregate::{Aggregate, LIST_WITHIN};
use super::merge::{Answer, Destination};
use crate::catalogue::{CatalogueError, Listed, list_all};
use crate::client::{Call, note_log_level};
use crate::list::List;
use crate::messages::empty_result;
use crate::view::{page_number, pages};

/// A call by a name that is not known waits so long for servers that may have it.
const CALL_WITHIN: Duration = Duration::from_secs(60);

/// What a list of resources does about servers that do not run in the session yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unstarted {
    /// Shows what the probe saw. Clients list resources before they do anything, and a list that waits for all servers to
    /// start would keep them from their tools.
    AsProbed,
    Start,
}

impl Aggregate {
    pub(crate) fn call(self: &Arc<Self>, call: Arc<Call>, request: Box<Request>) {
        self.update_view();
        let destination = self.lock().destination(&request);
        match destination {
            Destination::Member { place, name } => self.hand_to(place, name.as_deref(), call, request),
            Destination::Gateway(answer) => self.answer(&answer, call, &request),
            Destination::Unknown { .. } => self.wait_for_name(call, request),
            Destination::UnknownResource(_) => self.wait_for_resource(call, request),
            Destination::UnknownTask => {
                call.fail(&ErrorReply::new(code::INVALID_PARAMS, "Task not found"));
            }
            Destination::Incomplete(message) => call.fail(&ErrorReply::new(code::INVALID_PARAMS, message)),
            Destination::Ambiguous => {
                let message =
                    format!("Method not found: {} (it does not say which server it is for)", request.method);
                call.fail(&ErrorReply::new(code::METHOD_NOT_FOUND, message));
            }
        }
    }

    /// Gives a call to a member, under the name that the member knows.
    fn hand_to(&self, place: usize, name: Option<&str>, call: Arc<Call>, mut request: Box<Request>) {
        if let Some(name) = name {
            request.call_by(name);
        }
        let trouble = self.trouble(place);
        if let Some(worker) = self.worker(place).filter(|_| trouble.is_none()) {
            return worker.call(call, request);
        }
        let reason = trouble.as_deref().unwrap_or("it does not run");
        call.fail(&unavailable(self.members[place].name(), reason));
    }

    fn answer(self: &Arc<Self>, answer: &Answer, call: Arc<Call>, request: &Request) {
        match answer {
            Answer::Pong => call.answer(empty_result(&call.client_id).into(), CallOutcome::Ok),
            Answer::Page(list) => self.answer_list(*list, call, request),
            Answer::Resources => self.list_resources(call, request),
            Answer::Level => self.set_level(&call, request),
            Answer::Tasks => self.list_tasks(call),
        }
    }

    /// A server that has not shown its lists yet may have the tool or prompt.
    fn wait_for_name(self: &Arc<Self>, call: Arc<Call>, request: Box<Request>) {
        self.consider_all();
        if !self.is_looking() {
            return self.settle_name(call, request);
        }
        let aggregate = Arc::clone(self);
        self.context.tasks.spawn(async move {
            aggregate.looked(CALL_WITHIN).await;
            aggregate.view();
            aggregate.settle_name(call, request);
        });
    }

    fn settle_name(&self, call: Arc<Call>, request: Box<Request>) {
        let destination = self.lock().destination(&request);
        match destination {
            Destination::Member { place, name } => self.hand_to(place, name.as_deref(), call, request),
            Destination::Unknown { what, name } => call.fail(&self.unknown(what, &name)),
            _ => call.fail(&self.unknown("name", "")),
        }
    }

    /// No server has it; but one that is away may.
    fn unknown(&self, what: &str, name: &str) -> ErrorReply {
        let name: String = name.chars().take(200).collect();
        let away: Vec<String> = (0..self.members.len())
            .filter_map(|place| Some(format!("`{}`: {}", self.members[place].name(), self.trouble(place)?)))
            .collect();
        let mut message = format!("Unknown {what}: {name}");
        if !away.is_empty() {
            let _ = write!(message, "; some servers are not available ({})", away.join("; "));
        }
        ErrorReply::new(code::INVALID_PARAMS, message)
    }

    fn answer_list(self: &Arc<Self>, list: List, call: Arc<Call>, request: &Request) {
        self.consider_all();
        let cursor = request.cursor();
        if !self.is_looking() {
            return answer_page(&call, self.view().page(list, cursor.as_deref()));
        }
        let aggregate = Arc::clone(self);
        self.context.tasks.spawn(async move {
            aggregate.looked(LIST_WITHIN).await;
            answer_page(&call, aggregate.view().page(list, cursor.as_deref()));
        });
    }

    fn list_resources(self: &Arc<Self>, call: Arc<Call>, request: &Request) {
        let (aggregate, cursor) = (Arc::clone(self), request.cursor());
        self.context.tasks.spawn(async move {
            let items = aggregate.gather_resources(Unstarted::AsProbed).await;
            let page = page_number(cursor.as_deref());
            let pages = pages(List::Resources, &items);
            answer_page(&call, page.and_then(|page| pages.get(page).cloned()));
        });
    }

    /// Asks all servers that have resources, at the same time, and remembers whose each of them is.
    async fn gather_resources(self: &Arc<Self>, unstarted: Unstarted) -> Vec<Box<RawValue>> {
        if self.is_looking() {
            self.looked(LIST_WITHIN).await;
        }
        let mut asked = JoinSet::new();
        let mut lists: Vec<(usize, Vec<Listed>)> = Vec::new();
        for place in 0..self.members.len() {
            let has_some = self.lock().has_resources(place);
            if has_some && unstarted == Unstarted::AsProbed && self.members[place].workers().is_empty() {
                lists.push((place, self.lock().show_probed_resources(place)));
                continue;
            }
            if has_some
                && self.trouble(place).is_none()
                && let Some(worker) = self.worker(place)
            {
                let within = worker.call_timeout().min(LIST_WITHIN);
                asked.spawn(async move {
                    let listed = list_all(&worker, List::Resources, within);
                    let listed = tokio::time::timeout(LIST_WITHIN, listed).await;
                    worker.stop_if_for_one_call().await;
                    (place, listed.unwrap_or(Err(CatalogueError::too_slow(List::Resources, within))))
                });
            }
        }
        for (place, list) in asked.join_all().await {
            match list {
                Ok(items) => lists.push((place, items)),
                Err(error) => tracing::warn!(upstream = self.members[place].name(), "no resources: {error}"),
            }
        }
        lists.sort_by_key(|(place, _)| *place);
        self.lock().note_resources(lists)
    }

    /// A resource that no list has yet: all servers are asked once more.
    fn wait_for_resource(self: &Arc<Self>, call: Arc<Call>, request: Box<Request>) {
        let aggregate = Arc::clone(self);
        self.context.tasks.spawn(async move {
            aggregate.gather_resources(Unstarted::Start).await;
            let destination = aggregate.lock().destination(&request);
            match destination {
                Destination::Member { place, .. } => aggregate.hand_to(place, None, call, request),
                _ => call.fail(
                    &ErrorReply::new(code::RESOURCE_NOT_FOUND, "Resource not found")
                        .with_data(json!({ "uri": request.uri() })),
                ),
            }
        });
    }

    /// Tells every server that runs; the session's record tells every later one.
    fn set_level(&self, call: &Arc<Call>, request: &Request) {
        let Some(level) = request.level() else {
            return call.fail(&ErrorReply::new(code::INVALID_PARAMS, "no such log level"));
        };
        note_log_level(&self.client, level);
        for worker in self.workers() {
            worker.set_level(self.client.id(), level);
        }
        call.answer(empty_result(&call.client_id).into(), CallOutcome::Ok);
    }

    /// The tasks of this session, of all servers that have some.
    fn list_tasks(self: &Arc<Self>, call: Arc<Call>) {
        let owners = self.lock().task_owners();
        let workers: Vec<_> = owners.into_iter().filter_map(|place| self.worker(place)).collect();
        let aggregate = Arc::clone(self);
        self.context.tasks.spawn(async move {
            let mut tasks = Vec::new();
            for worker in workers {
                let asked =
                    tokio::time::timeout(worker.call_timeout(), worker.ask(method::TASKS_LIST, json!({})));
                let asked = asked.await;
                worker.stop_if_for_one_call().await;
                let Ok(Ok(response)) = asked else { continue };
                let Outcome::Result(result) = response.outcome() else { continue };
                let result: Value = serde_json::from_str(result).unwrap_or_default();
                let merge = aggregate.lock();
                let is_ours = |task: &&Value| task["taskId"].as_str().is_some_and(|id| merge.owns_task(id));
                tasks.extend(result["tasks"].as_array().into_iter().flatten().filter(is_ours).cloned());
            }
            answer_page(&call, Some(json!({ "tasks": tasks }).to_string().into()));
        });
    }
}

fn answer_page(call: &Arc<Call>, page: Option<Bytes>) {
    let Some(page) = page else {
        return call.fail(&ErrorReply::new(code::INVALID_PARAMS, "no such cursor"));
    };
    call.answer(Text::result(&call.client_id, page), CallOutcome::Ok);
}

fn unavailable(server: &str, reason: &str) -> ErrorReply {
    ErrorReply::new(code::SERVER_ERROR, format!("The server `{server}` is not available: {reason}"))
        .with_data(json!({ "reason": "server_unavailable", "server": server }))
}
