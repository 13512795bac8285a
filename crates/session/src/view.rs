//! What a client sees of several servers: one list of tools, prompts and templates, each under a unique name, and the way
//! back from that name to the server and its own name. Names are looked up, never parsed.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use config::{NameMode, ToolRules};
use globset::{Glob, GlobSet, GlobSetBuilder};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use wire::hex;

use crate::catalogue::{Catalogue, Listed};
use crate::list::List;

/// Longest name that all clients accept.
const MAX_NAME: usize = 64;

/// Items of one page, which is all that a client without paging sees.
const PAGE: usize = 1000;

/// Views of one roster that are kept for the next session.
const MAX_VIEWS: usize = 32;

/// Keys in the `_meta` of an item: its server, and the name that the server gave it.
const SERVER_KEY: &str = "io.ringfence/server";
const OWN_NAME_KEY: &str = "io.ringfence/name";

/// The server of an item, and the name that the server gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Its place among the members.
    pub(crate) member: usize,
    pub(crate) own: String,
}

/// One member's part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) name: &'a str,
    pub(crate) rules: &'a ToolRules,
    /// `None`: not known yet.
    pub(crate) catalogue: Option<&'a Arc<Catalogue>>,
    /// How its items are named.
    pub(crate) names: NameMode,
    /// Servers behind this one whose items are left out, because they are configured here, too.
    pub(crate) hides: &'a [String],
    /// Whether its items are shown. Hidden items keep their names.
    pub(crate) is_shown: bool,
}

#[derive(Debug, Default)]
pub(crate) struct View {
    tools: Merged,
    prompts: Merged,
    templates: Vec<(Target, String)>,
    template_pages: Vec<Bytes>,
    /// Kept alive: [`Views`] tells views apart by the addresses of their catalogues.
    _catalogues: Vec<Option<Arc<Catalogue>>>,
}

#[derive(Debug, Default)]
struct Merged {
    /// The results of `…/list`, page by page.
    pages: Vec<Bytes>,
    targets: HashMap<String, Target>,
    /// The shown items in order, each with the place of its server.
    shown: Vec<(String, usize)>,
}

/// An item on its way into a merged list.
struct Item<'a> {
    member: usize,
    listed: &'a Listed,
    wanted: String,
    is_shown: bool,
}

