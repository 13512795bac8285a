//! Finds out which process is at the other end of a connection of this host: whose it is, and whether it is inside a
//! fence.
//!
//! It looks up the socket at the other end of a TCP connection (`socket`), which tells the user; then the processes
//! that hold it (`holders`); then whether one of them is inside a fence (`fences`).
//!
//! Limits: a fenced process can pass its socket to a process outside over a unix socket, if its policy allows those. It
//! is then taken for that process once it has closed the socket itself, or at once if this one knows the other
//! process as a client. A client that hides its descriptors cannot be identified. Where `/proc` hides other users'
//! processes (`hidepid`), no client can be.

mod fences;
mod holders;
mod route;
mod socket;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Pid;

use crate::supervisor_registry::{SUPERVISORS, Snapshot, Supervisors};
use fences::Fences;
use holders::{Identity, Look, Process};
use socket::Socket;

/// Processes of each kind that are looked at first. A host has a handful of clients, each with many connections.
const MAX_REMEMBERED: usize = 8;

/// How often a connection whose other end cannot be identified is looked at again, and how long between: a process lets
/// go of a socket before the kernel closes it.
const CLOSING_LOOKS: usize = 10;
const CLOSING_PAUSE: Duration = Duration::from_millis(2);

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Another host.
    Remote,
    /// A process of the user that this process runs as, outside all fences.
    OwnUser,
    /// A process of the user with this uid. Whether it is inside a fence is not looked at.
    OtherUser(u32),
    /// A process inside a fence, or this process on behalf of one.
    Fenced,
    /// The other end was closed before it could be judged, which every client may do. To be refused all the same: what
    /// it sent before must not be trusted.
    Gone,
    /// The other end is open and its process cannot be identified, or not yet. To be refused.
    Unknown,
}

/// Where a process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Outside,
    Fenced,
    Unknown,
}

impl Standing {
    fn as_peer(self) -> Peer {
        match self {
            Self::Outside => Peer::OwnUser,
            Self::Fenced => Peer::Fenced,
            Self::Unknown => Peer::Unknown,
        }
    }
}

/// Judges peers, and remembers processes so that their next connections cost less.
#[derive(Debug)]
pub struct Peers {
    supervisors: &'static Supervisors,
    fences: Fences,
    remembered: Mutex<Remembered>,
}

/// Processes that were judged, the newest first. No process leaves its fence and none enters one, so this stays true
/// as long as the process lives.
#[derive(Debug, Default)]
struct Remembered {
    outside: VecDeque<Identity>,
    fenced: VecDeque<Identity>,
}

impl Remembered {
    fn add(&mut self, process: Identity, standing: Standing) {
        let list = match standing {
            Standing::Outside => &mut self.outside,
            Standing::Fenced => &mut self.fenced,
            Standing::Unknown => return,
        };
        list.retain(|known| known.process != process.process);
        list.push_front(process);
        list.truncate(MAX_REMEMBERED);
    }

    fn all(&self) -> Vec<(Identity, Standing)> {
        let outside = self.outside.iter().map(|process| (*process, Standing::Outside));
        outside.chain(self.fenced.iter().map(|process| (*process, Standing::Fenced))).collect()
    }
}

impl Peers {
    /// `own` is ringfence's own directory, where its processes register their fences.
    pub fn new(own: &Path) -> Self {
        Self::with(&SUPERVISORS, own)
    }

    fn with(supervisors: &'static Supervisors, own: &Path) -> Self {
        Self { supervisors, fences: Fences::new(own), remembered: Mutex::default() }
    }

    /// Judges the peer of a TCP connection that was accepted at `local`. Blocks, on the kernel alone, and for some
    /// milliseconds more where the peer cannot be identified.
    pub fn judge(&self, peer: SocketAddr, local: SocketAddr) -> Peer {
        // Before all else: what has connected by now descends from a supervisor that is known by now.
        let supervisors = self.supervisors.snapshot();
        let (peer, local) = (canonical(peer), canonical(local));
        let found = socket::find(peer, local);
        let judged = match &found {
            Ok(Some(found)) if found.inode == 0 => Peer::Unknown,
            Ok(Some(found)) if found.user != rustix::process::geteuid().as_raw() => {
                Peer::OtherUser(found.user)
            }
            Ok(Some(found)) => self.judge_holders(found.inode, &supervisors).as_peer(),
            Ok(None) if is_of_this_host(peer) => Peer::Unknown,
            Ok(None) => Peer::Remote,
            Err(_) => Peer::Unknown,
        };
        match (judged, found) {
            (Peer::Unknown, Ok(found)) if is_being_closed(found, peer, local) => Peer::Gone,
            _ => judged,
        }
    }

