//! The state behind several servers that look like one: what is known of each, what the client sees of them, and whose
//! each resource and task is.
//!
//! A pure machine: events and the time go in, [`MergeAction`]s come out, which `aggregate.rs` performs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use wire::{Request, method};

use super::knowledge::Knowledge;
use crate::catalogue::{Catalogue, Listed};
use crate::list::List;
use crate::settings::MAX_TASKS;
use crate::view::View;

/// Resources whose server is remembered.
const MAX_RESOURCES: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Merge {
    members: Vec<Knowledge>,
    /// What the client sees.
    view: Arc<View>,
    /// Something is known that the view does not show.
    is_stale: bool,
    /// The client will soon be told of a change.
    is_telling: bool,
    /// Members that are being looked at.
    looks: usize,
    /// Whose each resource of the last list is.
    resources: HashMap<String, usize>,
    /// Members whose resources the client has seen as the probe saw them.
    shown_as_probed: HashSet<usize>,
    /// Whose each task is.
    tasks: HashMap<String, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeAction {
    /// Find out what the member offers, then report `looked`.
    Look(usize),
    /// Ask the member's own worker for its lists, then report `refreshed`.
    Refresh(usize),
    /// The same after a pause: a server that always has news is not asked all the time.
    RefreshLater(usize),
    /// Show a new view in a moment; servers that start together are told together.
    ShowSoon,
    /// Tell the client that a list changed.
    Tell(List),
}

/// Which server a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The member, which knows a tool or prompt by this name.
    Member {
        place: usize,
        name: Option<String>,
    },
    /// A named tool or prompt that no known list has.
    Unknown {
        what: &'static str,
        name: String,
    },
    /// A resource that no known list has.
    UnknownResource(String),
    UnknownTask,
    /// The gateway answers.
    Gateway(Answer),
    /// The request lacks a parameter that would say which server it is for.
    Incomplete(String),
    /// A method that says nothing about a server.
    Ambiguous,
}

/// What the gateway itself answers to the client of several servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Pong,
    Page(List),
    Resources,
    Level,
    Tasks,
}

impl Merge {
    pub(crate) fn new(known: impl IntoIterator<Item = Option<Arc<Catalogue>>>) -> Self {
        Self {
            members: known.into_iter().map(Knowledge::new).collect(),
            view: Arc::default(),
            is_stale: true,
            is_telling: false,
            looks: 0,
            resources: HashMap::new(),
            shown_as_probed: HashSet::new(),
            tasks: HashMap::new(),
        }
    }

    pub(crate) fn knowledge(&self, place: usize) -> &Knowledge {
        &self.members[place]
    }

    pub(crate) fn looks(&self) -> usize {
        self.looks
    }

    /// Finds out what a member offers, if that is not known and no look is recent. `pause`: how long trouble is left
    /// alone.
    pub(crate) fn consider(&mut self, place: usize, pause: Duration, now: Instant) -> Option<MergeAction> {
        let begins = self.members[place].begin_look(pause, now);
        self.looks += usize::from(begins);
        begins.then_some(MergeAction::Look(place))
    }

    /// A look is over.
    pub(crate) fn looked(
        &mut self,
        place: usize,
        found: Result<Arc<Catalogue>, String>,
        now: Instant,
    ) -> Vec<MergeAction> {
        self.members[place].looked(found, now);
        self.looks -= 1;
        self.note_change()
    }

    /// A server says that one of its lists changed.
    pub(crate) fn list_changed(&mut self, place: usize, list: List) -> Vec<MergeAction> {
        let mut actions = Vec::new();
        // Resources are asked for when the client asks; the client hears that it should.
        if list == List::Resources {
            actions.push(MergeAction::Tell(list));
        }
        actions.extend(self.refresh(place));
        actions
    }

    /// The lists of the session's own worker count from now on.
    pub(crate) fn refresh(&mut self, place: usize) -> Option<MergeAction> {
        self.members[place].begin_refresh().then_some(MergeAction::Refresh(place))
    }

    /// The session's own worker was asked for its lists.
    pub(crate) fn refreshed(&mut self, place: usize, found: Option<Catalogue>) -> Vec<MergeAction> {
        let mut actions = Vec::new();
        let has_resources = found.as_ref().is_some_and(|catalogue| catalogue.capabilities.resources);
        if has_resources && self.shown_as_probed.remove(&place) {
            actions.push(MergeAction::Tell(List::Resources));
        }
        if self.members[place].refreshed(found) {
            actions.extend(self.note_change());
        }
        if self.members[place].end_refresh() {
            actions.push(MergeAction::RefreshLater(place));
        }
        actions
    }

    /// Lets a server be tried that was in trouble.
    pub(crate) fn forgive(&mut self, place: usize) {
        self.members[place].forgive();
    }

    /// The client's machine has come or gone. `returned`: members that run there, if it has come.
    pub(crate) fn attachment_changed(&mut self, returned: &[usize]) -> Vec<MergeAction> {
        for &place in returned {
            self.members[place].forget();
        }
        self.note_change()
    }

