//! The parent's side of a launch: starts the launcher, sends it the request, and follows what it reports.

mod events;
mod fenced;
mod follow;
mod zygote;

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, SealFlags};

pub use self::fenced::{Ending, Fenced, Remote};

use self::events::Events;
use self::follow::Channels;
use self::zygote::Zygote;
use crate::cgroup::{CgroupHost, CgroupLeaf};
use crate::confinement::Confinement;
use crate::error::LaunchError;
use crate::kernel::Kernel;
use crate::launch_request::{
    Ahead, CGROUP_FD, Canaries, EVENTS_FD, HostIdentity, LAUNCH_ARGUMENT, LIFELINE_FD, LISTENERS_FD,
    LaunchRequest, REQUEST_FD, RequestedCommand, RequestedReport,
};
use crate::passed_files::PassedFiles;
use crate::plan::{NetworkNamespace, Plan, SeccompPlan};
use crate::policy::Command;
use crate::raw_path::Raw;
use crate::staged::StagedScope;
use crate::stdio::Stdio;
use crate::supervisor_registry::SUPERVISORS;
use crate::{fd_passing, kernel_features, launcher_process, spawn};

/// Starts commands inside fences.
#[derive(Debug)]
pub struct Launcher {
    executable: PathBuf,
    cgroups: Option<CgroupHost>,
    /// A loaded launcher, for a process that launches often.
    zygote: Option<Zygote>,
    /// What this host offers, once it was found out.
    kernel: OnceLock<Kernel>,
    /// Filters whose costly canary was tried since this process began.
    tried: Mutex<HashSet<SeccompPlan>>,
}

impl Default for Launcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Launcher {
    /// Launches through this program itself, which must call [`crate::run_if_launcher`] first in `main`.
    pub fn new() -> Self {
        Self::with_executable(Path::new("/proc/self/exe"))
    }

    /// Launches through another binary that does so.
    pub fn with_executable(executable: &Path) -> Self {
        Self {
            executable: executable.to_owned(),
            cgroups: CgroupHost::find(),
            zygote: None,
            kernel: OnceLock::new(),
            tried: Mutex::default(),
        }
    }

    /// Keeps a loaded launcher ready, which makes each launch faster and lets the supervisors share memory. For a
    /// process that launches often.
    #[must_use]
    pub fn with_zygote(self) -> Self {
        Self { zygote: Some(Zygote::default()), ..self }
    }

    /// What this host offers, found out by trying when it is asked for the first time.
    pub fn kernel(&self) -> Kernel {
        self.kernel.get_or_init(|| self.probe()).clone()
    }

