//! The parent's side of a launch: starts the launcher, tells it what to do, and waits for what it says.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions};
use thiserror::Error;

use crate::cgroup::{CgroupHost, CgroupLeaf, LimitHit};
use crate::confinement::Confinement;
use crate::kernel::Kernel;
use crate::launcher;
use crate::network::Listeners;
use crate::order::{
    CGROUP_FD, Canaries, DeniedCanary, EVENTS_FD, Event, LAUNCH_ARGUMENT, LIFELINE_FD, LISTENERS_FD,
    MAX_EVENT, ORDER_FD, Order, OrderedCommand,
};
use crate::plan::{NetworkNamespace, Plan, SeccompPlan};
use crate::policy::{Command, Tier};
use crate::raw_path::Raw;
use crate::supervisor_registry::{Launching, Registration, SUPERVISORS};
use crate::zygote::Zygote;
use crate::{passing, spawn};

/// A launcher that says nothing for so long is stuck, on a dead network mount perhaps.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts commands inside fences.
#[derive(Debug)]
pub struct Launcher {
    executable: PathBuf,
    cgroups: Option<CgroupHost>,
    /// A launcher that is loaded already, where many are needed.
    zygote: Option<Zygote>,
    /// Filters whose costly canary was tried since this process began.
    tried: Mutex<HashSet<SeccompPlan>>,
}

/// What the command is given as standard input, output and error. Pipes, files, terminals; never sockets.
#[derive(Clone, Copy, Debug)]
pub struct Stdio<'a> {
    pub stdin: BorrowedFd<'a>,
    pub stdout: BorrowedFd<'a>,
    pub stderr: BorrowedFd<'a>,
}

/// Why nothing runs.
#[derive(Debug, Error)]
pub enum LaunchError {
    #[error("the fence could not be put up: {step}: {reason}")]
    Refused { step: String, reason: String },
    #[error("{}: {error}", .program.display())]
    Exec { program: PathBuf, error: io::Error },
    #[error("the launcher ended without a word")]
    Lost,
    #[error("the launcher did not come to an end within {} seconds", PATIENCE.as_secs())]
    Stuck,
    #[error("cannot start the launcher: {0}")]
    Io(#[from] io::Error),
}

impl From<rustix::io::Errno> for LaunchError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl Default for Launcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Launcher {
    /// The launcher that is this very program, which must call [`crate::run_if_launcher`] first in `main`.
    pub fn new() -> Self {
        Self::with_executable(Path::new("/proc/self/exe"))
    }

    /// Another binary as the launcher.
    pub fn with_executable(executable: &Path) -> Self {
        Self {
            executable: executable.to_owned(),
            cgroups: CgroupHost::find(),
            zygote: None,
            tried: Mutex::default(),
        }
    }

    /// For a process that launches often: keeps a loaded launcher ready, which makes each launch faster and
    /// lets the supervisors share their memory.
    #[must_use]
    pub fn with_zygote(self) -> Self {
        Self { zygote: Some(Zygote::default()), ..self }
    }

