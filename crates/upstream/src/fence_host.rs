//! What all fences of one gateway have in common: the launcher, the kernel's abilities, the operator's settings.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fence::scope_scan::shared_files;
use fence::{
    CacheChoice, Confinement, FenceSettings, FenceSetup, HardlinkChoice, HostEnvironment, HostFacts, Kernel,
    Launcher, ScopeChoice,
};
use parking_lot::Mutex;

use crate::definition::Program;
use crate::directories::Directories;
use crate::start_error::StartError;

/// Everything that the fences of one gateway have in common.
#[derive(Debug)]
pub struct FenceHost {
    pub(crate) launcher: Launcher,
    pub(crate) kernel: Kernel,
    pub(crate) settings: FenceSettings,
    pub(crate) host_environment: Arc<HostEnvironment>,
    /// Scopes that were looked through for shared files.
    looked_through: Mutex<HashSet<Vec<PathBuf>>>,
    /// By the program that runs inside.
    host_facts: Mutex<HashMap<OsString, (Instant, Arc<HostFacts>)>>,
}

/// Secrets and toolchains that come to a host later are known to fences after this.
const HOST_FACTS_AGE: Duration = Duration::from_secs(5);

/// More scopes than this are not remembered.
const MAX_LOOKED_THROUGH: usize = 4096;

impl FenceHost {
    pub fn new(settings: FenceSettings, host_environment: Arc<HostEnvironment>) -> Self {
        let launcher = Launcher::new().with_zygote();
        Self {
            kernel: launcher.kernel(),
            launcher,
            settings,
            host_environment,
            looked_through: Mutex::default(),
            host_facts: Mutex::default(),
        }
    }

    /// What all fences have in common, not older than a few seconds.
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

    /// Warns of files in a scope that have another name outside, once, while the server runs: the scope may be
    /// large.
    pub(crate) fn look_for_shared_files(&self, directories: &Directories) {
        let paths = directories.paths();
        let mut looked_through = self.looked_through.lock();
        if self.settings.hardlinks != HardlinkChoice::Warn
            || looked_through.len() >= MAX_LOOKED_THROUGH
            || !looked_through.insert(paths.clone())
        {
            return;
        }
        drop(looked_through);
        std::thread::spawn(move || {
            let shared = shared_files(&paths);
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

    /// Whether fences can be had here at all, tried on one around nothing.
    pub fn self_test(&self) -> Result<Confinement, StartError> {
        let setup =
            FenceSetup::new(&self.settings, ScopeChoice::Empty, CacheChoice::Private, &self.host_environment)
                .map_err(|error| StartError::fence(&error, error.hint()))?;
        let confinement = fence::plan(&setup.policy, &self.kernel)
            .map_err(|refusal| StartError::fence(&refusal, Some(refusal.hint())))
            .and_then(|plan| {
                self.launcher
                    .self_test(&plan, self.host_environment.outside())
                    .map_err(|error| StartError::launch(&error))
            });
        let _ = setup.session.remove();
        confinement
    }
}
