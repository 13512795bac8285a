//! Where a session may write: the sources that can name it, the operator's rules, and the vetted directories. A scope is
//! chosen once; its directories are recorded by device and inode, and the launcher compares them.

mod copies;
mod root_uri;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fence::{HostEnvironment, ScopeError, StagedScope, VettedDirectory};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use staging::CopyId;
use upstream::Directories;
use wire::{Id, Outcome, Response, read_object};

pub(crate) use self::copies::CopyUser;
pub use self::copies::{Copies, CopyMethod, CopyWishes};
pub use self::root_uri::{RootError, parse_root};
use crate::rights::Rights;
use crate::stored::StoredScope;

/// How much of a client's text an error quotes.
pub(crate) const MAX_QUOTED: usize = 200;

/// How much of the name of a workspace on another machine is kept.
const MAX_LABEL: usize = 1024;

/// Most roots of one workspace.
const MAX_ROOTS: usize = 64;

/// Who named the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScopeSource {
    /// The header `Ringfence-Workspace` or the URL.
    Workspace,
    /// The client's answer to our `roots/list`.
    Roots,
    /// The operator.
    Default,
    /// The gateway itself, for a probe: an empty directory.
    Nothing,
    /// The client, for whom it is on another machine: an empty directory here.
    Elsewhere,
}

impl ScopeSource {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Roots => "roots",
            Self::Default => "default",
            Self::Nothing => "nothing",
            Self::Elsewhere => "elsewhere",
        }
    }
}

/// Where a session may write, and who chose that.
#[derive(Clone, Debug)]
pub struct Scope {
    pub(crate) directories: Arc<Directories>,
    /// What a client on another machine calls its workspace there. A label, nothing more.
    pub(crate) label: Option<String>,
    pub(crate) source: ScopeSource,
    /// The session workspace that takes the place of the first directory.
    pub(crate) copy: Option<CopyId>,
}

impl Scope {
    /// An empty scope, for a server that is only probed.
    pub(crate) fn nothing() -> Self {
        Self::of(Vec::new(), ScopeSource::Nothing)
    }

    fn of(roots: Vec<VettedDirectory>, source: ScopeSource) -> Self {
        Self { directories: Arc::new(Directories::of(roots)), label: None, source, copy: None }
    }

    /// The same directories, with a copy at the place of the first.
    fn with_copy(self, copy: CopyId, staged: StagedScope) -> Self {
        let directories = Directories { staged: Some(staged), ..Directories::clone(&self.directories) };
        Self { directories: Arc::new(directories), copy: Some(copy), ..self }
    }

    /// The name of the session workspace that the session has.
    pub fn copy_name(&self) -> Option<&str> {
        self.directories.staged.as_ref().map(StagedScope::name)
    }

    pub(crate) fn roots(&self) -> &[VettedDirectory] {
        &self.directories.roots
    }

    pub fn source(&self) -> ScopeSource {
        self.source
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.directories.paths()
    }

    pub fn primary(&self) -> Option<&Path> {
        self.directories.primary()
    }

    /// The answer to an upstream that asks for roots.
    pub(crate) fn roots_answer(&self, id: &Id) -> Vec<u8> {
        let roots: Vec<Value> = self.roots().iter().map(|root| root_entry(root.path())).collect();
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#, id.as_json(), json!({ "roots": roots }))
            .into_bytes()
    }
}

fn root_entry(path: &Path) -> Value {
    let name = path.file_name().map(OsStr::to_string_lossy);
    json!({ "uri": wire::file_uri(path.as_os_str().as_bytes()), "name": name })
}

/// Which of a client's roots make the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootsChoice {
    First,
    All,
}

/// What `roots/list_changed` does to a session whose scope came from roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRootsChange {
    /// The session ends, and its id is refused with the reason.
    Terminate,
    /// The client is asked again; the session goes on if the scope still contains what it names.
    Compare,
    Ignore,
    /// The session ends as if it had never been, so that the client starts a new one.
    Reinit,
}

/// The operator's rules.
#[derive(Clone, Debug)]
pub struct ScopeRules {
    pub roots: RootsChoice,
    pub on_change: OnRootsChange,
    /// The session workspace of clients that name none in the header or the URL, whatever their roots are.
    pub session_workspace: Option<String>,
    /// For clients that name nothing; `None`: they are refused.
    pub default: Option<Vec<PathBuf>>,
    /// Where scopes may lie; anywhere, if empty. Where callers need tokens, their rights say it.
    pub allowed: Vec<PathBuf>,
    /// Names that clients may use for directories.
    pub names: BTreeMap<String, PathBuf>,
    /// Session workspaces, which clients may name too; `None`: there are none.
    pub copies: Option<Arc<Copies>>,
    pub host_environment: Arc<HostEnvironment>,
}

