//! From the options to a policy: the directories of the session are made, the scope is vetted, the deny list
//! is put together.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use fence::environment::{self, OwnPlaces};
use fence::network::{HostPattern, proxy_environment};
use fence::scope_scan::{SharedFiles, shared_files};
use fence::{
    Allowance, DeniedPath, Limit, LimitOrigin, Limits, Network, OwnDirectory, Plan, Policy, ReadMode,
    SessionDirectory, Temp, Tier, UnixSockets, VettedDirectory,
};

use super::failure::FenceFailure;
use super::options::{
    FenceOptions, HardlinkChoice, NetworkChoice, Profile, ReadChoice, RunningOptions, TempChoice,
};
use crate::environment::Variable;
use crate::error::Failure;

/// The most processes, if the user does not say.
const DEFAULT_PROCESSES: u64 = 2048;

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

const NO_DIRECTORY: &str = "cannot make a directory for the session";

/// What stands in for a scope that the user did not name.
#[derive(Clone, Copy, Debug)]
pub(super) enum DefaultScope<'a> {
    Directory(&'a Path),
    /// A directory of the session, to look at the fence alone.
    Empty,
}

/// What a fence is arranged from: the caller's surroundings and ringfence's own directories.
pub(super) struct Arrangement {
    pub(super) policy: Policy,
    pub(super) session: SessionDirectory,
    /// A directory that the command must not be able to write in.
    pub(super) outside: PathBuf,
    /// Set if the scope was looked at before.
    pub(super) shared: Option<SharedFiles>,
    home: Option<PathBuf>,
    caches: PathBuf,
    parent: BTreeMap<OsString, OsString>,
}

impl Arrangement {
    /// `scope`: what to confine to if the options name nothing.
    pub(super) fn new(options: &FenceOptions, scope: DefaultScope<'_>) -> Result<Self, FenceFailure> {
        let parent: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        let home = parent.get(OsStr::new("HOME")).map(PathBuf::from).filter(|home| home.is_absolute());
        let cache_home = parent.get(OsStr::new("XDG_CACHE_HOME")).map(PathBuf::from);
        let own = OwnDirectory::open(cache_home.as_deref(), home.as_deref())
            .map_err(|error| FenceFailure::Io { what: NO_DIRECTORY, error })?;
        let vet = |path: &PathBuf| fence::vet_scope(path, home.as_deref(), Some(own.path()));
        let session =
            SessionDirectory::create(&own).map_err(|error| FenceFailure::Io { what: NO_DIRECTORY, error })?;
        let scope: Vec<VettedDirectory> = match scope {
            _ if !options.scope.is_empty() => options.scope.iter().map(vet).collect::<Result<_, _>>()?,
            DefaultScope::Directory(directory) => vec![vet(&directory.to_owned())?],
            DefaultScope::Empty => vec![VettedDirectory::own(&session.temp())?],
        };
        let write: Vec<VettedDirectory> = options.write.iter().map(vet).collect::<Result<_, _>>()?;
        let caches =
            own.caches_of(scope[0].path()).map_err(|error| FenceFailure::Io { what: NO_DIRECTORY, error })?;
        let read_write =
            [vec![VettedDirectory::own(&session.home())?, VettedDirectory::own(&caches)?], write].concat();
        let shared = (options.hardlinks != HardlinkChoice::Warn)
            .then(|| shared_files(&scope.iter().map(|root| root.path().to_owned()).collect::<Vec<_>>()));
        let policy = Policy {
            read: read_mode(options),
            deny_read: deny_list(options, home.as_deref()),
            hidden: vec![own.path().to_owned()],
            protected: protected(options, &scope, shared.as_ref()),
            temp: temp(options, &session),
            network: network(options)?,
            unix_sockets: if options.unix_sockets { UnixSockets::Allow } else { UnixSockets::Deny },
            allowances: allowances(options),
            limits: limits(options),
            tier: options.tier,
            allow_degraded: options.allow_degraded.iter().copied().collect(),
            require: options.require.iter().copied().collect(),
            shared_hardlinks: shared.as_ref().map(SharedFiles::as_count),
            scope,
            read_write,
        };
        Ok(Self { policy, session, outside: own.path().to_owned(), shared, home, caches, parent })
    }

