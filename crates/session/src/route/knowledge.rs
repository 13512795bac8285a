//! What a session knows of one of its servers: its lists, or why it is of no use now. Pure; time is passed in.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::catalogue::Catalogue;

#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    catalogue: Option<Arc<Catalogue>>,
    trouble: Option<Trouble>,
    /// Whether a look is under way.
    is_looked_at: bool,
    refresh: Refresh,
}

/// Why a server is of no use now.
#[derive(Debug)]
struct Trouble {
    reason: String,
    /// `None`: it may be tried again at once.
    since: Option<Instant>,
}

/// Whether the lists of the session's own worker are being asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Refresh {
    #[default]
    Idle,
    Running,
    /// They have changed since.
    Again,
}

impl Knowledge {
    pub(crate) fn new(catalogue: Option<Arc<Catalogue>>) -> Self {
        Self { catalogue, ..Self::default() }
    }

    pub(crate) fn catalogue(&self) -> Option<&Arc<Catalogue>> {
        self.catalogue.as_ref()
    }

    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_ref().map(|trouble| trouble.reason.as_str())
    }

    /// Whether the caller is to find out what the server offers. Trouble is looked into again after `pause`.
    pub(crate) fn begin_look(&mut self, pause: Duration, now: Instant) -> bool {
        let is_recent = |trouble: &Trouble| {
            trouble.since.is_some_and(|since| now.saturating_duration_since(since) < pause)
        };
        let is_needed = match &self.trouble {
            Some(trouble) => !is_recent(trouble),
            None => self.catalogue.is_none(),
        };
        let begins = is_needed && !self.is_looked_at;
        self.is_looked_at |= begins;
        begins
    }

    /// Takes what a look has found.
    pub(crate) fn looked(&mut self, found: Result<Arc<Catalogue>, String>, now: Instant) {
        self.is_looked_at = false;
        match found {
            Ok(catalogue) => {
                self.trouble = None;
                // What its own worker has shown meanwhile is nearer to the truth.
                self.catalogue.get_or_insert(catalogue);
            }
            Err(reason) => self.trouble = Some(Trouble { reason, since: Some(now) }),
        }
    }

    /// Whether the caller is to ask the session's own worker for its lists. If not, someone asks already, and will ask
    /// once more.
    pub(crate) fn begin_refresh(&mut self) -> bool {
        let begins = self.refresh == Refresh::Idle;
        self.refresh = if begins { Refresh::Running } else { Refresh::Again };
        begins
    }

    /// Takes the lists of the session's own worker. Returns true if they changed, or ended a trouble.
    pub(crate) fn refreshed(&mut self, found: Option<Catalogue>) -> bool {
        let Some(mut catalogue) = found else { return false };
        if let Some(known) = &self.catalogue {
            catalogue.resources.clone_from(&known.resources);
        }
        let was_in_trouble = self.trouble.take().is_some();
        // Equal lists keep their identity, so that sessions can share what they see.
        let has_changed = self.catalogue.as_deref() != Some(&catalogue);
        if has_changed {
            self.catalogue = Some(Arc::new(catalogue));
        }
        has_changed || was_in_trouble
    }

    /// Whether the lists must be asked for once more.
    pub(crate) fn end_refresh(&mut self) -> bool {
        let is_again = self.refresh == Refresh::Again;
        self.refresh = if is_again { Refresh::Running } else { Refresh::Idle };
        is_again
    }

    /// Lets trouble be looked into again now.
    pub(crate) fn forgive(&mut self) {
        if let Some(trouble) = &mut self.trouble {
            trouble.since = None;
        }
    }

    /// Forgets everything: the server may be another one now.
    pub(crate) fn forget(&mut self) {
        self.trouble = None;
        self.catalogue = None;
    }
}

#[cfg(test)]
mod tests;