/// Makes a directory for the persistent data of servers, private to the user that they run as: this one, if none is
/// named.
pub(crate) fn make_storage(path: &Path, user: Option<u32>) -> Result<VettedDirectory, ScopeError> {
    use std::os::unix::fs::DirBuilderExt;
    // If one of these fails, opening it fails too, now or in the launcher, and says why.
    let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    if user.is_some() {
        let _ = std::os::unix::fs::lchown(path, user, user);
    }
    VettedDirectory::own(path)
}

/// How a client names its workspace beside roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkspaceChoice {
    /// One of the operator's names.
    Named(String),
    /// A name or an absolute path.
    NamedOrPath(String),
    /// A directory on the client's own machine; a label here.
    Elsewhere(String),
}

/// Why a session gets no scope.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ScopeRefusal {
    #[error("the root {uri:?} cannot be used: {reason}")]
    Root { uri: String, reason: RootError },
    #[error("the answer to roots/list cannot be used: {0}")]
    BadAnswer(String),
    #[error("the workspace {0:?} is neither a name that this gateway knows nor an absolute path")]
    UnknownWorkspace(String),
    #[error("{0}")]
    Directory(#[from] ScopeError),
    #[error("{} is outside of the directories that this gateway allows", .0.display())]
    NotAllowed(PathBuf),
    /// Also said of one that another principal has, or that does not exist: the caller learns nothing of it.
    #[error("{} is outside of the directories that this principal may use", .0.display())]
    NotGranted(PathBuf),
    #[error("this principal may not open the workspace {0:?}")]
    NameNotGranted(String),
    #[error(
        "the client named no workspace, and the default is outside of the directories that this principal may use"
    )]
    DefaultNotGranted,
    #[error("the file system of the workspace does not answer")]
    NoReply,
    #[error("the client named no workspace, and this gateway has no default")]
    NoDefault,
    #[error("{} is not the directory that this shared server works in", .0.display())]
    NotShared(PathBuf),
    #[error("{} lies in the scope of another user's session", .0.display())]
    OthersScope(PathBuf),
    #[error("{} is another directory than when the session began", .0.display())]
    Replaced(PathBuf),
    /// Also said of one that another principal has.
    #[error("there is no such session workspace")]
    NoSuchCopy,
    #[error("a session workspace is a copy of one directory, and the client named several")]
    SeveralRootsOfCopy,
    #[error("{message}")]
    Copy { message: String, hint: String },
}

impl ScopeRefusal {
    pub fn hint(&self) -> String {
        match self {
            Self::Root { .. } => "roots are file:// URIs of directories on this machine".to_owned(),
            Self::BadAnswer(_) => "the client must answer {\"roots\":[{\"uri\":\"file:///…\"}]}".to_owned(),
            Self::UnknownWorkspace(_) => {
                "the operator defines names with --workspace NAME=DIR; a path must be absolute".to_owned()
            }
            Self::Directory(error) => error.hint().to_owned(),
            Self::NoReply => "check the mount that the directory lies on".to_owned(),
            Self::NotGranted(_) | Self::DefaultNotGranted => {
                "the operator gives a principal directories with `principals: {NAME: {scopes: [DIR]}}` in the \
                 configuration, and all principals with --allow-scope DIR"
                    .to_owned()
            }
            Self::NameNotGranted(_) => {
                "the operator lists names in `principals: {NAME: {workspaces: […]}}` in the configuration".to_owned()
            }
            Self::NotAllowed(_) => "the operator allows directories with --allow-scope".to_owned(),
            Self::NoDefault => {
                "use a client with roots, send the header Ringfence-Workspace, or set --sandbox-scope"
                    .to_owned()
            }
            Self::NotShared(_) => {
                "leave the workspace out, or use a gateway with a process per session".to_owned()
            }
            Self::OthersScope(_) => "name another directory".to_owned(),
            Self::Replaced(_) => "start a new session".to_owned(),
            Self::NoSuchCopy => "`ringfence session list` shows the workspaces".to_owned(),
            Self::SeveralRootsOfCopy => "name one directory, or use --roots first".to_owned(),
            Self::Copy { hint, .. } => hint.clone(),
        }
    }
}

/// A client's answer to `roots/list`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RootsAnswer {
    /// An error or an empty list: the default applies.
    None,
    Named(Vec<String>),
    Malformed(String),
}