    fn note_change(&mut self) -> Vec<MergeAction> {
        self.is_stale = true;
        if std::mem::replace(&mut self.is_telling, true) { Vec::new() } else { vec![MergeAction::ShowSoon] }
    }

    /// The moment has passed after which the client is told what changed.
    pub(crate) fn telling(&mut self) {
        self.is_telling = false;
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Takes a new view, and says which lists look different in it.
    pub(crate) fn show(&mut self, view: Arc<View>) -> Vec<MergeAction> {
        let changes = view.differences(&self.view).map(MergeAction::Tell).collect();
        self.view = view;
        self.is_stale = false;
        changes
    }

    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// Decides which server a request is for.
    pub(crate) fn destination(&self, request: &Request) -> Destination {
        match request.method.as_str() {
            method::PING => Destination::Gateway(Answer::Pong),
            method::TOOLS_CALL => self.named(request, "tool"),
            method::PROMPTS_GET => self.named(request, "prompt"),
            method::COMPLETE if request.name().is_some() => self.named(request, "prompt"),
            method::COMPLETE | method::RESOURCES_READ | method::SUBSCRIBE | method::UNSUBSCRIBE => {
                self.by_uri(request)
            }
            method::RESOURCES_LIST => Destination::Gateway(Answer::Resources),
            method::SET_LEVEL => Destination::Gateway(Answer::Level),
            method::TASKS_GET | method::TASKS_RESULT | method::TASKS_CANCEL => {
                let place = request.task_id().and_then(|task| self.tasks.get(&task).copied());
                place.map_or(Destination::UnknownTask, |place| Destination::Member { place, name: None })
            }
            method::TASKS_LIST => Destination::Gateway(Answer::Tasks),
            other => match List::of_request(other) {
                Some(list) => Destination::Gateway(Answer::Page(list)),
                // Methods that only a server can know, if there is but one.
                None if self.members.len() == 1 => Destination::Member { place: 0, name: None },
                None => Destination::Ambiguous,
            },
        }
    }

    /// A tool or prompt, by the name that the client knows.
    fn named(&self, request: &Request, what: &'static str) -> Destination {
        let Some(name) = request.name() else {
            return Destination::Incomplete(format!("the {what} has no name"));
        };
        let target = if what == "tool" { self.view.tool(&name) } else { self.view.prompt(&name) };
        match target {
            Some(target) => {
                let name = (target.own != name).then(|| target.own.clone());
                Destination::Member { place: target.member, name }
            }
            None => Destination::Unknown { what, name },
        }
    }

    /// A resource: of the server that lists it, or whose template makes such URIs, or the only one that has any.
    fn by_uri(&self, request: &Request) -> Destination {
        let Some(uri) = request.uri() else {
            return Destination::Incomplete("the request names no resource".to_owned());
        };
        let listed = self.resources.get(&uri).copied();
        let place = listed.or_else(|| self.view.member_for_uri(&uri)).or_else(|| self.only_with_resources());
        place.map_or(Destination::UnknownResource(uri), |place| Destination::Member { place, name: None })
    }

    fn only_with_resources(&self) -> Option<usize> {
        let mut places = (0..self.members.len()).filter(|place| self.has_resources(*place));
        places.next().filter(|_| places.next().is_none() && self.looks == 0)
    }

    pub(crate) fn has_resources(&self, place: usize) -> bool {
        self.members[place].catalogue().is_some_and(|catalogue| catalogue.capabilities.resources)
    }

    /// The resources that the probe saw, for the client to see until the server runs.
    pub(crate) fn show_probed_resources(&mut self, place: usize) -> Vec<Listed> {
        self.shown_as_probed.insert(place);
        self.members[place].catalogue().map(|catalogue| catalogue.resources.clone()).unwrap_or_default()
    }

    /// Remembers whose each resource is, and merges the lists. The first server that has a URI keeps it.
    pub(crate) fn note_resources(&mut self, lists: Vec<(usize, Vec<Listed>)>) -> Vec<Box<RawValue>> {
        self.resources.clear();
        let mut texts = Vec::new();
        for (place, item) in
            lists.into_iter().flat_map(|(place, items)| items.into_iter().map(move |it| (place, it)))
        {
            if self.resources.len() < MAX_RESOURCES && !self.resources.contains_key(&item.own) {
                self.resources.insert(item.own, place);
                texts.push(item.text);
            }
        }
        texts
    }

    /// Remembers whose a task is.
    pub(crate) fn note_task(&mut self, place: usize, task: String) {
        if self.tasks.len() < MAX_TASKS {
            self.tasks.insert(task, place);
        }
    }

    pub(crate) fn owns_task(&self, task: &str) -> bool {
        self.tasks.contains_key(task)
    }

    /// The members that have tasks of this session.
    pub(crate) fn task_owners(&self) -> HashSet<usize> {
        self.tasks.values().copied().collect()
    }
}

#[cfg(test)]
mod tests;
