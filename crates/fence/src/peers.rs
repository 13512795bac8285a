//! Finds out which process is at the other end of a TCP connection of this host, because no process inside a fence may
//! use the gateway.
//!
//! It looks up the socket at the other end (`socket`), then the processes that hold it (`holders`), then their
//! ancestors: descendants of a supervisor are fenced.
//!
//! Limits: a fenced process can pass its socket to a process outside over a unix socket, if its policy allows those. It
//! is then taken for that process once it has closed the socket itself, or at once if the gateway knows the other
//! process as a client. Fences of another ringfence process are not known here. A client that hides its descriptors
//! cannot be identified, and is refused while fences exist.

mod holders;
mod route;
mod socket;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use parking_lot::{Mutex, MutexGuard};

use crate::supervisor_registry::{SUPERVISORS, Snapshot, Supervisors};
use holders::{Look, Process};

/// Clients that are looked at first. A host has a handful, each with many connections.
const MAX_REMEMBERED: usize = 8;

/// Who holds the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process outside all fences, or another host.
    Outside,
    /// A process inside one of our fences, or this process on behalf of one.
    Fenced,
    /// Not found: the other end is closed already, or is being passed between processes. To be refused.
    Unknown,
}

/// Judges peers, and remembers clients so that their next connections cost less.
#[derive(Debug)]
pub struct Peers {
    supervisors: &'static Supervisors,
    /// The newest first.
    remembered: Mutex<VecDeque<Client>>,
}

/// A process that was found outside all fences. It stays outside, because its ancestors decide.
#[derive(Clone, Copy, Debug)]
struct Client {
    process: Process,
    /// Pids are used again, by processes that started later.
    start: u64,
}

impl Default for Peers {
    fn default() -> Self {
        Self::new()
    }
}

impl Peers {
    pub fn new() -> Self {
        Self::with(&SUPERVISORS)
    }

    fn with(supervisors: &'static Supervisors) -> Self {
        Self { supervisors, remembered: Mutex::default() }
    }

    /// Whether any process inside a fence could connect.
    pub fn are_needed(&self) -> bool {
        let supervisors = self.supervisors.snapshot();
        supervisors.is_launching || !supervisors.is_empty()
    }

    /// Judges the peer of a connection that was accepted at `local`. Blocks, on the kernel alone.
    pub fn judge(&self, peer: SocketAddr, local: SocketAddr) -> Peer {
        // Before all else: what has connected by now descends from a supervisor that is known by now.
        let supervisors = self.supervisors.snapshot();
        let (peer, local) = (canonical(peer), canonical(local));
        match socket::find(peer, local) {
            Ok(Some(found)) if found.inode == 0 => Peer::Unknown,
            Ok(Some(found)) if found.user != rustix::process::geteuid().as_raw() => Peer::Outside,
            Ok(Some(found)) => self.judge_holder(found.inode, &supervisors),
            Ok(None) if is_of_this_host(peer) => Peer::Unknown,
            Ok(None) => Peer::Outside,
            Err(_) => Peer::Unknown,
        }
    }

    fn judge_holder(&self, inode: u32, supervisors: &Snapshot) -> Peer {
        let remembered: Vec<Client> = self.lock().iter().copied().collect();
        for Client { process, start } in remembered {
            if process.look_for(inode) == Look::Holds && process.start() == Some(start) {
                return Peer::Outside;
            }
        }
        let findings = Findings::of_all(inode, supervisors);
        let verdict = findings.verdict();
        if let (Peer::Outside, Some(process)) = (verdict, findings.outside) {
            self.remember(process);
        }
        verdict
    }

    fn remember(&self, process: Process) {
        let Some(start) = process.start() else { return };
        let mut remembered = self.lock();
        remembered.retain(|client| client.process != process);
        remembered.push_front(Client { process, start });
        remembered.truncate(MAX_REMEMBERED);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Client>> {
        self.remembered.lock()
    }
}

/// What looking at every process of this user has shown.
#[derive(Debug, Default)]
struct Findings {
    /// A holder of the socket is fenced, is this process, or cannot be judged.
    worst: Option<Peer>,
    /// A holder outside all fences.
    outside: Option<Process>,
    /// A process inside a fence hides its descriptors.
    is_hidden_inside: bool,
}

impl Findings {
    fn of_all(inode: u32, supervisors: &Snapshot) -> Self {
        let mut findings = Self::default();
        let Ok(processes) = holders::processes_of_this_user() else { return findings };
        for process in &processes {
            findings.add(*process, process.look_for(inode), supervisors);
        }
        if findings.is_empty() {
            // A thread can have descriptors of its own.
            for process in &processes {
                findings.add(*process, process.look_for_in_threads(inode), supervisors);
            }
        }
        findings
    }

    fn is_empty(&self) -> bool {
        self.worst.is_none() && self.outside.is_none()
    }

    /// Continues after a holder was found outside, because several processes can hold a socket.
    fn add(&mut self, process: Process, look: Look, supervisors: &Snapshot) {
        match look {
            Look::HoldsNot => {}
            Look::Holds => match judge_process(process, supervisors) {
                Peer::Outside => self.outside = Some(process),
                Peer::Fenced => self.worst = Some(Peer::Fenced),
                Peer::Unknown => self.worst = self.worst.or(Some(Peer::Unknown)),
            },
            // Supervisors hide theirs and hold no sockets.
            Look::Hidden if supervisors.has(process.number()) => {}
            Look::Hidden => self.is_hidden_inside |= judge_process(process, supervisors) != Peer::Outside,
        }
    }

    fn verdict(&self) -> Peer {
        match (self.worst, self.outside) {
            (Some(worst), _) => worst,
            (None, Some(_)) => Peer::Outside,
            (None, None) if self.is_hidden_inside => Peer::Fenced,
            (None, None) => Peer::Unknown,
        }
    }
}

/// Where a process stands, by its ancestors.
fn judge_process(process: Process, supervisors: &Snapshot) -> Peer {
    // Only for a fence does this process connect to its own host, and a supervisor for none.
    if process.is_this_one() || supervisors.has(process.number()) {
        return Peer::Fenced;
    }
    match process.ancestors() {
        Some(ancestors) if ancestors.iter().any(|process| supervisors.has(process.number())) => Peer::Fenced,
        // Its supervisor may be one that has not been entered yet.
        Some(ancestors)
            if supervisors.is_launching && ancestors.iter().any(|process| process.is_this_one()) =>
        {
            Peer::Unknown
        }
        Some(_) => Peer::Outside,
        None => Peer::Unknown,
    }
}

/// An IPv4 address in its own form: that is how the kernel files the connection.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::from((ip, address.port())),
        IpAddr::V6(_) => address,
    }
}

/// Whether an address is one of this host's. A missing socket then is one that was closed, and what was sent
/// through it before must not be trusted.
fn is_of_this_host(address: SocketAddr) -> bool {
    address.ip().is_loopback() || route::leads_to_this_host(address).unwrap_or(true)
}

#[cfg(test)]
mod tests;
