//! The session workspace of a session: what changed there, and what its client may do with that.

use std::sync::Arc;

use identity::Handle;
use serde_json::{Value, json};
use staging::{Applied, ApplyError, ApplyRequest, ChangeOptions, DiffOptions, StagingError, WorkspaceCopy};

use super::Session;
use crate::record::EndReason;
use crate::scope::{Copies, Scope, ScopeRules};

/// Longest diff that a client gets.
const MAX_DIFF: usize = 4 * 1024 * 1024;

/// Why nothing is done with a session workspace.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("Not Found: this session works in its directory itself, not in a copy of it")]
    NoCopy,
    #[error(
        "Forbidden: the operator takes changes over with `ringfence session apply` (clients may do so themselves \
         where the gateway was started with --allow-apply)"
    )]
    NotAllowed,
    #[error("Conflict: {0}")]
    Apply(#[from] ApplyError),
    #[error("{0}")]
    Staging(#[from] StagingError),
}

/// The copy that a session works in.
#[derive(Debug)]
pub struct SessionCopy {
    copies: Arc<Copies>,
    copy: WorkspaceCopy,
    session: Handle,
}

impl SessionCopy {
    pub fn of(session: &Session) -> Result<Self, CopyError> {
        let scope = session.scope().ok_or(CopyError::NoCopy)?;
        Self::in_scope(&session.context.rules, &scope, session.handle())
    }

    pub(crate) fn in_scope(rules: &ScopeRules, scope: &Scope, session: Handle) -> Result<Self, CopyError> {
        let copies = Arc::clone(rules.copies.as_ref().ok_or(CopyError::NoCopy)?);
        let copy = copies.of(scope).ok_or(CopyError::NoCopy)?;
        Ok(Self { copies, copy, session })
    }

    /// What is different in it. Looks at files.
    pub fn changes(&self, with_diff: bool) -> Result<Value, CopyError> {
        let changes = self.copy.changes(&ChangeOptions::default())?;
        let record = self.copy.record();
        let mut report = json!({
            "workspace": record.name,
            "method": record.method,
            "base": record.base_path().to_string_lossy(),
            "changes": changes,
        });
        if with_diff {
            let mut text = BoundedText::default();
            // A diff that is longer ends there, which the report says.
            let _ = changes.write_diff(&mut text, &DiffOptions::default());
            report["diff"] = String::from_utf8_lossy(&text.bytes).into();
            report["diffIsCut"] = text.is_cut.into();
        }
        // After the diff, so that it is of the contents that the diff shows.
        report["fingerprint"] = changes.fingerprint().into();
        Ok(report)
    }

    /// Takes changes over, where the operator lets clients do that. Looks at files.
    pub fn apply(&self, request: &ApplyRequest) -> Result<Applied, CopyError> {
        if !self.copies.lets_clients_apply() {
            return Err(CopyError::NotAllowed);
        }
        let name = &self.copy.record().name;
        tracing::info!(session = %self.session, workspace = %name, "the client takes changes over");
        Ok(self.copy.apply(request, &|_| None)?)
    }

    /// Ends the session and moves its copy to the trash. Returns the name of the copy.
    pub fn discard(&self, session: &Arc<Session>) -> Result<String, CopyError> {
        if !self.copies.lets_clients_apply() {
            return Err(CopyError::NotAllowed);
        }
        self.copies.discard_when_left(&self.copy);
        let (context, session) = (&session.context, Arc::clone(session));
        context.depart(async move { session.end(EndReason::Deleted).await });
        Ok(self.copy.record().name.to_string())
    }
}

/// Text up to a length.
#[derive(Default)]
struct BoundedText {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl std::io::Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let room = MAX_DIFF - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room {
            self.is_cut = true;
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
