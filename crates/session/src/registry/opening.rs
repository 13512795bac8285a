//! Opens sessions: from a client's `initialize`, or in the place of a client that has not said it.

use std::collections::BTreeSet;
use std::sync::Arc;

use audit::AuditEntry;
use bytes::Bytes;
use identity::{Instance, Principal, SessionId, SessionKey};
use jiff::Timestamp;
use serde_json::Value;
use wire::{InitializeParams, Message, Request, Text, Version};

use super::Sessions;
use crate::client;
use crate::error::Refusal;
use crate::handshake;
use crate::messages;
use crate::plan::Beneficiary;
use crate::record::{Contexts, EndReason, SessionRecord};
use crate::rights::{Rights, RightsError};
use crate::roster::{Roster, Welcome};
use crate::scope::{Scope, ScopeRefusal, ScopeSource, WorkspaceChoice};
use crate::session::{Beginning, Session};
use crate::session_context::SessionContext;

/// Who opens a session, and what they say about themselves beside `initialize`.
#[derive(Clone, Debug)]
pub struct Caller {
    pub principal: Principal,
    pub instance: Option<Instance>,
    pub workspace: Option<WorkspaceChoice>,
    pub contexts: Contexts,
}

impl Sessions {
    /// Starts a shared upstream now, so that a broken command is noticed before the first client; probes any other in
    /// the background, so that the first client need not wait for it.
    pub async fn prepare(self: &Arc<Self>) -> Result<(), Refusal> {
        let roster = self.roster();
        match roster.shared_server() {
            Some(server) => {
                let scope = server.fixed_scope()?;
                server.worker_of_everyone(&scope).ready().await?;
            }
            None => roster.probe_all(),
        }
        Ok(())
    }

    /// Starts each server once in a fence around nothing. Returns how many tools each has, or why it has none, except for
    /// those that are switched off.
    pub async fn try_servers(&self) -> Vec<(String, Result<usize, String>)> {
        self.roster().try_all().await
    }

    /// Opens a session with a client's `initialize`; returns it with the answer for the client. If the caller stops
    /// waiting, the session ends.
    pub async fn open(&self, caller: Caller, request: Request) -> Result<(Arc<Session>, Text), Refusal> {
        if self.is_closing() {
            return Err(Refusal::ShuttingDown);
        }
        let params = InitializeParams::read(request.params()).map_err(Refusal::BadInitialize)?;
        let (roster, requested) = (self.roster(), params.version());
        let rights = self.context.rights_of(&caller.principal).map_err(refusal_of)?;
        let rights = Arc::new(rights);
        let scope = self.known_scope(&roster, &caller, &params, &rights).await?;
        let key = SessionKey { principal: caller.principal.clone(), id: SessionId::random() };
        let instance = caller.instance.clone().unwrap_or_else(Instance::random);
        let place = self.quotas.enter(&key, &instance, &rights)?;
        let handshake = Arc::new(handshake::with_our_roots(&request));
        let whom = Beneficiary { key: &key, instance: &instance, rights: &rights, scope: None };
        let welcome = roster.welcome(whom, &handshake, requested, scope.is_some()).await;
        let id = request.id.clone();
        let (told, advertised) = match welcome {
            Welcome::Gateway(told) => (Some(told), None),
            Welcome::Probed(told, advertised) => (Some(told), Some(advertised)),
            Welcome::Worker => (None, None),
        };
        let record = record(key, instance, caller, &params, request);
        let beginning = Beginning { record, capabilities: params.capabilities, handshake, advertised, place };
        let session = Session::new(&self.context, &roster, beginning);
        let opening = Opening(Some(Arc::clone(&session)));
        if let Some(scope) = scope {
            session.lock_scope(scope).await?;
        }
        let told = if let Some(told) = told {
            told
        } else {
            let worker = session.route().and_then(|route| route.sole_worker());
            let answer = worker.ok_or(Refusal::SessionNotFound)?.ready().await?;
            roster.negotiate(requested, &answer)
        };
        let answer = with_scope_note(&roster, &session, told.answer);
        self.admit(&session, told.version, &answer)?;
        // From here on a request with its id finds it, whatever happens to this gateway.
        client::save(session.client()).await;
        opening.done();
        Ok((session, messages::result(&id, &answer).into()))
    }

    /// Opens a session for a client that has not said `initialize` yet, and may never do so: the gateway says it in its
    /// place. Returns the session and the result of `initialize`.
    pub async fn begin(
        &self,
        caller: Caller,
        client: &Value,
        version: Version,
    ) -> Result<(Arc<Session>, String), Refusal> {
        let (session, _) = self.open(caller, handshake::on_behalf_of(client, version)).await?;
        let answer = session.client().record().answer.clone().unwrap_or_default();
        session.client().expect_initialize();
        if let Ok(Message::Notification(initialized)) =
            Message::parse(Bytes::from_static(handshake::INITIALIZED))
        {
            session.notify(&initialized).await?;
        }
        Ok((session, answer))
    }

