//! What all fences of one gateway have in common: the launcher, the operator's settings, and facts about the
//! host that are costly to find.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fence::{
    CacheChoice, Confinement, FenceSettings, FenceSetup, HardlinkChoice, HostEnvironment, HostFacts, Kernel,
    Launcher, Limit, LimitOrigin, ScopeChoice, shared_files,
};
use parking_lot::Mutex;

use crate::definition::Program;
use crate::directories::Directories;
use crate::start_error::StartError;

/// What all fences of one gateway have in common.
#[derive(Debug)]
pub struct FenceHost {
    pub(crate) launcher: Arc<Launcher>,
    pub(crate) settings: FenceSettings,
    pub(crate) host_environment: Arc<HostEnvironment>,
    kernel: Kernel,
    /// Scopes that were searched for shared files.
    searched_scopes: Mutex<HashSet<Vec<PathBuf>>>,
    /// By the program that runs inside.
    host_facts: Mutex<HashMap<OsString, (Instant, Arc<HostFacts>)>>,
    /// The same with less leave, for the principals that have less.
    restricted: Mutex<HashMap<Restriction, Arc<FenceHost>>>,
}

/// What a principal may do less than a server's fence allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Restriction {
    pub read_only: bool,
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
    /// The principal may work in some directories only, so no scope takes in more than the operator named.
    pub is_limited: bool,
    /// The principal's own user on this host, where principals have one.
    pub user: Option<u32>,
}

impl Restriction {
    /// Never allows more than the settings did.
    fn apply(self, settings: &mut FenceSettings) {
        if self.read_only {
            settings.read_only = true;
            settings.write.clear();
        }
        settings.git.leading_back &= !self.is_limited;
        let limits = &mut settings.limits;
        limits.memory = lowered(limits.memory, self.memory_bytes);
        limits.processes = lowered(limits.processes, self.processes);
        settings.user = self.user.or(settings.user);
    }
}

fn lowered(limit: Option<Limit<u64>>, most: Option<u64>) -> Option<Limit<u64>> {
    match most {
        Some(value) if limit.is_none_or(|limit| limit.value > value) => {
            Some(Limit { value, origin: LimitOrigin::Asked })
        }
        _ => limit,
    }
}

/// Fences learn of new secrets and toolchains on the host after this time at the latest.
const HOST_FACTS_AGE: Duration = Duration::from_secs(5);

/// Limits the memory that remembered scopes take.
const MAX_SEARCHED_SCOPES: usize = 4096;

impl FenceHost {
    pub fn new(settings: FenceSettings, host_environment: Arc<HostEnvironment>) -> Self {
        Self::with_launcher(Arc::new(Launcher::new().with_zygote()), settings, host_environment)
    }

    fn with_launcher(
        launcher: Arc<Launcher>,
        settings: FenceSettings,
        host_environment: Arc<HostEnvironment>,
    ) -> Self {
        Self {
            kernel: launcher.kernel(),
            launcher,
            settings,
            host_environment,
            searched_scopes: Mutex::default(),
            host_facts: Mutex::default(),
            restricted: Mutex::default(),
        }
    }

    /// The fences of a principal that may do less.
    pub fn restricted(self: &Arc<Self>, restriction: Restriction) -> Arc<Self> {
        if restriction == Restriction::default() {
            return Arc::clone(self);
        }
        let new = || {
            let mut settings = self.settings.clone();
            restriction.apply(&mut settings);
            let host = Arc::clone(&self.host_environment);
            Arc::new(Self::with_launcher(Arc::clone(&self.launcher), settings, host))
        };
        Arc::clone(self.restricted.lock().entry(restriction).or_insert_with(new))
    }

    /// The user that servers run as, if it is not the one that runs ringfence.
    pub fn user(&self) -> Option<u32> {
        self.settings.user
    }

    /// Whether the scope cannot be written.
    pub fn is_read_only(&self) -> bool {
        self.settings.read_only
    }

    /// Facts for a program, not older than a few seconds.
    pub(crate) fn host_facts(&self, program: &Program) -> Arc<HostFacts> {
        let mut kept = self.host_facts.lock();
        match kept.get(&program.program) {
            Some((since, host_facts)) if since.elapsed() < HOST_FACTS_AGE => Arc::clone(host_facts),
            _ => {
                let name = program.program.as_ref();
                let host_facts = Arc::new(HostFacts::new(&self.settings, name, &self.host_environment));
                kept.insert(program.program.clone(), (Instant::now(), Arc::clone(&host_facts)));
                host_facts
            }
        }
    }

    /// Warns once of files in a scope that have another name outside it. Searches on a thread of its own while the
    /// server runs, because the scope may be large.
    pub(crate) fn warn_of_shared_files(&self, directories: &Directories) {
        let paths = directories.paths();
        let mut searched = self.searched_scopes.lock();
        if self.settings.hardlinks != HardlinkChoice::Warn
            || searched.len() >= MAX_SEARCHED_SCOPES
            || !searched.insert(paths.clone())
        {
            return;
        }
        drop(searched);
        let roots = directories.changed_roots().to_owned();
        std::thread::spawn(move || {
            let shared = shared_files(&roots);
            if shared.count > 0 {
                tracing::warn!(
                    scope = ?paths,
                    count = shared.count,
                    example = ?shared.examples.first(),
                    "files of the scope have another name outside it and can be changed through their name inside; \
                     see --hardlinks"
                );
            }
        });
    }

    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Puts up a fence around no command, to find out whether this host can have fences at all.
    pub fn self_test(&self) -> Result<Confinement, StartError> {
        let host = &self.host_environment;
        let setup = FenceSetup::new(&self.settings, ScopeChoice::Empty, CacheChoice::Private, host);
        setup
            .map_err(Into::into)
            .and_then(|setup| setup.self_test(&self.launcher))
            .map_err(|error| StartError::fence(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restriction_lowers_limits_and_never_raises_them() {
        let limit = |value| Some(Limit { value, origin: LimitOrigin::Default });
        let value = |before, most| lowered(before, most).map(|limit| limit.value);
        assert_eq!(value(limit(100), Some(50)), Some(50));
        assert_eq!(value(limit(100), Some(200)), Some(100));
        assert_eq!(value(limit(100), None), Some(100));
        assert_eq!(value(None, Some(50)), Some(50));
    }
}
