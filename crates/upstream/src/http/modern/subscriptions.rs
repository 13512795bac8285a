//! Which notifications the caller wants, and which of them the server has promised to send.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;
use wire::{ErrorReply, code};

use crate::http::error_replies;

/// Most resources subscribed to at the same time.
const MAX_URIS: usize = 1024;
/// Longest URI.
const MAX_URI: usize = 8 * 1024;
/// How long a change waits for the server's acknowledgement.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The change notifications that the server's capabilities offer.
#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a capability of its own")]
pub(super) struct ChangeNotifications {
    tools: bool,
    prompts: bool,
    resources: bool,
    subscribe: bool,
}

/// The notifications of a stream: those asked for, or those promised.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Filter {
    pub(super) tools_list_changed: bool,
    pub(super) prompts_list_changed: bool,
    pub(super) resources_list_changed: bool,
    pub(super) resource_subscriptions: BTreeSet<String>,
}

/// The notifications that the caller wants, numbered so that an acknowledgement can be matched to a change.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) generation: u64,
    pub(super) filter: Filter,
}

#[derive(Debug)]
struct Settled {
    generation: u64,
    /// The resources that the server promises to report, or why there is no stream.
    promised: Result<BTreeSet<String>, String>,
}

/// A subscription that the caller added or removed.
#[derive(Debug)]
pub(super) struct Change {
    generation: u64,
    uri: String,
}

pub(super) struct Subscriptions {
    can_subscribe: bool,
    wanted: watch::Sender<Wanted>,
    settled: watch::Sender<Settled>,
}

impl ChangeNotifications {
    pub(super) fn of(capabilities: &Value) -> Self {
        let offers = |path: &str| capabilities.pointer(path) == Some(&Value::Bool(true));
        Self {
            tools: offers("/tools/listChanged"),
            prompts: offers("/prompts/listChanged"),
            resources: offers("/resources/listChanged"),
            subscribe: offers("/resources/subscribe"),
        }
    }
}

impl Filter {
    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Only those that were asked for.
    pub(super) fn within(mut self, asked: &Self) -> Self {
        self.tools_list_changed &= asked.tools_list_changed;
        self.prompts_list_changed &= asked.prompts_list_changed;
        self.resources_list_changed &= asked.resources_list_changed;
        self.resource_subscriptions.retain(|uri| asked.resource_subscriptions.contains(uri));
        self
    }

    /// The parameters of `subscriptions/listen`.
    pub(super) fn to_params(&self) -> Value {
        let mut notifications = serde_json::Map::new();
        let flags = [
            ("toolsListChanged", self.tools_list_changed),
            ("promptsListChanged", self.prompts_list_changed),
            ("resourcesListChanged", self.resources_list_changed),
        ];
        for (key, _) in flags.into_iter().filter(|(_, wanted)| *wanted) {
            notifications.insert(key.to_owned(), Value::Bool(true));
        }
        if !self.resource_subscriptions.is_empty() {
            notifications.insert("resourceSubscriptions".to_owned(), json!(self.resource_subscriptions));
        }
        json!({ "notifications": notifications })
    }
}

/// Removes a subscription again when dropped, unless it was granted.
struct Pending<'a> {
    subscriptions: &'a Subscriptions,
    uri: &'a str,
    is_granted: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_granted {
            self.subscriptions.change(|uris| uris.remove(self.uri));
        }
    }
}

impl Subscriptions {
    pub(super) fn new(offered: ChangeNotifications) -> Self {
        let filter = Filter {
            tools_list_changed: offered.tools,
            prompts_list_changed: offered.prompts,
            resources_list_changed: offered.resources,
            resource_subscriptions: BTreeSet::new(),
        };
        Self {
            can_subscribe: offered.subscribe,
            wanted: watch::Sender::new(Wanted { generation: 1, filter }),
            settled: watch::Sender::new(Settled { generation: 0, promised: Ok(BTreeSet::new()) }),
        }
    }

    pub(super) fn wanted(&self) -> Wanted {
        self.wanted.borrow().clone()
    }

    /// Resolves when the subscriptions change.
    pub(super) async fn changed(&self, generation: u64) {
        // The sender is ours, so this does not fail.
        let _ = self.wanted.subscribe().wait_for(|wanted| wanted.generation > generation).await;
    }

    /// Records the result of a change.
    pub(super) fn settle(&self, generation: u64, promised: Result<BTreeSet<String>, String>) {
        self.settled.send_replace(Settled { generation, promised });
    }

    pub(super) fn add(&self, uri: String) -> Result<Change, ErrorReply> {
        self.check_offered()?;
        if uri.len() > MAX_URI {
            return Err(ErrorReply::new(code::INVALID_PARAMS, "params.uri is too long"));
        }
        let is_full = {
            let uris = &self.wanted.borrow().filter.resource_subscriptions;
            uris.len() >= MAX_URIS && !uris.contains(&uri)
        };
        if is_full {
            return Err(error_replies::not_subscribed(&format!(
                "there are {MAX_URIS} subscriptions already"
            )));
        }
        let generation = self.change(|uris| uris.insert(uri.clone()));
        Ok(Change { generation, uri })
    }

    pub(super) fn remove(&self, uri: &str) -> Result<Change, ErrorReply> {
        self.check_offered()?;
        let generation = self.change(|uris| uris.remove(uri));
        Ok(Change { generation, uri: uri.to_owned() })
    }

    /// Waits until the server has promised to report the resource. Removes the subscription again if the server does
    /// not promise it, or if this future is dropped.
    pub(super) async fn granted(&self, change: Change) -> Result<(), ErrorReply> {
        let mut pending = Pending { subscriptions: self, uri: &change.uri, is_granted: false };
        let reason = match self.settled(change.generation).await {
            Some(Ok(promised)) if promised.contains(&change.uri) => {
                pending.is_granted = true;
                return Ok(());
            }
            Some(Ok(_)) => "the MCP server does not report its changes".to_owned(),
            Some(Err(reason)) => format!("the MCP server has no stream for it: {reason}"),
            None => "the MCP server did not acknowledge it in time".to_owned(),
        };
        Err(error_replies::not_subscribed(&reason))
    }

    /// Waits until the server no longer reports the resource, at most for [`TIMEOUT`].
    pub(super) async fn removed(&self, change: Change) {
        self.settled(change.generation).await;
    }

    async fn settled(&self, generation: u64) -> Option<Result<BTreeSet<String>, String>> {
        let mut settled = self.settled.subscribe();
        let settled = timeout(TIMEOUT, settled.wait_for(|settled| settled.generation >= generation)).await;
        Some(settled.ok()?.ok()?.promised.clone())
    }

    fn check_offered(&self) -> Result<(), ErrorReply> {
        if self.can_subscribe {
            return Ok(());
        }
        Err(ErrorReply::new(
            code::METHOD_NOT_FOUND,
            "The MCP server does not offer subscriptions to resources",
        ))
    }

    /// Changes the subscriptions. Returns the generation with the change.
    fn change(&self, change: impl FnOnce(&mut BTreeSet<String>) -> bool) -> u64 {
        self.wanted.send_if_modified(|wanted| {
            let has_changed = change(&mut wanted.filter.resource_subscriptions);
            wanted.generation += u64::from(has_changed);
            has_changed
        });
        self.wanted.borrow().generation
    }
}