    /// The scope of a new session, if the client need not be asked for it.
    async fn known_scope(
        &self,
        roster: &Roster,
        caller: &Caller,
        params: &InitializeParams,
        rights: &Arc<Rights>,
    ) -> Result<Option<Scope>, Refusal> {
        let Some(server) = roster.shared_server() else {
            return self.named_scope(caller, params, rights).await;
        };
        let fixed = server.fixed_scope()?;
        let of_workspace = |choice| self.context.rules.of_workspace(choice, rights);
        let named = caller.workspace.as_ref().map(of_workspace);
        match named.transpose()? {
            // A workspace on another machine names nothing here.
            Some(named)
                if named.label.is_none() && (named.roots() != fixed.roots() || named.copy.is_some()) =>
            {
                Err(ScopeRefusal::NotShared(named.paths().into_iter().next().unwrap_or_default()).into())
            }
            _ => Ok(Some((*fixed).clone())),
        }
    }

    /// The scope that the client names, or the default for one that cannot be asked.
    async fn named_scope(
        &self,
        caller: &Caller,
        params: &InitializeParams,
        rights: &Arc<Rights>,
    ) -> Result<Option<Scope>, Refusal> {
        let scope = match self.context.rules.choice(caller.workspace.as_ref()) {
            None if params.capabilities.roots => return Ok(None),
            // The operator's own directory, so no client can make this wait.
            None => self.context.rules.by_default(rights),
            Some(choice) => {
                let rights = Arc::clone(rights);
                self.context.look_at_files(move |rules| rules.of_workspace(&choice, &rights)).await
            }
        };
        if let Err(refusal) = &scope {
            self.context.counters.denials.add("scope");
            tracing::warn!("no session: {refusal}");
            self.refused(&refusal.to_string(), None);
        }
        Ok(Some(scope?))
    }

    /// Lets requests find the session from now on.
    fn admit(&self, session: &Arc<Session>, version: Option<Version>, answer: &str) -> Result<(), Refusal> {
        let mut open = self.open.write();
        if self.is_closing() {
            return Err(Refusal::ShuttingDown);
        }
        // The rights may have changed since the session began to open.
        if !self.may_go_on(session) {
            return Err(Refusal::AccessExpired);
        }
        let record = {
            let mut record = session.client().record();
            record.version = version;
            record.answer = Some(answer.to_owned());
            record.clone()
        };
        open.insert(session.key().clone(), Arc::clone(session));
        drop(open);
        self.context.counters.sessions_opened.add();
        let (handle, instance) = (session.handle(), &record.instance);
        tracing::info!(session = %handle, %instance, client = record.client, "session opened");
        self.context.record(|| AuditEntry::SessionOpened {
            session: handle,
            principal: record.key.principal.clone(),
            instance: Some(instance.as_str().into()),
            client: record.client.as_str().into(),
            scope_source: record.scope.as_ref().map(|scope| scope.source().as_str().into()),
        });
        Ok(())
    }
}

/// Tells the model where it is, if its client did not choose that directory.
fn with_scope_note(roster: &Roster, session: &Session, answer: String) -> String {
    let is_default = |scope: &Arc<Scope>| scope.source() == ScopeSource::Default && !roster.shares_scope();
    let scope = session.scope().filter(is_default);
    let paths: Vec<String> =
        scope.iter().flat_map(|scope| scope.paths()).map(|path| path.display().to_string()).collect();
    if paths.is_empty() {
        return answer;
    }
    let note = format!(
        "This session works in {}: the client named no directory, so this is the default of the gateway. If the user \
         expects another one, tell them: the client has to report its roots, or to name the directory in the header \
         Ringfence-Workspace.",
        paths.join(", ")
    );
    wire::with_note_for_model(&answer, &note)
}

fn record(
    key: SessionKey,
    instance: Instance,
    caller: Caller,
    params: &InitializeParams,
    request: Request,
) -> SessionRecord {
    let opened = Timestamp::now();
    let mut context = SessionContext::default();
    context.note_agent(&params.client, opened);
    SessionRecord {
        key,
        instance,
        is_instance_named: caller.instance.is_some(),
        client: params.client.clone(),
        opened,
        epoch: 0,
        initialize: Arc::new(request.into_kept()),
        expects_initialize: false,
        answer: None,
        version: None,
        scope: None,
        contexts: caller.contexts,
        context,
        subscriptions: BTreeSet::new(),
        log_level: None,
        end: None,
    }
}

/// Ends a session whose opener failed, or went away before it was told the session id.
struct Opening(Option<Arc<Session>>);

impl Opening {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            let context = Arc::clone(session.client().context());
            context.depart(async move { session.end(EndReason::Abandoned).await });
        }
    }
}

fn refusal_of(error: RightsError) -> Refusal {
    match error {
        RightsError::Expired => Refusal::AccessExpired,
        RightsError::NoUser(error) => {
            tracing::error!("a principal gets no user: {error}; hint: {}", error.hint());
            Refusal::NoUser
        }
    }
}
