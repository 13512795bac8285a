//! Session workspaces: copies of projects that sessions work in instead of the project itself.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use fence::{HostEnvironment, StagedScope, VettedDirectory, WeakStagedScope, git_directories_beside};
use identity::{Handle, Principal};
use jiff::Timestamp;
use parking_lot::Mutex;
use staging::{
    Begun, CopyId, Event, Method, NewCopy, NewTree, StagingError, Unsaved, WorkspaceCopy, Workspaces,
};

use super::{Scope, ScopeRefusal};

/// What the record of a copy calls the principal that it belongs to. One that a command has made belongs to all who may
/// use the project.
const PRINCIPAL: &str = "principal";

/// The copies that sessions of a gateway can have.
#[derive(Debug)]
pub struct Copies {
    workspaces: Workspaces,
    /// How sessions get copies that name none; `None`: they work in the project itself.
    for_each: Option<CopyMethod>,
    /// Whether clients may take the changes of their own session over.
    lets_clients_apply: bool,
    host: Arc<HostEnvironment>,
    /// Sessions of one copy share its mounts.
    in_use: Mutex<HashMap<CopyId, WeakStagedScope>>,
    /// Copies whose sessions have ended, which may have changed nothing; and whether to discard them in any case.
    left: Mutex<Vec<(CopyId, bool)>>,
}

/// What the operator wants of copies.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyWishes {
    /// How sessions get copies that name none.
    pub for_each: Option<CopyMethod>,
    pub lets_clients_apply: bool,
}

/// How a copy is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMethod {
    /// The first that works here, of those that cost least.
    Best,
    Only(Method),
}

/// Who works in a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyUser<'a> {
    pub(crate) principal: &'a Principal,
    pub(crate) session: Handle,
    pub(crate) client: &'a str,
}

impl Copies {
    pub fn new(workspaces: Workspaces, wishes: CopyWishes, host: Arc<HostEnvironment>) -> Self {
        let CopyWishes { for_each, lets_clients_apply } = wishes;
        let (in_use, left) = Default::default();
        Self { workspaces, for_each, lets_clients_apply, host, in_use, left }
    }

    pub(crate) fn lets_clients_apply(&self) -> bool {
        self.lets_clients_apply
    }

    /// Whether sessions that name no copy get one.
    pub(crate) fn are_made(&self) -> bool {
        self.for_each.is_some()
    }

    /// The copy of this name, if there is one.
    pub(crate) fn named(&self, name: &str) -> Option<WorkspaceCopy> {
        self.workspaces.find(name).ok()
    }

    /// The copy of a session. Opening it checked that its principal may use it.
    pub fn of(&self, scope: &Scope) -> Option<WorkspaceCopy> {
        self.with_id(scope.copy.as_ref()?)
    }

    /// The copies of the same project that a principal may see.
    pub(crate) fn of_project(&self, project: &Path, principal: &Principal) -> Vec<WorkspaceCopy> {
        let all = self.workspaces.list().unwrap_or_default().into_iter().flatten();
        all.filter(|copy| copy.record().base_path() == project && may_use(copy, principal)).collect()
    }

    fn with_id(&self, id: &CopyId) -> Option<WorkspaceCopy> {
        let all = self.workspaces.list().ok()?;
        all.into_iter().flatten().find(|copy| copy.record().id == *id)
    }

    /// Puts a copy at the place of a scope's directory: the one that the client named, or a new one if every session
    /// gets its own.
    pub(crate) fn stage(&self, scope: Scope, user: CopyUser<'_>) -> Result<Scope, ScopeRefusal> {
        let (copy, staged) = match (&scope.copy, scope.roots()) {
            (Some(id), _) => self.open(id, user)?,
            (None, [base]) if self.are_made() => self.make(base, user)?,
            (None, [_, ..]) if self.are_made() => return Err(ScopeRefusal::SeveralRootsOfCopy),
            _ => return Ok(scope),
        };
        Ok(scope.with_copy(copy, staged))
    }

    fn open(&self, id: &CopyId, user: CopyUser<'_>) -> Result<(CopyId, StagedScope), ScopeRefusal> {
        let mut copy = self.with_id(id).ok_or(ScopeRefusal::NoSuchCopy)?;
        if !may_use(&copy, user.principal) {
            return Err(ScopeRefusal::NoSuchCopy);
        }
        // Held until it is staged, so that two sessions do not stage it twice.
        let mut in_use = self.in_use.lock();
        in_use.retain(|_, staged| staged.upgrade().is_some());
        let staged = match in_use.get(id).and_then(WeakStagedScope::upgrade) {
            Some(staged) => staged,
            None => copy.stage().map_err(|error| refusal(&error))?,
        };
        in_use.insert(id.clone(), staged.downgrade());
        drop(in_use);
        note_use(&mut copy, user);
        Ok((id.clone(), staged))
    }