    /// Makes readable what a program needs to start.
    pub(super) fn make_readable(&mut self, program: &Path) {
        let denied = self.policy.deny_read.iter().map(|denied| denied.path.clone());
        let closed: Vec<PathBuf> = self.home.iter().cloned().chain(denied).collect();
        let search_path = self.parent.get(OsStr::new("PATH")).cloned().unwrap_or_default();
        let mut needed = fence::toolchain::readable_for(program, &search_path, &closed);
        let toolchains = environment::toolchains(&self.parent, self.home.as_deref());
        needed.extend(toolchains.into_iter().map(|(_, path)| PathBuf::from(path)));
        match &mut self.policy.read {
            // The rest is readable anyway.
            ReadMode::Open { also } => {
                also.extend(
                    needed
                        .into_iter()
                        .filter(|path| path.starts_with("/tmp") || path.starts_with("/var/tmp")),
                );
            }
            ReadMode::Strict { readable } => readable.extend(needed),
        }
    }

    /// The whole environment of the command.
    pub(super) fn environment(
        &self,
        plan: &Plan,
        options: &RunningOptions,
    ) -> Result<Vec<(OsString, OsString)>, FenceFailure> {
        let mut result = environment::passed_on(self.parent.clone());
        result.extend(environment::toolchains(&self.parent, self.home.as_deref()));
        let home = self.session.home();
        let temp = match (&self.policy.temp, plan.tier) {
            (Temp::None, _) => None,
            (Temp::Private { .. }, Tier::B) => Some(PathBuf::from("/tmp")),
            (Temp::Private { directory, .. }, Tier::A) => Some(directory.clone()),
        };
        result.extend(environment::own_places(OwnPlaces {
            home: &home,
            caches: &self.caches,
            temp: temp.as_deref(),
        }));
        if matches!(self.policy.network, Network::Http { .. }) {
            result.extend(proxy_environment().into_iter().map(|(name, value)| (name.into(), value.into())));
        }
        for variable in &options.env {
            if environment::is_stripped(OsStr::new(variable.name())) {
                eprintln!(
                    "ringfence: {} is left out, because it makes programs load code or reach the user's helpers; \
                     --force-env passes it on",
                    variable.name()
                );
                continue;
            }
            self.add(&mut result, variable)?;
        }
        for variable in &options.force_env {
            self.add(&mut result, variable)?;
        }
        environment::furnish_home(&home, self.home.as_deref())
            .map_err(|error| FenceFailure::Io { what: NO_DIRECTORY, error })?;
        Ok(result.into_iter().collect())
    }

    fn add(&self, result: &mut BTreeMap<OsString, OsString>, variable: &Variable) -> Result<(), Failure> {
        result.insert(variable.name().into(), variable.value_in(&self.parent)?);
        Ok(())
    }

    pub(super) fn scope_paths(&self) -> Vec<PathBuf> {
        self.policy.scope.iter().map(|root| root.path().to_owned()).collect()
    }
}

fn absolute(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.canonicalize().unwrap_or(absolute)
}

fn read_mode(options: &FenceOptions) -> ReadMode {
    let listed: Vec<PathBuf> = options.read.iter().map(|path| absolute(path)).collect();
    match options.read_mode {
        ReadChoice::Open => ReadMode::Open { also: listed },
        ReadChoice::Strict => ReadMode::Strict { readable: listed },
    }
}

/// The default list without what was taken off, and what was added.
fn deny_list(options: &FenceOptions, home: Option<&Path>) -> Vec<DeniedPath> {
    let allowed: Vec<PathBuf> = options
        .allow_sensitive_reads
        .iter()
        .flat_map(|path| [std::path::absolute(path).unwrap_or_else(|_| path.clone()), absolute(path)])
        .collect();
    let sensitive = fence::sensitive_paths(home, rustix::process::geteuid().is_root())
        .into_iter()
        .filter(|path| !allowed.contains(path) && !allowed.contains(&absolute(path)));
    let added =
        options.deny_read.iter().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
    let mut denied: Vec<DeniedPath> =
        sensitive.chain(added).flat_map(|path| DeniedPath::resolve(&path)).collect();
    denied.sort_by(|a, b| a.path.cmp(&b.path));
    denied.dedup_by(|a, b| a.path == b.path);
    denied
}

