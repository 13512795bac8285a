//! Where each server of a session runs: here, on the client's machine, or nowhere, and why. Deciding looks at files
//! (secrets, storage, directories of the operator), so it happens on a thread that may block, before the gate is locked.

use std::path::PathBuf;
use std::sync::Arc;

use config::ExecutionContext;
use identity::{Instance, SessionKey};
use upstream::{Lifecycle, Transport, Upstream};
use wire::Request;

use super::member::Member;
use crate::plan::{Beneficiary, Terms};
use crate::record::Contexts;
use crate::rights::Rights;
use crate::roster::Roster;
use crate::scope::{Scope, ScopeRefusal, make_storage};
use crate::server::Server;

/// What decides where the servers of a session run.
#[derive(Debug)]
pub(crate) struct Placing {
    pub(crate) roster: Arc<Roster>,
    pub(crate) key: SessionKey,
    pub(crate) instance: Instance,
    pub(crate) rights: Arc<Rights>,
    pub(crate) contexts: Contexts,
    pub(crate) scope: Arc<Scope>,
    pub(crate) handshake: Arc<Request>,
}

/// Where the servers of a session run.
#[derive(Debug)]
pub(crate) enum Placed {
    /// The server that is passed through, and where it may write.
    One(Arc<Server>, Arc<Scope>),
    Many(Vec<Member>),
}

/// The execution context of a server in one session.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) context: ExecutionContext,
    /// What the client wanted and did not get, and why.
    pub(super) refused: Option<String>,
}

#[derive(Debug)]
pub(super) enum Placement {
    /// On this machine, or at a URL.
    Here { upstream: Arc<Upstream>, probe: Option<Arc<Upstream>>, scope: Arc<Scope> },
    /// On the client's machine.
    Attached(Arc<Upstream>),
    /// Nowhere, for this reason.
    Off(String),
}

impl Placement {
    /// Where its reports say it works: its roots and the directory that it starts in.
    pub(super) fn directories(&self) -> (Vec<PathBuf>, Option<PathBuf>) {
        match self {
            Self::Here { upstream, scope, .. } => upstream
                .program()
                .map(|program| (scope.paths(), program.directory.clone()))
                .unwrap_or_default(),
            Self::Attached(_) | Self::Off(_) => (Vec::new(), None),
        }
    }
}

impl Placing {
    /// Places every server of the roster that the principal gets.
    pub(crate) fn members(&self) -> Vec<Member> {
        let terms = &self.roster.terms;
        let granted = self.roster.servers.iter().filter(|server| self.rights.has_server(server.name()));
        granted.map(|server| self.member(server, terms)).collect()
    }

    /// Where the server works that is passed through: in the session's directories and in its storage.
    pub(crate) fn scope_of_one(&self, server: &Server) -> Result<Arc<Scope>, ScopeRefusal> {
        let mut own = (*self.scope).clone();
        let upstream = &server.plan.upstream;
        let user = upstream.program().and_then(|program| program.fence.as_ref()?.user());
        if let Some(directory) = server.plan.storage_directory(&self.roster.terms, self.beneficiary()) {
            Arc::make_mut(&mut own.directories).storage = Some(make_storage(&directory, user)?);
        }
        Ok(Arc::new(own))
    }

    fn member(&self, server: &Arc<Server>, terms: &Terms) -> Member {
        let choice = choose(server, &self.contexts);
        let placement = self.place(server, &choice, terms);
        Member::new(server, choice, placement, server.greeting(&self.handshake))
    }

    fn beneficiary(&self) -> Beneficiary<'_> {
        Beneficiary {
            key: &self.key,
            instance: &self.instance,
            rights: &self.rights,
            scope: Some(&self.scope),
        }
    }

    fn place(&self, server: &Server, choice: &Choice, terms: &Terms) -> Placement {
        let (plan, whom) = (&server.plan, self.beneficiary());
        if let Some(reason) = &plan.disabled {
            let is_unnamed = matches!(plan.upstream.transport, Transport::Attached);
            let missing = plan.for_session(terms, whom).err().filter(|_| is_unnamed);
            return Placement::Off(missing.map_or_else(|| reason.clone(), |missing| missing.to_string()));
        }
        let is_local = choice.context == ExecutionContext::Local;
        if is_local && !self.contexts.takes_local {
            return Placement::Off(
                "the client takes no local servers (capabilities.filesystem is false)".to_owned(),
            );
        }
        let is_away = is_local && (!terms.local_is_here || self.scope.label.is_some());
        if is_away {
            let mut upstream = (*plan.upstream).clone();
            upstream.transport = Transport::Attached;
            upstream.lifecycle = Lifecycle::Session;
            return Placement::Attached(Arc::new(upstream));
        }
        if matches!(plan.upstream.transport, Transport::Attached) {
            return Placement::Off("nothing to run is named: add command or url".to_owned());
        }
        let obstacle = plan.obstacle_for_reader().filter(|_| self.rights.restriction.read_only);
        if let Some(reason) = obstacle {
            return Placement::Off(reason.to_owned());
        }
        match plan.for_session(terms, whom) {
            Ok(upstream) => self.place_here(server, upstream, terms),
            Err(missing) => off(server, missing.to_string()),
        }
    }

    fn place_here(&self, server: &Server, upstream: Arc<Upstream>, terms: &Terms) -> Placement {
        let user = upstream.program().and_then(|program| program.fence.as_ref()?.user());
        match self.scope_of(server, user, terms) {
            Ok(scope) => {
                let nowhere = Beneficiary { scope: None, ..self.beneficiary() };
                Placement::Here { upstream, probe: server.plan.for_session(terms, nowhere).ok(), scope }
            }
            Err(reason) => off(server, reason),
        }
    }

    /// Where a server may write: in the session's directories, or where the operator says, and in its storage.
    fn scope_of(&self, server: &Server, user: Option<u32>, terms: &Terms) -> Result<Arc<Scope>, String> {
        let (plan, whom, scope) = (&server.plan, self.beneficiary(), &self.scope);
        let rules = &server.context.rules;
        let is_everyones = plan.upstream.lifecycle == Lifecycle::Shared;
        let mut own = match plan.allowed_directories(terms, whom) {
            // No session's workspace is shared by all.
            None if is_everyones => Scope::nothing(),
            None => (**scope).clone(),
            Some(directories) => {
                let directories = directories.map_err(|missing| missing.to_string())?;
                rules.of_operator(&directories, scope).map_err(|refusal| refusal.to_string())?
            }
        };
        if is_everyones {
            own.label = None;
        }
        if let Some(directory) = plan.storage_directory(terms, whom) {
            let storage = make_storage(&directory, user).map_err(|error| format!("no storage: {error}"))?;
            Arc::make_mut(&mut own.directories).storage = Some(storage);
        }
        Ok(Arc::new(own))
    }
}

/// A server that lacks something which the operator has to provide.
fn off(server: &Server, reason: String) -> Placement {
    if server.failures.is_news(&reason) {
        tracing::warn!(upstream = server.name(), "not available: {reason}");
    }
    Placement::Off(reason)
}

/// The operator's context, or the client's where the operator leaves the choice.
fn choose(server: &Server, contexts: &Contexts) -> Choice {
    let plan = &server.plan;
    match contexts.wanted.get(server.name()) {
        Some(wanted) if *wanted == plan.context || plan.overridable => {
            Choice { context: *wanted, refused: None }
        }
        Some(wanted) => {
            let refused = format!("the operator does not let clients choose {} for it", wanted.as_str());
            Choice { context: plan.context, refused: Some(refused) }
        }
        None => Choice { context: plan.context, refused: None },
    }
}
