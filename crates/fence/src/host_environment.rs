//! Where ringfence itself runs: its environment variables, the user's home, its own directory; and what many
//! fences on this host have in common.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::FenceSetupError;
use crate::paths::{
    DeniedPath, ScopeError, VettedDirectory, check_place, holds_settings_of_a_user, is_writable_in_fence,
    sensitive_paths, vet_scope,
};
use crate::placeholders::LingeringPlaceholders;
use crate::reserved::{self, Reserved};
use crate::session_directory::{OwnDirectory, SessionDirectory};
use crate::settings::FenceSettings;
use crate::tool_caches::KeptCache;
use crate::toolchain::Inference;
use crate::{environment, toolchain};

/// Where ringfence itself runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HostEnvironment {
    pub environment: Arc<BTreeMap<OsString, OsString>>,
    pub home: Option<PathBuf>,
    pub(crate) own: OwnDirectory,
    reserved: Arc<Reserved>,
    /// Commands run as users of their own. The launcher tells which of them cannot use a scope.
    has_users: bool,
}

impl HostEnvironment {
    pub fn of_this_process() -> Result<Self, FenceSetupError> {
        let environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        let path = |name: &str| environment.get(OsStr::new(name)).map(PathBuf::from);
        let home = path("HOME").filter(|home| home.is_absolute());
        let own = OwnDirectory::open(path("XDG_CACHE_HOME").as_deref(), home.as_deref())
            .map_err(FenceSetupError::Directory)?;
        let host = Self {
            environment: Arc::new(environment),
            home,
            own,
            reserved: Arc::default(),
            has_users: false,
        };
        host.reserve_own_files();
        Ok(host)
    }

    /// For fences whose commands run as other users than ringfence.
    #[must_use]
    pub fn with_users(self) -> Self {
        Self { has_users: true, ..self }
    }

    fn reserve_own_files(&self) {
        self.reserve("ringfence's own files", self.own.path());
        if let Ok(program) = std::env::current_exe() {
            self.reserve(reserved::PROGRAM, &program);
        }
        let directories = [
            ("XDG_CONFIG_HOME", ".config"),
            ("XDG_STATE_HOME", ".local/state"),
            ("XDG_DATA_HOME", ".local/share"),
        ];
        for (variable, usual) in directories {
            let named = self.environment.get(OsStr::new(variable)).map(PathBuf::from);
            let named = named.filter(|path| path.is_absolute());
            // Both: another start of ringfence may have the variable, or not.
            for directory in named.into_iter().chain(self.home.as_ref().map(|home| home.join(usual))) {
                self.reserve("ringfence's own files", &directory.join("ringfence"));
            }
        }
    }

    /// Keeps a path of ringfence's program out of every scope.
    pub fn reserve_program(&self, path: &Path) {
        self.reserve(reserved::PROGRAM, path);
    }

    /// Keeps a path out of every scope.
    pub fn reserve(&self, what: &'static str, path: &Path) {
        self.reserved.add(what, path);
    }

    /// Ringfence's own directory, which no command may write.
    pub fn outside(&self) -> &Path {
        self.own.path()
    }

    /// The directory of installed packages, which many commands read. It is hidden like the rest of ringfence's
    /// own directory, except for the packages that a policy lists as readable.
    pub fn packages(&self) -> io::Result<PathBuf> {
        self.own.packages()
    }

    /// What is kept for the workspaces of this user, the least recently used first.
    pub fn kept_caches(&self) -> Vec<KeptCache> {
        self.own.kept_caches()
    }

    /// Removes the caches of a workspace. Returns false if a session uses them.
    pub fn remove_cache(&self, cache: &KeptCache) -> io::Result<bool> {
        self.own.remove_cache(cache)
    }

    /// Removes caches beyond what the settings allow, at most once in a while, because that looks at every file.
    pub fn trim_caches(&self, settings: &FenceSettings) -> Vec<KeptCache> {
        let most = settings.kept_caches.filter(|_| self.own.is_time_to_trim());
        most.and_then(|most| self.own.trim_caches(most).ok()).unwrap_or_default()
    }

    /// Leaves placeholders in scopes for the sessions that follow shortly, until what is returned is dropped. For a
    /// gateway.
    #[must_use]
    pub fn keep_placeholders_a_moment(&self) -> LingeringPlaceholders {
        self.own.keep_placeholders_a_moment()
    }

    /// Makes the directories of a new session.
    pub fn new_session(&self) -> Result<SessionDirectory, FenceSetupError> {
        SessionDirectory::create(&self.own).map_err(FenceSetupError::Directory)
    }

    /// Checks that a directory that a client named can be a scope, without changing anything.
    pub fn vet(&self, directory: &Path) -> Result<VettedDirectory, ScopeError> {
        let vetted = self.vet_named(directory)?;
        if self.holds_settings(vetted.path()) {
            return Err(ScopeError::Settings(vetted.path().to_owned()));
        }
        Ok(vetted)
    }

    /// Whether a directory is one of a home in which programs keep settings, or the user keeps programs.
    pub fn holds_settings(&self, directory: &Path) -> bool {
        holds_settings_of_a_user(directory, self.home.as_deref())
    }

