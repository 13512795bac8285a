//! The fences of a gateway: what they have in common, and the one that is around a worker.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fence::network::AllowedHosts;
use fence::scope_scan::{aftermath, shared_files};
use fence::{
    Arrangement, CacheChoice, Command, Confinement, FenceSettings, Fenced, Groundwork, HardlinkChoice,
    Kernel, LaunchError, Launcher, ScopeChoice, SessionDirectory, Stdio, Surroundings,
};

use crate::StartFailure;
use crate::scope::Scope;
use crate::upstream::Program;
use crate::worker_variables::{Owner, confinement_variable, worker_variables};

/// Everything that the fences of one gateway have in common.
#[derive(Debug)]
pub struct FenceHost {
    launcher: Launcher,
    kernel: Kernel,
    settings: FenceSettings,
    surroundings: Arc<Surroundings>,
    /// Scopes that were looked through for shared files.
    looked_through: Mutex<HashSet<Vec<PathBuf>>>,
    /// By the program that runs inside.
    groundwork: Mutex<HashMap<OsString, (Instant, Arc<Groundwork>)>>,
}

/// Secrets and toolchains that come to a host later are known to fences after this.
const GROUNDWORK_AGE: Duration = Duration::from_secs(5);

/// More scopes than this are not remembered.
const MAX_LOOKED_THROUGH: usize = 4096;

impl FenceHost {
    pub fn new(settings: FenceSettings, surroundings: Arc<Surroundings>) -> Self {
        let launcher = Launcher::new().with_nursery();
        Self {
            kernel: launcher.kernel(),
            launcher,
            settings,
            surroundings,
            looked_through: Mutex::default(),
            groundwork: Mutex::default(),
        }
    }

    /// What all fences have in common, not older than a few seconds.
    fn groundwork(&self, program: &Program) -> Arc<Groundwork> {
        let mut kept = self.groundwork.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.get(&program.program) {
            Some((since, groundwork)) if since.elapsed() < GROUNDWORK_AGE => Arc::clone(groundwork),
            _ => {
                let name = program.program.as_ref();
                let groundwork = Arc::new(Groundwork::new(&self.settings, name, &self.surroundings));
                kept.insert(program.program.clone(), (Instant::now(), Arc::clone(&groundwork)));
                groundwork
            }
        }
    }

