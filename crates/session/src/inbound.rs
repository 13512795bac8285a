//! What an upstream says, and whom it reaches. Every message goes to exactly one session, except the news
//! that a list has changed, which says nothing about anybody.

use std::sync::Arc;

use bytes::Bytes;
use wire::{ErrorReply, Id, LineTooLong, Message, Notification, Request, Response, Text, code, method};

use crate::call::{Call, Purpose};
use crate::call_record::{ReportedFiles, outcome_of};
use crate::catalogue::List;
use crate::error::answer_too_long;
use crate::session::Prefer;
use crate::settings::MAX_TASKS;
use crate::stream::Keep;
use crate::worker::{Pending, State, Worker};
use crate::{Session, verbose_meta};
use audit::CallOutcome;
use upstream::Connection;

impl Worker {
    /// Routes one line of the upstream's stdout.
    pub(crate) fn receive(self: &Arc<Self>, process: &Connection, line: Result<Bytes, LineTooLong>) {
        let line = match line {
            Ok(line) if line.is_empty() => return,
            Ok(line) => line,
            Err(too_long) => return self.lose_line(&too_long),
        };
        match Message::parse(line.clone()) {
            Ok(Message::Response(response)) => self.receive_response(response),
            Ok(Message::Notification(notification)) => self.receive_notification(&notification),
            Ok(Message::Request(request)) => self.receive_request(process, &request),
            Err(error) => {
                if !self.context.counters.bad_lines.add_and_should_log() {
                    return;
                }
                let start = String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
                tracing::warn!(
                    upstream = self.upstream.name,
                    start,
                    "stdout held a line that is no MCP message: {error}"
                );
            }
        }
    }

    fn lose_line(&self, too_long: &LineTooLong) {
        if self.context.counters.bad_lines.add_and_should_log() {
            tracing::error!(upstream = self.upstream.name, "stdout: {too_long}; it was dropped");
        }
        let lost = too_long.leading_id().and_then(|id| self.lock().pending.remove(&id.as_number()?));
        if let Some(Pending::Call(call, _)) = lost {
            call.fail(&answer_too_long(too_long.limit));
        }
    }

    fn receive_response(&self, response: Response) {
        let number = response.id.as_number();
        let pending = number.and_then(|id| {
            let mut state = self.lock();
            state.note_answer();
            state.pending.remove(&id)
        });
        match pending {
            Some(Pending::Call(call, purpose)) => self.answer(&call, &purpose, &response),
            Some(Pending::Own(sender)) => drop(sender.send(response)),
            Some(Pending::Asked(sender)) => drop(sender.send(Ok(response))),
            None if number.is_some_and(|id| self.was_used(id)) => self.context.counters.late_answers.add(),
            None => {
                if !self.context.counters.stray_answers.add_and_should_log() {
                    return;
                }
                tracing::warn!(upstream = self.upstream.name, id = ?response.id, "an answer to nothing that was asked");
            }
        }
    }

    fn answer(&self, call: &Arc<Call>, purpose: &Purpose, response: &Response) {
        if call.is_task {
            self.keep_task_progress(call);
            if let Some(aggregate) = call.session.aggregate() {
                aggregate.learn_task(&self.upstream.name, response);
            }
        }
        let outcome = match response.is_error() {
            true => CallOutcome::Error,
            false if call.is_recorded() => outcome_of(response),
            false => CallOutcome::Ok,
        };
        let text = if *purpose != Purpose::Plain {
            self.lock().shared.filter_answer(call.session.id(), purpose, response, &call.client_id)
        } else if self.context.settings.verbose_meta {
            verbose_meta::with_instance(&call.session, response, &call.client_id)
        } else {
            response.with_id(&call.client_id)
        };
        call.answer(text, outcome);
    }

