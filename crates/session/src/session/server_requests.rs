//! What a client is asked: by its upstream, and by us for its roots. Only an answer to something that was asked
//! counts, and only once.

use std::sync::{Arc, Weak};
use std::time::Instant;

use wire::{ErrorReply, Id, Notification, Request, Response, Text, code};

use super::{Session, State};
use crate::error::session_ended;
use crate::inbound::server_request_withdrawn;
use crate::settings::MAX_SERVER_REQUESTS;
use crate::stream::{Keep, Stream};
use crate::worker::Worker;

/// Something that the client was asked and has not answered.
#[derive(Debug)]
pub(super) struct ServerRequest {
    pub(super) kind: ServerRequestKind,
    stream: Arc<Stream>,
    pub(super) asked: Instant,
}

#[derive(Debug)]
pub(crate) enum ServerRequestKind {
    /// A request of the upstream.
    Upstream {
        worker: Weak<Worker>,
        id: Id,
        /// The upstream's progress token, if the client may report progress on it.
        progress_token: Option<Id>,
    },
    /// Our own.
    Roots(RootsPurpose),
}

/// What the client is asked its roots for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootsPurpose {
    Lock,
    /// To see whether they are still within the scope.
    Compare,
}

impl Session {
    /// Progress on something that an upstream asked goes to that upstream.
    pub(super) fn pass_on_progress(&self, progress: &Notification) {
        let token = progress.progress_token();
        let asker = self.lock().server_requests.values().find_map(|ask| match &ask.kind {
            ServerRequestKind::Upstream { worker, progress_token, .. }
                if token.is_some() && *progress_token == token =>
            {
                worker.upgrade()
            }
            _ => None,
        });
        if let Some(worker) = asker {
            worker.send_if_up(&progress.text());
        }
    }

    /// Takes the client's answer to something that it was asked. Anything else is dropped and counted.
    pub fn answer(self: &Arc<Self>, response: &Response) {
        self.touch();
        let number = response.id.as_number();
        let (ask, was_asked) = {
            let mut state = self.lock();
            let ask = number.and_then(|number| state.server_requests.remove(&number));
            (ask, number.is_some_and(|number| (1..state.next_ask).contains(&number)))
        };
        match ask.map(|ask| ask.kind) {
            Some(ServerRequestKind::Upstream { worker, id, .. }) => {
                if let Some(worker) = worker.upgrade() {
                    worker.answer_server_request(&id, &response.with_id(&id).into_bytes());
                }
            }
            Some(ServerRequestKind::Roots(RootsPurpose::Lock)) => self.take_roots(response),
            Some(ServerRequestKind::Roots(RootsPurpose::Compare)) => self.compare_roots(response),
            None if was_asked => {
                self.context.counters.late_answers.add();
                tracing::info!(session = %self.handle, id = ?response.id, "the client answered too late, or twice");
            }
            None => {
                if self.context.counters.stray_answers.add_and_should_log() {
                    tracing::warn!(session = %self.handle, id = ?response.id, "the client answered what it was not asked");
                }
            }
        }
    }

    /// Makes room for a request of the upstream and gives it the id that the client will know it by.
    pub(crate) fn prepare_server_request(
        &self,
        worker: &Arc<Worker>,
        request: &Request,
    ) -> Result<u64, ErrorReply> {
        if !self.may_be_asked(&request.method) {
            let message = format!("the client did not declare the capability for {}", request.method);
            return Err(ErrorReply::new(code::METHOD_NOT_FOUND, message));
        }
        let stream = self.stream_of(worker);
        let progress_token = request
            .wants_progress()
            .and_then(|token| Id::from_raw(serde_json::from_slice(&token).ok()?).ok());
        let mut state = self.lock();
        if state.ended.is_some() {
            return Err(session_ended());
        }
        if state.server_requests.len() >= MAX_SERVER_REQUESTS {
            return Err(ErrorReply::new(code::SERVER_ERROR, "the client has too many unanswered requests"));
        }
        let kind = ServerRequestKind::Upstream {
            worker: Arc::downgrade(worker),
            id: request.id.clone(),
            progress_token,
        };
        Ok(state.add_server_request(kind, stream))
    }

    pub(crate) fn add_server_request(&self, kind: ServerRequestKind, stream: &Arc<Stream>) -> u64 {
        self.lock().add_server_request(kind, Arc::clone(stream))
    }

    pub(crate) fn is_asked_for_comparison(&self) -> bool {
        let is_for_comparison =
            |ask: &ServerRequest| matches!(ask.kind, ServerRequestKind::Roots(RootsPurpose::Compare));
        self.lock().server_requests.values().any(is_for_comparison)
    }

    /// Nobody waits for the client's roots any more.
    pub(crate) fn forget_roots_requests(&self) {
        let is_for_lock =
            |ask: &ServerRequest| matches!(ask.kind, ServerRequestKind::Roots(RootsPurpose::Lock));
        self.lock().server_requests.retain(|_, ask| !is_for_lock(ask));
    }

    pub(crate) fn send_server_request(&self, number: u64, request: &Request) {
        if let Some(ask) = self.lock().server_requests.get(&number) {
            ask.stream.push(request.with_id(&Id::number(number)), Keep::Always);
        }
    }

    /// The upstream took a request back: the client hears so where it heard the request.
    pub(crate) fn withdraw_server_request(&self, number: u64, notice: Text) {
        let withdrawn = self.lock().server_requests.remove(&number);
        if let Some(ServerRequest { stream, .. }) = withdrawn {
            let stream = if stream.is_ended() { self.standalone() } else { stream };
            stream.push(notice, Keep::IfRoom);
        }
    }

    /// The upstream died; nobody waits for the client's answer any more.
    pub(crate) fn retract_server_request(&self, number: u64) {
        self.withdraw_server_request(number, server_request_withdrawn(number));
    }
}

impl State {
    fn add_server_request(&mut self, kind: ServerRequestKind, stream: Arc<Stream>) -> u64 {
        let number = self.next_ask;
        self.next_ask += 1;
        self.server_requests.insert(number, ServerRequest { kind, stream, asked: Instant::now() });
        number
    }
}