    /// The same for a directory that the operator named. It may hold settings of programs.
    pub fn vet_named(&self, directory: &Path) -> Result<VettedDirectory, ScopeError> {
        let vetted = vet_scope(directory, self.home.as_deref(), Some(self.own.path()))?;
        if !self.has_users && !is_writable_in_fence(vetted.path()) {
            return Err(ScopeError::AnothersOfRoot(vetted.path().to_owned()));
        }
        match self.reserved.reached_from(&vetted) {
            Some(reserved) => Err(ScopeError::Reserved { scope: vetted.path().to_owned(), reserved }),
            None => Ok(vetted),
        }
    }

    /// Checks the same of a directory that is held already, by its path alone: a session may have put something else
    /// there meanwhile.
    pub(crate) fn check_held(&self, directory: &VettedDirectory) -> Result<(), ScopeError> {
        check_place(directory.path(), self.home.as_deref(), Some(self.own.path()))?;
        match self.reserved.reached_from(directory) {
            Some(reserved) => Err(ScopeError::Reserved { scope: directory.path().to_owned(), reserved }),
            None => Ok(()),
        }
    }

    /// What a program needs to read to start, found along `search_path`, without the paths of the default deny list.
    pub fn needed_by(&self, program: &Path, search_path: &OsStr) -> Vec<PathBuf> {
        let denied = sensitive_paths(self.home.as_deref(), rustix::process::geteuid().is_root());
        toolchain::readable_for(program, self.inference(search_path, &denied))
    }

    /// What no fence shows unless the operator says so.
    pub(crate) fn denied_by_default(&self) -> Vec<DeniedPath> {
        let sensitive = sensitive_paths(self.home.as_deref(), rustix::process::geteuid().is_root());
        sensitive.iter().flat_map(|path| DeniedPath::resolve(path)).collect()
    }

    fn inference<'a>(&'a self, search_path: &'a OsStr, denied: &'a [PathBuf]) -> Inference<'a> {
        Inference { search_path, home: self.home.as_deref(), denied }
    }

    fn search_path(&self) -> OsString {
        self.environment.get(OsStr::new("PATH")).cloned().unwrap_or_default()
    }
}

/// What the fences around one program have in common. Finding it takes hundreds of file system look-ups, so a
/// caller that makes many fences keeps it for a while.
#[derive(Debug)]
pub struct HostFacts {
    pub(crate) denied: Vec<DeniedPath>,
    /// What the program needs to read to start.
    pub(crate) needed: Vec<PathBuf>,
}

impl HostFacts {
    pub fn new(settings: &FenceSettings, program: &Path, host: &HostEnvironment) -> Self {
        let mut facts = Self::without_program(settings, host);
        facts.needed.extend(needed_by(program, &facts.denied, host));
        facts
    }

    pub(crate) fn without_program(settings: &FenceSettings, host: &HostEnvironment) -> Self {
        let denied = deny_list(settings, host.home.as_deref());
        let needed = if settings.all_programs {
            toolchain::readable_for_all(host.inference(&host.search_path(), &paths(&denied)))
        } else {
            Vec::new()
        };
        Self { denied, needed }
    }
}

/// What a program needs to read to start, without denied paths.
pub(crate) fn needed_by(program: &Path, denied: &[DeniedPath], host: &HostEnvironment) -> Vec<PathBuf> {
    let denied = paths(denied);
    let search_path = host.search_path();
    let inference = host.inference(&search_path, &denied);
    let mut needed = toolchain::readable_for(program, inference);
    let toolchains = environment::toolchains(&host.environment, host.home.as_deref());
    let toolchains = toolchains.into_iter().map(|(_, path)| PathBuf::from(path));
    let named = environment::named_toolchains(&host.environment);
    let interpreters = environment::interpreters(host.home.as_deref());
    let trees = toolchains.chain(named).chain(interpreters);
    needed.extend(trees.filter(|tree| inference.may_show(tree)));
    needed.retain(|path| !denied.iter().any(|denied| path.starts_with(denied)));
    needed
}

fn paths(denied: &[DeniedPath]) -> Vec<PathBuf> {
    denied.iter().map(|denied| denied.path.clone()).collect()
}

/// The default deny list as the settings change it.
fn deny_list(settings: &FenceSettings, home: Option<&Path>) -> Vec<DeniedPath> {
    let allowed: Vec<PathBuf> =
        settings.allow_sensitive_reads.iter().flat_map(|path| [absolute(path), real(path)]).collect();
    let sensitive = sensitive_paths(home, rustix::process::geteuid().is_root())
        .into_iter()
        .filter(|path| allowed.is_empty() || !allowed.contains(path) && !allowed.contains(&real(path)));
    let added = settings.deny_read.iter().map(|path| absolute(path));
    let mut denied = DeniedPath::resolve_all(sensitive.chain(added));
    denied.sort_by(|a, b| a.path.cmp(&b.path));
    denied.dedup_by(|a, b| a.path == b.path);
    denied
}

pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

pub(crate) fn real(path: &Path) -> PathBuf {
    let absolute = absolute(path);
    absolute.canonicalize().unwrap_or(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_cannot_lend_what_is_anothers_unless_commands_run_as_other_users() {
        let directory = crate::test_directory::directory("host-anothers");
        let host = HostEnvironment::of_this_process().unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&directory, Some(1234), Some(1234)).unwrap();
            assert!(matches!(host.vet_named(&directory), Err(ScopeError::AnothersOfRoot(_))));
            assert!(host.clone().with_users().vet_named(&directory).is_ok());
            std::os::unix::fs::chown(&directory, Some(0), Some(0)).unwrap();
        }
        assert!(host.vet_named(&directory).is_ok());
    }
}
