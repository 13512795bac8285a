//! Messages of an upstream, and the session that each belongs to. Every message goes to exactly one session, except a
//! changed list, which concerns all of them.

mod without_secrets;

use std::sync::Arc;
use std::time::Instant;

use audit::CallOutcome;
use serde_json::Value;
use wire::{
    ErrorReply, Id, LineTooLong, Message, Notification, Outcome, Request, Response, Text, code, method,
};

use self::without_secrets::{Words, without_secrets};
use super::action::{Action, Note};
use super::client_handle::{ClientHandle, WorkerEvent};
use super::remedy::with_remedy;
use super::routing::{Pending, Routing};
use super::shared_state::Purpose;
use crate::client::{Call, Client, Prefer, ReportedFiles, outcome_of, with_instance};
use crate::error::answer_too_long;
use crate::list::List;
use crate::messages::empty_result;
use crate::settings::MAX_TASKS;

/// Longer answers are not searched for a refusal of the fence.
const MAX_FAILURE: usize = 4096;

impl Routing {
    /// Routes one message of the upstream.
    pub(super) fn receive(&mut self, message: Message, now: Instant) -> Vec<Action> {
        match message {
            Message::Response(response) => self.receive_response(response),
            Message::Notification(notification) => self.receive_notification(&notification, now),
            Message::Request(request) => self.receive_request(request),
        }
    }

    /// A line was too long to be kept; if it was an answer, its call fails.
    pub(super) fn lose_line(&mut self, line: &LineTooLong) -> Vec<Action> {
        let id = line.leading_id().and_then(|id| id.as_number());
        id.map(|id| self.fail(id, || answer_too_long(line.limit))).unwrap_or_default()
    }

    fn receive_response(&mut self, response: Response) -> Vec<Action> {
        let Some(id) = response.id.as_number() else {
            return vec![Action::Note(Note::StrayAnswer(response.id))];
        };
        match self.pending.remove(&id) {
            Some(Pending::Call(call, purpose)) => self.answer(call, &purpose, &response),
            Some(Pending::Own(sender)) => {
                let _ = sender.send(Ok(response));
                Vec::new()
            }
            None if self.was_used(id) => vec![Action::Note(Note::LateAnswer)],
            None => vec![Action::Note(Note::StrayAnswer(response.id))],
        }
    }

    fn answer(&mut self, call: Arc<Call>, purpose: &Purpose, response: &Response) -> Vec<Action> {
        let mut actions = Vec::new();
        let session = call.client.id();
        if call.is_task {
            self.keep_task_progress(&call);
            actions.extend(self.task_started(&call, response));
        }
        if let (Purpose::Subscribe(uri), false) = (purpose, response.is_error()) {
            let client = Arc::clone(&call.client);
            actions.push(Action::Subscription { client, uri: uri.clone(), is_on: true });
        }
        let outcome = match response.is_error() {
            true => CallOutcome::Error,
            false if call.record().is_some() => outcome_of(response),
            false => CallOutcome::Ok,
        };
        let text = if *purpose != Purpose::Plain {
            self.shared.filter_answer(session, purpose, response, &call.client_id)
        } else if self.terms.verbose_meta {
            with_instance(&call.client, response, &call.client_id)
        } else {
            response.with_id(&call.client_id)
        };
        let text = if response.is_error() { self.without_secrets(text, Words::Error) } else { text };
        let text = match self.refused_write(response) {
            None => text,
            Some(remedy) => {
                let text = with_remedy(text, &remedy);
                actions.push(Action::Note(Note::RefusedWrite(remedy)));
                text
            }
        };
        actions.push(Action::Answer { call, text, outcome });
        actions.extend(self.terms.retire());
        actions
    }

