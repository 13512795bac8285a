//! Brings sessions of an earlier gateway back, each with the first request that names it.

use std::sync::Arc;

use audit::AuditEntry;
use identity::SessionKey;
use jiff::Timestamp;
use wire::{ClientCapabilities, InitializeParams};

use super::Sessions;
use super::dormant::DormantSession;
use crate::error::Refusal;
use crate::gateway_context::GatewayContext;
use crate::handshake;
use crate::record::SessionRecord;
use crate::rights::RightsError;
use crate::session::{Beginning, Session, resume};

impl Sessions {
    /// The session of an earlier gateway with this key, if there is one. It is opened again; its requests wait until that
    /// is done.
    pub(super) fn restore(&self, key: &SessionKey) -> Result<Option<Arc<Session>>, Refusal> {
        let record_key = key.record_key();
        if !self.dormant.holds(record_key) {
            // Another request may have restored it since the open sessions were searched.
            return Ok(self.open.read().get(key).cloned());
        }
        // No request in between must find the session neither here nor there.
        let mut open = self.open.write();
        if self.is_closing() {
            return Err(Refusal::ShuttingDown);
        }
        let Some(dormant) = self.dormant.take(record_key) else { return Ok(open.get(key).cloned()) };
        if let Some(reason) = dormant.stored.end_by(Timestamp::now(), &self.context.settings) {
            self.context.counters.session_ended(reason);
            self.context.durable.session_expired(record_key);
            return Ok(None);
        }
        let Some(record) = dormant.stored.to_record(key.clone()) else {
            tracing::error!(
                session = dormant.stored.handle,
                "the session cannot be restored: its record is damaged"
            );
            self.context.durable.session_expired(record_key);
            return Ok(None);
        };
        match reopen(self, record) {
            Ok(session) => {
                open.insert(key.clone(), Arc::clone(&session));
                drop(open);
                note_restored(&self.context, &session);
                let DormantSession { stored, calls, .. } = dormant;
                resume(&session, stored.scope, calls);
                Ok(Some(session))
            }
            // There may be room later.
            Err(refusal) => {
                self.dormant.put_back(record_key, dormant);
                Err(refusal)
            }
        }
    }
}

fn reopen(sessions: &Sessions, record: SessionRecord) -> Result<Arc<Session>, Refusal> {
    let rights = sessions.context.rights_of(&record.key.principal).map_err(|error| match error {
        RightsError::Expired => Refusal::AccessExpired,
        RightsError::NoUser(_) => Refusal::NoUser,
    })?;
    let place = sessions.quotas.enter(&record.key, &record.instance, &Arc::new(rights))?;
    let params = InitializeParams::read(record.initialize.params()).map_err(Refusal::BadInitialize)?;
    let capabilities =
        if record.expects_initialize { ClientCapabilities::default() } else { params.capabilities };
    let handshake = Arc::new(handshake::with_our_roots(&record.initialize));
    let beginning = Beginning { record, capabilities, handshake, advertised: None, place };
    Ok(Session::new(&sessions.context, &sessions.roster(), beginning))
}

fn note_restored(context: &GatewayContext, session: &Session) {
    context.counters.sessions_restored.add();
    let record = session.client().record().clone();
    let handle = session.handle();
    tracing::info!(session = %handle, epoch = record.epoch, client = record.client, "session restored");
    context.record(|| AuditEntry::SessionRestored {
        session: handle,
        principal: record.key.principal.clone(),
        epoch: record.epoch,
    });
}
