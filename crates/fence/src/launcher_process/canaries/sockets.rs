//! Canaries for sockets: the kinds that no policy allows, and what the network mode forbids.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::super::{StepError, sys};
use super::processes::{has_own_network, is_own_namespace};
use super::{expect, must_fail};
use crate::ProtectionName as Name;
use crate::launch_request::LaunchRequest;
use crate::policy::{Network, UnixSockets};

/// Addresses for documentation, which no host has. Their port is that of the discard protocol.
const FAR: [SocketAddr; 2] = [
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9),
    SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9),
];
/// What a namespace without a way out says. The last ones: it has no such protocol, or no address to send from.
const NO_WAY: &[Errno] = &[Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL];

pub(super) fn use_other_families(_: &LaunchRequest) -> Result<&'static [Name], StepError> {
    for (what, family, kind, protocol) in [
        ("AF_VSOCK", libc::AF_VSOCK, libc::SOCK_STREAM, 0),
        ("AF_PACKET", libc::AF_PACKET, libc::SOCK_RAW, 0),
        ("AF_ALG", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
        ("AF_KEY", libc::AF_KEY, libc::SOCK_RAW, 2),
        ("AF_BLUETOOTH", libc::AF_BLUETOOTH, libc::SOCK_RAW, 1),
        ("AF_CAN", libc::AF_CAN, libc::SOCK_RAW, 1),
        ("AF_TIPC", libc::AF_TIPC, libc::SOCK_SEQPACKET, 0),
        ("AF_XDP", libc::AF_XDP, libc::SOCK_RAW, 0),
        ("audit", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT),
        ("raw IPv4", libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
        ("raw IPv6", libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6),
    ] {
        expect(what, socket(family, kind, protocol), &[libc::EPERM])?;
    }
    Ok(&[Name::OtherFamilies])
}

pub(super) fn use_unix(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    if request.steps.seccomp.unix_sockets == UnixSockets::Allow {
        return Ok(&[]);
    }
    for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET] {
        expect("AF_UNIX", socket(libc::AF_UNIX, kind, 0), &[libc::EPERM])?;
    }
    expect("pair of AF_UNIX datagrams", socket_pair(libc::SOCK_DGRAM), &[libc::EPERM])?;
    expect("pair of raw AF_UNIX sockets", socket_pair(libc::SOCK_RAW), &[libc::EPERM])?;
    Ok(&[Name::UnixPathname, Name::UnixAbstract])
}

/// TCP beyond what the mode allows. Nothing is sent: the kernel refuses, or finds no way, before.
pub(super) fn connect(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    match &request.steps.seccomp.network {
        Network::None => {
            expect("TCP", socket(libc::AF_INET, libc::SOCK_STREAM, 0), &[libc::EPERM])?;
            expect("TCP over IPv6", socket(libc::AF_INET6, libc::SOCK_STREAM, 0), &[libc::EPERM])?;
        }
        Network::Ports { ports } if request.steps.landlock.version >= 4 => {
            let closed = (1..=u16::MAX).find(|port| !ports.contains(port)).unwrap_or(0);
            let here =
                [SocketAddr::from((Ipv4Addr::LOCALHOST, closed)), (Ipv6Addr::LOCALHOST, closed).into()];
            let expected = [Errno::ACCESS, Errno::AFNOSUPPORT];
            reach_nothing("TCP to another port", SocketType::STREAM, here, &expected)?;
        }
        Network::Localhost { .. } | Network::Http { .. } if is_in_own_network(request)? => {
            // Datagrams, which send nothing to connect, have shown before that there is no way.
            reach_nothing("TCP", SocketType::STREAM, FAR, NO_WAY)?;
        }
        _ => return Ok(&[]),
    }
    Ok(&[Name::Tcp])
}

pub(super) fn send_datagrams(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    match &request.steps.seccomp.network {
        Network::None | Network::Ports { .. } => {
            expect("UDP", socket(libc::AF_INET, libc::SOCK_DGRAM, 0), &[libc::EPERM])?;
            expect("UDP over IPv6", socket(libc::AF_INET6, libc::SOCK_DGRAM, 0), &[libc::EPERM])?;
        }
        Network::Localhost { .. } | Network::Http { .. } if is_in_own_network(request)? => {
            reach_nothing("UDP", SocketType::DGRAM, FAR, NO_WAY)?;
        }
        _ => return Ok(&[]),
    }
    Ok(&[Name::Udp])
}

fn is_in_own_network(request: &LaunchRequest) -> Result<bool, StepError> {
    let ringfences = request.canaries.host.network_namespace;
    Ok(has_own_network(request) && is_own_namespace("net", ringfences)?)
}

fn reach_nothing(
    what: &str,
    kind: SocketType,
    addresses: [SocketAddr; 2],
    expected: &[Errno],
) -> Result<(), StepError> {
    for address in addresses {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let connected = rustix::net::socket_with(family, kind, flags, None)
            .and_then(|socket| rustix::net::connect(&socket, &address));
        must_fail(what, &connected, expected)?;
    }
    Ok(())
}

fn socket(family: i32, kind: i32, protocol: i32) -> Option<i32> {
    sys::attempt(libc::SYS_socket, [family.into(), kind.into(), protocol.into(), 0])
}

/// Tries to make a pair. There is no place to put it, so the kernel refuses in any case, but with another error.
fn socket_pair(kind: i32) -> Option<i32> {
    sys::attempt(libc::SYS_socketpair, [libc::AF_UNIX.into(), kind.into(), 0, 0])
}