    /// What to do about a write that the fence refused, if the answer is an error about one.
    fn refused_write(&self, response: &Response) -> Option<String> {
        if response.outcome_length() > MAX_FAILURE {
            return None;
        }
        let (Outcome::Result(text) | Outcome::Error(text)) = response.outcome();
        let says_so = || [r#""isError":true"#, r#""isError": true"#].iter().any(|sign| text.contains(sign));
        if !response.is_error() && !says_so() {
            return None;
        }
        let failure: Value = serde_json::from_str(text).ok()?;
        let of_tool =
            failure["content"].as_array().into_iter().flatten().filter_map(|item| item["text"].as_str());
        let words: Vec<&str> = of_tool.chain(failure["message"].as_str()).collect();
        self.terms.hint_on_refused_write(&words.join("\n"))
    }

    fn without_secrets(&self, text: Text, words: Words) -> Text {
        without_secrets(&self.terms.upstream.redaction, text, words)
    }

    fn keep_task_progress(&mut self, call: &Call) {
        let (Some(id), Some(token)) = (call.sent_as(), call.progress_token.clone()) else { return };
        self.task_progress.push_back((id, call.client.id(), token));
        if self.task_progress.len() > MAX_TASKS {
            self.task_progress.pop_front();
        }
    }

    fn task_started(&self, call: &Call, response: &Response) -> Option<Action> {
        let Outcome::Result(result) = response.outcome() else { return None };
        let result: Value = serde_json::from_str(result).ok()?;
        let task = result["task"]["taskId"].as_str()?.to_owned();
        let handle = self.sessions.get(&call.client.id())?.clone();
        Some(Action::Tell(handle, WorkerEvent::TaskStarted(task)))
    }

    fn receive_notification(&mut self, notification: &Notification, now: Instant) -> Vec<Action> {
        match notification.method.as_str() {
            method::PROGRESS => self.receive_progress(notification, now),
            method::CANCELLED => self.receive_cancellation(notification),
            method::FILE_OPERATIONS if self.terms.upstream.reports_files => {
                vec![self.record_files(notification)]
            }
            method::RESOURCE_UPDATED => {
                deliver(&self.subscribed(notification), notification, Prefer::Standalone)
            }
            other => {
                if let Some(list) = List::of_change(other) {
                    return self.list_changed(list, notification);
                }
                let owner = self.owner(notification);
                let text = notification.text().into();
                let text = match other {
                    method::LOG_MESSAGE => self.without_secrets(text, Words::Log),
                    _ => text,
                };
                deliver_text(owner.as_slice(), notification, &text, Prefer::Call)
            }
        }
    }

    /// Clients of one server hear it as it is; those of several hear when their merged list has changed.
    fn list_changed(&self, list: List, notification: &Notification) -> Vec<Action> {
        if self.terms.is_passed_through {
            let clients: Vec<_> = self.sessions.values().map(|handle| Arc::clone(&handle.client)).collect();
            return deliver(&clients, notification, Prefer::Standalone);
        }
        if self.sessions.is_empty() {
            return vec![Action::Note(Note::DroppedNotification(notification.method.clone()))];
        }
        self.tell_sessions(&WorkerEvent::ListChanged(list))
    }

    /// What the built-in server did to files, for the audit log.
    fn record_files(&self, notification: &Notification) -> Action {
        let Some(files) = ReportedFiles::read(notification) else {
            return Action::Note(Note::DroppedNotification(notification.method.clone()));
        };
        let session = match self.pending.get(&files.request_id) {
            Some(Pending::Call(call, _)) => Some(call.client.handle()),
            // The call was given up in the meantime.
            _ if !self.terms.serves_many() => self.sole_session().map(|handle| handle.client.handle()),
            _ => None,
        };
        Action::RecordFiles { session, files }
    }

    fn receive_progress(&self, notification: &Notification, now: Instant) -> Vec<Action> {
        let dropped = || vec![Action::Note(Note::DroppedNotification(notification.method.clone()))];
        let Some(id) = notification.progress_token().and_then(|token| token.as_number()) else {
            return dropped();
        };
        if let Some(Pending::Call(call, _)) = self.pending.get(&id) {
            call.clock().refresh(now);
            let text = call.progress_token.as_ref().map(|token| notification.with_progress_token(token));
            let text = text.map(|text| self.without_secrets(text, Words::Progress));
            return text.map(|text| Action::Progress { call: Arc::clone(call), text }).into_iter().collect();
        }
        let task = self.task_progress.iter().find(|(task, ..)| *task == id);
        let Some((client, token)) =
            task.and_then(|(_, session, token)| Some((&self.sessions.get(session)?.client, token)))
        else {
            return dropped();
        };
        let text = self.without_secrets(notification.with_progress_token(token), Words::Progress);
        let client = Arc::clone(client);
        vec![Action::Deliver { client, text, prefer: Prefer::Standalone }]
    }

    /// The upstream no longer wants the answer to a request of its own.
    fn receive_cancellation(&mut self, notification: &Notification) -> Vec<Action> {
        let request = notification.cancelled_request().and_then(|id| self.server_requests.remove(&id));
        let withdraw = |(client, number): (Arc<Client>, u64)| {
            let notice = Some(notification.with_cancelled_request(&Id::number(number)));
            Action::WithdrawRequest { client, number, notice }
        };
        request.map(withdraw).into_iter().collect()
    }

    fn receive_request(&mut self, request: Request) -> Vec<Action> {
        match request.method.as_str() {
            // The gateway owns roots: the upstream hears the locked scope.
            method::ROOTS_LIST => {
                if !self.was_called {
                    self.terms.learn_roots_habit(true);
                }
                let answer = self.terms.scope.roots_answer(&request.id);
                return vec![Action::Send(answer.into()), Action::RootsAnswered];
            }
            method::SESSION_CONTEXT | method::SESSION_WORKSPACE if self.terms.may_ask_about_session() => {
                let client = self.sole_session().map(|handle| Arc::clone(&handle.client));
                return client
                    .into_iter()
                    .map(|client| Action::AnswerItself { client, request: request.clone() })
                    .collect();
            }
            method::PING if self.terms.serves_many() => return vec![Action::Send(empty_result(&request.id))],
            _ => {}
        }
        match self.attribute() {
            Ok(client) => vec![Action::AskClient { client, request }],
            Err(refusal) => vec![
                Action::Send(refusal.to_message(Some(&request.id))),
                Action::Note(Note::UnattributedRequest { method: request.method, reason: refusal.message }),
            ],
        }
    }

    /// The client that a request of the upstream is for. With a process per session there is no doubt; a shared upstream
    /// asks on behalf of the client whose calls run, if they are of one client only.
    fn attribute(&self) -> Result<Arc<Client>, ErrorReply> {
        if !self.terms.serves_many() {
            let sole = self.sole_session().map(|handle| Arc::clone(&handle.client));
            return sole.ok_or_else(|| ErrorReply::new(code::SERVER_ERROR, "the client is gone"));
        }
        self.only_caller().ok_or_else(|| {
            ErrorReply::new(
                code::SERVER_ERROR,
                "this server is shared, and the calls in flight are not of exactly one client, so the request \
                 cannot be attributed; run it with a process per session (--session-isolation)",
            )
        })
    }

    fn only_caller(&self) -> Option<Arc<Client>> {
        let mut clients = self.pending.values().filter_map(|pending| match pending {
            Pending::Call(call, _) => Some(&call.client),
            Pending::Own(_) => None,
        });
        let first = clients.next()?;
        clients.all(|client| client.id() == first.id()).then(|| Arc::clone(first))
    }

    /// The client that a notification without an address is for.
    fn owner(&self, notification: &Notification) -> Option<Arc<Client>> {
        let client = |handle: &ClientHandle| Arc::clone(&handle.client);
        if !self.terms.serves_many() {
            return self.sole_session().map(client);
        }
        if notification.method == method::TASK_STATUS {
            let owner = self.shared.task_owner(&notification.task_id()?)?;
            return self.sessions.get(&owner).map(client);
        }
        let caller = self.only_caller()?;
        let is_wanted = notification.method != method::LOG_MESSAGE
            || self.shared.wants_log(caller.id(), notification.level());
        is_wanted.then_some(caller)
    }

    /// The clients that subscribed to the resource of a notification.
    fn subscribed(&self, notification: &Notification) -> Vec<Arc<Client>> {
        let client = |handle: &ClientHandle| Arc::clone(&handle.client);
        if !self.terms.serves_many() {
            return self.sole_session().map(client).into_iter().collect();
        }
        let uri = notification.uri().unwrap_or_default();
        let subscribers = self.shared.subscribers(&uri);
        subscribers.filter_map(|session| self.sessions.get(&session).map(client)).collect()
    }
}

/// Gives a notification to clients; without any it is dropped and counted.
fn deliver(clients: &[Arc<Client>], notification: &Notification, prefer: Prefer) -> Vec<Action> {
    deliver_text(clients, notification, &notification.text().into(), prefer)
}

/// The same with another text than the notification has.
fn deliver_text(
    clients: &[Arc<Client>],
    notification: &Notification,
    text: &Text,
    prefer: Prefer,
) -> Vec<Action> {
    if clients.is_empty() {
        return vec![Action::Note(Note::DroppedNotification(notification.method.clone()))];
    }
    let deliver =
        |client: &Arc<Client>| Action::Deliver { client: Arc::clone(client), text: text.clone(), prefer };
    clients.iter().map(deliver).collect()
}

#[cfg(test)]
mod tests;