fn protected(
    options: &FenceOptions,
    scope: &[VettedDirectory],
    shared: Option<&SharedFiles>,
) -> Vec<PathBuf> {
    let mut protected = Vec::new();
    if options.protect_metadata {
        for root in scope {
            protected.extend(METADATA.iter().map(|name| root.path().join(name)).filter(|path| path.exists()));
        }
    }
    if options.hardlinks == HardlinkChoice::Protect {
        protected.extend(shared.into_iter().flat_map(|shared| shared.directories.iter().cloned()));
    }
    protected
}

fn temp(options: &FenceOptions, session: &SessionDirectory) -> Temp {
    if options.no_temp_files || options.temp == TempChoice::None {
        Temp::None
    } else {
        Temp::Private { directory: session.temp(), bytes: options.temp_size }
    }
}

fn network(options: &FenceOptions) -> Result<Network, FenceFailure> {
    let choice = options.net.unwrap_or(match options.profile {
        Some(Profile::Offline) => NetworkChoice::None,
        Some(Profile::Development) | None => NetworkChoice::All,
    });
    let misplaced = [
        (!options.host_port.is_empty() && choice != NetworkChoice::Localhost, "--host-port", "localhost"),
        (!options.allow_host.is_empty() && choice != NetworkChoice::Http, "--allow-host", "http"),
        (!options.port.is_empty() && choice != NetworkChoice::Ports, "--port", "ports"),
    ];
    if let Some((_, option, mode)) = misplaced.into_iter().find(|(is_misplaced, ..)| *is_misplaced) {
        return Err(FenceFailure::Argument {
            message: format!("{option} means something only with --net {mode}"),
            hint: format!("add --net {mode}, or leave {option} out"),
        });
    }
    for host in &options.allow_host {
        host.parse::<HostPattern>().map_err(|error| FenceFailure::Argument {
            message: format!("--allow-host {host}: {error}"),
            hint: "name a host such as example.org, or *.example.org for those below it".to_owned(),
        })?;
    }
    Ok(match choice {
        NetworkChoice::All => Network::All,
        NetworkChoice::None => Network::None,
        NetworkChoice::Localhost => Network::Localhost { ports: options.host_port.clone() },
        NetworkChoice::Http => {
            Network::Http { hosts: (!options.allow_host.is_empty()).then(|| options.allow_host.clone()) }
        }
        NetworkChoice::Ports if options.port.is_empty() => Network::Ports { ports: vec![80, 443] },
        NetworkChoice::Ports => Network::Ports { ports: options.port.clone() },
    })
}

fn allowances(options: &FenceOptions) -> BTreeSet<Allowance> {
    [
        (options.shm, Allowance::SharedMemory),
        (options.pty, Allowance::Terminals),
        (options.allow_debug, Allowance::Debugging),
        (options.allow_nested_userns, Allowance::NestedUserns),
        (options.allow_root, Allowance::Root),
    ]
    .into_iter()
    .filter_map(|(is_allowed, allowance)| is_allowed.then_some(allowance))
    .collect()
}

fn limits(options: &FenceOptions) -> Limits {
    let asked = |value| Limit { value, origin: LimitOrigin::Asked };
    let default = |value| Limit { value, origin: LimitOrigin::Default };
    Limits {
        memory: options.memory.map(asked).or_else(|| default_memory().map(default)),
        processes: Some(options.processes.map_or(default(DEFAULT_PROCESSES), asked)),
        cpus: options.cpus,
        open_files: options.open_files,
        file_size: options.file_size,
    }
}

/// Three quarters of what the machine has: a runaway command must not take the machine with it.
fn default_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024 / 4 * 3)
}
