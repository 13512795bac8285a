//! From what an operator wants of fences in general to the policy of one: the directories of the session are
//! made, the scope is vetted, the deny list and the environment are put together.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::confinement::ProtectionName;
use crate::environment::{self, OwnPlaces};
use crate::network::proxy_environment;
use crate::paths::{DeniedPath, ScopeError, VettedDirectory, sensitive_paths, vet_scope};
use crate::plan::Plan;
use crate::policy::{Allowance, Limits, Network, Policy, ReadMode, Temp, Tier, TierChoice, UnixSockets};
use crate::scope_scan::{SharedFiles, shared_files};
use crate::session_directory::{OwnDirectory, SessionDirectory};

/// Files of a workspace that other programs execute or obey.
const METADATA: &[&str] = &[
    ".git/hooks",
    ".git/config",
    ".envrc",
    ".vscode",
    ".idea",
    ".cursor",
    ".mcp.json",
    ".husky",
    ".ringfence.yaml",
];

/// What an operator wants of every fence.
#[derive(Clone, Debug)]
pub struct FenceSettings {
    /// More that may be written.
    pub write: Vec<PathBuf>,
    /// More that may be read.
    pub read: Vec<PathBuf>,
    pub read_mode: ReadChoice,
    /// More that must not be read.
    pub deny_read: Vec<PathBuf>,
    /// Taken off the default deny list.
    pub allow_sensitive_reads: Vec<PathBuf>,
    /// The most that temporary files may take; `None`: there are none.
    pub temp_bytes: Option<u64>,
    pub network: Network,
    pub unix_sockets: UnixSockets,
    pub allowances: BTreeSet<Allowance>,
    pub limits: Limits,
    pub tier: TierChoice,
    pub allow_degraded: BTreeSet<ProtectionName>,
    pub require: BTreeSet<ProtectionName>,
    pub hardlinks: HardlinkChoice,
    pub protect_metadata: bool,
    /// The scope can be read and not written.
    pub read_only: bool,
    /// Whatever is on the search path can be run, not only the command.
    pub all_programs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadChoice {
    Open,
    Strict,
}

/// What to do about files of the scope that have another name outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HardlinkChoice {
    /// Look while the command runs, and say so.
    Warn,
    Refuse,
    /// Make the directories that hold them read-only.
    Protect,
}

/// Where ringfence itself runs.
#[derive(Clone, Debug)]
pub struct HostEnvironment {
    pub environment: BTreeMap<OsString, OsString>,
    pub home: Option<PathBuf>,
    own: OwnDirectory,
}

impl HostEnvironment {
    /// Those of this process.
    pub fn of_this_process() -> Result<Self, FenceSetupError> {
        let environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        let path = |name: &str| environment.get(OsStr::new(name)).map(PathBuf::from);
        let home = path("HOME").filter(|home| home.is_absolute());
        let own = OwnDirectory::open(path("XDG_CACHE_HOME").as_deref(), home.as_deref())
            .map_err(FenceSetupError::Directory)?;
        Ok(Self { environment, home, own })
    }

    /// A directory of ours that no command may write in.
    pub fn outside(&self) -> &Path {
        self.own.path()
    }

    /// Where programs are installed once, for many commands to read. Hidden like the rest of what is ours; a
    /// policy that lists a directory in there as readable shows just that one.
    pub fn packages(&self) -> io::Result<PathBuf> {
        self.own.packages()
    }

    /// Looks at a directory that is to be a scope, without making anything of it.
    pub fn vet(&self, directory: &Path) -> Result<VettedDirectory, ScopeError> {
        vet_scope(directory, self.home.as_deref(), Some(self.own.path()))
    }

    fn variable(&self, name: &str) -> Option<&OsString> {
        self.environment.get(OsStr::new(name))
    }
}

