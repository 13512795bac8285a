//! Typed access to the values of a map by the names of its table. A value of the wrong type has been reported by the
//! check and counts as absent.

use std::path::PathBuf;
use std::time::Duration;

use crate::check::{bytes_of, duration_of};
use crate::diagnostic::Findings;
use crate::document::{Entry, Node};
use crate::keys::{Key, Shape};
use crate::{Piece, Template, Values};

pub(super) struct Fields<'a> {
    node: &'a Node,
    keys: &'static [Key],
}

impl<'a> Fields<'a> {
    pub(super) fn new(node: &'a Node, keys: &'static [Key]) -> Self {
        Self { node, keys }
    }

    /// The value, unless it is absent or empty.
    pub(super) fn get(&self, name: &str) -> Option<&'a Node> {
        debug_assert!(self.keys.iter().any(|key| key.name == name), "`{name}` is in no table");
        self.node.get(name).filter(|node| !node.is_nothing())
    }

    pub(super) fn entries(&self, name: &str) -> &'a [Entry] {
        self.get(name).and_then(Node::map).unwrap_or_default()
    }

    pub(super) fn object(&self, name: &str) -> Option<Fields<'a>> {
        let Shape::Object(keys) = self.keys.iter().find(|key| key.name == name)?.shape else { return None };
        let node = self.get(name)?;
        node.map().map(|_| Fields::new(node, keys))
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name)?.text()
    }

    pub(super) fn choice(&self, name: &str) -> Option<&'a str> {
        self.text(name)
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name)?.flag()
    }

    pub(super) fn template(&self, name: &str) -> Option<Template> {
        Template::parse(self.text(name)?).ok()
    }

    pub(super) fn templates(&self, name: &str) -> Option<Vec<Template>> {
        Some(self.get(name)?.list()?.iter().filter_map(template_of).collect())
    }

    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let items = self.get(name).and_then(Node::list).unwrap_or_default();
        items.iter().filter_map(Node::text).map(str::to_owned).collect()
    }

    pub(super) fn path(&self, name: &str, findings: &mut Findings<'_>) -> Option<PathBuf> {
        let node = self.get(name)?;
        path_of(node, node.text()?, findings)
    }

    pub(super) fn paths(&self, name: &str, findings: &mut Findings<'_>) -> Vec<PathBuf> {
        let items = self.get(name).and_then(Node::list).unwrap_or_default();
        items.iter().filter_map(|item| path_of(item, item.text()?, findings)).collect()
    }

    /// As [`Self::paths`], where an item may be a word that is no path.
    pub(super) fn paths_or_word(&self, name: &str, word: &str, findings: &mut Findings<'_>) -> Vec<PathBuf> {
        let items = self.get(name).and_then(Node::list).unwrap_or_default();
        let read = |item: &Node| match item.text()? {
            text if text == word => Some(PathBuf::from(word)),
            text => path_of(item, text, findings),
        };
        items.iter().filter_map(read).collect()
    }

    pub(super) fn seconds(&self, name: &str) -> Option<Duration> {
        self.get(name)?.number().and_then(duration_of)
    }

    pub(super) fn count(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    pub(super) fn bytes(&self, name: &str) -> Option<u64> {
        bytes_of(self.text(name)?)
    }
}

pub(super) fn template_of(node: &Node) -> Option<Template> {
    Template::parse(node.text()?).ok()
}

/// The path of a file of variables. The file is read outside of every fence, so a session's agent must not be able to
/// write it.
pub(super) fn variables_file(node: &Node, findings: &mut Findings<'_>) -> Option<PathBuf> {
    let is_fixed =
        |piece: &Piece| matches!(piece, Piece::Text(_) | Piece::Variable(_) | Piece::VariableOr { .. });
    let Ok(template) = Template::parse(node.text()?) else {
        findings.error_with_hint(node.place, "`envFile` is not a path", "write /path/to/file");
        return None;
    };
    if !template.0.iter().all(is_fixed) {
        let message = "`envFile` is not read: it must not depend on the session, whose agent could write it";
        findings.warning(node.place, message, "put the variables into `env`, or the file elsewhere");
        return None;
    }
    let variable = |name: &str| std::env::var(name).ok();
    let values = Values {
        working_directory: None,
        session_id: "",
        instance_id: "",
        storage: None,
        variable: &variable,
    };
    match template.expand(&values) {
        Ok(path) => path_of(node, &path.to_string_lossy(), findings),
        Err(missing) => {
            findings.warning(node.place, format!("`envFile` is not read: {missing}"), "write the whole path");
            None
        }
    }
}

/// Resolves a relative path against the file's directory, not against the directory where ringfence was started.
fn path_of(node: &Node, text: &str, findings: &mut Findings<'_>) -> Option<PathBuf> {
    if let Some(below) = text.strip_prefix("~/") {
        let Some(home) = std::env::home_dir().filter(|home| home.is_absolute()) else {
            findings.error(node.place, "`~` cannot be used: there is no home directory");
            return None;
        };
        return Some(home.join(below));
    }
    let directory = findings.file().parent().unwrap_or(std::path::Path::new(""));
    // `components` drops `.`, so that the path reads as its author would write it.
    Some(directory.join(text).components().collect())
}
