//! The options that say where sessions may work.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fence::HostEnvironment;
use session::{Copies, CopyMethod, CopyWishes, OnRootsChange, RootsChoice, ScopeRules};
use staging::{Method, WorkspaceName, Workspaces};

use crate::config_path::home;
use crate::error::Error;
use crate::guarded_host::GuardedHost;
use crate::seconds::seconds;

#[derive(Clone, Debug, Args)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "switches of the command line are independent of each other"
)]
pub(crate) struct ScopeOptions {
    /// Which of a client's roots a session may write in.
    #[arg(long, value_enum, default_value_t = Roots::First)]
    roots: Roots,
    /// How a session reacts when its client's roots change: terminate (403), compare (continue if the scope
    /// contains the new ones), ignore, or reinit (404, so that the client starts over).
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = RootsChange::Terminate)]
    on_roots_change: RootsChange,
    /// Refuse clients that name no workspace, instead of serving them in --scope or the working directory.
    #[arg(long)]
    no_default_scope: bool,
    /// Accept only workspaces inside this directory from clients (repeatable). By default, any directory but
    /// system directories and home; with --auth-token-file none, unless `principals` in the configuration gives
    /// the caller directories of its own, to which this option does not apply.
    #[arg(long, value_name = "DIR")]
    allow_scope: Vec<PathBuf>,
    /// Let clients use a name for a directory, in the URL /mcp/w/NAME or the header Ringfence-Workspace
    /// (repeatable).
    #[arg(long, value_name = "NAME=DIR")]
    workspace: Vec<NamedWorkspace>,
    /// Let clients that name no workspace in the header or the URL work in this session workspace, whatever their roots
    /// are: ringfence session start NAME.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["stage", "unfenced"])]
    session_workspace: Option<WorkspaceName>,
    /// Give each session a copy of its directory, made when its scope is locked. The directory itself stays as it is until
    /// you take the changes over: `ringfence session diff`, `ringfence session apply`.
    #[arg(long, conflicts_with = "unfenced")]
    pub(crate) stage: bool,
    /// How copies are made: overlay, reflink or copy. By default the first of them that works.
    #[arg(long, value_name = "METHOD", requires = "stage")]
    stage_method: Option<Method>,
    /// Let clients take the changes of their session's copy over, or discard it: POST /session/ID/apply, /discard, and the
    /// tool `session_apply`. Without it only `ringfence session` does.
    #[arg(long)]
    pub(crate) allow_apply: bool,
    /// How long requests wait for the client to name its workspace.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    pub(crate) scope_timeout: Duration,
    /// Run the server without a fence. It can then do everything that you can, in every session.
    #[arg(long)]
    pub(crate) unfenced: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Roots {
    First,
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RootsChange {
    Terminate,
    Compare,
    Ignore,
    Reinit,
}

/// `NAME=DIR`, as written.
#[derive(Clone, Debug)]
struct NamedWorkspace {
    name: String,
    directory: PathBuf,
}

impl FromStr for NamedWorkspace {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (name, directory) = text.split_once('=').unwrap_or((text, ""));
        Ok(Self { name: name.to_owned(), directory: directory.into() })
    }
}

impl ScopeOptions {
    /// The rules for sessions. `default` holds the directories of `--scope`.
    pub(crate) fn rules(&self, default: &[PathBuf], host: &GuardedHost) -> Result<ScopeRules, Error> {
        let host_environment = host.environment();
        Ok(ScopeRules {
            roots: match self.roots {
                Roots::First => RootsChoice::First,
                Roots::All => RootsChoice::All,
            },
            on_change: match self.on_roots_change {
                RootsChange::Terminate => OnRootsChange::Terminate,
                RootsChange::Compare => OnRootsChange::Compare,
                RootsChange::Ignore => OnRootsChange::Ignore,
                RootsChange::Reinit => OnRootsChange::Reinit,
            },
            session_workspace: self.session_workspace.as_ref().map(ToString::to_string),
            default: self.default_scope(default)?,
            allowed: self.allow_scope.iter().map(|path| canonical(path)).collect::<Result<_, _>>()?,
            names: self.names(host_environment)?,
            copies: self.copies(host_environment)?,
            host_environment: Arc::clone(host_environment),
        })
    }

    /// The session workspaces of this user, which a crash may have left in the middle of an apply.
    fn copies(&self, host_environment: &Arc<HostEnvironment>) -> Result<Option<Arc<Copies>>, Error> {
        let for_each = self.stage.then(|| self.stage_method.map_or(CopyMethod::Best, CopyMethod::Only));
        let wishes = CopyWishes { for_each, lets_clients_apply: self.allow_apply };
        let Some(root) = workspaces_root() else {
            return if self.needs_copies() { Err(Error::NoStateDirectory) } else { Ok(None) };
        };
        let workspaces = match Workspaces::open(&root) {
            Err(error) if !self.needs_copies() => {
                tracing::warn!("no session workspaces: {error}");
                return Ok(None);
            }
            workspaces => workspaces?,
        };
        for recovered in workspaces.recover()? {
            tracing::warn!(workspace = %recovered.name, outcome = ?recovered.outcome, "an apply had been interrupted");
        }
        if let Some(name) = &self.session_workspace {
            workspaces.find(name.as_str())?;
        }
        Ok(Some(Arc::new(Copies::new(workspaces, wishes, Arc::clone(host_environment)))))
    }

    /// Whether clients work in copies without naming one.
    pub(crate) fn needs_copies(&self) -> bool {
        self.stage || self.session_workspace.is_some()
    }

    fn default_scope(&self, named: &[PathBuf]) -> Result<Option<Vec<PathBuf>>, Error> {
        if self.no_default_scope {
            return Ok(None);
        }
        if named.is_empty() {
            return Ok(Some(vec![std::env::current_dir()?]));
        }
        named.iter().map(|path| canonical(path)).collect::<Result<_, _>>().map(Some)
    }

    fn names(&self, host_environment: &HostEnvironment) -> Result<BTreeMap<String, PathBuf>, Error> {
        let mut names = BTreeMap::new();
        for NamedWorkspace { name, directory } in &self.workspace {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || !name.chars().all(is_name) || directory.as_os_str().is_empty() {
                return Err(Error::BadWorkspace(format!("{name}={}", directory.display())));
            }
            let directory = canonical(directory)?;
            host_environment.vet_named(&directory)?;
            if names.insert(name.clone(), directory).is_some() {
                return Err(Error::BadWorkspace(format!("{name} is defined twice")));
            }
        }
        Ok(names)
    }
}

/// Where the session workspaces of this user lie.
pub(crate) fn workspaces_root() -> Option<PathBuf> {
    Some(Workspaces::default_root(std::env::var_os("XDG_STATE_HOME").as_deref(), &home()?))
}

fn canonical(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(|error| Error::Directory { path: path.to_owned(), error })
}
