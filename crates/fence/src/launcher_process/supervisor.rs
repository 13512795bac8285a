//! The supervisor: the process that waits for the command and kills everything the command started. In Tier B it is PID
//! 1 of the pid namespace, in Tier A a process outside the fence that adopts orphans. It ends the tree when the
//! command ends, when the parent closes the lifeline, and when the parent ends.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::{InStep, StepError, report, sys};
use crate::launch_request::{Event, LIFELINE_FD};
use crate::mount_table::MountTable;
use crate::process_table::children_of;

/// Signals that are passed on to the command.
const FORWARDED: &[i32] = &[
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGCONT,
];

/// The exit code when the whole tree had to be killed.
const KILLED: i32 = 128 + libc::SIGKILL;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The first process of a pid namespace. The kernel kills the others when it ends.
    Init,
    /// A process outside the fence that adopts orphans of its descendants.
    Outside,
}

pub(super) struct Supervisor {
    role: Role,
    signals: OwnedFd,
    kept: Option<KeptMounts>,
}

/// Both sides of a fork, with the pipe on which the child reports why it did not become the command.
pub(super) enum Forked {
    Child { failure: File },
    Parent { command: Pid, failure: File },
}

/// Forks the future command.
pub(super) fn fork() -> Result<Forked, StepError> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("pipe")?;
    match sys::fork().step("fork")? {
        0 => {
            // A session of its own, so that signals reach the command with its children.
            rustix::process::setsid().step("setsid")?;
            Ok(Forked::Child { failure: writer.into() })
        }
        pid => {
            let command = Pid::from_raw(pid).ok_or_else(|| StepError::new("fork", "no pid"))?;
            Ok(Forked::Parent { command, failure: reader.into() })
        }
    }
}

/// In the child: reports why it did not become the command.
pub(super) fn tell_failure(mut pipe: File, errno: i32) {
    let _ = pipe.write_all(&errno.to_ne_bytes());
}

/// In the parent: reads that report. The pipe closes without data when the child has become the command.
pub(super) fn read_failure(mut pipe: File) -> Option<i32> {
    let mut errno = [0; 4];
    pipe.read_exact(&mut errno).is_ok().then(|| i32::from_ne_bytes(errno))
}

impl Supervisor {
    /// Blocks the watched signals, which are read from a descriptor from now on.
    /// `kept` are the paths whose mounts must stay.
    pub(super) fn prepare(role: Role, kept: &[PathBuf]) -> Result<Self, StepError> {
        if role == Role::Outside {
            rustix::process::set_child_subreaper(Some(rustix::process::getpid())).step("subreaper")?;
        }
        let watched: Vec<i32> = FORWARDED.iter().copied().chain([libc::SIGCHLD]).collect();
        let kept = (!kept.is_empty()).then(|| KeptMounts::watch(kept)).transpose()?;
        Ok(Self { role, signals: sys::signal_descriptor(&watched).step("signalfd")?, kept })
    }

    /// Waits until the command and everything it started have ended.
    pub(super) fn watch(self, command: Pid) -> ! {
        release_what_the_command_holds();
        report(&Event::Started);
        loop {
            let have_mounts_changed = self.wait_for_something();
            if lifeline_is_cut() {
                self.end_all(command, None);
            }
            if have_mounts_changed && let Some(path) = self.kept.as_ref().and_then(KeptMounts::lost) {
                report(&Event::MountLost { path: path.to_owned() });
                self.end_all(command, None);
            }
            while let Some(signal) = sys::next_signal(self.signals.as_fd()) {
                if signal != libc::SIGCHLD {
                    // The group first: the command's own children get what a terminal would send them.
                    let _ = sys::kill(-command.as_raw_nonzero().get(), signal);
                }
            }
            if let Some(status) = reap_ended(command) {
                self.end_all(command, Some(status));
            }
        }
    }

    /// Returns true if a mount came or went.
    fn wait_for_something(&self) -> bool {
        let lifeline = lifeline();
        let mut descriptors =
            vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&lifeline, PollFlags::IN)];
        descriptors.extend(self.kept.as_ref().map(|kept| PollFd::new(&kept.table, PollFlags::PRI)));
        let _ = poll(&mut descriptors, None);
        descriptors.get(2).is_some_and(|table| !table.revents().is_empty())
    }

    /// Kills what is left, reports how the command ended, and ends itself.
    fn end_all(&self, command: Pid, mut status: Option<WaitStatus>) -> ! {
        loop {
            match self.role {
                Role::Init => {
                    let _ = sys::kill(-1, libc::SIGKILL);
                }
                Role::Outside => kill_descendants(),
            }
            match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, ended))) if pid == command => status = status.or(Some(ended)),
                Ok(_) => {}
                // No child is left.
                Err(_) => break,
            }
        }
        let code = status.and_then(WaitStatus::exit_status);
        let signal = status.and_then(WaitStatus::terminating_signal);
        report(&Event::Ended { code, signal });
        sys::exit(code.or_else(|| signal.map(|signal| 128 + signal)).unwrap_or(KILLED))
    }
}

/// Mounts that must stay for as long as the command runs. The kernel takes a mount away when a program outside the
/// namespace removes its place, as an editor does that saves a file under another name first. The file would be writable
/// then, so the command has to end.
struct KeptMounts {
    /// The table of mounts, which tells when it changes.
    table: File,
    paths: Vec<PathBuf>,
}

impl KeptMounts {
    fn watch(paths: &[PathBuf]) -> Result<Self, StepError> {
        let table = File::open("/proc/self/mountinfo").step("mount table")?;
        Ok(Self { table, paths: paths.to_vec() })
    }

    /// Returns a path whose mount is gone. A table that cannot be read shows none.
    fn lost(&self) -> Option<&Path> {
        let mut text = Vec::new();
        let mut table = &self.table;
        let read = table.seek(SeekFrom::Start(0)).and_then(|_| table.read_to_end(&mut text));
        let mounts = MountTable::parse(if read.is_ok() { &text } else { b"" });
        self.paths.iter().map(PathBuf::as_path).find(|path| !mounts.has_mount_at(path))
    }
}

/// Lets go of the command's pipes and directory, so that its pipes close when it closes them.
fn release_what_the_command_holds() {
    if let Ok(nothing) = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stdout(&nothing);
        let _ = rustix::stdio::dup2_stderr(&nothing);
    }
    let _ = std::env::set_current_dir("/");
    // Hide the memory of this process from processes inside.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    sys::release_unused_memory();
}

fn lifeline() -> BorrowedFd<'static> {
    // SAFETY: the descriptor was given to this process for its whole life.
    unsafe { BorrowedFd::borrow_raw(LIFELINE_FD) }
}

fn lifeline_is_cut() -> bool {
    let lifeline = lifeline();
    let mut descriptors = [PollFd::new(&lifeline, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut descriptors, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Reaps all children that have ended. Returns the command's status if it is among them.
fn reap_ended(command: Pid) -> Option<WaitStatus> {
    let mut found = None;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid == command {
            found = Some(status);
        }
    }
    found
}

/// Kills every descendant that exists now. Orphans become children of this process and are killed in the next
/// round.
fn kill_descendants() {
    let mut unseen = vec![rustix::process::getpid()];
    while let Some(parent) = unseen.pop() {
        for child in children_of(parent) {
            let _ = rustix::process::kill_process(child, Signal::KILL);
            unseen.push(child);
        }
    }
}