    /// Finds out what this host offers.
    pub fn kernel(&self) -> Kernel {
        Kernel {
            landlock: spawn::landlock_version(),
            seccomp: spawn::has_seccomp_filters(),
            namespaces: launcher::probe_namespaces(&self.executable),
            limits: self.cgroups.as_ref().map(CgroupHost::support).unwrap_or_default(),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// Starts a command inside the fence that `plan` describes. `outside` is a directory of ours that the
    /// command must not be able to write in; the launcher tries.
    pub fn launch(
        &self,
        plan: &Plan,
        command: &Command,
        stdio: Stdio<'_>,
        outside: &Path,
    ) -> Result<Fenced, LaunchError> {
        let ordered = OrderedCommand {
            program: command.program.clone(),
            arguments: command.arguments.iter().cloned().map(Raw::from).collect(),
            environment: command
                .environment
                .iter()
                .map(|(name, value)| (Raw::from(name.clone()), Raw::from(value.clone())))
                .collect(),
            directory: command.directory.clone(),
        };
        self.start(plan, Some(ordered), stdio, outside)
    }

    /// Puts the fence up around nothing, and tells what held.
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
        command: Option<OrderedCommand>,
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
        command: Option<OrderedCommand>,
        stdio: Stdio<'_>,
        outside: &Path,
    ) -> Result<Fenced, LaunchError> {
        let program = command.as_ref().map(|command| command.program.clone()).unwrap_or_default();
        let members = leaf.map(CgroupLeaf::member_files).transpose()?.unwrap_or_default();
        let order = Order {
            steps: plan.steps.clone(),
            command,
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            umask: current_umask(),
            cgroups: members.len(),
            canaries: Canaries {
                outside: outside.to_owned(),
                denied: denied_canary(plan),
                foreign_calls: self.is_first_of_its_kind(plan),
            },
        };
        self.spawn_launcher(plan, &order, stdio, &members)?.follow(plan, &program)
    }

    /// The costly canary is tried once for each kind of filter.
    fn is_first_of_its_kind(&self, plan: &Plan) -> bool {
        self.tried.lock().insert(plan.steps.seccomp.clone())
    }

    fn spawn_launcher(
        &self,
        plan: &Plan,
        order: &Order,
        stdio: Stdio<'_>,
        members: &[OwnedFd],
    ) -> Result<Channels, LaunchError> {
        let order = sealed(&serde_json::to_vec(order).map_err(io::Error::other)?)?;
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (events, events_end) = pipe()?;
        let (lifeline_end, lifeline) = pipe()?;
        let (listeners, listeners_end) = listeners_channel(plan)?.unzip();
        let mut passed: Vec<(BorrowedFd<'_>, RawFd)> = vec![
            (stdio.stdin, 0),
            (stdio.stdout, 1),
            (stdio.stderr, 2),
            (order.as_fd(), ORDER_FD),
            (events_end.as_fd(), EVENTS_FD),
            (lifeline_end.as_fd(), LIFELINE_FD),
        ];
        if let Some(end) = &listeners_end {
            passed.push((end.as_fd(), LISTENERS_FD));
        }
        for (number, member) in members.iter().enumerate() {
            passed.push((member.as_fd(), CGROUP_FD + RawFd::try_from(number).unwrap_or(0)));
        }
        let launching = SUPERVISORS.launching();
        let pid = match &self.zygote {
            Some(zygote) => zygote.launcher(&self.executable, &passed)?,
            None => spawn::spawn_self(&self.executable, LAUNCH_ARGUMENT, &passed)?,
        };
        Ok(Channels { launcher: pid, launching, events: Events::new(events.into()), lifeline, listeners })
    }
}

/// Asked once: it is the one that ringfence was started with.
fn current_umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(read_umask)
}

fn read_umask() -> u32 {
    // The value cannot be asked for without being set; the kernel tells it here.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o022)
}

fn denied_canary(plan: &Plan) -> Option<DeniedCanary> {
    let path = &plan.denied.as_ref()?.path;
    let metadata = path.metadata().ok()?;
    Some(DeniedCanary { path: path.clone(), device: metadata.dev(), inode: metadata.ino() })
}

/// A file in memory that nobody can change any more.
fn sealed(bytes: &[u8]) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("ringfence-order", flags)?);
    file.write_all(bytes)?;
    file.rewind()?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL,
    )?;
    Ok(file)
}

/// Only where listeners are to come back.
fn listeners_channel(plan: &Plan) -> io::Result<Option<(OwnedFd, OwnedFd)>> {
    let network = plan.steps.namespaces.as_ref().map(|namespaces| &namespaces.network);
    match network {
        Some(NetworkNamespace::Loopback { proxy, mirrored }) if *proxy || !mirrored.is_empty() => {
            passing::channel().map(Some)
        }
        _ => Ok(None),
    }
}

/// The parent's ends of what a launcher was started with.
struct Channels {
    launcher: Pid,
    /// Until the supervisor is entered among the others.
    launching: Launching,
    events: Events,
    lifeline: OwnedFd,
    listeners: Option<OwnedFd>,
}

impl Channels {
    /// Listens to the launcher until the command runs, or will not.
    fn follow(mut self, plan: &Plan, program: &Path) -> Result<Fenced, LaunchError> {
        let mut supervisor = (plan.tier == Tier::A).then_some(self.launcher);
        let mut registration = supervisor.map(|supervisor| SUPERVISORS.enter(supervisor));
        let mut confinement = plan.confinement.clone();
        let mut outcome = None;
        // What the supervisor says may arrive before the launcher proper has said who the supervisor is.
        while outcome.is_none() || supervisor.is_none() {
            let news = match self.events.next(Some(PATIENCE)) {
                Ok(Some(Event::Supervisor { pid })) => {
                    supervisor = Pid::from_raw(pid);
                    registration = supervisor.map(|supervisor| SUPERVISORS.enter(supervisor));
                    continue;
                }
                Ok(Some(Event::Confined { shown })) => {
                    confinement.confirm(&shown);
                    continue;
                }
                Ok(Some(event)) => outcome_of(event, program),
                Ok(None) => Err(LaunchError::Lost),
                Err(error) => Err(error),
            };
            let is_last = matches!(news, Err(LaunchError::Lost | LaunchError::Stuck | LaunchError::Io(_)));
            outcome = Some(later(outcome, news));
            if is_last {
                break;
            }
        }
        if supervisor != Some(self.launcher) {
            // It has handed over to its sibling, or given up, or will do neither.
            if supervisor.is_none() && matches!(outcome, Some(Err(LaunchError::Stuck))) {
                let _ = rustix::process::kill_process(self.launcher, Signal::KILL);
            }
            let _ = rustix::process::waitpid(Some(self.launcher), WaitOptions::empty());
        }
        match (outcome.unwrap_or(Err(LaunchError::Lost)), supervisor.zip(registration)) {
            (Ok(ending), Some((supervisor, registration))) => {
                self.into_fenced(supervisor, registration, confinement, ending)
            }
            (Err(error), Some((supervisor, registration))) => {
                self.abandon(supervisor, &error);
                registration.reaped();
                Err(error)
            }
            (Ok(_), None) => Err(LaunchError::Lost),
            (Err(error), None) => Err(error),
        }
    }

