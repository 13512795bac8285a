//! N01–N18, N20–N23, W7, W8: reaching the victim, or any address, over sockets of every kind. Each attempt sends the
//! name of its row, so that the victim can tell which ones got through.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use testkit::AttackStage;

use crate::files::done;
use crate::row::Row;
use crate::system::{Attempt, Errno, call, read, write};

pub(crate) const ROWS: &[Row] = &[
    ("N01", |stage| converse("N01", stream(libc::AF_INET, 0), &inet(stage.victim.tcp_port))),
    ("N02", |stage| send_datagram("N02", datagram(libc::AF_INET), &inet(stage.victim.udp_port))),
    ("N03", fast_open),
    ("N04", |stage| {
        converse("N04", stream(libc::AF_INET, libc::IPPROTO_MPTCP), &inet(stage.victim.tcp_port))
    }),
    ("N05", |_| made(socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP))),
    ("N06", |_| made(socket(libc::AF_PACKET, libc::SOCK_RAW, 0x0300))),
    ("N07", |_| list_interfaces()),
    ("N08", |_| made(socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG))),
    ("N09", |_| made(stream(libc::AF_VSOCK, 0))),
    ("N10", |stage| converse("N10", stream(libc::AF_UNIX, 0), &unix(&stage.unix_stream()))),
    ("N11", |stage| converse("N11", stream(libc::AF_UNIX, 0), &unix_abstract(&stage.victim.abstract_name))),
    ("N12", |stage| send_datagram("N12", datagram(libc::AF_UNIX), &unix(&stage.unix_datagram()))),
    ("N13", |_| done(call!(libc::SYS_listen, stream(libc::AF_INET, 0)?, 1))),
    ("N15", |_| bind(datagram(libc::AF_INET), &inet(0))),
    ("N17", |_| other_entry::socket().map(|_| String::new())),
    ("N18", |stage| say_and_hear("N18", stage.inherited.socket)),
    ("N20", |stage| converse("N20", stream(libc::AF_INET6, 0), &inet6(stage.victim.tcp6_port))),
    ("N22", |_| done(call!(X32 | libc::SYS_getpid))),
    ("N23", |stage| converse("N23", stream(libc::AF_INET, 0), &inet(stage.victim.allowed_port))),
    ("N24", |stage| datagram_from_pair("N24", libc::SOCK_DGRAM, &unix(&stage.unix_datagram()))),
    ("N25", |stage| datagram_from_pair("N25", libc::SOCK_RAW, &unix(&stage.unix_datagram()))),
    ("W7", receive_descriptor),
    ("W8", raw_or_many_homed),
];

/// The bit that marks a system call of the x32 interface.
const X32: libc::c_long = 0x4000_0000;

pub(crate) type Socket = Result<i32, Errno>;

pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> Socket {
    Ok(call!(libc::SYS_socket, family, kind, protocol)? as i32)
}

pub(crate) fn stream(family: i32, protocol: i32) -> Socket {
    socket(family, libc::SOCK_STREAM, protocol)
}

fn datagram(family: i32) -> Socket {
    socket(family, libc::SOCK_DGRAM, 0)
}

fn made(socket: Socket) -> Attempt {
    socket.map(|_| String::new())
}

/// 127.0.0.1 as `struct sockaddr_in`.
pub(crate) fn inet(port: u16) -> Vec<u8> {
    let mut address = (libc::AF_INET as u16).to_ne_bytes().to_vec();
    address.extend(port.to_be_bytes());
    address.extend([127, 0, 0, 1]);
    address.extend([0; 8]);
    address
}

/// `::1` as `struct sockaddr_in6`.
fn inet6(port: u16) -> Vec<u8> {
    let mut address = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
    address.extend(port.to_be_bytes());
    address.extend([0; 4 + 15]);
    address.push(1);
    address.extend([0; 4]);
    address
}

pub(crate) fn unix(path: &Path) -> Vec<u8> {
    let mut address = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    address.extend(path.as_os_str().as_bytes());
    address.push(0);
    address
}

fn unix_abstract(name: &str) -> Vec<u8> {
    let mut address = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    address.push(0);
    address.extend(name.as_bytes());
    address
}

/// Connects, sends the row's name and waits for an answer.
pub(crate) fn converse(row: &str, socket: Socket, address: &[u8]) -> Attempt {
    let socket = socket?;
    call!(libc::SYS_connect, socket, address.as_ptr(), address.len())?;
    say_and_hear(row, socket)
}

