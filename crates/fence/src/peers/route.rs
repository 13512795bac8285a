//! Whether an address is one of this host's, as the kernel would route to it.
//!
//! Asking which address it would send from is not enough: toward a second address of an interface it sends from
//! the first.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

// `struct nlmsghdr` and `struct rtmsg`, by the places of their fields.
const TYPE: usize = 4;
const FLAGS: usize = 6;
const FAMILY: usize = 16;
const DESTINATION_BITS: usize = 17;
const ROUTE_TYPE: usize = 23;
const ATTRIBUTES: usize = 28;

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLM_F_REQUEST: u16 = 1;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTN_LOCAL: u8 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// An error also if the kernel has no way to the address.
pub(super) fn leads_to_this_host(address: SocketAddr) -> io::Result<bool> {
    // The protocol of routes is number 0, which is the one when none is named.
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::sendto(&socket, &request(address), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    // The kernel has answered by the time that the question is sent.
    let mut answer = [0; 1024];
    let (length, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::DONTWAIT)?;
    let answer = answer.get(..length).unwrap_or_default();
    match (answer.get(TYPE..TYPE + 2), answer.get(ROUTE_TYPE)) {
        (Some(kind), Some(route)) if kind == RTM_NEWROUTE.to_ne_bytes() => Ok(*route == RTN_LOCAL),
        _ => Err(io::ErrorKind::NetworkUnreachable.into()),
    }
}

fn request(address: SocketAddr) -> Vec<u8> {
    let (family, bytes) = match address.ip() {
        IpAddr::V4(ip) => (AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (AF_INET6, ip.octets().to_vec()),
    };
    let mut request = vec![0; ATTRIBUTES];
    request[TYPE..TYPE + 2].copy_from_slice(&RTM_GETROUTE.to_ne_bytes());
    request[FLAGS..FLAGS + 2].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    request[FAMILY] = family;
    request[DESTINATION_BITS] = if address.is_ipv4() { 32 } else { 128 };
    let mut add = |kind: u16, value: &[u8]| {
        let length = u16::try_from(4 + value.len()).unwrap_or_default();
        request.extend_from_slice(&length.to_ne_bytes());
        request.extend_from_slice(&kind.to_ne_bytes());
        request.extend_from_slice(value);
    };
    add(RTA_DST, &bytes);
    if let SocketAddr::V6(address) = address
        && address.scope_id() != 0
    {
        // A link-local address is one on an interface.
        add(RTA_OIF, &address.scope_id().to_ne_bytes());
    }
    let length = u32::try_from(request.len()).unwrap_or_default();
    request[..4].copy_from_slice(&length.to_ne_bytes());
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_host_are_told_from_others() {
        let is_own = |address: &str| leads_to_this_host(SocketAddr::new(address.parse().unwrap(), 9));
        for own in ["127.0.0.1", "127.9.9.9", "::1"] {
            assert!(is_own(own).unwrap(), "{own}");
        }
        // For documentation: no host has them, and without a way to one it is an error.
        assert!(!is_own("198.51.100.1").unwrap_or(false));
        assert!(!is_own("2001:db8::1").unwrap_or(false));
    }
}
