//! From a setup to a running command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::FenceSetup;
use crate::confinement::Confinement;
use crate::error::{FenceError, FenceSetupError};
use crate::launch::Launcher;
use crate::metadata::{self, KeptPaths};
use crate::network::AllowedHosts;
use crate::passed_files::PassedFiles;
use crate::placeholders::Records;
use crate::plan::{Plan, plan};
use crate::policy::{Command, MetadataChoice};
use crate::running_fence::RunningFence;
use crate::stdio::Stdio;

/// A command to start in a fence, which gives it most of its environment.
#[derive(Clone, Debug, Default)]
pub struct FencedCommand {
    /// Absolute: the caller searches the `PATH`.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// Variables that override those of the fence.
    pub variables: Vec<(OsString, OsString)>,
    /// Variables that the fence overrides.
    pub defaults: Vec<(OsString, OsString)>,
    /// The variable, if any, that shows the command its confinement as JSON.
    pub confinement_variable: Option<&'static str>,
    /// Where the command starts; by default in the first directory of the scope.
    pub directory: Option<PathBuf>,
    /// Open files that the command inherits.
    pub files: Option<PassedFiles>,
}

impl FenceSetup {
    /// Plans the fence for this host. [`Self::launch`] does so itself; this tells early whether it would refuse.
    pub fn plan(&self, launcher: &Launcher) -> Result<Plan, FenceError> {
        Ok(plan(&self.policy, &launcher.kernel())?)
    }

    /// Starts a command in the fence.
    pub fn launch(
        &self,
        launcher: &Launcher,
        command: FencedCommand,
        stdio: Stdio<'_>,
    ) -> Result<RunningFence, FenceError> {
        let mut plan = self.plan(launcher)?;
        self.keep_metadata(&mut plan)?;
        let command = self.with_environment(&plan, command)?;
        let fenced = launcher.launch(&plan, &command, stdio, self.host.outside())?;
        Ok(RunningFence::new(fenced, AllowedHosts::of(&self.policy.network), self.kept_caches()))
    }

    /// Adds what is to be kept in the scope now. Makes placeholders for what is missing.
    fn keep_metadata(&self, plan: &mut Plan) -> Result<(), FenceError> {
        let Some(namespaces) = &mut plan.steps.namespaces else { return Ok(()) };
        if self.policy.staged.is_some() {
            return Ok(());
        }
        let has_git = !self.policy.git.is_empty() && !self.policy.read_only;
        if self.policy.metadata == MetadataChoice::Writable && !has_git {
            return Ok(());
        }
        // Placeholders of sessions that end now must not be taken for files.
        let records = Records::lock(self.host.outside()).map_err(FenceSetupError::Directory)?;
        let mut record = records.of(self.policy.scope[0].path());
        let is_placeholder = |path: &Path| record.is_placeholder(path);
        let of_scope = metadata::find(&self.policy.scope, &self.policy.metadata, &is_placeholder);
        let of_git = if has_git {
            metadata::find_in_git_directories(&self.policy.git, &self.policy.scope)
        } else {
            KeptPaths::default()
        };
        let missing = [of_scope.missing.as_slice(), &of_git.missing].concat();
        record.make(&missing).map_err(FenceSetupError::Directory)?;
        for kept in [of_scope, of_git] {
            namespaces.protected.extend(kept.read_only);
            namespaces.pinned.extend(kept.pinned);
        }
        Ok(())
    }

    /// Puts the fence up around no command, and returns what held.
    pub fn self_test(&self, launcher: &Launcher) -> Result<Confinement, FenceError> {
        Ok(launcher.self_test(&self.plan(launcher)?, self.host.outside())?)
    }

    /// Gives a command the environment of this fence. [`Self::launch`] does so itself.
    pub fn with_environment(&self, plan: &Plan, command: FencedCommand) -> Result<Command, FenceError> {
        let mut environment = self.base_environment(plan.tier)?;
        for (name, value) in command.defaults {
            environment.entry(name).or_insert(value);
        }
        environment.extend(command.variables);
        Ok(Command {
            program: command.program,
            arguments: command.arguments,
            environment: environment.into_iter().collect(),
            directory: command.directory.unwrap_or_else(|| self.policy.scope[0].path().to_owned()),
            confinement_variable: command.confinement_variable.map(OsString::from),
            files: command.files,
        })
    }
}
