//! Where a session's calls go once its scope is locked. A session with one server has a route that passes everything
//! through; a session with several has an aggregate. From here on only this file tells the two apart; before there is a
//! route, `Roster` does.

mod aggregate;
mod calls;
mod knowledge;
mod member;
mod merge;
mod placement;

use std::sync::Arc;

use bytes::Bytes;
use upstream::Attachment;
use wire::Request;

pub(crate) use self::aggregate::Aggregate;
pub use self::member::MemberReport;
pub(crate) use self::placement::{Placed, Placing};
use crate::catalogue::list_all;
use crate::client::Call;
use crate::list::List;
use crate::scope::Scope;
use crate::server::Server;
use crate::worker::Worker;
use crate::worker_id::WorkerId;
use crate::workers::Workers;

#[derive(Debug)]
pub(crate) enum Route {
    PassThrough(Box<PassThrough>),
    Merged(Arc<Aggregate>),
}

/// The one server of a session, whose messages pass byte for byte.
#[derive(Debug)]
pub(crate) struct PassThrough {
    pub(crate) server: Arc<Server>,
    pub(crate) workers: Workers,
    pub(crate) scope: Arc<Scope>,
}

impl Route {
    /// Gives a call to the worker that it is for.
    pub(crate) fn call(&self, call: Arc<Call>, request: Box<Request>) {
        match self {
            Self::PassThrough(one) => one.workers.for_call().call(call, request),
            Self::Merged(aggregate) => aggregate.call(call, request),
        }
    }

    /// All workers that there are now.
    pub(crate) fn workers(&self) -> Vec<Arc<Worker>> {
        match self {
            Self::PassThrough(one) => one.workers.all(),
            Self::Merged(aggregate) => aggregate.workers(),
        }
    }

    pub(crate) fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        self.workers().into_iter().find(|worker| worker.id() == id)
    }

    /// The worker whose own answer to `initialize` the client gets, if it is one.
    pub(crate) fn sole_worker(&self) -> Option<&Arc<Worker>> {
        match self {
            Self::PassThrough(one) => one.workers.sole(),
            Self::Merged(_) => None,
        }
    }

    /// Gives a notification of the client to all servers that run.
    pub(crate) fn notify(&self, text: &Bytes) {
        for worker in self.workers() {
            worker.send_if_up(text.clone());
        }
    }

    /// The client's machine has come or gone.
    pub(crate) fn attachment_changed(&self, attachment: Option<&Arc<Attachment>>) {
        if let Self::Merged(aggregate) = self {
            aggregate.attachment_changed(attachment);
        }
    }

    /// The id that a server at a URL knows this session by.
    pub(crate) fn session_id_at(&self, server: &str) -> Option<String> {
        match self {
            Self::PassThrough(_) => None,
            Self::Merged(aggregate) => aggregate.session_id_at(server),
        }
    }

    /// Sees again whether a server can be used that could not.
    pub(crate) fn try_again(&self, server: &str) {
        if let Self::Merged(aggregate) = self {
            aggregate.try_again(server);
        }
    }

    /// Each server, for reports.
    pub(crate) fn reports(&self) -> Vec<MemberReport> {
        match self {
            Self::PassThrough(one) => vec![one.report()],
            Self::Merged(aggregate) => aggregate.reports(),
        }
    }

    /// The tools that the client sees, each with the place of its server among the reports.
    pub(crate) async fn tools(&self) -> Vec<(String, usize)> {
        match self {
            Self::PassThrough(one) => one.tools().await,
            Self::Merged(aggregate) => aggregate.tools().await,
        }
    }
}

impl PassThrough {
    fn report(&self) -> MemberReport {
        let directories = self.scope.paths();
        let reason = self.workers.all().iter().find_map(|worker| worker.down_reason());
        MemberReport {
            name: self.server.name().to_owned(),
            // It works on the files of this machine.
            execution_context: "local",
            endpoint: "internal",
            enabled: reason.is_none(),
            reason,
            working_directory: directories.first().cloned(),
            allowed_directories: directories,
            override_refused: None,
            lifecycle: self.server.lifecycle().as_str(),
        }
    }

    async fn tools(&self) -> Vec<(String, usize)> {
        let Some(worker) = self.workers.sole() else { return Vec::new() };
        let listed = list_all(worker, List::Tools, worker.call_timeout()).await;
        listed.unwrap_or_default().into_iter().map(|tool| (tool.own, 0)).collect()
    }
}