    fn into_fenced(
        self,
        supervisor: Pid,
        registration: Registration,
        confinement: Confinement,
        ending: Option<Ending>,
    ) -> Result<Fenced, LaunchError> {
        let listeners = self.listeners.as_ref().map(receive_listeners).transpose()?.unwrap_or_default();
        drop(self.launching);
        Ok(Fenced {
            supervisor,
            registration: Some(registration),
            pidfd: rustix::process::pidfd_open(supervisor, PidfdFlags::empty())?,
            events: self.events,
            lifeline: Some(self.lifeline),
            confinement,
            listeners,
            leaf: None,
            ending,
        })
    }

    /// Nothing runs; what was there for it goes.
    fn abandon(self, supervisor: Pid, error: &LaunchError) {
        drop(self.lifeline);
        if matches!(error, LaunchError::Stuck) {
            let _ = rustix::process::kill_process(supervisor, Signal::KILL);
        }
        let _ = rustix::process::waitpid(Some(supervisor), WaitOptions::empty());
    }
}

/// The first news decides, but a command that started may have ended by now.
fn later(
    outcome: Option<Result<Option<Ending>, LaunchError>>,
    news: Result<Option<Ending>, LaunchError>,
) -> Result<Option<Ending>, LaunchError> {
    match (outcome, news) {
        (Some(Ok(None)), Ok(ended)) => Ok(ended),
        (Some(outcome), _) => outcome,
        (None, news) => news,
    }
}

/// What an event that decides a launch means. An end before a start is that of a rehearsal.
fn outcome_of(event: Event, program: &Path) -> Result<Option<Ending>, LaunchError> {
    match event {
        Event::Ended { code, signal } => Ok(Some(Ending { code, signal, limit: None })),
        Event::Refused { step, reason } => Err(LaunchError::Refused { step, reason }),
        Event::ExecFailed { errno } => {
            let error = io::Error::from_raw_os_error(errno);
            Err(LaunchError::Exec { program: program.to_owned(), error })
        }
        Event::Started | Event::Supervisor { .. } | Event::Confined { .. } => Ok(None),
    }
}

/// The lines that a launcher writes.
#[derive(Debug)]
struct Events {
    pipe: File,
    unread: Vec<u8>,
}

impl Events {
    fn new(pipe: File) -> Self {
        Self { pipe, unread: Vec::new() }
    }