/// Why no fence could be arranged.
#[derive(Debug, Error)]
pub enum FenceSetupError {
    #[error(transparent)]
    Scope(#[from] ScopeError),
    #[error("cannot make a directory for the session: {0}")]
    Directory(io::Error),
    #[error("{count} files of the scope have another name outside it, for example {}", .example.display())]
    SharedFiles { count: u64, example: PathBuf },
}

impl FenceSetupError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Scope(error) => Some(error.hint().to_owned()),
            Self::SharedFiles { .. } => Some(
                "install packages again with copies instead of links (uv: UV_LINK_MODE=copy, pnpm: \
                 package-import-method=copy), or run with --hardlinks protect or --hardlinks warn"
                    .to_owned(),
            ),
            Self::Directory(_) => None,
        }
    }
}

/// What a fence is to be around.
#[derive(Clone, Copy, Debug)]
pub enum ScopeChoice<'a> {
    Directories(&'a [PathBuf]),
    /// A directory that ringfence made below its own for this command. Users cannot name one of those.
    Own(&'a Path),
    /// A directory of the session with nothing in it.
    Empty,
}

/// Where programs inside keep what they download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheChoice {
    /// In a directory that the next command of the same scope finds again.
    KeptForScope,
    /// In one that goes with the command.
    Private,
}

/// The policy of one fence, and the directories that are its own.
#[derive(Debug)]
pub struct FenceSetup {
    pub policy: Policy,
    pub session: SessionDirectory,
    /// Set if the scope was looked at before.
    pub shared: Option<SharedFiles>,
    caches: PathBuf,
}

/// What is the same in many fences around one program. It takes hundreds of looks at the file system, so whoever
/// makes many fences works it out once in a while.
#[derive(Debug)]
pub struct HostFacts {
    denied: Vec<DeniedPath>,
    /// What the program needs to start.
    needed: Vec<PathBuf>,
}

impl HostFacts {
    pub fn new(settings: &FenceSettings, program: &Path, host_environment: &HostEnvironment) -> Self {
        let denied = deny_list(settings, host_environment.home.as_deref());
        let mut needed = needed_by(program, &denied, host_environment);
        if settings.all_programs {
            let search_path = host_environment.variable("PATH").cloned().unwrap_or_default();
            let closed = closed_to_programs(&denied, host_environment);
            needed.extend(crate::toolchain::readable_for_all(&search_path, &closed));
        }
        Self { denied, needed }
    }
}

/// What a program needs to be able to read, without what is denied.
fn needed_by(program: &Path, denied: &[DeniedPath], host_environment: &HostEnvironment) -> Vec<PathBuf> {
    let closed = closed_to_programs(denied, host_environment);
    let search_path = host_environment.variable("PATH").cloned().unwrap_or_default();
    let mut needed = crate::toolchain::readable_for(program, &search_path, &closed);
    let toolchains = environment::toolchains(&host_environment.environment, host_environment.home.as_deref());
    needed.extend(toolchains.into_iter().map(|(_, path)| PathBuf::from(path)));
    needed
}

/// What no program's prefix may contain.
fn closed_to_programs(denied: &[DeniedPath], host_environment: &HostEnvironment) -> Vec<PathBuf> {
    host_environment.home.iter().cloned().chain(denied.iter().map(|denied| denied.path.clone())).collect()
}

impl FenceSetup {
    pub fn new(
        settings: &FenceSettings,
        scope: ScopeChoice<'_>,
        caches: CacheChoice,
        host_environment: &HostEnvironment,
    ) -> Result<Self, FenceSetupError> {
        let host_facts =
            HostFacts { denied: deny_list(settings, host_environment.home.as_deref()), needed: Vec::new() };
        Self::upon(&host_facts, settings, scope, caches, host_environment, None)
    }

