//! The way into a fence: [`FenceSetup::new`] vets the scope and makes the session's directories,
//! [`FenceSetup::launch`] plans, composes the environment and starts the command,
//! [`RunningFence::attend`](crate::RunningFence::attend) serves its network and waits for its end, and
//! [`FenceSetup::clean_up`] removes what was made for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::environment::{self, OwnPlaces};
use crate::error::FenceSetupError;
use crate::git_directory::{self, GitLeftOut, GitSurvey};
use crate::host_environment::{HostEnvironment, HostFacts, absolute, needed_by};
use crate::link_walk::{Destination, follow};
use crate::network::proxy_environment;
use crate::paths::VettedDirectory;
use crate::plan::HIDDEN;
use crate::policy::{MetadataChoice, Network, Policy, ReadMode, Temp, Tier};
use crate::private_tree::PrivateTree;
use crate::scope_scan::{SharedFiles, shared_files};
use crate::session_directory::{CleanUp, SessionDirectory};
use crate::settings::{CacheChoice, FenceSettings, HardlinkChoice, ReadChoice, ScopeChoice};
use crate::staged::StagedScope;
use crate::tool_caches::ToolCaches;
use crate::tool_versions;

mod cargo_home;
mod users_caches;

#[cfg(target_os = "linux")]
mod launch;
#[cfg(target_os = "linux")]
pub use launch::FencedCommand;

/// The policy of one fence, and the directories that belong to it.
#[derive(Debug)]
pub struct FenceSetup {
    pub policy: Policy,
    /// Home and temporary directory of the command. Shared where several commands run in them one after the other.
    pub session: Arc<SessionDirectory>,
    /// Files of the scope with another name outside; `None` if the scope was not searched for them.
    pub shared: Option<SharedFiles>,
    /// Git directories that the scope leads to and does not take in.
    pub git_left_out: Vec<GitLeftOut>,
    caches: Caches,
    host: HostEnvironment,
}

/// Where programs inside keep what they download.
#[derive(Debug)]
enum Caches {
    Private(PathBuf),
    Kept(Arc<ToolCaches>),
}

impl Caches {
    fn directory(&self) -> &Path {
        match self {
            Self::Private(directory) => directory,
            Self::Kept(caches) => caches.directory(),
        }
    }
}

impl FenceSetup {
    /// Vets the scope and makes the session's directories.
    pub fn new(
        settings: &FenceSettings,
        scope: ScopeChoice<'_>,
        caches: CacheChoice<'_>,
        host: &HostEnvironment,
    ) -> Result<Self, FenceSetupError> {
        let facts = HostFacts::without_program(settings, host);
        let session = Arc::new(host.new_session()?);
        Self::in_session(session, &facts, settings, scope, caches, host)
    }