fn say_and_hear(row: &str, socket: i32) -> Attempt {
    write(socket, row)?;
    match read(socket)?.as_str() {
        "" => Err(Errno(libc::ECONNRESET)),
        answer => Ok(answer.to_owned()),
    }
}

pub(crate) fn send_datagram(row: &str, socket: Socket, address: &[u8]) -> Attempt {
    let (socket, text) = (socket?, row.as_ptr());
    done(call!(libc::SYS_sendto, socket, text, row.len(), 0, address.as_ptr(), address.len()))
}

/// Makes a pair of connected sockets, and sends from one of them to another address.
fn datagram_from_pair(row: &str, kind: i32, address: &[u8]) -> Attempt {
    let mut pair = [0_i32; 2];
    call!(libc::SYS_socketpair, libc::AF_UNIX, kind, 0, pair.as_mut_ptr())?;
    send_datagram(row, Ok(pair[0]), address)
}

/// Connects with the first `sendto` (TCP Fast Open), which a rule for `connect` does not see.
fn fast_open(stage: &AttackStage) -> Attempt {
    let (socket, row, address) = (stream(libc::AF_INET, 0)?, "N03", inet(stage.victim.tcp_port));
    let flags = libc::MSG_FASTOPEN;
    call!(libc::SYS_sendto, socket, row.as_ptr(), row.len(), flags, address.as_ptr(), address.len())?;
    read(socket)
}

pub(crate) fn bind(socket: Socket, address: &[u8]) -> Attempt {
    done(call!(libc::SYS_bind, socket?, address.as_ptr(), address.len()))
}

pub(crate) fn bind_unix(path: &Path) -> Attempt {
    bind(stream(libc::AF_UNIX, 0), &unix(path))
}

fn list_interfaces() -> Attempt {
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    // `struct nlmsghdr` and `struct rtgenmsg`: a dump of all links.
    let mut request = 20_u32.to_ne_bytes().to_vec();
    request.extend(libc::RTM_GETLINK.to_ne_bytes());
    request.extend((libc::NLM_F_REQUEST as u16 | libc::NLM_F_DUMP as u16).to_ne_bytes());
    request.extend([0; 12]);
    call!(libc::SYS_sendto, socket, request.as_ptr(), request.len(), 0, 0, 0)?;
    Ok(format!("{} bytes", read(socket)?.len()))
}

/// Takes a descriptor out of an inherited socket and writes through it.
fn receive_descriptor(stage: &AttackStage) -> Attempt {
    let mut byte = 0_u8;
    let mut control = [0_u64; 8];
    let mut vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: a message header of all zeroes is valid and empty.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    call!(libc::SYS_recvmsg, stage.inherited.unix, &raw mut message, 0)?;
    // The descriptors follow the 16 bytes of `struct cmsghdr`.
    write(control[2] as i32, "W7")?;
    Ok(String::new())
}

/// Opens a raw socket or, if that fails, an SCTP socket, which can connect to several addresses at once.
fn raw_or_many_homed(_: &AttackStage) -> Attempt {
    let raw = socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6);
    made(raw.or_else(|errno| stream(libc::AF_INET, libc::IPPROTO_SCTP).map_err(|_| errno)))
}

/// System calls through the entry for 32-bit programs, which numbers them differently.
mod other_entry {
    use crate::system::Errno;

    #[cfg(target_arch = "x86_64")]
    pub(super) fn socket() -> Result<i64, Errno> {
        const SOCKET: i64 = 359;
        let answer: i64;
        // SAFETY: the call takes numbers only. `rbx` is restored, as the compiler requires; the other registers that
        // the kernel may change are named.
        unsafe {
            std::arch::asm!(
                "xchg rbx, {family}",
                "int 0x80",
                "xchg rbx, {family}",
                family = inout(reg) i64::from(libc::AF_INET) => _,
                inlateout("rax") SOCKET => answer,
                in("rcx") i64::from(libc::SOCK_DGRAM),
                in("rdx") 0_i64,
                out("r8") _,
                out("r9") _,
                out("r10") _,
                out("r11") _,
            );
        }
        let answer = i64::from(answer as i32);
        if answer < 0 { Err(Errno(-answer as i32)) } else { Ok(answer) }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn socket() -> Result<i64, Errno> {
        Err(Errno(libc::ENOSYS))
    }
}
