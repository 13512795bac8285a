//! The socket at the other end of a connection, as the kernel's socket diagnostics find it by its addresses.
//!
//! The diagnostics miss a socket that is bound to a device, and can be missing themselves; what they do not find
//! is looked up in the kernel's tables.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) user: u32,
    /// 0 if no process holds it any more.
    pub(super) inode: u32,
    /// Neither end has closed the connection.
    pub(super) is_established: bool,
}

/// The socket of this network namespace that is bound to `near` and connected to `far`. Both in canonical form.
pub(super) fn find(near: SocketAddr, far: SocketAddr) -> io::Result<Option<Socket>> {
    match ask(near, far) {
        Ok(Some(socket)) => Ok(Some(socket)),
        Ok(None) | Err(_) => look_up(near, far),
    }
}

/// Like [`find`], for an end that this process has: it is bound to no device.
pub(super) fn find_own(near: SocketAddr, far: SocketAddr) -> io::Result<Option<Socket>> {
    ask(near, far).or_else(|_| look_up(near, far))
}

// `struct nlmsghdr` and `struct inet_diag_req_v2`, by the places of their fields.
const REQUEST_SIZE: usize = 72;
const TYPE: usize = 4;
const FLAGS: usize = 6;
const FAMILY: usize = 16;
const PROTOCOL: usize = 17;
const REQUEST_STATES: usize = 20;
const REQUEST_ID: usize = 24;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;

// `struct inet_diag_msg` after the header.
const ANSWER_SIZE: usize = 88;
const ANSWER_STATE: usize = 17;
const ANSWER_ID: usize = 20;
const ANSWER_USER: usize = 80;
const ANSWER_INODE: usize = 84;

// `struct inet_diag_sockid`, from its beginning.
const NEAR_PORT: usize = 0;
const FAR_PORT: usize = 2;
const NEAR_ADDRESS: usize = 4;
const FAR_ADDRESS: usize = 20;
const INTERFACE: usize = 36;
const COOKIE: usize = 40;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const TCP_ESTABLISHED: u8 = 1;

/// One question, one answer. None also if the kernel cannot tell.
fn ask(near: SocketAddr, far: SocketAddr) -> io::Result<Option<Socket>> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    rustix::net::sendto(&socket, &request(near, far), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    // The kernel has answered by the time that the question is sent.
    let mut answer = [0; 512];
    let (length, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::DONTWAIT)?;
    Ok(answer.get(..length).and_then(|answer| read_answer(answer, near, far)))
}

fn request(near: SocketAddr, far: SocketAddr) -> [u8; REQUEST_SIZE] {
    let mut request = [0; REQUEST_SIZE];
    let mut put = |place: usize, bytes: &[u8]| request[place..place + bytes.len()].copy_from_slice(bytes);
    put(0, &72_u32.to_ne_bytes());
    put(TYPE, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(FLAGS, &NLM_F_REQUEST.to_ne_bytes());
    put(FAMILY, &[if near.is_ipv4() { AF_INET } else { AF_INET6 }]);
    put(PROTOCOL, &[IPPROTO_TCP]);
    put(REQUEST_STATES, &u32::MAX.to_ne_bytes());
    for (address, port_place, place) in [(near, NEAR_PORT, NEAR_ADDRESS), (far, FAR_PORT, FAR_ADDRESS)] {
        put(REQUEST_ID + port_place, &address.port().to_be_bytes());
        match address.ip() {
            IpAddr::V4(ip) => put(REQUEST_ID + place, &ip.octets()),
            IpAddr::V6(ip) => put(REQUEST_ID + place, &ip.octets()),
        }
    }
    if let SocketAddr::V6(near) = near {
        // A link-local address is one on an interface.
        put(REQUEST_ID + INTERFACE, &near.scope_id().to_ne_bytes());
    }
    put(REQUEST_ID + COOKIE, &[0xff; 8]);
    request
}

fn read_answer(answer: &[u8], near: SocketAddr, far: SocketAddr) -> Option<Socket> {
    let kind = u16::from_ne_bytes(*answer.get(TYPE..)?.first_chunk()?);
    if kind != SOCK_DIAG_BY_FAMILY || answer.len() < ANSWER_SIZE {
        return None;
    }
    let (user, inode) = (number_at(answer, ANSWER_USER)?, number_at(answer, ANSWER_INODE)?);
    let end = |port_place: usize, place: usize| {
        let port = u16::from_be_bytes(*answer.get(ANSWER_ID + port_place..)?.first_chunk()?);
        let address = answer.get(ANSWER_ID + place..)?;
        let ip = match *answer.get(FAMILY)? {
            AF_INET => IpAddr::from(*address.first_chunk::<4>()?),
            _ => IpAddr::from(*address.first_chunk::<16>()?).to_canonical(),
        };
        Some((ip, port))
    };
    // Without a connection the kernel answers with a listener that has the port.
    let is_it = end(NEAR_PORT, NEAR_ADDRESS)? == (near.ip(), near.port())
        && end(FAR_PORT, FAR_ADDRESS)? == (far.ip(), far.port());
    let is_established = *answer.get(ANSWER_STATE)? == TCP_ESTABLISHED;
    is_it.then_some(Socket { user, inode, is_established })
}

fn number_at(bytes: &[u8], place: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(place..)?.first_chunk()?))
}