    /// Sets up a fence around the program of `facts`, in the directories of a session that may have run commands
    /// before.
    pub fn in_session(
        session: Arc<SessionDirectory>,
        facts: &HostFacts,
        settings: &FenceSettings,
        scope: ScopeChoice<'_>,
        caches: CacheChoice<'_>,
        host: &HostEnvironment,
    ) -> Result<Self, FenceSetupError> {
        // The session's own directory holds nothing of the user's, and temporary files may go there.
        let is_users = !matches!(scope, ScopeChoice::Own(_) | ScopeChoice::Empty);
        let read_only = settings.read_only && is_users;
        let staged = match scope {
            ScopeChoice::Staged { staged, .. } => Some(staged.clone()),
            _ => None,
        };
        let scope = vet_all(scope, &session, settings.user, host)?;
        PrivateTree::open(&session.home(), settings.user).map_err(FenceSetupError::Directory)?;
        let mut read_write = vec![VettedDirectory::own(&session.home())?];
        let caches = match caches {
            CacheChoice::Kept { owner } if settings.kept_caches.is_some() && !read_only => {
                let caches = ToolCaches::open(&host.own, scope[0].path(), owner, settings.user)
                    .map_err(FenceSetupError::Directory)?;
                read_write.push(VettedDirectory::own(caches.directory())?);
                if let Err(error) = users_caches::fill(&caches, &scope[0], settings.user, host) {
                    tracing::debug!(%error, "the caches begin without what the user's have");
                }
                Caches::Kept(Arc::new(caches))
            }
            CacheChoice::Kept { .. } | CacheChoice::Private => Caches::Private(session.home().join(".cache")),
        };
        let mirrored = match &caches {
            Caches::Private(_) => Vec::new(),
            Caches::Kept(caches) => cargo_home::mirror(caches, &scope, settings.user, host)
                .map_err(FenceSetupError::Directory)?
                .into_iter()
                .collect(),
        };
        for directory in &settings.write {
            read_write.push(host.vet_named(directory)?);
        }
        if let Some(staged) = &staged {
            refuse_around_copies(staged, scope.iter().chain(&read_write))?;
        }
        let mut git = if is_users {
            git_directory::find(&scope, &settings.git, settings.user, &facts.denied, host)
        } else {
            GitSurvey::default()
        };
        if let Some(staged) = &staged {
            git.leave_out_unless(|directory| staged.covers(directory));
        }
        // Nothing of a scope that is staged can be changed through another name.
        let is_searched = settings.hardlinks != HardlinkChoice::Warn && staged.is_none();
        let shared = is_searched.then(|| shared_files(&scope));
        refuse_shared(settings, shared.as_ref())?;
        let taken: Vec<VettedDirectory> = git.taken.iter().map(|git| git.directory.clone()).collect();
        let policy = Policy {
            read: read_mode(settings, &[&scope, &read_write, &taken]),
            deny_read: facts.denied.clone(),
            hidden: vec![host.own.path().to_owned()],
            protected: protected(settings, shared.as_ref()),
            metadata: if staged.is_some() { MetadataChoice::Writable } else { metadata(settings) },
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
            user: settings.user,
            git: git.taken,
            scope,
            staged,
            read_write,
            mirrored,
        };
        let git_left_out = git.left_out;
        let mut setup = Self { policy, session, shared, git_left_out, caches, host: host.clone() };
        if setup.policy.staged.is_none() {
            setup.session.note_scope(&setup.scope_paths()).map_err(FenceSetupError::Directory)?;
            setup.session.note_git_directories(&paths(&taken)).map_err(FenceSetupError::Directory)?;
        }
        setup.allow_reading_needed(facts.needed.clone());
        Ok(setup)
    }

    #[cfg(target_os = "linux")]
    fn kept_caches(&self) -> Option<Arc<ToolCaches>> {
        match &self.caches {
            Caches::Private(_) => None,
            Caches::Kept(caches) => Some(Arc::clone(caches)),
        }
    }

    pub fn scope_paths(&self) -> Vec<PathBuf> {
        paths(&self.policy.scope)
    }

    /// Searches the scope for shared files, unless that was done before.
    pub fn look_for_shared_files(&mut self) {
        if self.shared.is_none() {
            let shared = shared_files(&self.policy.scope);
            self.policy.shared_hardlinks = Some(shared.as_count());
            self.shared = Some(shared);
        }
    }

    /// Makes readable what a program needs to start.
    pub fn allow_program(&mut self, program: &Path) {
        let needed = needed_by(program, &self.policy.deny_read, &self.host);
        self.allow_reading_needed(needed);
    }

    fn allow_reading_needed(&mut self, needed: Vec<PathBuf>) {
        match &mut self.policy.read {
            // The rest is readable anyway.
            ReadMode::Open { also } => {
                let is_hidden = |path: &PathBuf| HIDDEN.iter().any(|hidden| path.starts_with(hidden));
                also.extend(needed.into_iter().filter(is_hidden));
            }
            ReadMode::Strict { readable } => readable.extend(needed),
        }
    }

    /// Makes paths readable beside those that the settings list, except for denied ones: a program's own files may
    /// have led to them.
    pub fn allow_reading(&mut self, paths: &[PathBuf]) {
        let denied = &self.policy.deny_read;
        let is_open = |path: &&PathBuf| !denied.iter().any(|denied| path.starts_with(&denied.path));
        let (ReadMode::Open { also: list } | ReadMode::Strict { readable: list }) = &mut self.policy.read;
        list.extend(paths.iter().filter(is_open).cloned());
    }

    /// Looks through the scope for what a command left that could act outside later, and removes the session's
    /// directories. A setup that is only dropped removes its directories too.
    pub fn clean_up(self) -> CleanUp {
        self.session.clean_up(if self.policy.staged.is_some() { &[] } else { &self.policy.scope })
    }

