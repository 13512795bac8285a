//! The capabilities and lists of one server, item by item as it wrote them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use upstream::StartError;
use wire::{InitializeResult, Outcome, code, read_object};

use crate::list::List;
use crate::worker::Worker;

/// Bounds of one list: a server whose pages never end is cut off here.
const MAX_PAGES: usize = 100;
const MAX_ITEMS: usize = 10_000;

/// Resources of a server that are kept for sessions in which it does not run yet.
const MAX_PROBED_RESOURCES: usize = 1000;

/// How long one page is waited for.
const LIST_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Catalogue {
    pub(crate) capabilities: ServerCapabilities,
    pub(crate) instructions: Option<String>,
    pub(crate) tools: Vec<Listed>,
    pub(crate) prompts: Vec<Listed>,
    pub(crate) templates: Vec<Listed>,
    /// As a probe saw them. They change all the time, so a worker that runs is asked for its own.
    pub(crate) resources: Vec<Listed>,
}

/// The capabilities that a server declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a capability of its own")]
pub(crate) struct ServerCapabilities {
    pub(crate) tools: bool,
    pub(crate) prompts: bool,
    pub(crate) resources: bool,
    pub(crate) subscribe: bool,
    pub(crate) completions: bool,
    pub(crate) logging: bool,
    pub(crate) tasks: bool,
}

/// One tool, prompt, resource or template.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// Its name, URI or URI template, as its server knows it.
    pub(crate) own: String,
    pub(crate) text: Box<RawValue>,
}

impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.own == other.own && self.text.get() == other.text.get()
    }
}

impl ServerCapabilities {
    pub(crate) fn of(initialize: &InitializeResult) -> Self {
        let answer: Value = serde_json::from_str(initialize.as_json()).unwrap_or_default();
        let capabilities = &answer["capabilities"];
        let has = |name: &str| capabilities[name].is_object();
        Self {
            tools: has("tools"),
            prompts: has("prompts"),
            resources: has("resources"),
            subscribe: capabilities["resources"]["subscribe"] == true,
            completions: has("completions"),
            logging: has("logging"),
            tasks: has("tasks"),
        }
    }

    fn has(self, list: List) -> bool {
        match list {
            List::Tools => self.tools,
            List::Prompts => self.prompts,
            List::Resources | List::Templates => self.resources,
        }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            tools: self.tools || other.tools,
            prompts: self.prompts || other.prompts,
            resources: self.resources || other.resources,
            subscribe: self.subscribe || other.subscribe,
            completions: self.completions || other.completions,
            logging: self.logging || other.logging,
            tasks: self.tasks || other.tasks,
        }
    }
}

/// Why a server did not show its lists.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CatalogueError {
    #[error("{}", .0.explained())]
    Start(#[from] StartError),
    #[error("it did not answer {method} within {} s", .after.as_secs())]
    Slow { method: &'static str, after: Duration },
    #[error("it answered {method} with an error: {message}")]
    Refused { method: &'static str, message: String },
}

impl CatalogueError {
    /// The error, unless the server did not even start.
    pub(crate) fn not_of_start(&self) -> Option<&Self> {
        (!matches!(self, Self::Start(_))).then_some(self)
    }

    pub(crate) fn too_slow(list: List, after: Duration) -> Self {
        Self::Slow { method: list.request(), after }
    }
}

impl Catalogue {
    /// Asks a worker for all its lists except resources, which change all the time.
    pub(crate) async fn of_worker(worker: &Arc<Worker>, within: Duration) -> Result<Self, CatalogueError> {
        let initialize = worker.ready().await?;
        Self::after(&initialize, worker, within).await
    }

    /// The same for a worker that has answered `initialize`.
    pub(crate) async fn after(
        initialize: &InitializeResult,
        worker: &Arc<Worker>,
        within: Duration,
    ) -> Result<Self, CatalogueError> {
        let answer: Value = serde_json::from_str(initialize.as_json()).unwrap_or_default();
        let mut catalogue = Self {
            capabilities: ServerCapabilities::of(initialize),
            instructions: answer["instructions"].as_str().map(ToOwned::to_owned),
            ..Self::default()
        };
        let within = within.min(LIST_WITHIN);
        for list in [List::Tools, List::Prompts, List::Templates] {
            if !catalogue.capabilities.has(list) {
                continue;
            }
            match list_all(worker, list, within).await {
                Ok(items) => *catalogue.items_mut(list) = items,
                // Its tools are useful without the rest.
                Err(error) if list != List::Tools && !matches!(error, CatalogueError::Start(_)) => {
                    tracing::warn!(upstream = worker.name(), "{error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(catalogue)
    }

    /// Adds the resources that a worker has now, as far as they are of use to others.
    pub(crate) async fn with_resources(mut self, worker: &Arc<Worker>, within: Duration) -> Self {
        if self.capabilities.resources {
            let listed = list_all(worker, List::Resources, within.min(LIST_WITHIN)).await;
            self.resources = listed.unwrap_or_default();
            self.resources.truncate(MAX_PROBED_RESOURCES);
        }
        self
    }

    pub(crate) fn items(&self, list: List) -> &[Listed] {
        match list {
            List::Tools => &self.tools,
            List::Prompts => &self.prompts,
            List::Templates => &self.templates,
            List::Resources => &[],
        }
    }

    fn items_mut(&mut self, list: List) -> &mut Vec<Listed> {
        match list {
            List::Tools => &mut self.tools,
            List::Prompts => &mut self.prompts,
            List::Templates | List::Resources => &mut self.templates,
        }
    }
}

/// All pages of one list; empty if the server does not know the method.
pub(crate) async fn list_all(
    worker: &Arc<Worker>,
    list: List,
    within: Duration,
) -> Result<Vec<Listed>, CatalogueError> {
    let method = list.request();
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        let asked = tokio::time::timeout(within, worker.ask(method, params)).await;
        let response = asked.map_err(|_| CatalogueError::too_slow(list, within))??;
        let result = match response.outcome() {
            Outcome::Result(result) => result,
            Outcome::Error(error) if is_unknown_method(error) => break,
            Outcome::Error(error) => {
                let error: Value = serde_json::from_str(error).unwrap_or_default();
                let message = error["message"].as_str().unwrap_or("no reason given").to_owned();
                return Err(CatalogueError::Refused { method, message });
            }
        };
        cursor = read_page(result, list, &mut items);
        if cursor.is_none() || items.len() >= MAX_ITEMS {
            break;
        }
    }
    items.truncate(MAX_ITEMS);
    Ok(items)
}

fn is_unknown_method(error: &str) -> bool {
    let error: Value = serde_json::from_str(error).unwrap_or_default();
    error["code"] == code::METHOD_NOT_FOUND
}

/// Adds the items of one page, except those that cannot be read. Returns the cursor of the next page.
fn read_page(result: &str, list: List, items: &mut Vec<Listed>) -> Option<String> {
    let page: HashMap<String, &RawValue> = read_object(result).ok()?;
    let listed: Vec<&RawValue> =
        page.get(list.field()).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    for raw in listed {
        let Ok(item) = serde_json::from_str::<Value>(raw.get()) else { continue };
        match item[list.key()].as_str() {
            Some(own) if !own.is_empty() => {
                items.push(Listed { own: own.to_owned(), text: raw.to_owned() });
            }
            _ => tracing::warn!("an item of {} has no {}; it is left out", list.request(), list.key()),
        }
    }
    page.get("nextCursor").and_then(|raw| serde_json::from_str(raw.get()).ok())
}

#[cfg(test)]
mod tests;