impl RootsAnswer {
    pub(crate) fn read(response: &Response) -> Self {
        #[derive(Deserialize)]
        struct Roots<'a> {
            #[serde(borrow)]
            roots: Vec<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Root {
            uri: String,
        }
        let Outcome::Result(result) = response.outcome() else { return Self::None };
        let roots = match read_object::<Roots<'_>>(result) {
            Ok(answer) => answer.roots,
            Err(error) => return Self::malformed(&error),
        };
        if roots.len() > MAX_ROOTS {
            return Self::Malformed(format!("it holds more than {MAX_ROOTS} roots"));
        }
        let uris: Result<Vec<String>, _> =
            roots.iter().map(|root| read_object::<Root>(root.get()).map(|root| root.uri)).collect();
        match uris {
            Ok(uris) if uris.is_empty() => Self::None,
            Ok(uris) => Self::Named(uris),
            Err(error) => Self::malformed(&error),
        }
    }

    /// Bounds the text, which may quote the client.
    fn malformed(error: &serde_json::Error) -> Self {
        Self::Malformed(error.to_string().chars().take(MAX_QUOTED).collect())
    }
}

impl ScopeRules {
    /// What a client names beside roots, or what the operator named for all clients.
    pub(crate) fn choice(&self, named: Option<&WorkspaceChoice>) -> Option<WorkspaceChoice> {
        named.cloned().or_else(|| self.session_workspace.clone().map(WorkspaceChoice::Named))
    }

