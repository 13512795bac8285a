//! Tier B: enters new namespaces, makes the listeners on their private loopback, and forks their first process.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::thread::UnshareFlags;

use super::{InStep, StepError, report, sys};
use crate::fd_passing;
use crate::launch_request::{Event, LISTENERS_FD, LaunchRequest};
use crate::network::{DNS_ADDRESS, PROXY_PORT};
use crate::plan::NetworkNamespace;

/// Enters the namespaces. Returns in their first process, a child of this process's parent; this one ends.
pub(super) fn enter(request: &LaunchRequest) -> Result<(), StepError> {
    let network = request.steps.namespaces.as_ref().map_or(&NetworkNamespace::Shared, |plan| &plan.network);
    let has_network = *network != NetworkNamespace::Shared;
    match request.steps.user {
        None => unshare(has_network).step("unshare")?,
        Some(user) => unshare_for(user, has_network)?,
    }
    name_host()?;
    listen(network)?;
    match sys::fork_sibling().step("clone")? {
        0 => Ok(()),
        pid => {
            report(&Event::Supervisor { pid });
            sys::exit(0)
        }
    }
}

/// Forks the first process of new namespaces, as a child of this process's parent, for a command that may come.
/// Returns 0 in it. It is in the control groups of this process until it joins those of the command.
pub(super) fn fork_ahead(has_network: bool) -> Result<i32, StepError> {
    let ids = OwnIds::read();
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | if has_network { libc::CLONE_NEWNET } else { 0 };
    let pid = sys::fork_sibling_into(flags).step("clone")?;
    // A child that returned with an error would take itself for the zygote.
    if pid == 0 && ids.map().step("user map").and_then(|()| name_host()).is_err() {
        sys::exit(0);
    }
    Ok(pid)
}

/// In that process: does what the command decides about, once it is known and its control groups are joined.
pub(super) fn finish_ahead(request: &LaunchRequest) -> Result<(), StepError> {
    // SAFETY: no descriptor table is unshared, and this process has one thread.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWCGROUP) }.step("unshare")?;
    listen(request.steps.namespaces.as_ref().map_or(&NetworkNamespace::Shared, |plan| &plan.network))
}

fn name_host() -> Result<(), StepError> {
    rustix::system::sethostname(b"ringfence").step("hostname")
}

/// Makes the listeners on a private loopback, and sends them to the parent.
fn listen(network: &NetworkNamespace) -> Result<(), StepError> {
    let NetworkNamespace::Loopback { proxy, mirrored } = network else { return Ok(()) };
    sys::bring_loopback_up().step("loopback")?;
    let listeners = make_listeners(*proxy, mirrored)?;
    // Without listeners the parent has made no channel.
    if listeners.is_empty() { Ok(()) } else { send_listeners(&listeners) }
}

/// The user and the group of this process, as they are outside of new namespaces.
struct OwnIds {
    user: u32,
    group: u32,
}

impl OwnIds {
    fn read() -> Self {
        Self { user: rustix::process::geteuid().as_raw(), group: rustix::process::getegid().as_raw() }
    }

    /// Maps them as themselves into the new user namespace of this process.
    fn map(&self) -> io::Result<()> {
        let Self { user, group } = self;
        write_once("/proc/self/setgroups", "deny")?;
        write_once("/proc/self/uid_map", &format!("{user} {user} 1"))?;
        write_once("/proc/self/gid_map", &format!("{group} {group} 1"))
    }
}

/// Enters new namespaces that map only this user, as itself.
pub(super) fn unshare(network: bool) -> io::Result<()> {
    let ids = OwnIds::read();
    enter_new(network)?;
    ids.map()
}

/// Enters a new namespace for mounts, with the user namespace that it takes.
pub(super) fn unshare_mounts() -> io::Result<()> {
    let ids = OwnIds::read();
    // SAFETY: no descriptor table is unshared, and this process has one thread.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
    ids.map()
}

/// Enters new namespaces that map root, who builds the command's root, and the user that the command will run as. Only a
/// process that stays outside may write such a map: a child does it, and ends.
fn unshare_for(user: u32, network: bool) -> Result<(), StepError> {
    // Nothing of root's groups is left for the command.
    rustix::thread::set_thread_groups(&[]).step("groups")?;
    let parent = rustix::process::getpid().as_raw_nonzero();
    let (ready, is_ready) = io::pipe().step("user map")?;
    let writer = sys::fork().step("user map")?;
    if writer == 0 {
        drop(is_ready);
        let written = wait_for_end(ready).and_then(|()| write_maps(parent.get(), user));
        sys::exit(i32::from(written.is_err()));
    }
    drop(ready);
    enter_new(network).step("unshare")?;
    drop(is_ready);
    let pid = rustix::process::Pid::from_raw(writer);
    let ended = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).step("user map")?;
    match ended.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        _ => Err(StepError::new("user map", format!("the kernel refused a map for uid {user}"))),
    }
}

/// Returns when the other end of a pipe is closed.
fn wait_for_end(mut pipe: io::PipeReader) -> io::Result<()> {
    io::copy(&mut pipe, &mut io::sink()).map(|_| ())
}

fn write_maps(process: i32, user: u32) -> io::Result<()> {
    let map = format!("0 0 1\n{user} {user} 1\n");
    write_once(&format!("/proc/{process}/uid_map"), &map)?;
    write_once(&format!("/proc/{process}/gid_map"), &map)
}

fn enter_new(network: bool) -> io::Result<()> {
    let mut flags = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    if network {
        flags |= UnshareFlags::NEWNET;
    }
    // SAFETY: no descriptor table is unshared, and this process has one thread.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    Ok(())
}

/// The kernel accepts these files in one write only.
fn write_once(path: &str, text: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(text.as_bytes())
}

type NamedListener = (String, OwnedFd);

fn make_listeners(proxy: bool, mirrored: &[u16]) -> Result<Vec<NamedListener>, StepError> {
    let mut listeners = Vec::new();
    if proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT)).step("proxy listener")?;
        listeners.push(("proxy".to_owned(), listener.into()));
        let socket = UdpSocket::bind(SocketAddr::V4(DNS_ADDRESS)).step("name server")?;
        listeners.push(("dns".to_owned(), socket.into()));
    }
    for port in mirrored {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).step("mirrored port")?;
        listeners.push((port.to_string(), listener.into()));
        // Without IPv6 there is only the first.
        if let Ok(listener) = TcpListener::bind((Ipv6Addr::LOCALHOST, *port)) {
            listeners.push((port.to_string(), listener.into()));
        }
    }
    Ok(listeners)
}

/// Sends the listeners to the parent. They stay in this namespace wherever they are accepted on.
fn send_listeners(listeners: &[NamedListener]) -> Result<(), StepError> {
    let names: Vec<&str> = listeners.iter().map(|(name, _)| name.as_str()).collect();
    let text = serde_json::to_vec(&names).step("listeners")?;
    let descriptors: Vec<BorrowedFd<'_>> = listeners.iter().map(|(_, fd)| fd.as_fd()).collect();
    // SAFETY: the descriptor was given to this process for this purpose.
    let channel = unsafe { BorrowedFd::borrow_raw(LISTENERS_FD) };
    fd_passing::send(channel, &text, &descriptors).step("listeners")
}
