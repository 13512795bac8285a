//! What a client was asked and has not answered: by its servers, and by the gateway for its roots. Only an answer to
//! something that was asked counts, and only once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::Id;

use crate::stream::{Stream, first_number};
use crate::worker_id::WorkerId;

/// One request toward the client.
#[derive(Debug)]
pub(crate) struct ServerRequest {
    pub(crate) kind: ServerRequestKind,
    /// Where the client was asked.
    pub(crate) stream: Arc<Stream>,
    asked: Instant,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ServerRequestKind {
    /// A request of an upstream.
    Upstream {
        worker: WorkerId,
        /// The id that the upstream gave it.
        id: Id,
        /// The upstream's progress token, if the client may report progress on it.
        progress_token: Option<Id>,
    },
    /// A `roots/list` of the gateway.
    Roots(RootsPurpose),
}

/// Why the gateway asks the client for its roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootsPurpose {
    /// To lock the scope.
    Lock,
    /// To see whether changed roots are still within the scope.
    Compare,
}

/// Which of the client's answers this is.
#[derive(Debug)]
pub(crate) enum Answered {
    Request(ServerRequest),
    /// It was asked, but answered, withdrawn or given up before.
    Late,
    /// It was never asked.
    Stray,
}

/// How long each kind of request waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    pub(crate) upstream: Duration,
    pub(crate) compare: Duration,
}

#[derive(Debug)]
pub(crate) struct ServerRequests {
    open: HashMap<u64, ServerRequest>,
    /// Ids toward the client are never used twice, not by a later gateway either.
    next: u64,
}

impl ServerRequests {
    pub(crate) fn new(epoch: u32) -> Self {
        Self { open: HashMap::new(), next: first_number(epoch) }
    }

    /// Adds a request and returns the id that the client will know it by.
    pub(crate) fn add(&mut self, kind: ServerRequestKind, stream: Arc<Stream>, now: Instant) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.insert(number, ServerRequest { kind, stream, asked: now });
        number
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Takes the client's answer to a request.
    pub(crate) fn answer(&mut self, id: &Id) -> Answered {
        let Some(number) = id.as_number() else { return Answered::Stray };
        match self.open.remove(&number) {
            Some(request) => Answered::Request(request),
            None if (1..self.next).contains(&number) => Answered::Late,
            None => Answered::Stray,
        }
    }

    /// Takes a request back.
    pub(crate) fn withdraw(&mut self, number: u64) -> Option<ServerRequest> {
        self.open.remove(&number)
    }

    /// The stream on which a request goes out.
    pub(crate) fn stream_of(&self, number: u64) -> Option<&Arc<Stream>> {
        self.open.get(&number).map(|request| &request.stream)
    }

    /// The worker whose request has this progress token.
    pub(crate) fn worker_for_progress(&self, token: &Id) -> Option<WorkerId> {
        self.open.values().find_map(|request| match &request.kind {
            ServerRequestKind::Upstream { worker, progress_token: Some(own), .. } if own == token => {
                Some(*worker)
            }
            _ => None,
        })
    }

    /// Whether an upstream waits for the client; its calls' time stands still meanwhile.
    pub(crate) fn has_upstream_request(&self) -> bool {
        self.open.values().any(|request| matches!(request.kind, ServerRequestKind::Upstream { .. }))
    }

    pub(crate) fn is_asked_for(&self, purpose: RootsPurpose) -> bool {
        self.open.values().any(|request| request.kind == ServerRequestKind::Roots(purpose))
    }

    /// Drops the pending requests for roots that were to lock the scope.
    pub(crate) fn forget_lock_requests(&mut self) {
        self.open.retain(|_, request| request.kind != ServerRequestKind::Roots(RootsPurpose::Lock));
    }

    /// Takes out the requests that were not answered in time.
    pub(crate) fn expire(&mut self, now: Instant, limits: RequestLimits) -> Vec<ServerRequestKind> {
        let is_old = |request: &ServerRequest| {
            let limit = match request.kind {
                ServerRequestKind::Roots(RootsPurpose::Compare) => limits.compare,
                _ => limits.upstream,
            };
            now.saturating_duration_since(request.asked) >= limit
        };
        let old = self.open.extract_if(|_, request| is_old(request));
        old.map(|(_, request)| request.kind).collect()
    }

    /// Gives up the room that more requests at once once needed.
    pub(crate) fn shrink(&mut self) {
        self.open.shrink_to_fit();
    }

    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests;
