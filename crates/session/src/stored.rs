//! A session's record as text in the store, and back. The session id is not in it: only the client can bring it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::ExecutionContext;
use fence::DirectoryIdentity;
use identity::{Instance, SessionKey};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use staging::CopyId;
use wire::{LogLevel, Message, Request, Version};

use crate::record::{Contexts, EndReason, SessionRecord, Subscription};
use crate::scope::{Scope, ScopeSource};
use crate::session_context::SessionContext;
use crate::settings::Settings;

/// What this program writes. A record with a higher number is left alone.
const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredSession {
    format: u32,
    pub(crate) handle: String,
    pub(crate) principal: String,
    pub(crate) instance: String,
    is_instance_named: bool,
    pub(crate) client: String,
    initialize: String,
    expects_initialize: bool,
    answer: String,
    version: Option<String>,
    pub(crate) scope: Option<StoredScope>,
    #[serde(default)]
    contexts: BTreeMap<String, String>,
    takes_local: bool,
    #[serde(default)]
    subscriptions: Vec<(String, String)>,
    log_level: Option<LogLevel>,
    #[serde(default, skip_serializing_if = "SessionContext::is_empty")]
    pub(crate) context: SessionContext,
    pub(crate) epoch: u32,
    pub(crate) opened: Timestamp,
    pub(crate) last_used: Timestamp,
}

/// Where the session may write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredScope {
    pub(crate) roots: Vec<DirectoryIdentity>,
    pub(crate) label: Option<String>,
    pub(crate) source: ScopeSource,
    /// The session workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copy: Option<CopyId>,
}

/// Why a row of the store is no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoredError {
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("a newer ringfence has written it (format {0})")]
    Newer(u32),
}

#[derive(Deserialize)]
struct OnlyFormat {
    format: u32,
}

impl StoredSession {
    /// The record of a session that its client has heard of and that has not ended.
    pub(crate) fn of(record: &SessionRecord, last_used: Timestamp) -> Option<Self> {
        let answer = record.answer.clone().filter(|_| record.end.is_none())?;
        let initialize = record.initialize.with_id(&record.initialize.id).into_bytes();
        let contexts = &record.contexts;
        Some(Self {
            format: FORMAT,
            handle: record.key.id.handle().to_string(),
            principal: record.key.principal.to_string(),
            instance: record.instance.to_string(),
            is_instance_named: record.is_instance_named,
            client: record.client.clone(),
            initialize: String::from_utf8(initialize.into()).ok()?,
            expects_initialize: record.expects_initialize,
            answer,
            version: record.version.map(|version| version.as_str().to_owned()),
            scope: record.scope.as_deref().map(StoredScope::of),
            contexts: contexts
                .wanted
                .iter()
                .map(|(name, it)| (name.clone(), it.as_str().to_owned()))
                .collect(),
            takes_local: contexts.takes_local,
            subscriptions: record
                .subscriptions
                .iter()
                .map(|it| (it.server.clone(), it.uri.clone()))
                .collect(),
            log_level: record.log_level,
            context: record.context.clone(),
            epoch: record.epoch,
            opened: record.opened,
            last_used,
        })
    }

    pub(crate) fn to_text(&self) -> String {
        // Nothing in it can fail to become JSON: keys are strings, and no number is infinite.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn read(text: &str) -> Result<Self, StoredError> {
        let OnlyFormat { format } = serde_json::from_str(text)?;
        if format > FORMAT {
            return Err(StoredError::Newer(format));
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Corrects times that a clock wrote which was ahead of the present one. Else the session would stay until the clock
    /// gets there.
    pub(crate) fn not_after(&mut self, now: Timestamp) {
        self.opened = self.opened.min(now);
        self.last_used = self.last_used.min(now);
    }

    pub(crate) fn is_unused_for(&self, limit: Duration, now: Timestamp) -> bool {
        is_past(self.last_used, limit, now)
    }

    /// Why the session is over by now, if it is.
    pub(crate) fn end_by(&self, now: Timestamp, settings: &Settings) -> Option<EndReason> {
        if settings.max_age.is_some_and(|limit| is_past(self.opened, limit, now)) {
            return Some(EndReason::Expired);
        }
        self.is_unused_for(settings.idle_timeout, now).then_some(EndReason::Idle)
    }

    /// The record for the gateway that takes the session over, without its scope, which is to be vetted again. `None` if
    /// something in it means nothing to this program.
    pub(crate) fn to_record(&self, key: SessionKey) -> Option<SessionRecord> {
        let initialize = Message::parse(Bytes::copy_from_slice(self.initialize.as_bytes())).ok()?;
        let Message::Request(initialize) = initialize else { return None };
        Some(SessionRecord {
            key,
            instance: Instance::named(&self.instance)?,
            is_instance_named: self.is_instance_named,
            client: self.client.clone(),
            opened: self.opened,
            epoch: self.epoch + 1,
            initialize: Arc::<Request>::new(initialize),
            expects_initialize: self.expects_initialize,
            answer: Some(self.answer.clone()),
            version: self.version.as_deref().and_then(Version::parse),
            scope: None,
            contexts: self.contexts(),
            context: self.context.clone(),
            subscriptions: self.subscriptions(),
            log_level: self.log_level,
            end: None,
        })
    }

    /// The directories of its scope.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        self.scope.iter().flat_map(|it| &it.roots).map(|root| root.path().to_owned()).collect()
    }

    fn contexts(&self) -> Contexts {
        let context = |text: &str| {
            [ExecutionContext::Local, ExecutionContext::Remote].into_iter().find(|it| it.as_str() == text)
        };
        let wanted = self.contexts.iter().filter_map(|(name, it)| Some((name.clone(), context(it)?)));
        Contexts { wanted: wanted.collect(), takes_local: self.takes_local }
    }

    fn subscriptions(&self) -> BTreeSet<Subscription> {
        let subscription =
            |(server, uri): &(String, String)| Subscription { server: server.clone(), uri: uri.clone() };
        self.subscriptions.iter().map(subscription).collect()
    }
}

/// Whether that is so long ago. A time to come is not.
fn is_past(since: Timestamp, limit: Duration, now: Timestamp) -> bool {
    now >= since && now.duration_since(since).unsigned_abs() >= limit
}

impl StoredScope {
    fn of(scope: &Scope) -> Self {
        Self {
            // A directory that is gone has no identity, and is not found again either.
            roots: scope.roots().iter().filter_map(|root| root.identity().ok()).collect(),
            label: scope.label.clone(),
            source: scope.source(),
            copy: scope.copy.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