    /// The environment that every command gets in this fence.
    fn base_environment(&self, tier: Tier) -> Result<BTreeMap<OsString, OsString>, FenceSetupError> {
        let host = &self.host;
        let mut result = environment::passed_on(
            host.environment.iter().map(|(name, value)| (name.clone(), value.clone())),
        );
        result.extend(environment::toolchains(&host.environment, host.home.as_deref()));
        result.extend(tool_versions::trust(&result, &self.scope_paths()));
        let home = self.session.home();
        let temp = match (&self.policy.temp, tier) {
            (Temp::None, _) => None,
            (Temp::Private { .. }, Tier::B) => Some(PathBuf::from("/tmp")),
            (Temp::Private { .. }, Tier::A) => {
                Some(self.session.make_temp().map_err(FenceSetupError::Directory)?)
            }
        };
        let places = OwnPlaces { home: &home, caches: self.caches.directory(), temp: temp.as_deref() };
        result.extend(environment::own_places(places, tier));
        if let (Tier::B, Some(mirror)) = (tier, self.policy.mirrored.first()) {
            result.insert("CARGO_HOME".into(), mirror.at.clone().into());
        }
        if self.policy.staged.is_some() {
            // A copy is a file system of its own, and the git directory of a folder lies above it.
            result.insert("GIT_DISCOVERY_ACROSS_FILESYSTEM".into(), "1".into());
        }
        if matches!(self.policy.network, Network::Http { .. }) {
            result.extend(proxy_environment().into_iter().map(|(name, value)| (name.into(), value.into())));
        }
        PrivateTree::open(&home, self.policy.user)
            .and_then(|tree| environment::furnish_home(&tree, places, host.home.as_deref()))
            .map_err(FenceSetupError::Directory)?;
        Ok(result)
    }
}

fn vet_all(
    scope: ScopeChoice<'_>,
    session: &SessionDirectory,
    user: Option<u32>,
    host: &HostEnvironment,
) -> Result<Vec<VettedDirectory>, FenceSetupError> {
    Ok(match scope {
        ScopeChoice::Directories(directories) => {
            directories.iter().map(|directory| host.vet_named(directory)).collect::<Result<_, _>>()?
        }
        ScopeChoice::Vetted(directories) | ScopeChoice::Staged { directories, .. } => {
            directories.iter().map(|vetted| VettedDirectory::own(vetted.path())).collect::<Result<_, _>>()?
        }
        ScopeChoice::Own(directory) => vec![VettedDirectory::own(directory)?],
        ScopeChoice::Empty => {
            let directory = session.make_temp().map_err(FenceSetupError::Directory)?;
            PrivateTree::open(&directory, user).map_err(FenceSetupError::Directory)?;
            vec![VettedDirectory::own(&directory)?]
        }
    })
}

fn paths(roots: &[VettedDirectory]) -> Vec<PathBuf> {
    roots.iter().map(|root| root.path().to_owned()).collect()
}

/// Refuses to make directories writable that hold a directory whose copy is shown, or lie in one.
fn refuse_around_copies<'d>(
    staged: &StagedScope,
    directories: impl Iterator<Item = &'d VettedDirectory>,
) -> Result<(), FenceSetupError> {
    for directory in directories.filter(|directory| !staged.covers(directory)) {
        let path = directory.path();
        let meets = |base: &&Path| base.starts_with(path) || path.starts_with(base);
        if let Some(base) = staged.bases().find(meets) {
            let (directory, base) = (path.to_owned(), base.to_owned());
            return Err(FenceSetupError::BesideCopy { directory, base });
        }
    }
    Ok(())
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

/// The paths that the settings make readable, without links. A link in a writable directory is not followed: a command
/// may have made it, and what the settings name is readable even where it would be denied.
fn read_mode(settings: &FenceSettings, writable: &[&[VettedDirectory]]) -> ReadMode {
    let real = |path: &PathBuf| {
        let is_trusted =
            |place: &Path| !writable.iter().copied().flatten().any(|root| place.starts_with(root.path()));
        match follow(&absolute(path), &mut |place, _| is_trusted(place)) {
            Destination::Found(path) | Destination::Missing(path) => Some(path),
            Destination::Refused => None,
        }
    };
    let listed: Vec<PathBuf> = settings.read.iter().filter_map(real).collect();
    match settings.read_mode {
        ReadChoice::Open => ReadMode::Open { also: listed },
        ReadChoice::Strict => ReadMode::Strict { readable: listed },
    }
}

/// Directories inside the scope that must stay as they are.
fn protected(settings: &FenceSettings, shared: Option<&SharedFiles>) -> Vec<PathBuf> {
    if settings.read_only || settings.hardlinks != HardlinkChoice::Protect {
        return Vec::new();
    }
    shared.into_iter().flat_map(|shared| shared.directories.iter().cloned()).collect()
}

fn metadata(settings: &FenceSettings) -> MetadataChoice {
    if settings.read_only { MetadataChoice::Writable } else { settings.metadata.clone() }
}