    fn keep_task_progress(&self, call: &Call) {
        let (Some(id), Some(token)) = (call.sent_as(), call.progress_token.clone()) else { return };
        let mut state = self.lock();
        state.task_progress.push_back((id, Arc::downgrade(&call.session), token));
        if state.task_progress.len() > MAX_TASKS {
            state.task_progress.pop_front();
        }
    }

    fn receive_notification(&self, notification: &Notification) {
        match notification.method.as_str() {
            method::PROGRESS => self.receive_progress(notification),
            method::CANCELLED => self.receive_cancellation(notification),
            method::FILE_OPERATIONS if self.upstream.reports_files => {
                self.record_files(notification);
            }
            method::TOOLS_CHANGED | method::PROMPTS_CHANGED | method::RESOURCES_CHANGED => {
                let sessions: Vec<_> = self.lock().sessions.values().cloned().collect();
                self.tell_list_change(sessions, notification);
            }
            method::RESOURCE_UPDATED => {
                let sessions = self.lock().subscribed(self.serves_many(), notification);
                self.deliver_to(&sessions, notification, Prefer::Standalone);
            }
            _ => {
                let session = self.lock().owner(self.serves_many(), notification);
                self.deliver_to(session.as_slice(), notification, Prefer::Call);
            }
        }
    }

    /// Clients of one server hear it as it is; those of several hear when what they see has changed.
    fn tell_list_change(&self, sessions: Vec<Arc<Session>>, notification: &Notification) {
        let (of_several, of_one): (Vec<_>, Vec<_>) =
            sessions.into_iter().partition(|session| session.aggregate().is_some());
        for session in &of_several {
            if let (Some(aggregate), Some(list)) = (session.aggregate(), List::of_news(&notification.method))
            {
                aggregate.heard_change(&self.upstream.name, list);
            }
        }
        if of_several.is_empty() || !of_one.is_empty() {
            self.deliver_to(&of_one, notification, Prefer::Standalone);
        }
    }

    /// Writes down what the built-in server did to files.
    fn record_files(&self, notification: &Notification) {
        let Some(reported) = ReportedFiles::read(notification) else {
            return self.context.counters.dropped_notifications.add();
        };
        let state = self.lock();
        let session = match state.pending.get(&reported.request_id) {
            Some(Pending::Call(call, _)) => Some(call.session.handle()),
            // It was given up in the meantime.
            _ if !self.serves_many() => state.sole_session().map(|session| session.handle()),
            _ => None,
        };
        drop(state);
        for operation in &reported.operations {
            self.context.record(|| operation.entry(session, &self.upstream.name, &reported.tool));
        }
    }

    fn deliver_to(&self, sessions: &[Arc<Session>], notification: &Notification, prefer: Prefer) {
        if sessions.is_empty() {
            self.context.counters.dropped_notifications.add();
            tracing::debug!(
                upstream = self.upstream.name,
                method = notification.method,
                "dropped: it has no owner"
            );
        }
        for session in sessions {
            session.deliver(notification.text().into(), Keep::IfRoom, prefer);
        }
    }

    fn receive_progress(&self, notification: &Notification) {
        let Some(id) = notification.progress_token().and_then(|token| token.as_number()) else {
            return self.context.counters.dropped_notifications.add();
        };
        let state = self.lock();
        if let Some(Pending::Call(call, _)) = state.pending.get(&id) {
            let call = Arc::clone(call);
            drop(state);
            call.clock().refresh();
            if let Some(token) = &call.progress_token {
                call.session.deliver_progress(&call, notification.with_progress_token(token));
            }
            return;
        }
        let task = state.task_progress.iter().find(|(task, ..)| *task == id).cloned();
        drop(state);
        match task.and_then(|(_, session, token)| Some((session.upgrade()?, token))) {
            Some((session, token)) => {
                session.deliver(notification.with_progress_token(&token), Keep::IfRoom, Prefer::Standalone);
            }
            None => self.context.counters.dropped_notifications.add(),
        }
    }