    /// The same for the program of the host facts, which it makes readable. `session`: directories of an earlier
    /// command, to go on in.
    pub fn upon(
        host_facts: &HostFacts,
        settings: &FenceSettings,
        scope: ScopeChoice<'_>,
        caches: CacheChoice,
        host_environment: &HostEnvironment,
        session: Option<SessionDirectory>,
    ) -> Result<Self, FenceSetupError> {
        let own = &host_environment.own;
        let vet = |path: &PathBuf| host_environment.vet(path);
        let session = match session {
            Some(session) => session,
            None => SessionDirectory::create(own).map_err(FenceSetupError::Directory)?,
        };
        // A directory that is the session's own holds nothing of anybody's, and may be where its temporary files go.
        let read_only = settings.read_only && matches!(scope, ScopeChoice::Directories(_));
        let scope: Vec<VettedDirectory> = match scope {
            ScopeChoice::Directories(directories) => directories.iter().map(vet).collect::<Result<_, _>>()?,
            ScopeChoice::Own(directory) => vec![VettedDirectory::own(directory)?],
            ScopeChoice::Empty => {
                vec![VettedDirectory::own(&session.make_temp().map_err(FenceSetupError::Directory)?)?]
            }
        };
        let write: Vec<VettedDirectory> = settings.write.iter().map(vet).collect::<Result<_, _>>()?;
        let mut read_write = vec![VettedDirectory::own(&session.home())?];
        let caches = match caches {
            CacheChoice::Private => session.home().join(".cache"),
            CacheChoice::KeptForScope => {
                let caches = own.caches_of(scope[0].path()).map_err(FenceSetupError::Directory)?;
                read_write.push(VettedDirectory::own(&caches)?);
                caches
            }
        };
        read_write.extend(write);
        let shared = (settings.hardlinks != HardlinkChoice::Warn).then(|| shared_files(&paths(&scope)));
        refuse_shared(settings, shared.as_ref())?;
        let policy = Policy {
            read: read_mode(settings),
            deny_read: host_facts.denied.clone(),
            hidden: vec![own.path().to_owned()],
            protected: protected(settings, &scope, shared.as_ref()),
            temp: match settings.temp_bytes {
                Some(bytes) => Temp::Private { directory: session.temp(), bytes },
                None => Temp::None,
            },
            network: settings.network.clone(),
            unix_sockets: settings.unix_sockets,
            allowances: settings.allowances.clone(),
            limits: settings.limits.clone(),
            tier: settings.tier,
            allow_degraded: settings.allow_degraded.clone(),
            require: settings.require.clone(),
            shared_hardlinks: shared.as_ref().map(SharedFiles::as_count),
            read_only,
            scope,
            read_write,
        };
        let mut setup = Self { policy, session, shared, caches };
        setup.open_up(host_facts.needed.clone());
        Ok(setup)
    }

    pub fn scope_paths(&self) -> Vec<PathBuf> {
        paths(&self.policy.scope)
    }

    /// Looks for shared files now, if that was not done.
    pub fn look_for_shared_files(&mut self) {
        if self.shared.is_none() {
            let shared = shared_files(&self.scope_paths());
            self.policy.shared_hardlinks = Some(shared.as_count());
            self.shared = Some(shared);
        }
    }

    /// Makes readable what a program needs to start.
    pub fn make_readable(&mut self, program: &Path, host_environment: &HostEnvironment) {
        let needed = needed_by(program, &self.policy.deny_read, host_environment);
        self.open_up(needed);
    }

    fn open_up(&mut self, needed: Vec<PathBuf>) {
        match &mut self.policy.read {
            // The rest is readable anyway.
            ReadMode::Open { also } => {
                let is_hidden = |path: &PathBuf| path.starts_with("/tmp") || path.starts_with("/var/tmp");
                also.extend(needed.into_iter().filter(is_hidden));
            }
            ReadMode::Strict { readable } => readable.extend(needed),
        }
    }

    /// Makes more readable, beside what the settings list.
    pub fn also_readable(&mut self, paths: &[PathBuf]) {
        let (ReadMode::Open { also: list } | ReadMode::Strict { readable: list }) = &mut self.policy.read;
        list.extend(paths.iter().cloned());
    }