    /// The next event; `None` at the end.
    fn next(&mut self, patience: Option<Duration>) -> Result<Option<Event>, LaunchError> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(|_| LaunchError::Lost);
            }
            if !self.wait(deadline)? {
                return Err(LaunchError::Stuck);
            }
            let mut bytes = [0; MAX_EVENT];
            let read = match self.pipe.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if read == 0 {
                return Ok(None);
            }
            self.unread.extend_from_slice(&bytes[..read]);
        }
    }

    fn wait(&self, deadline: Option<Instant>) -> Result<bool, LaunchError> {
        let Some(deadline) = deadline else { return Ok(true) };
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn receive_listeners(channel: &OwnedFd) -> Result<Listeners, LaunchError> {
    let mut text = vec![0; 16 * 1024];
    let (length, descriptors) = passing::receive(channel, &mut text, RecvFlags::DONTWAIT)?;
    let names: Vec<String> = serde_json::from_slice(&text[..length]).map_err(|_| LaunchError::Lost)?;
    let mut listeners = Listeners::default();
    for (name, descriptor) in names.iter().zip(descriptors) {
        match name.as_str() {
            "proxy" => listeners.proxy = Some(descriptor.into()),
            "dns" => listeners.dns = Some(descriptor.into()),
            port => {
                let port = port.parse().map_err(|_| LaunchError::Lost)?;
                listeners.mirrored.push((port, descriptor.into()));
            }
        }
    }
    Ok(listeners)
}

/// A command inside its fence.
#[derive(Debug)]
pub struct Fenced {
    /// The process that waits for the command: PID 1 of its namespace, or its supervisor.
    supervisor: Pid,
    /// Makes the tree known as fenced, until the supervisor is reaped.
    registration: Option<Registration>,
    pidfd: OwnedFd,
    events: Events,
    /// While this is open, the tree may live.
    lifeline: Option<OwnedFd>,
    pub confinement: Confinement,
    /// What the command's private network is served through, if it has one.
    pub listeners: Listeners,
    leaf: Option<CgroupLeaf>,
    ending: Option<Ending>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// A limit that stood in its way.
    pub limit: Option<LimitHit>,
}

impl Ending {
    /// As shells say it.
    pub fn exit_code(&self) -> i32 {
        self.code.or_else(|| self.signal.map(|signal| 128 + signal)).unwrap_or(128 + libc::SIGKILL)
    }
}

impl Fenced {
    /// The process to watch from outside.
    pub fn supervisor(&self) -> Pid {
        self.supervisor
    }

    /// Readable when the supervisor has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Passes a signal on to the command and its children.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.pidfd, signal)?)
    }

    /// Kills the whole tree. It is gone when [`Self::wait`] returns.
    pub fn kill(&mut self) {
        self.lifeline = None;
    }

    /// Resolves when the command and all that it started have ended; then [`Self::wait`] does not block.
    pub async fn ended(&self) -> io::Result<()> {
        let pidfd = self.pidfd.try_clone()?;
        // SAFETY: the descriptor belongs to what is registered, so it stays open as long as that lives.
        let pidfd = unsafe { tokio::io::unix::AsyncFd::register(pidfd) }?;
        let _ = pidfd.readable().await?;
        Ok(())
    }

    /// Waits until the command and all that it started have ended.
    pub fn wait(&mut self) -> Result<Ending, LaunchError> {
        let mut ending = self.ending;
        while let Some(event) = self.events.next(None)? {
            if let Event::Ended { code, signal } = event {
                ending = Some(Ending { code, signal, limit: None });
            }
        }
        let reap = || rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        while matches!(reap(), Err(rustix::io::Errno::INTR)) {}
        if let Some(registration) = self.registration.take() {
            registration.reaped();
        }
        self.lifeline = None;
        let mut ending = ending.unwrap_or(Ending { code: None, signal: Some(libc::SIGKILL), limit: None });
        if let Some(leaf) = self.leaf.take() {
            ending.limit = leaf.limit_hit();
            leaf.remove();
        }
        self.ending = Some(ending);
        Ok(ending)
    }

    /// A second hold on the supervisor, for signals while another thread waits.
    pub fn remote(&mut self) -> io::Result<Remote> {
        Ok(Remote { pidfd: self.pidfd.try_clone()?, lifeline: self.lifeline.take() })
    }
}

/// What ends a fenced tree while somebody else waits for it.
#[derive(Debug)]
pub struct Remote {
    pidfd: OwnedFd,
    lifeline: Option<OwnedFd>,
}

impl Remote {
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.pidfd, signal)?)
    }

    pub fn kill(&mut self) {
        self.lifeline = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows a launch in which the events arrive in this order.
    fn follow(events: &[Event]) -> Result<Fenced, LaunchError> {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let (_, lifeline) = rustix::pipe::pipe().unwrap();
        let mut writer = File::from(writer);
        for event in events {
            writeln!(writer, "{}", serde_json::to_string(event).unwrap()).unwrap();
        }
        drop(writer);
        let channels = Channels {
            launcher: child(),
            launching: SUPERVISORS.launching(),
            events: Events::new(reader.into()),
            lifeline,
            listeners: None,
        };
        let plan = crate::plan::tests::tier_b();
        channels.follow(&plan, Path::new("/bin/true"))
    }

    /// A process that ends at once and waits to be reaped.
    fn child() -> Pid {
        Pid::from_child(&std::process::Command::new("true").spawn().unwrap())
    }

    #[test]
    fn a_command_that_ends_before_its_supervisor_is_known_has_ended_all_the_same() {
        let supervisor = child().as_raw_nonzero().get();
        let ended = Event::Ended { code: Some(7), signal: None };
        let mut fenced = follow(&[Event::Started, ended, Event::Supervisor { pid: supervisor }]).unwrap();
        assert_eq!(fenced.wait().unwrap().code, Some(7));
    }

    #[test]
    fn a_refusal_counts_whoever_says_it() {
        let refused = || Event::Refused { step: "x".to_owned(), reason: "y".to_owned() };
        let supervisor = Event::Supervisor { pid: child().as_raw_nonzero().get() };
        assert!(matches!(follow(&[refused(), supervisor]), Err(LaunchError::Refused { .. })));
        assert!(matches!(follow(&[refused()]), Err(LaunchError::Refused { .. })));
        assert!(matches!(follow(&[]), Err(LaunchError::Lost)));
    }
}
