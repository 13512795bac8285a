//! A fence within the fence: commands that a fenced server runs for its client must not reach the server.
//!
//! All processes of one fence have the same rights, so a command could write into the server's output, read its
//! memory or kill it. [`shield_this_process`] closes the server's memory and descriptors to others, and the
//! commands live in a [`NestedDomain`]: a Landlock domain below the server's. A domain can look into and signal
//! those below it, and never the other way round.
//!
//! All commands share one domain, so that one can end what another has left running. A domain is inherited by fork
//! only. So the fork server, a child that does nothing else, enters it once and forks the commands. They are
//! children of the server all the same.

mod child_side;
mod exec_page;
mod fork_server;
#[cfg(test)]
mod tests;

use std::ffi::CString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use landlock::{
    AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
};
use parking_lot::Mutex;
use rustix::process::{DumpableBehavior, Pid};

use self::exec_page::ExecPage;
use self::fork_server::{ForkServer, SpawnError};
use crate::kernel_features::landlock_version;

/// The first version of Landlock that can allow renames from one directory to another. Before it, any domain
/// forbids them.
const FIRST_WITH_REFER: u32 = 2;
/// The first version that can forbid signals to processes outside the domain.
const FIRST_WITH_SCOPES: u32 = 6;

/// Hides the memory and descriptors of this process from all but root and its ancestors in Landlock's sense, and makes
/// it adopt orphans of its children, so that it can end them.
pub fn shield_this_process() -> io::Result<()> {
    // A parent that ignores SIGCHLD passes that on, and the ends of children would go unnoticed.
    // SAFETY: the default action is valid for this signal.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// The Landlock domain in which all commands of this process run.
#[derive(Debug)]
pub struct NestedDomain {
    /// `None` if this kernel has no Landlock, or one that cannot nest without forbidding renames.
    ruleset: Option<OwnedFd>,
    version: u32,
    entrance: Mutex<Entrance>,
}

#[derive(Debug)]
struct Entrance {
    page: ExecPage,
    /// Started with the first command, and again after it was killed.
    fork_server: Option<ForkServer>,
}

/// A program to start in the domain.
#[derive(Clone, Debug)]
pub struct NestedCommand {
    /// An absolute path; the `PATH` is not searched.
    pub program: CString,
    /// The first is the name of the program.
    pub arguments: Vec<CString>,
    /// The whole environment, as `NAME=value`.
    pub environment: Vec<CString>,
}

impl NestedDomain {
    pub fn prepare() -> io::Result<Self> {
        Self::prepare_for(landlock_version())
    }

    fn prepare_for(version: u32) -> io::Result<Self> {
        let ruleset = if version < FIRST_WITH_REFER {
            None
        } else {
            rules(version >= FIRST_WITH_SCOPES).map_err(io::Error::other)?
        };
        Ok(Self {
            ruleset,
            version,
            entrance: Mutex::new(Entrance { page: ExecPage::new()?, fork_server: None }),
        })
    }

    /// Whether commands are kept from the server's memory and descriptors even if they run as root.
    pub fn protects_memory(&self) -> bool {
        self.ruleset.is_some()
    }

    /// Whether commands are kept from signalling the server and other processes outside their domain.
    pub fn protects_signals(&self) -> bool {
        self.ruleset.is_some() && self.version >= FIRST_WITH_SCOPES
    }

    /// Starts a child in a session of its own, in the directory behind the descriptor: no path is resolved
    /// again. Its input is empty; its output and its errors go to `output`; it has no other descriptors.
    pub fn spawn(
        &self,
        command: &NestedCommand,
        directory: BorrowedFd<'_>,
        output: BorrowedFd<'_>,
    ) -> io::Result<Pid> {
        let mut entrance = self.entrance.lock();
        let Entrance { page, fork_server } = &mut *entrance;
        page.write(command)?;
        if let Some(present) = fork_server {
            match present.spawn_command(directory, output) {
                // A command has killed it. Start another.
                Err(SpawnError::Absent(_)) => {}
                Err(SpawnError::Lost(error)) => {
                    *fork_server = None;
                    return Err(error);
                }
                Err(SpawnError::Command(error)) => return Err(error),
                Ok(pid) => return Ok(pid),
            }
        }
        let fresh = fork_server.insert(ForkServer::start(self.ruleset.as_ref(), page)?);
        fresh.spawn_command(directory, output).map_err(SpawnError::into_error)
    }
}

/// A ruleset that does not handle renames forbids them once an outer ruleset restricts files. So this one handles them
/// and allows them everywhere: what the fence allows stays allowed, and nothing else is.
fn rules(with_scopes: bool) -> Result<Option<OwnedFd>, Box<dyn std::error::Error + Send + Sync>> {
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::Refer)?;
    if with_scopes {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    }
    let everywhere = PathBeneath::new(PathFd::new("/")?, AccessFs::Refer);
    Ok(ruleset.create()?.add_rule(everywhere)?.into())
}