impl View {
    /// `tools`: which of the tools the principal sees, by the names that they have here.
    pub(crate) fn of(parts: &[Part<'_>], tools: &ToolRules) -> Self {
        let (templates, template_pages) = merge_templates(parts);
        Self {
            tools: merge(parts, List::Tools, tools),
            prompts: merge(parts, List::Prompts, tools),
            templates,
            template_pages,
            _catalogues: parts.iter().map(|part| part.catalogue.cloned()).collect(),
        }
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Target> {
        self.tools.targets.get(name)
    }

    pub(crate) fn prompt(&self, name: &str) -> Option<&Target> {
        self.prompts.targets.get(name)
    }

    /// The tools that are shown, each with the place of its server.
    pub(crate) fn shown_tools(&self) -> &[(String, usize)] {
        &self.tools.shown
    }

    /// The member whose template is this, or makes such URIs. Of several, the one with the longest fixed beginning.
    pub(crate) fn member_for_uri(&self, uri: &str) -> Option<usize> {
        let is_template = |(_, template): &&(Target, String)| template == uri;
        let fixed = |template: &str| template.find('{').unwrap_or(template.len());
        let makes = |(_, template): &&(Target, String)| {
            let end = fixed(template);
            end > 0 && uri.starts_with(&template[..end])
        };
        let found = self.templates.iter().find(is_template).or_else(|| {
            self.templates.iter().filter(makes).rev().max_by_key(|(_, template)| fixed(template))
        });
        found.map(|(target, _)| target.member)
    }

    /// The result of a list request. `None`: there is no such page.
    pub(crate) fn page(&self, list: List, cursor: Option<&str>) -> Option<Bytes> {
        let pages = match list {
            List::Tools => &self.tools.pages,
            List::Prompts => &self.prompts.pages,
            List::Templates | List::Resources => &self.template_pages,
        };
        pages.get(page_number(cursor)?).cloned()
    }

    /// Which lists look different in another view.
    pub(crate) fn differences<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = List> {
        [
            (List::Tools, self.tools.pages != other.tools.pages),
            (List::Prompts, self.prompts.pages != other.prompts.pages),
            (List::Templates, self.template_pages != other.template_pages),
        ]
        .into_iter()
        .filter_map(|(list, differs)| differs.then_some(list))
    }
}

/// The views of one roster: sessions that see the same share what they see.
#[derive(Debug, Default)]
pub(crate) struct Views(Mutex<Vec<KnownView>>);

type KnownView = (Vec<Seen>, ToolRules, Weak<View>);

/// What tells views apart: the catalogue of each member, and whether it is shown.
type Seen = (Option<usize>, bool);

impl Views {
    pub(crate) fn get(&self, parts: &[Part<'_>], tools: &ToolRules) -> Arc<View> {
        let seen: Vec<Seen> = parts
            .iter()
            .map(|part| (part.catalogue.map(|it| Arc::as_ptr(it).addr()), part.is_shown))
            .collect();
        let mut views = self.0.lock();
        views.retain(|(.., view)| view.strong_count() > 0);
        let is_same = |(known, rules, _): &&KnownView| *known == seen && rules == tools;
        if let Some(view) = views.iter().find(is_same).and_then(|(.., view)| view.upgrade()) {
            return view;
        }
        let view = Arc::new(View::of(parts, tools));
        if views.len() < MAX_VIEWS {
            views.push((seen, tools.clone(), Arc::downgrade(&view)));
        }
        view
    }
}

fn merge(parts: &[Part<'_>], list: List, tools: &ToolRules) -> Merged {
    let filter = Filter::of(tools, list);
    let items = collect(parts, list);
    let mut merged = Merged::default();
    let (mut texts, mut denied) = (Vec::new(), Vec::new());
    for item in items {
        let part = &parts[item.member];
        let Some(name) = free_name(&item, part, &merged.targets) else { continue };
        if !filter.lets_pass(&name) {
            denied.push(name.clone());
        } else if item.is_shown {
            texts.push(renamed(item.listed, list, &name, part.name));
            merged.shown.push((name.clone(), item.member));
        }
        merged.targets.insert(name, Target { member: item.member, own: item.listed.own.clone() });
    }
    // Taken until here, so that the others are called the same for every principal.
    for name in denied {
        merged.targets.remove(&name);
    }
    merged.pages = pages(list, &texts);
    merged
}

/// The items of all members in order, each with the name that it wants.
fn collect<'a>(parts: &[Part<'a>], list: List) -> Vec<Item<'a>> {
    let mut items = Vec::new();
    for (member, part) in parts.iter().enumerate() {
        let Some(catalogue) = part.catalogue else { continue };
        let filter = Filter::of(part.rules, list);
        for listed in catalogue.items(list) {
            if filter.lets_pass(&listed.own) && !is_hidden(listed, part.hides) {
                let alias = part.rules.aliases.get(&listed.own).filter(|_| list == List::Tools);
                let wanted = alias.map_or_else(
                    || match part.names {
                        NameMode::Prefix => prefixed(part.name, &listed.own),
                        NameMode::Conflict | NameMode::None => fitting(&listed.own),
                    },
                    Clone::clone,
                );
                items.push(Item { member, listed, wanted, is_shown: part.is_shown });
            }
        }
    }
    prefix_conflicts(parts, &mut items);
    items
}

/// Prefixes a name that several servers have with its server's, where the mode says so.
fn prefix_conflicts(parts: &[Part<'_>], items: &mut [Item<'_>]) {
    let mut owners: HashMap<String, HashSet<usize>> = HashMap::new();
    for item in &*items {
        owners.entry(item.wanted.clone()).or_default().insert(item.member);
    }
    for item in items {
        let part = &parts[item.member];
        if part.names == NameMode::Conflict && owners[&item.wanted].len() > 1 {
            item.wanted = prefixed(part.name, &item.listed.own);
        }
    }
}

/// A free name for the item. `None` if the first server that has the name keeps it.
fn free_name(item: &Item<'_>, part: &Part<'_>, taken: &HashMap<String, Target>) -> Option<String> {
    let server = part.name;
    if !taken.contains_key(&item.wanted) {
        return Some(item.wanted.clone());
    }
    let is_same_server = taken[&item.wanted].member == item.member;
    if part.names == NameMode::None && !is_same_server {
        tracing::warn!(server, tool = item.listed.own, "another server has this name; it is left out");
        return None;
    }
    let other = with_hash(&item.wanted, &format!("{server}\0{}", item.listed.own));
    (!taken.contains_key(&other)).then_some(other)
}

/// Whether an item comes through another gateway from a server that is configured here, too.
fn is_hidden(listed: &Listed, hides: &[String]) -> bool {
    let of = || -> Option<String> {
        let item: Value = serde_json::from_str(listed.text.get()).ok()?;
        Some(item["_meta"][SERVER_KEY].as_str()?.to_owned())
    };
    !hides.is_empty() && of().is_some_and(|server| hides.contains(&server))
}

fn prefixed(server: &str, own: &str) -> String {
    fitting(&format!("{server}_{own}"))
}

/// The name without characters that a client may refuse.
fn fitting(name: &str) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let clean: String = name.chars().map(|c| if is_fine(c) { c } else { '_' }).collect();
    if clean.len() <= MAX_NAME { clean } else { with_hash(&clean, name) }
}

/// The name, shortened, with a few digits of the hash of `what` behind it.
fn with_hash(name: &str, what: &str) -> String {
    let digits = hex(&Sha256::digest(what)[..4]);
    let room = MAX_NAME - digits.len() - 1;
    format!("{}_{digits}", &name[..name.len().min(room)])
}