    /// Judges the peer of a unix socket by what the kernel says about it. Blocks, on the kernel alone.
    ///
    /// A process that connects and ends at once can be taken for a later one with its pid; it does not see the answer.
    pub fn judge_process(&self, pid: Option<Pid>, user: u32) -> Peer {
        let supervisors = self.supervisors.snapshot();
        // Without a pid it is in a pid namespace that this process cannot see into.
        let Some(pid) = pid else { return Peer::Unknown };
        let process = Process::from_number(pid.as_raw_nonzero().get());
        match self.fences.judge(process, &supervisors) {
            Standing::Outside if user != rustix::process::geteuid().as_raw() => Peer::OtherUser(user),
            Standing::Unknown if process.identity().is_none() => Peer::Gone,
            standing => standing.as_peer(),
        }
    }

    fn judge_holders(&self, inode: u32, supervisors: &Snapshot) -> Standing {
        let remembered = self.remembered.lock().all();
        for (known, standing) in remembered {
            if known.process.look_for(inode) == Look::Holds && known.process.identity() == Some(known) {
                return standing;
            }
        }
        let findings = Findings::of_all(inode, &self.fences, supervisors);
        let standing = findings.verdict();
        if let Some(process) = findings.holder(standing).and_then(Process::identity) {
            self.remembered.lock().add(process, standing);
        }
        standing
    }
}

/// What looking at every process of this user has shown.
#[derive(Debug, Default)]
struct Findings {
    /// Holders of the socket: one inside a fence, one outside all fences.
    fenced: Option<Process>,
    outside: Option<Process>,
    /// A holder cannot be judged.
    has_unknown: bool,
    /// A process inside a fence hides its descriptors.
    is_hidden_inside: bool,
}

impl Findings {
    fn of_all(inode: u32, fences: &Fences, supervisors: &Snapshot) -> Self {
        let mut findings = Self::default();
        let Ok(processes) = holders::processes_of_this_user() else { return findings };
        for process in &processes {
            findings.add(*process, process.look_for(inode), fences, supervisors);
        }
        if findings.is_empty() {
            // A thread can have descriptors of its own.
            for process in &processes {
                findings.add(*process, process.look_for_in_threads(inode), fences, supervisors);
            }
        }
        findings
    }

    fn is_empty(&self) -> bool {
        !self.has_unknown && self.fenced.is_none() && self.outside.is_none()
    }

    /// Continues after a holder was found outside, because several processes can hold a socket.
    fn add(&mut self, process: Process, look: Look, fences: &Fences, supervisors: &Snapshot) {
        match look {
            Look::HoldsNot => {}
            Look::Holds => match fences.judge(process, supervisors) {
                Standing::Outside => self.outside = Some(process),
                Standing::Fenced => self.fenced = Some(process),
                Standing::Unknown => self.has_unknown = true,
            },
            Look::Hidden => {
                // Supervisors hide theirs and hold no sockets.
                let is_supervisor = |process| fences.is_supervisor(process, supervisors);
                if !process.identity().is_some_and(is_supervisor) {
                    self.is_hidden_inside |= fences.judge(process, supervisors) != Standing::Outside;
                }
            }
        }
    }

    fn verdict(&self) -> Standing {
        match (self.fenced, self.outside) {
            (Some(_), _) => Standing::Fenced,
            _ if self.has_unknown => Standing::Unknown,
            (None, Some(_)) => Standing::Outside,
            (None, None) if self.is_hidden_inside => Standing::Fenced,
            (None, None) => Standing::Unknown,
        }
    }

    /// The holder that the verdict is about.
    fn holder(&self, verdict: Standing) -> Option<Process> {
        match verdict {
            Standing::Outside => self.outside,
            Standing::Fenced => self.fenced,
            Standing::Unknown => None,
        }
    }
}

/// Whether the other end of a connection is closed, or closes while this looks. Not so where the socket is being passed
/// between processes, or belongs to a network that this process does not see.
fn is_being_closed(found: Option<Socket>, peer: SocketAddr, local: SocketAddr) -> bool {
    let is_closed = |other_end: Option<Socket>| match other_end {
        Some(other_end) => other_end.inode == 0,
        // This end tells whether the other one was closed, or was never to be seen from here.
        None => socket::find_own(local, peer).is_ok_and(|own| own.is_none_or(|own| !own.is_established)),
    };
    if is_closed(found) {
        return true;
    }
    (0..CLOSING_LOOKS).any(|_| {
        sleep(CLOSING_PAUSE);
        // What was not found once is not searched again: that reads long tables.
        let other_end = found.and_then(|_| socket::find(peer, local).unwrap_or(found));
        is_closed(other_end)
    })
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