/// Looks through the tables of this network namespace.
fn look_up(near: SocketAddr, far: SocketAddr) -> io::Result<Option<Socket>> {
    // A connection over IPv4 can belong to a socket of IPv6.
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let file = match fs::File::open(table) {
            Ok(file) => file,
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).lines().skip(1) {
            if let Some(found) = read_row(&line?, near, far) {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// `number: address:port address:port state queues timer retransmissions user timeout inode …`
fn read_row(row: &str, near: SocketAddr, far: SocketAddr) -> Option<Socket> {
    let fields: Vec<&str> = row.split_ascii_whitespace().collect();
    let [_, here, there, state, _, _, _, user, _, inode, ..] = fields.as_slice() else { return None };
    let is_it = read_end(here)? == (near.ip(), near.port()) && read_end(there)? == (far.ip(), far.port());
    is_it.then_some(())?;
    let is_established = u8::from_str_radix(state, 16).ok()? == TCP_ESTABLISHED;
    Some(Socket { user: user.parse().ok()?, inode: inode.parse().ok()?, is_established })
}

fn read_end(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    // The kernel prints the bytes of the address as numbers of four bytes.
    let words: Vec<[u8; 4]> = address
        .as_bytes()
        .chunks(8)
        .map(|digits| Some(u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?.to_ne_bytes()))
        .collect::<Option<_>>()?;
    let ip = match words.as_slice() {
        [word] => IpAddr::V4(Ipv4Addr::from(*word)),
        words => {
            let bytes: [u8; 16] = words.as_flattened().try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
    };
    Some((ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// Both ways find the same for both ends of a connection.
    fn both_ways_agree(bind: &str, connect: &str) {
        let listener = TcpListener::bind((bind, 0)).unwrap();
        let client = TcpStream::connect((connect, listener.local_addr().unwrap().port())).unwrap();
        let canonical = super::super::canonical;
        let (near, far) = (canonical(client.local_addr().unwrap()), canonical(client.peer_addr().unwrap()));
        let asked = ask(near, far).unwrap().unwrap();
        assert_eq!(look_up(near, far).unwrap(), Some(asked));
        assert_eq!(asked.user, rustix::process::geteuid().as_raw());
        assert!(asked.is_established);
        let held = fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&client)));
        assert_eq!(held.unwrap().to_str().unwrap(), format!("socket:[{}]", asked.inode));
        // The listener has this port, but is no connection.
        let nobody = SocketAddr::new(near.ip(), 1);
        assert_eq!((ask(far, nobody).unwrap(), look_up(far, nobody).unwrap()), (None, None));
        let accepted = listener.accept().unwrap().0;
        drop(client);
        let (own, asked) = (look_up(far, near).unwrap().unwrap(), ask(far, near).unwrap().unwrap());
        assert_eq!(own, asked);
        assert!(!own.is_established, "the other end was closed");
        drop(accepted);
    }

    #[test]
    fn a_connection_is_found_by_its_addresses() {
        both_ways_agree("127.0.0.1", "127.0.0.1");
        both_ways_agree("::1", "::1");
        both_ways_agree("::", "127.0.0.1");
        both_ways_agree("0.0.0.0", "::ffff:127.0.0.1");
    }
}