    /// The scope that a client's roots come to.
    pub(crate) fn of_roots(&self, answer: RootsAnswer, rights: &Rights) -> Result<Scope, ScopeRefusal> {
        let uris = match answer {
            RootsAnswer::None => return self.by_default(rights),
            RootsAnswer::Malformed(reason) => return Err(ScopeRefusal::BadAnswer(reason)),
            RootsAnswer::Named(uris) => uris,
        };
        let wanted = match self.roots {
            RootsChoice::First => &uris[..1],
            RootsChoice::All => &uris[..],
        };
        let mut roots: Vec<VettedDirectory> = Vec::new();
        for uri in wanted {
            let path = parse_root(uri).map_err(|reason| ScopeRefusal::Root {
                uri: uri.chars().take(MAX_QUOTED).collect(),
                reason,
            })?;
            let root = self.vet(&path, rights)?;
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        Ok(Scope::of(roots, ScopeSource::Roots))
    }

    /// The scope of a workspace that a header or the URL names.
    pub(crate) fn of_workspace(
        &self,
        choice: &WorkspaceChoice,
        rights: &Rights,
    ) -> Result<Scope, ScopeRefusal> {
        let text = match choice {
            WorkspaceChoice::Named(text) | WorkspaceChoice::NamedOrPath(text) => text,
            WorkspaceChoice::Elsewhere(label) => {
                let label = Some(label.chars().take(MAX_LABEL).collect());
                return Ok(Scope { label, ..Scope::of(Vec::new(), ScopeSource::Elsewhere) });
            }
        };
        let root = match (self.names.get(text), choice) {
            (Some(path), _) if !rights.opens(text, path) => {
                return Err(ScopeRefusal::NameNotGranted(text.clone()));
            }
            // A name of the operator is allowed by being named.
            (Some(path), _) => self.vet_named(path)?,
            (None, WorkspaceChoice::NamedOrPath(path)) if path.starts_with('/') => {
                let reason =
                    |reason| ScopeRefusal::Root { uri: path.chars().take(MAX_QUOTED).collect(), reason };
                self.vet(&parse_root(path).map_err(reason)?, rights)?
            }
            (None, _) if let Some(copy) = self.copies.as_ref().and_then(|copies| copies.named(text)) => {
                let root = self.vet(copy.record().base_path(), rights)?;
                let copy = Some(copy.record().id.clone());
                return Ok(Scope { copy, ..Scope::of(vec![root], ScopeSource::Workspace) });
            }
            (None, _) => return Err(ScopeRefusal::UnknownWorkspace(text.chars().take(MAX_QUOTED).collect())),
        };
        Ok(Scope::of(vec![root], ScopeSource::Workspace))
    }

    /// The scope of a client that names nothing.
    pub(crate) fn by_default(&self, rights: &Rights) -> Result<Scope, ScopeRefusal> {
        let operators = self.default.as_ref().ok_or(ScopeRefusal::NoDefault)?;
        let paths = rights.default_scope(operators).ok_or(ScopeRefusal::DefaultNotGranted)?;
        let roots = paths.iter().map(|path| self.vet_named(path)).collect::<Result<_, _>>()?;
        Ok(Scope::of(roots, ScopeSource::Default))
    }

    /// The scope of a session that an earlier gateway had: the same directories, if the rules of today allow them.
    pub(crate) fn of_restored(&self, stored: &StoredScope, rights: &Rights) -> Result<Scope, ScopeRefusal> {
        let mut roots = Vec::new();
        for identity in &stored.roots {
            let path = identity.path();
            let root = if self.is_operators(path, stored.source, rights) {
                self.vet_named(path)?
            } else {
                self.vet(path, rights)?
            };
            if !identity.is_of(&root) {
                return Err(ScopeRefusal::Replaced(path.to_owned()));
            }
            roots.push(root);
        }
        let copy = stored.copy.clone();
        Ok(Scope { label: stored.label.clone(), copy, ..Scope::of(roots, stored.source) })
    }

    /// Whether the operator names this directory for sessions whose scope was chosen so.
    fn is_operators(&self, path: &Path, source: ScopeSource, rights: &Rights) -> bool {
        match source {
            ScopeSource::Default => {
                let operators = self.default.as_deref().and_then(|paths| rights.default_scope(paths));
                operators.is_some_and(|paths| paths.iter().any(|default| default.as_path() == path))
            }
            ScopeSource::Workspace => {
                self.names.iter().any(|(name, named)| named == path && rights.opens(name, named))
            }
            ScopeSource::Roots | ScopeSource::Nothing | ScopeSource::Elsewhere => false,
        }
    }

    /// Directories that the configuration names for one server; those of the session are vetted already.
    pub(crate) fn of_operator(&self, paths: &[PathBuf], session: &Scope) -> Result<Scope, ScopeRefusal> {
        let mut roots: Vec<VettedDirectory> = Vec::new();
        for path in paths {
            let known = session.roots().iter().find(|root| root.path() == path).cloned();
            let root = known
                .map_or_else(|| self.host_environment.vet_named(path).map_err(ScopeRefusal::from), Ok)?;
            // A link at the path may have been put there by a tool of this session.
            let is_inside = session.roots().iter().any(|own| root.path().starts_with(own.path()));
            if root.path() != path && !is_inside {
                return Err(ScopeRefusal::NotAllowed(root.path().to_owned()));
            }
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        let directories =
            Directories { staged: session.directories.staged.clone(), ..Directories::of(roots) };
        Ok(Scope { directories: Arc::new(directories), ..session.clone() })
    }

    /// A directory that the operator named. It was canonical at start: a link at its path was put there later.
    fn vet_named(&self, path: &Path) -> Result<VettedDirectory, ScopeRefusal> {
        let root = self.host_environment.vet_named(path)?;
        if root.path() == path { Ok(root) } else { Err(ScopeRefusal::NotAllowed(root.path().to_owned())) }
    }

    /// A directory that a client named.
    fn vet(&self, path: &Path, rights: &Rights) -> Result<VettedDirectory, ScopeRefusal> {
        let not_granted = || ScopeRefusal::NotGranted(path.to_owned());
        let is_refused = |path: &Path| rights.holding(path).is_some_and(|granted| granted.is_empty());
        let root = match self.host_environment.vet_named(path) {
            Ok(root) => root,
            Err(_) if is_refused(path) => return Err(not_granted()),
            Err(error) => return Err(error.into()),
        };
        let allowed = match rights.holding(root.path()) {
            Some(granted) if granted.is_empty() => return Err(not_granted()),
            Some(granted) => granted,
            None => self.allowing(root.path())?,
        };
        // An operator who allows a directory of settings means it; one who allows a directory above it does not.
        if allowed.into_iter().any(|allowed| self.host_environment.holds_settings(allowed)) {
            return Ok(root);
        }
        let vetted = self.host_environment.vet(path)?;
        // A link that was changed since must not lead to a directory that was not checked.
        if vetted == root { Ok(vetted) } else { Err(ScopeRefusal::NotAllowed(path.to_owned())) }
    }

    /// The allowed directories that hold this one.
    fn allowing(&self, directory: &Path) -> Result<Vec<&Path>, ScopeRefusal> {
        let holds = |allowed: &&Path| directory.starts_with(allowed);
        let allowed: Vec<&Path> = self.allowed.iter().map(PathBuf::as_path).filter(holds).collect();
        if allowed.is_empty() && !self.allowed.is_empty() {
            return Err(ScopeRefusal::NotAllowed(directory.to_owned()));
        }
        Ok(allowed)
    }
}

#[cfg(test)]
mod tests;
