//! Which server a request of the client is for.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use wire::{ErrorReply, Outcome, Request, Response, Text, code, method};

use super::{Aggregate, CALL_WITHIN, LIST_WITHIN};
use crate::Session;
use crate::call::Call;
use crate::catalogue::{CatalogueError, List, list_all};
use crate::inbound::empty_result;
use crate::settings::MAX_TASKS;
use crate::view::{Target, View, page_number, pages};
use audit::CallOutcome;

/// Resources whose server is remembered.
const MAX_RESOURCES: usize = 100_000;

impl Aggregate {
    pub(crate) fn call(self: &Arc<Self>, session: &Arc<Session>, call: Arc<Call>, request: Box<Request>) {
        match request.method.as_str() {
            method::PING => call.answer(empty_result(&call.client_id).into(), CallOutcome::Ok),
            method::TOOLS_CALL => self.call_named(session, call, request, View::tool, "tool"),
            method::PROMPTS_GET => self.call_named(session, call, request, View::prompt, "prompt"),
            method::COMPLETE if request.name().is_some() => {
                self.call_named(session, call, request, View::prompt, "prompt");
            }
            method::COMPLETE | method::RESOURCES_READ | method::SUBSCRIBE | method::UNSUBSCRIBE => {
                self.call_by_uri(session, call, request);
            }
            method::RESOURCES_LIST => self.list_resources(session, call, &request),
            method::SET_LEVEL => self.set_level(session, &call, &request),
            method::TASKS_GET | method::TASKS_RESULT | method::TASKS_CANCEL => {
                let owner = request.task_id().and_then(|task| self.lock().tasks.get(&task).copied());
                match owner {
                    Some(member) => self.hand_to(session, member, call, request),
                    None => call.fail(&ErrorReply::new(code::INVALID_PARAMS, "Task not found")),
                }
            }
            method::TASKS_LIST => self.list_tasks(session, call),
            other => match List::of_request(other) {
                Some(list) => self.answer_list(list, call, &request),
                None => self.call_only_one(session, call, request),
            },
        }
    }

