//! The addresses of this host's own network interfaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// Asked anew for each check, because interfaces come and go.
pub(super) fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let mut first = ptr::null_mut();
    // SAFETY: the argument is a valid place for one pointer.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = Vec::new();
    let mut entry = first;
    while !entry.is_null() {
        // SAFETY: `getifaddrs` succeeded, so each entry is null or valid until `freeifaddrs` below.
        let (address, next) = unsafe { ((*entry).ifa_addr, (*entry).ifa_next) };
        // SAFETY: as above; the address of an entry is null or valid for its family.
        addresses.extend(unsafe { ip_address(address) });
        entry = next;
    }
    // SAFETY: the list is ours, is freed once, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(addresses)
}

/// # Safety
/// `address` is null or points to a socket address that is whole for the family it states.
unsafe fn ip_address(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, so by this function's contract a socket address, which begins with its family.
    let family = i32::from(unsafe { ptr::addr_of!((*address).sa_family).read_unaligned() });
    match family {
        libc::AF_INET => {
            // SAFETY: an address of this family is a `sockaddr_in`; its alignment is not relied upon.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family is a `sockaddr_in6`; its alignment is not relied upon.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_an_own_address() {
        assert!(own_addresses().unwrap().contains(&Ipv4Addr::LOCALHOST.into()));
    }
}