    fn probe(&self) -> Kernel {
        Kernel {
            landlock: kernel_features::landlock_version(),
            seccomp: kernel_features::has_seccomp_filters(),
            namespaces: launcher_process::probe_namespaces(&self.executable),
            limits: self.cgroups.as_ref().map(CgroupHost::support).unwrap_or_default(),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// Starts a command inside the fence that `plan` describes. `outside` is ringfence's own directory, which the
    /// command must not be able to write; the launcher checks that it cannot. The fence is registered there.
    pub fn launch(
        &self,
        plan: &Plan,
        command: &Command,
        stdio: Stdio<'_>,
        outside: &Path,
    ) -> Result<Fenced, LaunchError> {
        let requested = RequestedCommand {
            program: command.program.clone(),
            arguments: command.arguments.iter().cloned().map(Raw::from).collect(),
            environment: command
                .environment
                .iter()
                .map(|(name, value)| (Raw::from(name.clone()), Raw::from(value.clone())))
                .collect(),
            directory: command.directory.clone(),
            confinement: command.confinement_variable.clone().map(|variable| RequestedReport {
                variable: Raw::from(variable),
                confinement: plan.confinement.clone(),
            }),
        };
        self.start(plan, Some((requested, command.files.as_ref())), stdio, outside)
    }

    /// Puts the fence up around no command, and returns what held.
    pub fn self_test(&self, plan: &Plan, outside: &Path) -> Result<Confinement, LaunchError> {
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        let stdio = Stdio { stdin: nothing.as_fd(), stdout: nothing.as_fd(), stderr: nothing.as_fd() };
        let mut fenced = self.start(plan, None, stdio, outside)?;
        fenced.wait()?;
        Ok(fenced.confinement)
    }

    fn start(
        &self,
        plan: &Plan,
        command: Option<(RequestedCommand, Option<&PassedFiles>)>,
        stdio: Stdio<'_>,
        outside: &Path,
    ) -> Result<Fenced, LaunchError> {
        let leaf = self.cgroups.as_ref().map(|host| host.leaf(&plan.cgroup)).transpose()?.flatten();
        match self.start_in(leaf.as_ref(), plan, command, stdio, outside) {
            Ok(mut fenced) => {
                fenced.leaf = leaf;
                Ok(fenced)
            }
            Err(error) => {
                if let Some(leaf) = leaf {
                    leaf.remove();
                }
                Err(error)
            }
        }
    }

    fn start_in(
        &self,
        leaf: Option<&CgroupLeaf>,
        plan: &Plan,
        command: Option<(RequestedCommand, Option<&PassedFiles>)>,
        stdio: Stdio<'_>,
        outside: &Path,
    ) -> Result<Fenced, LaunchError> {
        let (command, passed) = command.unzip();
        let passed = passed.flatten();
        let program = command.as_ref().map(|command| command.program.clone()).unwrap_or_default();
        let members = leaf.map(CgroupLeaf::member_files).transpose()?.unwrap_or_default();
        let mounts = plan.staged.as_ref().map(StagedScope::mounts).transpose()?.unwrap_or_default();
        let mut request = LaunchRequest {
            steps: plan.steps.clone(),
            command,
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            umask: current_umask(),
            cgroups: members.len(),
            mounts: mounts.len(),
            files: passed.map_or(0, |passed| passed.files().len()),
            group: leaf.map(CgroupLeaf::as_requested),
            canaries: Canaries {
                outside: outside.to_owned(),
                denied: plan.denied.clone(),
                foreign_calls: self.is_first_of_its_kind(plan),
                host: HostIdentity::read()?,
            },
        };
        request.name_passed_files(passed);
        let ours: Vec<OwnedFd> = members.into_iter().chain(mounts).collect();
        let files = passed.map(PassedFiles::files).unwrap_or_default();
        let more: Vec<BorrowedFd<'_>> =
            ours.iter().map(AsFd::as_fd).chain(files.iter().map(|file| file.as_fd())).collect();
        self.spawn_launcher(plan, &request, stdio, &more)?.follow(plan, &program, outside)
    }

    /// Whether the costly canary is still to be tried for this kind of filter.
    fn is_first_of_its_kind(&self, plan: &Plan) -> bool {
        self.tried.lock().insert(plan.steps.seccomp.clone())
    }

    fn spawn_launcher(
        &self,
        plan: &Plan,
        request: &LaunchRequest,
        stdio: Stdio<'_>,
        more: &[BorrowedFd<'_>],
    ) -> Result<Channels, LaunchError> {
        let request = sealed(&serde_json::to_vec(request).map_err(io::Error::other)?)?;
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (events, events_end) = pipe()?;
        let (lifeline_end, lifeline) = pipe()?;
        let (listeners, listeners_end) = listeners_channel(plan)?.unzip();
        let mut passed: Vec<(BorrowedFd<'_>, RawFd)> = vec![
            (stdio.stdin, 0),
            (stdio.stdout, 1),
            (stdio.stderr, 2),
            (request.as_fd(), REQUEST_FD),
            (events_end.as_fd(), EVENTS_FD),
            (lifeline_end.as_fd(), LIFELINE_FD),
        ];
        if let Some(end) = &listeners_end {
            passed.push((end.as_fd(), LISTENERS_FD));
        }
        for (number, descriptor) in more.iter().enumerate() {
            passed.push((*descriptor, CGROUP_FD + RawFd::try_from(number).unwrap_or(0)));
        }
        let launching = SUPERVISORS.launching();
        let pid = match &self.zygote {
            Some(zygote) => zygote.launcher(&self.executable, Ahead::of(&plan.steps), &passed)?,
            None => spawn::spawn_self(&self.executable, LAUNCH_ARGUMENT, &passed)?,
        };
        Ok(Channels { launcher: pid, launching, events: Events::new(events.into()), lifeline, listeners })
    }
}

/// The umask that ringfence was started with.
fn current_umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(read_umask)
}

fn read_umask() -> u32 {
    // The system call cannot read the umask without setting it.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o022)
}

/// A file in memory that cannot be changed any more.
fn sealed(bytes: &[u8]) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("ringfence-launch-request", flags)?);
    file.write_all(bytes)?;
    file.rewind()?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL,
    )?;
    Ok(file)
}

/// The channel through which listeners come back, if the plan has any.
fn listeners_channel(plan: &Plan) -> io::Result<Option<(OwnedFd, OwnedFd)>> {
    let network = plan.steps.namespaces.as_ref().map(|namespaces| &namespaces.network);
    match network {
        Some(NetworkNamespace::Loopback { proxy, mirrored }) if *proxy || !mirrored.is_empty() => {
            fd_passing::channel().map(Some)
        }
        _ => Ok(None),
    }
}