    /// Warns of files in a scope that have another name outside, once, while the server runs: the scope may be
    /// large.
    fn look_for_shared_files(&self, scope: &Scope) {
        let paths = scope.paths();
        let mut looked_through = self.looked_through.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub fn rehearse(&self) -> Result<Confinement, StartFailure> {
        let arrangement =
            Arrangement::new(&self.settings, ScopeChoice::Empty, CacheChoice::Private, &self.surroundings)
                .map_err(|error| StartFailure::fence(&error, error.hint()))?;
        let confinement = fence::plan(&arrangement.policy, &self.kernel)
            .map_err(|refusal| StartFailure::fence(&refusal, Some(refusal.hint())))
            .and_then(|plan| {
                self.launcher
                    .rehearse(&plan, self.surroundings.outside())
                    .map_err(|error| launch_failure(&error))
            });
        let _ = arrangement.session.remove();
        confinement
    }
}

/// The fence around one worker: the same for all its generations. What can be worked out again for the next one
/// is not kept, because sessions are many and restarts are few.
#[derive(Debug)]
pub(crate) struct Enclosure {
    host: Arc<FenceHost>,
    scope: Arc<Scope>,
    owner: Option<Owner>,
    /// The directories of the session; away while a generation is being started.
    session: Mutex<Option<SessionDirectory>>,
    began: i64,
}

/// A process that was started, with our ends of its pipes.
pub(crate) struct Launched {
    pub(crate) fenced: Fenced,
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Enclosure {
    pub(crate) fn new(host: &Arc<FenceHost>, scope: &Arc<Scope>, owner: Option<Owner>) -> Self {
        let (host, scope) = (Arc::clone(host), Arc::clone(scope));
        Self { host, scope, owner, session: Mutex::default(), began: now() }
    }

    /// Starts the upstream inside. Blocks until it runs.
    pub(crate) fn launch(&self, program: &Program) -> Result<Launched, StartFailure> {
        let arrangement = self.arrange(program)?;
        let launched = self.launch_in(&arrangement, program);
        *self.lock() = Some(arrangement.session);
        launched
    }

    fn lock(&self) -> MutexGuard<'_, Option<SessionDirectory>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the scope again: it must be the one that was locked.
    fn arrange(&self, program: &Program) -> Result<Arrangement, StartFailure> {
        let (host, scope) = (&self.host, &self.scope);
        let paths = scope.writable();
        let choice = if paths.is_empty() { ScopeChoice::Empty } else { ScopeChoice::Directories(&paths) };
        let session = self.lock().take();
        let is_first = session.is_none();
        let mut arrangement = Arrangement::upon(
            &host.groundwork(program),
            &host.settings,
            choice,
            CacheChoice::Private,
            &host.surroundings,
            session,
        )
        .map_err(|error| StartFailure::fence(&error, error.hint()))?;
        if !paths.is_empty() && arrangement.policy.scope != scope.vetted() {
            return Err(StartFailure::ScopeChanged);
        }
        arrangement.also_readable(&program.readable);
        if is_first {
            host.look_for_shared_files(scope);
        }
        Ok(arrangement)
    }

    fn launch_in(&self, arrangement: &Arrangement, program: &Program) -> Result<Launched, StartFailure> {
        let host = &self.host;
        let plan = fence::plan(&arrangement.policy, &host.kernel)
            .map_err(|refusal| StartFailure::fence(&refusal, Some(refusal.hint())))?;
        let mut environment: BTreeMap<OsString, OsString> = arrangement
            .environment(&plan, &host.surroundings)
            .map_err(|error| StartFailure::fence(&error, error.hint()))?;
        environment.extend(program.variables.iter().cloned());
        environment.extend(worker_variables(self.owner.as_ref(), &self.scope));
        environment.extend([confinement_variable(&plan.confinement)]);
        let command = Command {
            program: program.program.clone().into(),
            arguments: program.arguments.clone(),
            environment: environment.into_iter().collect(),
            directory: program
                .directory
                .clone()
                .unwrap_or_else(|| arrangement.policy.scope[0].path().to_owned()),
        };
        let failed = |error: io::Error| StartFailure::spawn(&program.program, &error);
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from);
        let (child_stdin, stdin) = pipe().map_err(failed)?;
        let (stdout, child_stdout) = pipe().map_err(failed)?;
        let (stderr, child_stderr) = pipe().map_err(failed)?;
        let given =
            Stdio { stdin: child_stdin.as_fd(), stdout: child_stdout.as_fd(), stderr: child_stderr.as_fd() };
        let fenced = host
            .launcher
            .launch(&plan, &command, given, host.surroundings.outside())
            .map_err(|error| launch_failure(&error))?;
        Ok(Launched { fenced, stdin, stdout, stderr })
    }

    pub(crate) fn allowed_hosts(&self) -> AllowedHosts {
        AllowedHosts::of(&self.host.settings.network)
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or(0)
}

impl Drop for Enclosure {
    /// The last one to leave removes the session's files, and looks for what could act later, outside.
    fn drop(&mut self) {
        let left = aftermath(&self.scope.paths(), self.began);
        for path in &left.set_id {
            tracing::warn!(?path, "was set-id and is not any more");
        }
        for (link, target) in &left.outward_links {
            tracing::warn!(?link, ?target, "a new link out of the scope");
        }
        if let Some(session) = self.lock().take()
            && let Err(error) = session.remove()
        {
            tracing::warn!("the files of a session could not be removed: {error}");
        }
    }
}

fn launch_failure(error: &LaunchError) -> StartFailure {
    match error {
        LaunchError::Exec { program, error } => StartFailure::spawn(program.as_os_str(), error),
        LaunchError::Refused { .. } => {
            StartFailure::fence(error, Some("`ringfence doctor` shows what this host can enforce".to_owned()))
        }
        _ => StartFailure::fence(error, None),
    }
}
