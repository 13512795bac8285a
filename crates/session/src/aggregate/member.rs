//! One of several servers, as one session has it: where it runs, what it offers, and why it does not.

use parking_lot::{Mutex, MutexGuard};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use config::{ExecutionContext, Start};
use serde::Serialize;
use wire::Request;

use crate::catalogue::Catalogue;
use crate::handshake;
use crate::plan::{Beneficiary, Terms};
use crate::roster::Roster;
use crate::scope::Scope;
use crate::server::{Route, Server};
use crate::session::Contexts;
use crate::worker::{Greeting, Worker};
use crate::{Instance, Session, SessionKey, Upstream};
use upstream::Attachment;
use upstream::Transport;

/// What did not work is tried again after this long, if somebody asks.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// The same for a server on a machine that is connected: it may have been the machine before.
const TRY_ATTACHED_AFTER: Duration = Duration::from_millis(500);
const ATTACHED_TRIES: usize = 4;

/// A probe that takes longer is not waited for: the session's own server shows as much.
const PROBE_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Member {
    pub(super) server: Arc<Server>,
    choice: Choice,
    placement: Placement,
    /// What it is greeted with.
    handshake: Arc<Request>,
    route: OnceLock<Route>,
    known: Mutex<Known>,
    /// Whether its own lists are being asked for.
    refresh: Mutex<Refresh>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Refresh {
    #[default]
    Idle,
    Running,
    /// They have changed since.
    Again,
}

/// Where a server was to run, and where it does.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) context: ExecutionContext,
    /// What the client wanted and did not get, and why.
    pub(crate) refused: Option<String>,
}

#[derive(Debug)]
enum Placement {
    /// On this machine, or at a URL.
    Here { upstream: Arc<Upstream>, probe: Option<Arc<Upstream>>, scope: Arc<Scope> },
    /// On the client's machine.
    Attached(Arc<Upstream>),
    /// Nowhere.
    Off(String),
}

#[derive(Debug, Default)]
struct Known {
    catalogue: Option<Arc<Catalogue>>,
    /// Why it is of no use now, and since when.
    trouble: Option<(String, Instant)>,
    is_being_looked_at: bool,
}

/// One server of a session, for reports.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberReport {
    #[serde(skip)]
    pub name: String,
    pub execution_context: &'static str,
    pub endpoint: &'static str,
    pub enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<PathBuf>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_directories: Vec<PathBuf>,
    /// What the client wanted and did not get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub override_refused: Option<String>,
    pub lifecycle: &'static str,
}

/// What decides where the servers of a session run.
pub(crate) struct Placing {
    pub(crate) roster: Arc<Roster>,
    pub(crate) key: SessionKey,
    pub(crate) instance: Instance,
    pub(crate) contexts: Contexts,
    pub(crate) scope: Arc<Scope>,
    pub(crate) handshake: Arc<Request>,
}

impl Placing {
    /// Looks at the files that this takes: secrets, storage, directories of the operator.
    pub(crate) fn members(&self) -> Vec<Member> {
        let Some(terms) = &self.roster.terms else { return Vec::new() };
        self.roster.servers.iter().map(|server| Member::new(server, self, terms)).collect()
    }

    fn whom(&self) -> Beneficiary<'_> {
        Beneficiary { key: &self.key, instance: &self.instance, scope: Some(&self.scope) }
    }
}