    /// What every command gets, before what the operator adds.
    pub fn environment(
        &self,
        plan: &Plan,
        host_environment: &HostEnvironment,
    ) -> Result<BTreeMap<OsString, OsString>, FenceSetupError> {
        let mut result = environment::passed_on(host_environment.environment.clone());
        result
            .extend(environment::toolchains(&host_environment.environment, host_environment.home.as_deref()));
        let home = self.session.home();
        let temp = match (&self.policy.temp, plan.tier) {
            (Temp::None, _) => None,
            (Temp::Private { .. }, Tier::B) => Some(PathBuf::from("/tmp")),
            (Temp::Private { .. }, Tier::A) => {
                Some(self.session.make_temp().map_err(FenceSetupError::Directory)?)
            }
        };
        let places = OwnPlaces { home: &home, caches: &self.caches, temp: temp.as_deref() };
        result.extend(environment::own_places(places));
        if matches!(self.policy.network, Network::Http { .. }) {
            result.extend(proxy_environment().into_iter().map(|(name, value)| (name.into(), value.into())));
        }
        environment::furnish_home(&home, host_environment.home.as_deref())
            .map_err(FenceSetupError::Directory)?;
        Ok(result)
    }
}

fn paths(roots: &[VettedDirectory]) -> Vec<PathBuf> {
    roots.iter().map(|root| root.path().to_owned()).collect()
}

fn refuse_shared(settings: &FenceSettings, shared: Option<&SharedFiles>) -> Result<(), FenceSetupError> {
    match shared {
        Some(shared) if settings.hardlinks == HardlinkChoice::Refuse && shared.count > 0 => {
            let example = shared.examples.first().cloned().unwrap_or_default();
            Err(FenceSetupError::SharedFiles { count: shared.count, example })
        }
        _ => Ok(()),
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn real(path: &Path) -> PathBuf {
    let absolute = absolute(path);
    absolute.canonicalize().unwrap_or(absolute)
}

fn read_mode(settings: &FenceSettings) -> ReadMode {
    let listed: Vec<PathBuf> = settings.read.iter().map(|path| real(path)).collect();
    match settings.read_mode {
        ReadChoice::Open => ReadMode::Open { also: listed },
        ReadChoice::Strict => ReadMode::Strict { readable: listed },
    }
}

/// The default list without what was taken off, and what was added.
fn deny_list(settings: &FenceSettings, home: Option<&Path>) -> Vec<DeniedPath> {
    let allowed: Vec<PathBuf> =
        settings.allow_sensitive_reads.iter().flat_map(|path| [absolute(path), real(path)]).collect();
    let sensitive = sensitive_paths(home, rustix::process::geteuid().is_root())
        .into_iter()
        .filter(|path| !allowed.contains(path) && !allowed.contains(&real(path)));
    let added = settings.deny_read.iter().map(|path| absolute(path));
    let mut denied: Vec<DeniedPath> =
        sensitive.chain(added).flat_map(|path| DeniedPath::resolve(&path)).collect();
    denied.sort_by(|a, b| a.path.cmp(&b.path));
    denied.dedup_by(|a, b| a.path == b.path);
    denied
}

fn protected(
    settings: &FenceSettings,
    scope: &[VettedDirectory],
    shared: Option<&SharedFiles>,
) -> Vec<PathBuf> {
    let mut protected = Vec::new();
    if settings.read_only {
        return protected;
    }
    if settings.protect_metadata {
        for root in scope {
            protected.extend(METADATA.iter().map(|name| root.path().join(name)).filter(|path| path.exists()));
        }
    }
    if settings.hardlinks == HardlinkChoice::Protect {
        protected.extend(shared.into_iter().flat_map(|shared| shared.directories.iter().cloned()));
    }
    protected
}
