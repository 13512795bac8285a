//! The fence around one worker, the same for all its generations.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fence::{
    CacheChoice, FenceError, FenceSetup, FenceSetupError, FencedCommand, PassedFiles, Pipes, RunningFence,
    ScopeChoice, SessionDirectory,
};
use identity::Principal;
use parking_lot::Mutex;
use wire::worker_variable::{CONFINEMENT, GIT_LEFT_OUT};

use crate::definition::Program;
use crate::directories::Directories;
use crate::fence_host::FenceHost;
use crate::start_error::StartError;
use crate::state_files::StateFiles;
use crate::worker_variables::{Owner, worker_variables};

/// Holds the fence of a worker from its first generation until the worker stops.
#[derive(Debug, Default)]
pub struct FenceSlot(Mutex<Option<Arc<WorkerFence>>>);

impl FenceSlot {
    pub(crate) fn get_or_new(
        &self,
        host: &Arc<FenceHost>,
        directories: &Arc<Directories>,
        owner: Option<Owner>,
        state: Option<PathBuf>,
    ) -> Arc<WorkerFence> {
        let mut slot = self.0.lock();
        Arc::clone(slot.get_or_insert_with(|| Arc::new(WorkerFence::new(host, directories, owner, state))))
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

/// The fence around one worker: the same for all its generations. Sessions are many and restarts are few, so it
/// keeps only what the next generation cannot find out again.
#[derive(Debug)]
pub(crate) struct WorkerFence {
    host: Arc<FenceHost>,
    directories: Arc<Directories>,
    owner: Option<Owner>,
    /// Where the server's state outlives the gateway.
    state: Option<PathBuf>,
    /// The session's directories, made by the first launch.
    session: Mutex<Option<Arc<SessionDirectory>>>,
}

/// A server that was started, with our ends of its pipes.
pub(crate) struct Launched {
    pub(crate) fence: RunningFence,
    pub(crate) pipes: Pipes,
}

impl WorkerFence {
    fn new(
        host: &Arc<FenceHost>,
        directories: &Arc<Directories>,
        owner: Option<Owner>,
        state: Option<PathBuf>,
    ) -> Self {
        let (host, directories) = (Arc::clone(host), Arc::clone(directories));
        Self { host, directories, owner, state, session: Mutex::default() }
    }

    /// Starts the program inside. Launching blocks, so it runs on a thread for that.
    pub(crate) async fn launch(self: &Arc<Self>, program: Program) -> Result<Launched, StartError> {
        let fence = Arc::clone(self);
        let launch = move || fence.launch_now(&program);
        tokio::task::spawn_blocking(launch).await.unwrap_or(Err(StartError::Stopped))
    }

    fn launch_now(&self, program: &Program) -> Result<Launched, StartError> {
        let setup = self.set_up(program)?;
        let mut command = self.command(program, self.git_left_out(&setup));
        command.files = self.state_files(program, &setup);
        let (pipes, child_pipes) =
            Pipes::new().map_err(|error| StartError::spawn(&program.program, &error))?;
        let fence = setup
            .launch(&self.host.launcher, command, child_pipes.stdio())
            .map_err(|error| StartError::fence(&error))?;
        Ok(Launched { fence, pipes })
    }

    /// The files in which the server keeps what is to outlive it. Without them it goes on, and a later one knows nothing.
    fn state_files(&self, program: &Program, setup: &FenceSetup) -> Option<PassedFiles> {
        if !program.keeps_state || self.directories.roots.is_empty() {
            return None;
        }
        // Beside the directories that the fence shows, where nothing outlives the worker.
        let directory = self.state.clone().unwrap_or_else(|| setup.session.path().join("state"));
        let files = StateFiles::open(&directory).and_then(|files| files.to_pass());
        files.inspect_err(|error| tracing::error!(?directory, "the server keeps no state: {error}")).ok()
    }

    /// Looks at the scope again: it must be the directory that the session was locked to.
    fn set_up(&self, program: &Program) -> Result<FenceSetup, StartError> {
        let host = &self.host;
        let failed = |error: FenceSetupError| StartError::fence(&FenceError::from(error));
        let vetted = self.directories.vetted();
        let scope = match &self.directories.staged {
            Some(staged) => ScopeChoice::Staged { directories: &vetted, staged },
            None if vetted.is_empty() => ScopeChoice::Empty,
            None => ScopeChoice::Vetted(&vetted),
        };
        let (session, is_first) = self.session().map_err(failed)?;
        let mut setup = FenceSetup::in_session(
            session,
            &host.host_facts(program),
            &host.settings,
            scope,
            self.caches(!vetted.is_empty()),
            &host.host_environment,
        )
        .map_err(failed)?;
        if !vetted.is_empty() && setup.policy.scope != vetted {
            return Err(StartError::ScopeChanged);
        }
        setup.allow_reading(&program.readable);
        if is_first {
            host.warn_of_shared_files(&self.directories);
            for left_out in &setup.git_left_out {
                tracing::warn!("{}", left_out.warning());
            }
        }
        Ok(setup)
    }

    /// What a session downloads is kept for the next one of its principal in the same workspace.
    fn caches(&self, has_scope: bool) -> CacheChoice<'_> {
        match &self.owner {
            Some(owner) if has_scope => {
                let is_anonymous = owner.principal == Principal::anonymous();
                CacheChoice::Kept { owner: if is_anonymous { "" } else { owner.principal.as_str() } }
            }
            _ => CacheChoice::Private,
        }
    }

    /// The session's directories, and whether they are new.
    fn session(&self) -> Result<(Arc<SessionDirectory>, bool), FenceSetupError> {
        let mut slot = self.session.lock();
        if let Some(session) = &*slot {
            return Ok((Arc::clone(session), false));
        }
        let session = slot.insert(Arc::new(self.host.host_environment.new_session()?));
        Ok((Arc::clone(session), true))
    }

    /// The git directory that the scope leads to and that stays outside. Tells nothing of what exists there: a file of
    /// the scope that names a directory gets the same answer in any case.
    fn git_left_out<'s>(&self, setup: &'s FenceSetup) -> Option<&'s Path> {
        let named = &self.host.settings.git.named;
        let found = setup.git_left_out.iter().map(|left_out| left_out.directory.as_path());
        found.into_iter().find(|directory| !named.iter().any(|named| named == directory))
    }

    fn command(&self, program: &Program, git_left_out: Option<&Path>) -> FencedCommand {
        let mut variables = program.variables.clone();
        variables.extend(worker_variables(self.owner.as_ref(), &self.directories));
        variables.extend(git_left_out.map(|directory| (GIT_LEFT_OUT.into(), directory.into())));
        FencedCommand {
            program: program.program.clone().into(),
            arguments: program.arguments.clone(),
            variables,
            confinement_variable: Some(CONFINEMENT),
            directory: program.directory.clone(),
            ..FencedCommand::default()
        }
    }
}

impl Drop for WorkerFence {
    /// Removes the session's files, and warns of what could act outside later.
    fn drop(&mut self) {
        if let Some(session) = self.session.lock().take() {
            let done = session.clean_up(self.directories.changed_roots());
            for warning in done.warnings().into_iter().chain(done.to_review()) {
                tracing::warn!("{warning}");
            }
            for removed in self.host.host_environment.trim_caches(&self.host.settings) {
                tracing::info!(scope = ?removed.scope, bytes = removed.bytes, "caches were removed to make room");
            }
        }
    }
}