    /// The upstream no longer wants the answer to something that it asked.
    fn receive_cancellation(&self, notification: &Notification) {
        let asked = notification.cancelled_request().and_then(|id| self.lock().server_requests.remove(&id));
        if let Some((session, number)) = asked
            && let Some(session) = session.upgrade()
        {
            session.withdraw_server_request(number, notification.with_cancelled_request(&Id::number(number)));
        }
    }

    fn receive_request(self: &Arc<Self>, process: &Connection, request: &Request) {
        let shared = self.serves_many();
        match request.method.as_str() {
            // Whatever the client's roots are, this is what was made of them.
            method::ROOTS_LIST => return process.send(&self.scope.roots_answer(&request.id)),
            method::PING if shared => return process.send(&empty_result(&request.id)),
            _ => {}
        }
        let asked = self.lock().attribute(shared);
        if let Err(refusal) = &asked
            && self.context.counters.unattributed_requests.add_and_should_log()
        {
            tracing::warn!(upstream = self.upstream.name, method = request.method, "{}", refusal.message);
        }
        let asked = asked.and_then(|session| Ok((session.prepare_server_request(self, request)?, session)));
        match asked {
            Ok((number, session)) => {
                let client = (Arc::downgrade(&session), number);
                if self.lock().server_requests.insert(request.id.clone(), client).is_some() {
                    tracing::warn!(upstream = self.upstream.name, id = ?request.id, "the server used a request id twice");
                }
                session.send_server_request(number, request);
            }
            Err(refusal) => {
                process.send(&refusal.to_message(Some(&request.id)));
            }
        }
    }
}

impl State {
    /// Whose request of the upstream it is. With a process per session there is no doubt; a shared upstream
    /// asks on behalf of the client whose calls run, if they are of one client only.
    fn attribute(&self, shared: bool) -> Result<Arc<Session>, ErrorReply> {
        if !shared {
            return self
                .sole_session()
                .cloned()
                .ok_or_else(|| ErrorReply::new(code::SERVER_ERROR, "the client is gone"));
        }
        self.only_caller().ok_or_else(|| {
            ErrorReply::new(
                code::SERVER_ERROR,
                "this server is shared, and the calls in flight are not of exactly one client, so the request \
                 cannot be attributed; run it with a process per session (--session-isolation)",
            )
        })
    }

    fn only_caller(&self) -> Option<Arc<Session>> {
        let mut sessions = self.pending.values().filter_map(|pending| match pending {
            Pending::Call(call, _) => Some(&call.session),
            Pending::Own(_) | Pending::Asked(_) => None,
        });
        let first = sessions.next()?;
        sessions.all(|session| session.id() == first.id()).then(|| Arc::clone(first))
    }

    /// Whom a notification without an address is for.
    fn owner(&self, shared: bool, notification: &Notification) -> Option<Arc<Session>> {
        if !shared {
            return self.sole_session().cloned();
        }
        if notification.method == method::TASK_STATUS {
            let task = notification.task_id()?;
            return self.sessions.get(&self.shared.task_owner(&task)?).cloned();
        }
        let session = self.only_caller()?;
        let is_wanted = notification.method != method::LOG_MESSAGE
            || self.shared.wants_log(session.id(), notification.level());
        is_wanted.then_some(session)
    }

    fn subscribed(&self, shared: bool, notification: &Notification) -> Vec<Arc<Session>> {
        if !shared {
            return self.sole_session().cloned().into_iter().collect();
        }
        let uri = notification.uri().unwrap_or_default();
        self.shared.subscribers(&uri).filter_map(|session| self.sessions.get(&session).cloned()).collect()
    }
}

pub(crate) fn empty_result(id: &Id) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, id.as_json()).into()
}

/// The `notifications/cancelled` that tells a client to forget a request of its upstream.
pub(crate) fn server_request_withdrawn(number: u64) -> Text {
    crate::worker::cancellation(number, "the MCP server is gone").into()
}