    /// A tool or prompt, by the name that the client knows.
    fn call_named(
        self: &Arc<Self>,
        session: &Arc<Session>,
        call: Arc<Call>,
        mut request: Box<Request>,
        find: for<'a> fn(&'a View, &str) -> Option<&'a Target>,
        what: &'static str,
    ) {
        let Some(name) = request.name() else {
            return call.fail(&ErrorReply::new(code::INVALID_PARAMS, format!("the {what} has no name")));
        };
        if let Some(target) = find(&self.view(), &name) {
            if target.own != name {
                request.call_by(&target.own);
            }
            return self.hand_to(session, target.member, call, request);
        }
        self.consider_all();
        if !self.is_looking() {
            return call.fail(&self.unknown(session, what, &name));
        }
        // A server that has not shown its lists yet may have it.
        let (aggregate, session) = (Arc::clone(self), Arc::clone(session));
        tokio::spawn(async move {
            aggregate.looked(CALL_WITHIN).await;
            let target = find(&aggregate.view(), &name).cloned();
            match target {
                Some(target) => {
                    request.call_by(&target.own);
                    aggregate.hand_to(&session, target.member, call, request);
                }
                None => call.fail(&aggregate.unknown(&session, what, &name)),
            }
        });
    }

    /// Nobody has it; but somebody who is away may.
    fn unknown(&self, session: &Session, what: &str, name: &str) -> ErrorReply {
        let name: String = name.chars().take(200).collect();
        let away: Vec<String> = self
            .members
            .iter()
            .filter_map(|member| Some(format!("`{}`: {}", member.server.name(), member.trouble(session)?)))
            .collect();
        let mut message = format!("Unknown {what}: {name}");
        if !away.is_empty() {
            let _ = write!(message, "; some servers are not available ({})", away.join("; "));
        }
        ErrorReply::new(code::INVALID_PARAMS, message)
    }

    fn hand_to(&self, session: &Arc<Session>, member: usize, call: Arc<Call>, request: Box<Request>) {
        let member = &self.members[member];
        let trouble = member.trouble(session);
        match member.worker(session).filter(|_| trouble.is_none()) {
            Some(worker) => {
                call.give_to(&worker);
                worker.call(call, request);
            }
            None => {
                call.fail(&unavailable(
                    member.server.name(),
                    trouble.as_deref().unwrap_or("it does not run"),
                ));
            }
        }
    }

    /// Methods that only a server can know, if there is but one.
    fn call_only_one(&self, session: &Arc<Session>, call: Arc<Call>, request: Box<Request>) {
        if self.members.len() == 1 {
            return self.hand_to(session, 0, call, request);
        }
        let message =
            format!("Method not found: {} (it does not say which server it is for)", request.method);
        call.fail(&ErrorReply::new(code::METHOD_NOT_FOUND, message));
    }

    fn answer_list(self: &Arc<Self>, list: List, call: Arc<Call>, request: &Request) {
        self.consider_all();
        let cursor = request.cursor();
        if !self.is_looking() {
            return answer_page(&call, self.view().page(list, cursor.as_deref()));
        }
        let aggregate = Arc::clone(self);
        tokio::spawn(async move {
            aggregate.looked(LIST_WITHIN).await;
            answer_page(&call, aggregate.view().page(list, cursor.as_deref()));
        });
    }

    /// Asks all servers that have resources, at the same time, and remembers whose each of them is.
    fn list_resources(self: &Arc<Self>, session: &Arc<Session>, call: Arc<Call>, request: &Request) {
        let (aggregate, session, cursor) = (Arc::clone(self), Arc::clone(session), request.cursor());
        tokio::spawn(async move {
            let items = aggregate.gather_resources(&session).await;
            let page = page_number(cursor.as_deref());
            let pages = pages(List::Resources, &items);
            answer_page(&call, page.and_then(|page| pages.get(page).cloned()));
        });
    }

    async fn gather_resources(self: &Arc<Self>, session: &Arc<Session>) -> Vec<Box<RawValue>> {
        if self.is_looking() {
            self.looked(LIST_WITHIN).await;
        }
        let mut asked = JoinSet::new();
        for (place, member) in self.members.iter().enumerate() {
            let has_some = member.catalogue().is_some_and(|catalogue| catalogue.capabilities.resources);
            if !has_some || member.trouble(session).is_some() {
                continue;
            }
            if let Some(worker) = member.worker(session) {
                let within = worker.call_timeout().min(LIST_WITHIN);
                asked.spawn(async move {
                    let listed =
                        tokio::time::timeout(LIST_WITHIN, list_all(&worker, List::Resources, within));
                    let listed =
                        listed.await.unwrap_or(Err(CatalogueError::too_slow(List::Resources, within)));
                    worker.stop_if_for_one_call().await;
                    (place, listed)
                });
            }
        }
        let mut lists = Vec::new();
        for (place, list) in asked.join_all().await {
            match list {
                Ok(items) => lists.push((place, items)),
                Err(error) => {
                    tracing::warn!(upstream = self.members[place].server.name(), "no resources: {error}");
                }
            }
        }
        lists.sort_by_key(|(place, _)| *place);
        let mut state = self.lock();
        state.resources.clear();
        let mut texts = Vec::new();
        for (place, items) in lists {
            for item in items {
                if state.resources.len() < MAX_RESOURCES && !state.resources.contains_key(&item.own) {
                    state.resources.insert(item.own, place);
                    texts.push(item.text);
                }
            }
        }
        texts
    }

    /// A resource: of the server that lists it, or whose template makes such URIs, or the only one that has any.
    fn call_by_uri(self: &Arc<Self>, session: &Arc<Session>, call: Arc<Call>, request: Box<Request>) {
        let Some(uri) = request.uri() else {
            return call.fail(&ErrorReply::new(code::INVALID_PARAMS, "the request names no resource"));
        };
        if let Some(member) = self.member_of_uri(&uri) {
            return self.hand_to(session, member, call, request);
        }
        let (aggregate, session) = (Arc::clone(self), Arc::clone(session));
        tokio::spawn(async move {
            aggregate.gather_resources(&session).await;
            match aggregate.member_of_uri(&uri) {
                Some(member) => aggregate.hand_to(&session, member, call, request),
                None => call.fail(
                    &ErrorReply::new(code::RESOURCE_NOT_FOUND, "Resource not found")
                        .with_data(json!({ "uri": uri })),
                ),
            }
        });
    }

    fn member_of_uri(&self, uri: &str) -> Option<usize> {
        let listed = self.lock().resources.get(uri).copied();
        listed.or_else(|| self.view().member_for_uri(uri)).or_else(|| {
            let has_some = |place: &usize| {
                self.members[*place].catalogue().is_some_and(|catalogue| catalogue.capabilities.resources)
            };
            let mut with_resources = (0..self.members.len()).filter(has_some);
            with_resources.next().filter(|_| with_resources.next().is_none() && !self.is_looking())
        })
    }

    /// Every server that runs is told, and every later one will be.
    fn set_level(&self, session: &Session, call: &Arc<Call>, request: &Request) {
        let Some(level) = request.level() else {
            return call.fail(&ErrorReply::new(code::INVALID_PARAMS, "no such log level"));
        };
        self.lock().level = Some(level);
        for worker in self.workers() {
            worker.tell_level(session.id(), level);
        }
        call.answer(empty_result(&call.client_id).into(), CallOutcome::Ok);
    }

    /// The answer to a call that was to run as a task names it.
    pub(crate) fn learn_task(&self, server: &str, response: &Response) {
        let Outcome::Result(result) = response.outcome() else { return };
        let result: Value = serde_json::from_str(result).unwrap_or_default();
        if let (Some(task), Some(place)) = (result["task"]["taskId"].as_str(), self.place_of(server)) {
            let mut state = self.lock();
            if state.tasks.len() < MAX_TASKS {
                state.tasks.insert(task.to_owned(), place);
            }
        }
    }

    /// The tasks of this session, of all servers that know some.
    fn list_tasks(self: &Arc<Self>, session: &Arc<Session>, call: Arc<Call>) {
        let owners: HashSet<usize> = self.lock().tasks.values().copied().collect();
        let workers: Vec<_> =
            owners.into_iter().filter_map(|place| self.members[place].worker(session)).collect();
        let aggregate = Arc::clone(self);
        tokio::spawn(async move {
            let mut tasks = Vec::new();
            for worker in workers {
                let asked =
                    tokio::time::timeout(worker.call_timeout(), worker.ask(method::TASKS_LIST, json!({})));
                let asked = asked.await;
                worker.stop_if_for_one_call().await;
                let Ok(Ok(response)) = asked else { continue };
                let Outcome::Result(result) = response.outcome() else { continue };
                let result: Value = serde_json::from_str(result).unwrap_or_default();
                let known = aggregate.lock();
                let is_ours =
                    |task: &&Value| task["taskId"].as_str().is_some_and(|id| known.tasks.contains_key(id));
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