impl Member {
    fn new(server: &Arc<Server>, placing: &Placing, terms: &Terms) -> Self {
        let choice = choose(server, &placing.contexts);
        let placement = place(server, &choice, placing, terms);
        let handshake = server.greeting(&placing.handshake);
        let catalogue = match &placement {
            Placement::Here { probe: Some(probe), .. } => server.known_catalogue(probe, &handshake),
            _ => None,
        };
        Self {
            server: Arc::clone(server),
            choice,
            placement,
            handshake,
            route: OnceLock::new(),
            known: Mutex::new(Known { catalogue, ..Known::default() }),
            refresh: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    pub(super) fn catalogue(&self) -> Option<Arc<Catalogue>> {
        self.lock().catalogue.clone()
    }

    pub(super) fn is_eager(&self) -> bool {
        self.server.plan.start == Start::Eager
    }

    /// Why it cannot be used now.
    pub(super) fn trouble(&self, session: &Session) -> Option<String> {
        match &self.placement {
            Placement::Off(reason) => return Some(reason.clone()),
            Placement::Attached(_) if !self.is_attached(session) => {
                return Some(
                    "it runs on the client's machine, which is not connected (ringfence connect)".to_owned(),
                );
            }
            Placement::Attached(_) | Placement::Here { .. } => {}
        }
        self.lock().trouble.as_ref().map(|(reason, _)| reason.clone())
    }

    fn is_attached(&self, session: &Session) -> bool {
        session.attachment().is_some_and(|attachment| attachment.has(self.server.name()))
    }

    pub(super) fn workers(&self) -> Vec<Arc<Worker>> {
        self.route.get().map(Route::workers).unwrap_or_default()
    }

    /// The worker for the next call; nothing runs before that needs it.
    pub(super) fn worker(&self, session: &Arc<Session>) -> Option<Arc<Worker>> {
        let (upstream, scope) = match &self.placement {
            Placement::Here { upstream, scope, .. } => (upstream, Arc::clone(scope)),
            Placement::Attached(upstream) => (upstream, Arc::new(Scope::nothing())),
            Placement::Off(_) => return None,
        };
        let route = self.route.get_or_init(|| {
            let greeting = Greeting {
                handshake: Arc::clone(&self.handshake),
                initialized: Some(Bytes::from_static(handshake::INITIALIZED)),
                advertised: None,
            };
            self.server.route(session, upstream, &scope, greeting)
        });
        let worker = route.worker_for(session)?;
        // A session that ends looks for its routes after it has said so.
        if session.has_ended() {
            let (worker, session) = (Arc::clone(&worker), Arc::clone(session));
            tokio::spawn(async move { worker.leave(&session).await });
            return None;
        }
        Some(worker)
    }

    /// What did not work may be tried again now.
    pub(super) fn forgive(&self) {
        if let Some((_, since)) = &mut self.lock().trouble {
            *since = since.checked_sub(TRY_AGAIN_AFTER).unwrap_or(*since);
        }
    }

    /// Starts it ahead of the first call.
    pub(super) fn start(&self, session: &Arc<Session>) {
        // One for a single call would wait for it in vain.
        if self.server.lifecycle() == crate::Lifecycle::Call {
            return;
        }
        if let Some(worker) = self.worker(session) {
            tokio::spawn(async move { worker.ready().await });
        }
    }

    /// Whether it should be looked at now. If so, nobody else is told the same until that is done.
    pub(super) fn begin_look(&self, session: &Session) -> bool {
        let can_be_seen = match &self.placement {
            Placement::Off(_) => false,
            Placement::Attached(_) => self.is_attached(session),
            Placement::Here { .. } => true,
        };
        let is_attached = matches!(self.placement, Placement::Attached(_));
        let pause = if is_attached { TRY_ATTACHED_AFTER } else { TRY_AGAIN_AFTER };
        let mut known = self.lock();
        let is_recent = known.trouble.as_ref().is_some_and(|(_, since)| since.elapsed() < pause);
        let is_needed = known.catalogue.is_none() || known.trouble.is_some();
        let begins = can_be_seen && is_needed && !known.is_being_looked_at && !is_recent;
        known.is_being_looked_at |= begins;
        begins
    }

    /// Finds out what it offers: from a probe, or if that cannot be, from the session's own.
    pub(super) async fn look(&self, session: &Arc<Session>) {
        let probe = match &self.placement {
            Placement::Here { probe: Some(probe), .. } => {
                let probe = self.server.catalogue(Arc::clone(probe), Arc::clone(&self.handshake));
                // Others may be tried before it.
                tokio::time::timeout(PROBE_WITHIN, probe).await.ok().and_then(Result::ok)
            }
            _ => None,
        };
        let found = match probe {
            Some(catalogue) => Ok(catalogue),
            None => self.look_in(session).await,
        };
        let mut known = self.lock();
        known.is_being_looked_at = false;
        match found {
            Ok(catalogue) => {
                known.trouble = None;
                // What its own worker has shown meanwhile is nearer to the truth.
                known.catalogue.get_or_insert(catalogue);
            }
            Err(reason) => {
                tracing::warn!(session = %session.handle(), upstream = self.server.name(), "not available: {reason}");
                known.trouble = Some((reason, Instant::now()));
            }
        }
    }

    /// What it offers in the session itself.
    async fn look_in(&self, session: &Arc<Session>) -> Result<Arc<Catalogue>, String> {
        let worker = self.worker(session).ok_or("it does not run")?;
        let mut catalogue = Catalogue::of_worker(&worker, worker.call_timeout()).await;
        // A machine that has just taken another's place finds the other's conversation on its way out.
        for _ in 0..ATTACHED_TRIES {
            if catalogue.is_ok()
                || !matches!(self.placement, Placement::Attached(_))
                || !self.is_attached(session)
            {
                break;
            }
            tokio::time::sleep(TRY_ATTACHED_AFTER).await;
            catalogue = Catalogue::of_worker(&worker, worker.call_timeout()).await;
        }
        worker.stop_if_for_one_call().await;
        catalogue.map(Arc::new).map_err(|error| error.to_string())
    }

    /// Whether the caller is to ask for its lists; else somebody does so already, and will once more.
    pub(super) fn begin_refresh(&self) -> bool {
        let mut refresh = self.refresh.lock();
        let begins = *refresh == Refresh::Idle;
        *refresh = if begins { Refresh::Running } else { Refresh::Again };
        begins
    }

    /// Whether they have to be asked for once more.
    pub(super) fn end_refresh(&self) -> bool {
        let mut refresh = self.refresh.lock();
        let is_again = *refresh == Refresh::Again;
        *refresh = if is_again { Refresh::Running } else { Refresh::Idle };
        is_again
    }

    /// Asks the session's own worker for its lists. True: they are others than were known.
    pub(super) async fn look_at_own(&self) -> bool {
        let Some(worker) = self.workers().pop() else { return false };
        let Ok(catalogue) = Catalogue::of_worker(&worker, worker.call_timeout()).await else { return false };
        let mut known = self.lock();
        let was_in_trouble = known.trouble.take().is_some();
        // The same lists keep their identity, so that sessions can share what they see.
        let is_other = known.catalogue.as_deref() != Some(&catalogue);
        if is_other {
            known.catalogue = Some(Arc::new(catalogue));
        }
        is_other || was_in_trouble
    }

    /// The client's machine has come or gone. True: this server runs there.
    pub(super) fn forget_attached(&self, attachment: Option<&Arc<Attachment>>) -> bool {
        let is_attached = matches!(self.placement, Placement::Attached(_));
        if is_attached && attachment.is_some() {
            let mut known = self.lock();
            // It may be another machine, with something else.
            known.trouble = None;
            known.catalogue = None;
        }
        is_attached
    }

    pub(super) fn report(&self, session: Option<&Arc<Session>>) -> MemberReport {
        let reason = session.and_then(|session| self.trouble(session));
        let (scope, directory) = match &self.placement {
            Placement::Here { upstream, scope, .. } => upstream
                .program()
                .map(|program| (scope.paths(), program.directory.clone()))
                .unwrap_or_default(),
            Placement::Attached(_) | Placement::Off(_) => (Vec::new(), None),
        };
        MemberReport {
            name: self.server.name().to_owned(),
            execution_context: self.choice.context.as_str(),
            endpoint: "internal",
            enabled: reason.is_none(),
            reason,
            working_directory: directory.or_else(|| scope.first().cloned()),
            allowed_directories: scope,
            override_refused: self.choice.refused.clone(),
            lifecycle: self.server.lifecycle().as_str(),
        }
    }
}

/// The context of a server in one session: the operator's, or the client's where the operator leaves the choice.
fn choose(server: &Server, contexts: &Contexts) -> Choice {
    let plan = &server.plan;
    match contexts.wanted.get(server.name()) {
        Some(wanted) if *wanted == plan.context => Choice { context: plan.context, refused: None },
        Some(wanted) if plan.overridable => Choice { context: *wanted, refused: None },
        Some(wanted) => {
            let refused = format!("the operator does not let clients choose {} for it", wanted.as_str());
            Choice { context: plan.context, refused: Some(refused) }
        }
        None => Choice { context: plan.context, refused: None },
    }
}

fn place(server: &Server, choice: &Choice, placing: &Placing, terms: &Terms) -> Placement {
    let (plan, whom) = (&server.plan, placing.whom());
    if let Some(reason) = &plan.disabled {
        let is_unnamed = matches!(plan.upstream.transport, Transport::Attached);
        let missing = plan.for_session(terms, whom).err().filter(|_| is_unnamed);
        return Placement::Off(missing.map_or_else(|| reason.clone(), |missing| missing.to_string()));
    }
    let is_local = choice.context == ExecutionContext::Local;
    if is_local && !placing.contexts.takes_local {
        return Placement::Off(
            "the client takes no local servers (capabilities.filesystem is false)".to_owned(),
        );
    }
    let is_away = is_local && (!terms.local_is_here || placing.scope.label.is_some());
    if is_away || matches!(plan.upstream.transport, Transport::Attached) {
        if !is_away {
            return Placement::Off("nothing to run is named: add command or url".to_owned());
        }
        let mut upstream = (*plan.upstream).clone();
        upstream.transport = Transport::Attached;
        upstream.lifecycle = crate::Lifecycle::Session;
        return Placement::Attached(Arc::new(upstream));
    }
    let upstream = match plan.for_session(terms, whom) {
        Ok(upstream) => upstream,
        Err(missing) => return Placement::Off(missing.to_string()),
    };
    match member_scope(server, placing, terms) {
        Ok(scope) => {
            let probe = plan.for_session(terms, Beneficiary { scope: None, ..whom }).ok();
            Placement::Here { upstream, probe, scope }
        }
        Err(reason) => Placement::Off(reason),
    }
}

/// Where a server may write: in the session's directories, or where the operator says, and in its storage.
fn member_scope(server: &Server, placing: &Placing, terms: &Terms) -> Result<Arc<Scope>, String> {
    let (plan, whom, scope) = (&server.plan, placing.whom(), &placing.scope);
    let rules = &server.context.rules;
    let mut own = match plan.allowed_directories(terms, whom) {
        // Nobody's workspace is everybody's.
        None if plan.upstream.lifecycle == crate::Lifecycle::Shared => Scope::nothing(),
        None => (**scope).clone(),
        Some(directories) => {
            let directories = directories.map_err(|missing| missing.to_string())?;
            rules.of_operator(&directories, scope).map_err(|refusal| refusal.to_string())?
        }
    };
    if plan.upstream.lifecycle == crate::Lifecycle::Shared {
        own.label = None;
    }
    if let Some(directory) = plan.storage_directory(terms, whom) {
        let storage = rules.storage(&directory).map_err(|error| format!("no storage: {error}"))?;
        Arc::make_mut(&mut own.directories).storage = Some(storage);
    }
    Ok(Arc::new(own))
}
