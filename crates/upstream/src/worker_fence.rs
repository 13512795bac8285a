//! The fence around one worker, the same for all its generations.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use fence::network::AllowedHosts;
use fence::scope_scan::post_run_scan;
use fence::{CacheChoice, Command, FenceSetup, Fenced, ScopeChoice, SessionDirectory, Stdio};
use parking_lot::{Mutex, MutexGuard};

use crate::definition::Program;
use crate::directories::Directories;
use crate::fence_host::FenceHost;
use crate::start_error::StartError;
use crate::worker_variables::{Owner, confinement_variable, worker_variables};

/// Holds the fence of a worker from its first generation until the worker stops.
#[derive(Debug, Default)]
pub struct FenceSlot(Mutex<Option<Arc<WorkerFence>>>);

impl FenceSlot {
    pub(crate) fn get_or_new(
        &self,
        host: &Arc<FenceHost>,
        directories: &Arc<Directories>,
        owner: Option<Owner>,
    ) -> Arc<WorkerFence> {
        let mut slot = self.0.lock();
        Arc::clone(slot.get_or_insert_with(|| Arc::new(WorkerFence::new(host, directories, owner))))
    }

    /// Puts the fence back: the worker may have been stopped, and the slot emptied, during the launch.
    pub(crate) fn keep(&self, fence: Arc<WorkerFence>) {
        self.0.lock().get_or_insert(fence);
    }

    /// Empties the slot. Dropping the fence clears its files away, which may take long.
    pub fn take(&self) -> Option<impl Send + use<>> {
        self.0.lock().take()
    }
}

/// The fence around one worker: the same for all its generations. What can be worked out again for the next one
/// is not kept, because sessions are many and restarts are few.
#[derive(Debug)]
pub(crate) struct WorkerFence {
    host: Arc<FenceHost>,
    directories: Arc<Directories>,
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
    /// What its network may reach.
    pub(crate) hosts: AllowedHosts,
}

impl WorkerFence {
    fn new(host: &Arc<FenceHost>, directories: &Arc<Directories>, owner: Option<Owner>) -> Self {
        let (host, directories) = (Arc::clone(host), Arc::clone(directories));
        Self { host, directories, owner, session: Mutex::default(), began: now() }
    }

    /// Starts the program inside. Launching blocks, so it happens on a thread for that.
    pub(crate) async fn launch(self: &Arc<Self>, program: Program) -> Result<Launched, StartError> {
        let fence = Arc::clone(self);
        let launch = move || fence.launch_now(&program);
        tokio::task::spawn_blocking(launch).await.unwrap_or(Err(StartError::Stopped))
    }

    fn launch_now(&self, program: &Program) -> Result<Launched, StartError> {
        let setup = self.set_up(program)?;
        let launched = self.launch_in(&setup, program);
        *self.lock() = Some(setup.session);
        launched
    }

    fn lock(&self) -> MutexGuard<'_, Option<SessionDirectory>> {
        self.session.lock()
    }

    /// Looks at the scope again: it must be the one that was locked.
    fn set_up(&self, program: &Program) -> Result<FenceSetup, StartError> {
        let (host, directories) = (&self.host, &self.directories);
        let paths = directories.writable();
        let choice = if paths.is_empty() { ScopeChoice::Empty } else { ScopeChoice::Directories(&paths) };
        let session = self.lock().take();
        let is_first = session.is_none();
        let mut setup = FenceSetup::upon(
            &host.host_facts(program),
            &host.settings,
            choice,
            CacheChoice::Private,
            &host.host_environment,
            session,
        )
        .map_err(|error| StartError::fence(&error, error.hint()))?;
        if !paths.is_empty() && setup.policy.scope != directories.vetted() {
            return Err(StartError::ScopeChanged);
        }
        setup.also_readable(&program.readable);
        if is_first {
            host.look_for_shared_files(directories);
        }
        Ok(setup)
    }

    fn launch_in(&self, setup: &FenceSetup, program: &Program) -> Result<Launched, StartError> {
        let host = &self.host;
        let plan = fence::plan(&setup.policy, &host.kernel)
            .map_err(|refusal| StartError::fence(&refusal, Some(refusal.hint())))?;
        let mut environment: BTreeMap<OsString, OsString> = setup
            .environment(&plan, &host.host_environment)
            .map_err(|error| StartError::fence(&error, error.hint()))?;
        environment.extend(program.variables.iter().cloned());
        environment.extend(worker_variables(self.owner.as_ref(), &self.directories));
        environment.extend([confinement_variable(&plan.confinement)]);
        let command = Command {
            program: program.program.clone().into(),
            arguments: program.arguments.clone(),
            environment: environment.into_iter().collect(),
            directory: program.directory.clone().unwrap_or_else(|| setup.policy.scope[0].path().to_owned()),
        };
        let failed = |error: io::Error| StartError::spawn(&program.program, &error);
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from);
        let (child_stdin, stdin) = pipe().map_err(failed)?;
        let (stdout, child_stdout) = pipe().map_err(failed)?;
        let (stderr, child_stderr) = pipe().map_err(failed)?;
        let given =
            Stdio { stdin: child_stdin.as_fd(), stdout: child_stdout.as_fd(), stderr: child_stderr.as_fd() };
        let fenced = host
            .launcher
            .launch(&plan, &command, given, host.host_environment.outside())
            .map_err(|error| StartError::launch(&error))?;
        Ok(Launched { fenced, stdin, stdout, stderr, hosts: AllowedHosts::of(&host.settings.network) })
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or(0)
}

impl Drop for WorkerFence {
    /// The last one to leave removes the session's files, and looks for what could act later, outside.
    fn drop(&mut self) {
        let left = post_run_scan(&self.directories.paths(), self.began);
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