    fn make(
        &self,
        base: &VettedDirectory,
        user: CopyUser<'_>,
    ) -> Result<(CopyId, StagedScope), ScopeRefusal> {
        let methods = match self.for_each {
            Some(CopyMethod::Only(method)) => vec![method],
            _ => self.workspaces.methods(base.path()),
        };
        let begun = self.workspaces.begin(&self.new_copy(base, user), &methods);
        let Begun { mut copy, staged, tried } = begun.map_err(|error| refusal(&error))?;
        for (method, error) in tried {
            tracing::debug!(%method, "a copy by this method cannot be used: {error}");
        }
        let owner = user.principal.as_str();
        let noted = copy.update(|record| drop(record.more.insert(PRINCIPAL.to_owned(), owner.into())));
        noted.map_err(|error| refusal(&error))?;
        let id = copy.record().id.clone();
        self.in_use.lock().insert(id.clone(), staged.downgrade());
        note_use(&mut copy, user);
        Ok((id, staged))
    }

    fn new_copy(&self, base: &VettedDirectory, user: CopyUser<'_>) -> NewCopy {
        let beside = git_directories_beside(base, &self.host);
        let beside = beside
            .into_iter()
            .map(|git| NewTree { base: git.directory.path().to_owned(), worktree: git.worktree });
        NewCopy {
            beside: beside.collect(),
            staged_for: Some(user.session.to_string()),
            ..NewCopy::of(base.path(), Method::Overlay)
        }
    }

    /// Notes that a session which had a copy of its own has ended.
    pub(crate) fn note_left(&self, scope: &Scope) {
        self.left.lock().extend(scope.copy.clone().map(|id| (id, false)));
    }

    /// Moves a copy to the trash when no session has it any more.
    pub(crate) fn discard_when_left(&self, copy: &WorkspaceCopy) {
        self.left.lock().push((copy.record().id.clone(), true));
    }

    /// Removes copies that were made for one session, which has ended and changed nothing. The others stay for their users
    /// to look at. Looks at files.
    pub(crate) fn remove_unchanged(&self) {
        let left = std::mem::take(&mut *self.left.lock());
        for (id, is_unwanted) in left {
            let is_in_use = self.in_use.lock().get(&id).is_some_and(|staged| staged.upgrade().is_some());
            if is_in_use {
                self.left.lock().push((id, is_unwanted));
                continue;
            }
            let may_go = |copy: &WorkspaceCopy| is_unwanted || copy.record().staged_for.is_some();
            let Some(copy) = self.with_id(&id).filter(may_go) else { continue };
            let name = copy.record().name.clone();
            match self.workspaces.discard(copy, Unsaved::default(), is_unwanted) {
                Ok(_) => tracing::info!(%name, "the session workspace is in the trash"),
                Err(StagingError::Unsaved { what, .. }) => tracing::info!(
                    "the session workspace {name} has {what}; see `ringfence session diff {name}`"
                ),
                Err(error) => tracing::warn!("the session workspace {name} stays: {error}"),
            }
        }
    }
}

/// Whether a copy belongs to a principal, or to all who may use the project.
fn may_use(copy: &WorkspaceCopy, principal: &Principal) -> bool {
    let owner = copy.record().more.get(PRINCIPAL).and_then(serde_json::Value::as_str);
    owner.is_none_or(|owner| owner == principal.as_str())
}

fn note_use(copy: &mut WorkspaceCopy, user: CopyUser<'_>) {
    let event = Event::Attached { client: user.client.to_owned(), session: Some(user.session.to_string()) };
    let noted = copy.update(|record| record.used = Timestamp::now()).and_then(|()| copy.note(event));
    if let Err(error) = noted {
        tracing::warn!("the use of a session workspace is not noted: {error}");
    }
}

fn refusal(error: &StagingError) -> ScopeRefusal {
    let hint = error.hint().unwrap_or("`ringfence session list` shows the workspaces").to_owned();
    ScopeRefusal::Copy { message: error.to_string(), hint }
}