/// The item under its new name, with a schema that clients accept, and its server in `_meta`.
fn renamed(listed: &Listed, list: List, name: &str, server: &str) -> Box<RawValue> {
    let mut item: Map<String, Value> = serde_json::from_str(listed.text.get()).unwrap_or_default();
    if list == List::Tools {
        mend_schemas(&mut item, server, &listed.own);
    }
    item.insert("name".to_owned(), name.into());
    let meta = item.entry("_meta").or_insert_with(|| json!({}));
    if !meta.is_object() {
        *meta = json!({});
    }
    // Another gateway has named the server already.
    if meta[SERVER_KEY].is_null() {
        meta[SERVER_KEY] = server.into();
        meta[OWN_NAME_KEY] = listed.own.as_str().into();
    }
    serde_json::value::to_raw_value(&item).unwrap_or_else(|_| listed.text.clone())
}

/// Mends broken schemas: one is enough to make some clients refuse the whole list.
fn mend_schemas(item: &mut Map<String, Value>, server: &str, tool: &str) {
    let is_object_schema = |schema: &Value| {
        schema["type"] == "object"
            && schema.get("properties").is_none_or(|properties| {
                properties
                    .as_object()
                    .is_some_and(|all| all.values().all(|one| one.is_object() || one.is_boolean()))
            })
            && schema.get("required").is_none_or(|required| {
                required.as_array().is_some_and(|names| names.iter().all(Value::is_string))
            })
    };
    if !item.get("inputSchema").is_some_and(is_object_schema) {
        tracing::warn!(server, tool, "its input schema cannot be used; any object is taken instead");
        item.insert("inputSchema".to_owned(), json!({ "type": "object" }));
    }
    if item.get("outputSchema").is_some_and(|schema| !is_object_schema(schema)) {
        tracing::warn!(server, tool, "its output schema cannot be used and is left out");
        item.remove("outputSchema");
    }
    for (field, is_right) in [
        ("description", Value::is_string as fn(&Value) -> bool),
        ("title", Value::is_string),
        ("annotations", Value::is_object),
    ] {
        if item.get(field).is_some_and(|value| !is_right(value)) {
            item.remove(field);
        }
    }
}

fn merge_templates(parts: &[Part<'_>]) -> (Vec<(Target, String)>, Vec<Bytes>) {
    let (mut targets, mut texts, mut taken) = (Vec::new(), Vec::new(), HashSet::new());
    for (member, part) in parts.iter().enumerate() {
        for listed in part.catalogue.map(|it| it.items(List::Templates)).unwrap_or_default() {
            if taken.insert(&listed.own) {
                targets.push((Target { member, own: listed.own.clone() }, listed.own.clone()));
                if part.is_shown {
                    texts.push(listed.text.clone());
                }
            }
        }
    }
    (targets, pages(List::Templates, &texts))
}

/// The results of a list request, one per page; an empty list has one page, too.
pub(crate) fn pages(list: List, items: &[Box<RawValue>]) -> Vec<Bytes> {
    let count = items.len().div_ceil(PAGE).max(1);
    (0..count)
        .map(|page| {
            let part = &items[page * PAGE..items.len().min((page + 1) * PAGE)];
            let length: usize = part.iter().map(|item| item.get().len() + ",".len()).sum();
            // Sized exactly, because it is kept.
            let mut text = String::with_capacity(length + 64);
            let _ = write!(text, r#"{{"{}":["#, list.field());
            for (place, item) in part.iter().enumerate() {
                text.push_str(if place == 0 { "" } else { "," });
                text.push_str(item.get());
            }
            text.push(']');
            if page + 1 < count {
                let _ = write!(text, r#","nextCursor":"{}""#, page + 1);
            }
            text.push('}');
            Bytes::from(text)
        })
        .collect()
}

pub(crate) fn page_number(cursor: Option<&str>) -> Option<usize> {
    cursor.map_or(Some(0), |cursor| cursor.parse().ok())
}

/// Decides which tools of a server are shown.
struct Filter {
    allow: Option<GlobSet>,
    deny: GlobSet,
}

impl Filter {
    fn of(rules: &ToolRules, list: List) -> Self {
        if list != List::Tools {
            return Self { allow: None, deny: GlobSet::empty() };
        }
        let set = |globs: &[String]| {
            let mut set = GlobSetBuilder::new();
            for glob in globs.iter().filter_map(|glob| Glob::new(glob).ok()) {
                set.add(glob);
            }
            set.build().unwrap_or_default()
        };
        Self { allow: (!rules.allow.is_empty()).then(|| set(&rules.allow)), deny: set(&rules.deny) }
    }

    fn lets_pass(&self, name: &str) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.is_match(name)) && !self.deny.is_match(name)
    }
}

#[cfg(test)]
mod tests;
