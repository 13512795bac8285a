//! N26–N35: sockets of every family, and the less usual ways to connect and to send. Attempts that reach the victim send
//! the name of their row.

use testkit::AttackStage;

use crate::administration::{answered, any_answered};
use crate::files::done;
use crate::network::{bind, converse, inet, send_datagram, socket, stream, unix};
use crate::row::Row;
use crate::system::{Attempt, Errno, call, read};

pub(crate) const ROWS: &[Row] = &[
    ("N26", |_| any_other_family()),
    ("N27", |_| any_answered((1..=22).map(netlink))),
    ("N28", pair_with_junk),
    ("N29", fast_open_many),
    ("N30", fast_open_at_connect),
    ("N31", |_| bind(stream(libc::AF_INET, 0), &inet(0))),
    ("N32", |_| answered(socket(libc::AF_INET, libc::SOCK_DGRAM, UDP_LITE).map(i64::from))),
    ("N33", |_| done(socket(libc::AF_INET, SOCK_PACKET, 0x0300).map(i64::from))),
    ("N34", |_| any_other_pair()),
    ("N35", |stage| converse("N35", stream(libc::AF_INET6, 0), &inet_mapped(stage.victim.tcp_port))),
];

const UDP_LITE: i32 = 136;
/// An old way to raw packets.
const SOCK_PACKET: i32 = 10;
const LAST_FAMILY: i32 = 63;
const TCP_FASTOPEN_CONNECT: i32 = 30;

/// Tries every family but those of the other rows.
fn any_other_family() -> Attempt {
    let others = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let families = (0..=LAST_FAMILY).filter(|family| !others.contains(family));
    let kinds = [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET];
    let tried = families.flat_map(|family| kinds.map(|kind| (family, kind)));
    any_answered(tried.map(|(family, kind)| socket(family, kind, 0).map(i64::from)))
}

fn netlink(protocol: i32) -> Result<i64, Errno> {
    socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol).map(i64::from)
}

fn any_other_pair() -> Attempt {
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_TIPC, libc::AF_VSOCK];
    let mut pair = [0_i32; 2];
    any_answered(
        families.map(|family| call!(libc::SYS_socketpair, family, libc::SOCK_STREAM, 0, pair.as_mut_ptr())),
    )
}

/// Makes a pair of datagrams with bits in the registers that the kernel ignores, and sends from it to a path.
fn pair_with_junk(stage: &AttackStage) -> Attempt {
    const JUNK: i64 = 1 << 32;
    let (family, kind) =
        (JUNK | i64::from(libc::AF_UNIX), JUNK | i64::from(libc::SOCK_DGRAM | libc::SOCK_CLOEXEC));
    let mut pair = [0_i32; 2];
    call!(libc::SYS_socketpair, family, kind, 0, pair.as_mut_ptr())?;
    send_datagram("N28", Ok(pair[0]), &unix(&stage.unix_datagram()))
}

/// Connects with the first `sendmmsg` (TCP Fast Open).
fn fast_open_many(stage: &AttackStage) -> Attempt {
    let (socket, row, mut address) = (stream(libc::AF_INET, 0)?, "N29", inet(stage.victim.tcp_port));
    let mut vector = libc::iovec { iov_base: row.as_ptr().cast_mut().cast(), iov_len: row.len() };
    // SAFETY: a message header of all zeroes is valid and empty.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_name = address.as_mut_ptr().cast();
    message.msg_hdr.msg_namelen = address.len() as u32;
    message.msg_hdr.msg_iov = &raw mut vector;
    message.msg_hdr.msg_iovlen = 1;
    call!(libc::SYS_sendmmsg, socket, &raw mut message, 1, libc::MSG_FASTOPEN)?;
    read(socket)
}

/// Has the kernel connect only when something is written.
fn fast_open_at_connect(stage: &AttackStage) -> Attempt {
    let (socket, on) = (stream(libc::AF_INET, 0)?, 1_i32);
    let size = size_of_val(&on);
    call!(libc::SYS_setsockopt, socket, libc::IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &raw const on, size)?;
    converse("N30", Ok(socket), &inet(stage.victim.tcp_port))
}

/// 127.0.0.1 as `struct sockaddr_in6`.
fn inet_mapped(port: u16) -> Vec<u8> {
    let mut address = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
    address.extend(port.to_be_bytes());
    address.extend([0; 4 + 10]);
    address.extend([0xff, 0xff, 127, 0, 0, 1]);
    address.extend([0; 4]);
    address
}
