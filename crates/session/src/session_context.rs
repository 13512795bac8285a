//! What is said about a session: its name, labels and notes, and which agents have used it. Clients, agents and the
//! operator write it, and read it to find a session again; nothing that the gateway decides depends on it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A line in a listing.
const MAX_NAME: usize = 120;
/// As many as one can tell apart.
const MAX_LABELS: usize = 32;
const MAX_LABEL_KEY: usize = 64;
const MAX_LABEL_VALUE: usize = 200;
/// Notes are part of the record, which is written as a whole: together they stay below 64 KiB.
const MAX_NOTES: usize = 64;
const MAX_NOTE: usize = 1000;
/// Windows and clients that share a session are few; later ones are not listed.
const MAX_AGENTS: usize = 16;
/// Clients choose their names.
const MAX_AGENT_NAME: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionContext {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `key` with a value, or alone with an empty one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<SessionNote>,
    /// In the order in which they were first seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<Agent>,
    /// The highest id of a note so far.
    #[serde(skip_serializing_if = "is_zero")]
    last_note: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionNote {
    /// Never used again in the session.
    pub id: u32,
    pub at: Timestamp,
    pub by: Author,
    pub text: String,
}

/// Who wrote a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Author {
    /// Through the tool of the built-in server.
    Agent,
    /// Through the endpoint of the session.
    Client,
    Operator,
}

/// A client that has used the session: by what it says it is, or by its window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    pub name: String,
    pub since: Timestamp,
}

/// A change. What is not in it stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ContextUpdate {
    /// An empty one removes the name.
    pub name: Option<String>,
    /// `null` removes a label.
    pub labels: BTreeMap<String, Option<String>>,
    /// A further note.
    pub note: Option<String>,
    /// The id of a note to remove.
    pub remove_note: Option<u32>,
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ContextError {
    #[error(
        "a name has at most {MAX_NAME} characters, without control characters; hint: put the rest into a note"
    )]
    BadName,
    #[error(
        "`{0}` is no label: a key has 1 to {MAX_LABEL_KEY} letters, digits and `.`, `_`, `-`, `/`, a value at most \
         {MAX_LABEL_VALUE} characters without control characters; hint: write `key=value` or a word"
    )]
    BadLabel(String),
    #[error("a session has at most {MAX_LABELS} labels; hint: remove one first")]
    TooManyLabels,
    #[error(
        "a note has 1 to {MAX_NOTE} characters, without control characters except line breaks; hint: write a file of \
         the workspace and note its name"
    )]
    BadNote,
    #[error("a session has at most {MAX_NOTES} notes; hint: remove one first, by its id")]
    TooManyNotes,
    #[error("no note has the id {0}; hint: look at the notes of the session for their ids")]
    NoSuchNote(u32),
}

impl SessionContext {
    /// Whether nothing was said yet.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Makes the whole change, or none of it.
    pub(crate) fn update(
        &mut self,
        update: &ContextUpdate,
        by: Author,
        at: Timestamp,
    ) -> Result<(), ContextError> {
        let mut changed = self.clone();
        if let Some(name) = &update.name {
            let name = name.trim();
            if !is_text(name, MAX_NAME, false) {
                return Err(ContextError::BadName);
            }
            changed.name = (!name.is_empty()).then(|| name.to_owned());
        }
        for (key, value) in &update.labels {
            changed.set_label(key, value.as_deref())?;
        }
        if let Some(id) = update.remove_note {
            let place = changed.notes.iter().position(|note| note.id == id);
            changed.notes.remove(place.ok_or(ContextError::NoSuchNote(id))?);
        }
        if let Some(text) = &update.note {
            changed.add_note(text.trim(), by, at)?;
        }
        *self = changed;
        Ok(())
    }

    fn set_label(&mut self, key: &str, value: Option<&str>) -> Result<(), ContextError> {
        let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
        let is_sound = (1..=MAX_LABEL_KEY).contains(&key.len())
            && key.bytes().all(is_key)
            // On a command line it would be an option, or the removal of another label.
            && !key.starts_with('-')
            && value.is_none_or(|value| is_text(value, MAX_LABEL_VALUE, false));
        if !is_sound {
            return Err(ContextError::BadLabel(key.chars().filter(|c| !c.is_control()).take(80).collect()));
        }
        match value {
            Some(value) => {
                self.labels.insert(key.to_owned(), value.trim().to_owned());
            }
            None => {
                self.labels.remove(key);
            }
        }
        if self.labels.len() > MAX_LABELS { Err(ContextError::TooManyLabels) } else { Ok(()) }
    }

    fn add_note(&mut self, text: &str, by: Author, at: Timestamp) -> Result<(), ContextError> {
        if text.is_empty() || !is_text(text, MAX_NOTE, true) {
            return Err(ContextError::BadNote);
        }
        if self.notes.len() >= MAX_NOTES {
            return Err(ContextError::TooManyNotes);
        }
        self.last_note = self.last_note.saturating_add(1);
        let id = self.last_note;
        self.notes.push(SessionNote { id, at, by, text: text.to_owned() });
        Ok(())
    }

    /// Notes that a client has used the session. Returns false if that was known, or is one too many.
    pub(crate) fn note_agent(&mut self, name: &str, at: Timestamp) -> bool {
        let name: String = name.chars().filter(|c| !c.is_control()).take(MAX_AGENT_NAME).collect();
        let is_known = self.agents.iter().any(|agent| agent.name == name);
        if name.is_empty() || is_known || self.agents.len() >= MAX_AGENTS {
            return false;
        }
        self.agents.push(Agent { name, since: at });
        true
    }

    /// Whether it has the labels that are asked for.
    fn matches(&self, query: &SessionQuery) -> bool {
        let has = |(key, value): &(String, Option<String>)| {
            self.labels.get(key).is_some_and(|own| value.as_ref().is_none_or(|value| value == own))
        };
        query.labels.iter().all(has)
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let labels = self.labels.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]);
        let notes = self.notes.iter().map(|note| note.text.as_str());
        let agents = self.agents.iter().map(|agent| agent.name.as_str());
        self.name.as_deref().into_iter().chain(labels).chain(notes).chain(agents)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_text(text: &str, most: usize, has_lines: bool) -> bool {
    let is_allowed = |c: char| !c.is_control() || has_lines && matches!(c, '\n' | '\t');
    text.chars().count() <= most && text.chars().all(is_allowed)
}

/// Which sessions are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionQuery {
    /// Words, of which each must be somewhere in what is known of the session.
    pub search: Option<String>,
    /// Labels that it must have, each with a value or with any.
    pub labels: Vec<(String, Option<String>)>,
}

impl SessionQuery {
    /// `K` or `K=V`.
    #[must_use]
    pub fn with_label(mut self, label: &str) -> Self {
        self.labels.push(match label.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (label.to_owned(), None),
        });
        self
    }

    /// Whether a session is meant. `more`: what is known of it beside its context.
    pub(crate) fn finds<'t>(&self, context: &'t SessionContext, more: impl Iterator<Item = &'t str>) -> bool {
        if !context.matches(self) {
            return false;
        }
        let Some(search) = &self.search else { return true };
        let texts: Vec<String> = context.texts().chain(more).map(str::to_lowercase).collect();
        search.to_lowercase().split_whitespace().all(|word| texts.iter().any(|text| text.contains(word)))
    }
}

#[cfg(test)]
mod tests;
