//! What one server offers: its capabilities and its lists, item by item as it wrote them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use wire::{InitializeResult, Outcome, method, read_object};

use crate::worker::Worker;

/// Pages of one list, and items of all of them. A server that never ends is cut off here.
const MAX_PAGES: usize = 100;
const MAX_ITEMS: usize = 10_000;

/// A page that has not come by then is not waited for.
const LIST_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Catalogue {
    pub(crate) capabilities: ServerCapabilities,
    pub(crate) instructions: Option<String>,
    pub(crate) tools: Vec<Listed>,
    pub(crate) prompts: Vec<Listed>,
    pub(crate) templates: Vec<Listed>,
}

/// What a server declared that it can do.
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
    /// What its server calls it: a name, a URI or a URI template.
    pub(crate) own: String,
    pub(crate) text: Box<RawValue>,
}

impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.own == other.own && self.text.get() == other.text.get()
    }
}

/// One of the lists that a server may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum List {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl List {
    pub(crate) fn of_request(method: &str) -> Option<Self> {
        Some(match method {
            method::TOOLS_LIST => Self::Tools,
            method::PROMPTS_LIST => Self::Prompts,
            method::RESOURCES_LIST => Self::Resources,
            method::TEMPLATES_LIST => Self::Templates,
            _ => return None,
        })
    }

    /// What a change of it is told by. Resources and their templates share one.
    pub(crate) fn of_news(method: &str) -> Option<Self> {
        Some(match method {
            method::TOOLS_CHANGED => Self::Tools,
            method::PROMPTS_CHANGED => Self::Prompts,
            method::RESOURCES_CHANGED => Self::Resources,
            _ => return None,
        })
    }

    pub(crate) fn request(self) -> &'static str {
        match self {
            Self::Tools => method::TOOLS_LIST,
            Self::Prompts => method::PROMPTS_LIST,
            Self::Resources => method::RESOURCES_LIST,
            Self::Templates => method::TEMPLATES_LIST,
        }
    }

    pub(crate) fn news(self) -> &'static str {
        match self {
            Self::Tools => method::TOOLS_CHANGED,
            Self::Prompts => method::PROMPTS_CHANGED,
            Self::Resources | Self::Templates => method::RESOURCES_CHANGED,
        }
    }

    /// The field of the result that holds the items.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The field of an item that its server knows it by.
    fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
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

/// Why a server did not show what it has.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CatalogueError {
    #[error("{0}")]
    Start(#[from] crate::StartError),
    #[error("it did not answer {method} within {} s", .after.as_secs())]
    Slow { method: &'static str, after: Duration },
}

impl CatalogueError {
    pub(crate) fn too_slow(list: List, after: Duration) -> Self {
        Self::Slow { method: list.request(), after }
    }
}

impl Catalogue {
    /// Asks a worker for everything but its resources, which depend on the moment.
    pub(crate) async fn of_worker(worker: &Arc<Worker>, within: Duration) -> Result<Self, CatalogueError> {
        let initialize = worker.ready().await?;
        let answer: Value = serde_json::from_str(initialize.as_json()).unwrap_or_default();
        let mut catalogue = Self {
            capabilities: ServerCapabilities::of(&initialize),
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
                // Its tools are of use without the rest.
                Err(CatalogueError::Slow { .. }) if list != List::Tools => {
                    tracing::warn!(upstream = worker.upstream.name, "it did not answer {}", list.request());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(catalogue)
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

/// All pages of one list. A server that refuses has none.
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
        let Outcome::Result(result) = response.outcome() else { break };
        cursor = read_page(result, list, &mut items);
        if cursor.is_none() || items.len() >= MAX_ITEMS {
            break;
        }
    }
    items.truncate(MAX_ITEMS);
    Ok(items)
}

/// Adds the items of one page; returns where the next one begins. What cannot be read is left out.
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
