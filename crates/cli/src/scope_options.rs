//! The options that say where sessions may work.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fence::HostEnvironment;
use session::{OnRootsChange, RootsChoice, ScopeRules};

use crate::arguments::seconds;
use crate::error::Failure;

#[derive(Clone, Debug, Args)]
pub(crate) struct ScopeOptions {
    /// Which of a client's roots a session may write in.
    #[arg(long, value_enum, default_value_t = Roots::First)]
    roots: Roots,
    /// What a change of a client's roots does to its session: terminate it (403), compare (go on if the scope
    /// contains the new ones), ignore, or reinit (404, so that the client starts over).
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = RootsChange::Terminate)]
    on_roots_change: RootsChange,
    /// Refuse clients that name no workspace, instead of giving them --scope or the working directory.
    #[arg(long)]
    no_default_scope: bool,
    /// A directory that the workspaces which clients name must lie in (repeatable). Anywhere but system
    /// directories and home, if none is named.
    #[arg(long, value_name = "DIR")]
    allow_scope: Vec<PathBuf>,
    /// A name that clients may use for a directory, in the URL /mcp/w/NAME or the header Ringfence-Workspace
    /// (repeatable).
    #[arg(long, value_name = "NAME=DIR")]
    workspace: Vec<NamedWorkspace>,
    /// What requests may wait for the client to tell its workspace.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    pub(crate) scope_timeout: Duration,
    /// Run the server without a fence. It can then do whatever you can, in every session.
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
    /// The rules of a gateway. `default` is what `--scope` names.
    pub(crate) fn rules(
        &self,
        default: &[PathBuf],
        host_environment: &Arc<HostEnvironment>,
    ) -> Result<ScopeRules, Failure> {
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
            default: self.default_scope(default)?,
            allowed: self.allow_scope.iter().map(|path| canonical(path)).collect::<Result<_, _>>()?,
            names: self.names(host_environment)?,
            host_environment: Arc::clone(host_environment),
        })
    }

    fn default_scope(&self, named: &[PathBuf]) -> Result<Option<Vec<PathBuf>>, Failure> {
        if self.no_default_scope {
            return Ok(None);
        }
        if named.is_empty() {
            return Ok(Some(vec![std::env::current_dir()?]));
        }
        named.iter().map(|path| canonical(path)).collect::<Result<_, _>>().map(Some)
    }

    fn names(&self, host_environment: &HostEnvironment) -> Result<BTreeMap<String, PathBuf>, Failure> {
        let mut names = BTreeMap::new();
        for NamedWorkspace { name, directory } in &self.workspace {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || !name.chars().all(is_name) || directory.as_os_str().is_empty() {
                return Err(Failure::BadWorkspace(format!("{name}={}", directory.display())));
            }
            let directory = canonical(directory)?;
            host_environment.vet(&directory).map_err(Failure::Scope)?;
            if names.insert(name.clone(), directory).is_some() {
                return Err(Failure::BadWorkspace(format!("{name} is defined twice")));
            }
        }
        Ok(names)
    }
}

fn canonical(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| Failure::Directory { path: path.to_owned(), error })
}
