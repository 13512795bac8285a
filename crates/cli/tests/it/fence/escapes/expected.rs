//! The expected outcome of every attempt, one row each; `ringfence-attacker` implements the rows under these ids.
//!
//! A row lists every error that is right. Tier B has private, writable temporary directories, so F36–F38 work
//! there and must leave nothing on the host. The default deny list is on, so R01, R02, R05 and R06 are refused
//! in Tier A too. In the network modes `all` and `ports`, Tier B has no network namespace.

use std::fmt;

use super::ground::Caller;

/// The expected outcome of one attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    /// Fails with one of these errors, and changes nothing.
    Refused(&'static [&'static str]),
    /// Succeeds, and has its effect if that can be observed.
    Works,
    /// As [`Self::Works`], and the report says that this protection is not enforced.
    WorksAndIsReported(&'static str),
    /// Succeeds inside without any effect outside.
    WorksInPrivate,
    /// May succeed or fail inside, but must not hang or have any effect outside.
    ReachesNothing,
    /// The attacker is killed by this signal, and nothing changes.
    Killed(i32),
}

use Expected::{Killed, ReachesNothing, Refused, Works, WorksAndIsReported, WorksInPrivate};

#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    pub(super) tier: Tier,
    pub(super) network: Network,
    pub(super) read_mode: ReadMode,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Tier {
    A,
    B,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Network {
    All,
    None,
    /// With the victim's allowed port mirrored.
    Localhost,
    /// The same mode, with no port of the host mirrored.
    Loopback,
    Http,
    /// Only the victim's allowed port.
    Ports,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ReadMode {
    Open,
    Strict,
}

impl Tier {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

impl Network {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::None => "none",
            Self::Localhost | Self::Loopback => "localhost",
            Self::Http => "http",
            Self::Ports => "ports",
        }
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reads = match self.read_mode {
            ReadMode::Open => "open",
            ReadMode::Strict => "strict",
        };
        write!(f, "tier {}, network {}, {reads} reads", self.tier.name(), self.network.name())
    }
}

const OUTSIDE: Expected = Refused(&["EACCES", "EROFS"]);
/// Outside, and with strict reads not even there.
const UNSEEN: Expected = Refused(&["EACCES", "EROFS", "ENOENT"]);
const ACROSS: Expected = Refused(&["EACCES", "EXDEV", "EROFS"]);
const ACROSS_UNSEEN: Expected = Refused(&["EACCES", "EXDEV", "EROFS", "ENOENT"]);
const DENIED: Expected = Refused(&["EACCES"]);
const FILTERED: Expected = Refused(&["EPERM"]);
const CLOSED: Expected = Refused(&["EBADF"]);
const ABSENT: Expected = Refused(&["ENOENT"]);
const NOBODY: Expected = Refused(&["ESRCH", "EPERM"]);
const NO_SUCH_ID: Expected = Refused(&["EINVAL", "EIDRM", "EACCES"]);
const UNKNOWN_CALL: Expected = Refused(&["ENOSYS"]);
const GAINS_NOTHING: Expected = Refused(&["none", "EPERM", "EACCES"]);
const METADATA_WRITE: Expected = WorksAndIsReported("fs_metadata_writes");
const METADATA_READ: Expected = WorksAndIsReported("fs_metadata_reads");
const PROCESS_SEEN: Expected = WorksAndIsReported("proc_visibility");
const BAD_SYSTEM_CALL: Expected = Killed(31);

/// Rows that do not depend on the network mode: id, outcome in Tier A, outcome in Tier B.
#[rustfmt::skip]
const ROWS: &[(&str, Expected, Expected)] = &[
    ("F01", OUTSIDE, UNSEEN), // create a file outside the scope
    ("F02", OUTSIDE, UNSEEN), // overwrite with O_TRUNC
    ("F03", OUTSIDE, UNSEEN), // O_RDONLY with O_TRUNC
    ("F04", OUTSIDE, UNSEEN), // truncate(2)
    ("F05", OUTSIDE, UNSEEN), // append
    ("F06", OUTSIDE, UNSEEN), // unlink
    ("F07", ACROSS, ACROSS_UNSEEN), // rename from the scope to outside
    ("F08", ACROSS, ACROSS_UNSEEN), // rename from outside into the scope
    ("F10", ACROSS, ACROSS_UNSEEN), // hard link from outside into the scope
    ("F11", WorksAndIsReported("hardlinks"), WorksAndIsReported("hardlinks")), // existing hard link
    ("F12", OUTSIDE, UNSEEN), // through a symlink
    ("F13", OUTSIDE, UNSEEN), // through a symlinked directory
    ("F14", OUTSIDE, UNSEEN), // through ../
    ("F15", OUTSIDE, UNSEEN), // through /proc/self/root
    ("F16", OUTSIDE, UNSEEN), // through /proc/self/cwd/..
    ("F17", DENIED, ABSENT), // through /proc/<victim>/root
    ("F18", DENIED, ABSENT), // through /proc/<victim>/cwd
    ("F20", CLOSED, CLOSED), // inherited writable descriptor
    ("F21", OUTSIDE, UNSEEN), // mkdir
    ("F22", OUTSIDE, UNSEEN), // rmdir
    ("F23", OUTSIDE, UNSEEN), // mkfifo
    ("F24", OUTSIDE, UNSEEN), // symlink
    ("F25", Refused(&["EPERM", "EACCES", "EROFS"]), Refused(&["EPERM", "EACCES", "EROFS"])), // unix socket
    ("F26", METADATA_WRITE, UNSEEN), // chmod
    ("F27", METADATA_WRITE, UNSEEN), // set times
    ("F28", METADATA_WRITE, UNSEEN), // setxattr
    ("F29", METADATA_WRITE, UNSEEN), // chown to self
    ("F30", Works, Works), // flock of a readable file
    ("F31", OUTSIDE, UNSEEN), // O_TMPFILE
    ("F32", Refused(&["EACCES", "EPERM"]), Refused(&["EACCES", "EPERM"])), // character device in the scope
    ("F33", OUTSIDE, UNSEEN), // openat2
    ("F34", UNKNOWN_CALL, UNKNOWN_CALL), // io_uring openat for writing
    ("F36", OUTSIDE, WorksInPrivate), // /dev/shm
    ("F37", OUTSIDE, WorksInPrivate), // /tmp
    ("F38", OUTSIDE, WorksInPrivate), // /var/tmp
    ("F39", WorksInPrivate, WorksInPrivate), // memfd and exec: runs, in the same fence
    ("F40", Works, Works), // write inside the scope
    ("F41", Works, Works), // rename directories inside the scope

    ("R01", DENIED, Refused(&["ENOENT", "EACCES"])), // read ~/.ssh/id_rsa
    ("R02", DENIED, ReachesNothing), // list ~/.ssh
    ("R03", METADATA_READ, Refused(&["ENOENT", "EACCES"])), // stat
    ("R04", METADATA_READ, ReachesNothing), // inotify
    ("R05", DENIED, Refused(&["ENOENT", "EACCES"])), // through /proc/self/root
    ("R06", DENIED, Refused(&["ENOENT", "EACCES"])), // through a symlink in the scope
    ("R07", METADATA_READ, Refused(&["ENOENT", "EACCES"])), // O_PATH
    ("R08", METADATA_READ, Refused(&["ENOENT", "EACCES"])), // getxattr
    ("R09", UNKNOWN_CALL, UNKNOWN_CALL), // io_uring openat

    ("P01", DENIED, ABSENT), // environ
    ("P02", PROCESS_SEEN, ABSENT), // cmdline
    ("P03", DENIED, ABSENT), // mem
    ("P04", PROCESS_SEEN, ABSENT), // fd
    ("P05", FILTERED, FILTERED), // ptrace
    ("P06", FILTERED, FILTERED), // process_vm_readv
    ("P07", NOBODY, NOBODY), // pidfd_getfd
    ("P08", NOBODY, NOBODY), // kill 0
    ("P09", NOBODY, NOBODY), // a real signal
    ("P10", NOBODY, NOBODY), // pidfd_send_signal
    ("P11", NOBODY, NOBODY), // prlimit
    ("P13", NOBODY, NOBODY), // sched_setaffinity
    ("P14", DENIED, ABSENT), // oom_score_adj
    ("P15", FILTERED, FILTERED), // kcmp
    ("P16", PROCESS_SEEN, ABSENT), // stat

    ("I01", FILTERED, Refused(&["EINVAL", "EPERM"])), // shmat
    ("I02", FILTERED, Refused(&["ENOENT", "EACCES"])), // POSIX queue
    ("I03", FILTERED, FILTERED), // keyctl
    ("I04", FILTERED, FILTERED), // add_key
    ("I05", FILTERED, NO_SUCH_ID), // msgsnd by id
    ("I06", FILTERED, NO_SUCH_ID), // msgrcv by id
    ("I07", FILTERED, NO_SUCH_ID), // semop by id
    ("I08", FILTERED, NO_SUCH_ID), // remove a queue by id
    ("I09", FILTERED, Refused(&["ENOENT", "EACCES"])), // remove a POSIX queue by name

    ("K01", FILTERED, FILTERED), // unshare NEWUSER
    ("K02", FILTERED, FILTERED), // nested namespace, mount
    ("K03", FILTERED, FILTERED), // nested namespace, pivot
    ("K04", FILTERED, FILTERED), // fsopen, open_tree
    ("K05", FILTERED, FILTERED), // chroot
    ("K06", FILTERED, FILTERED), // setns
    ("K07", FILTERED, FILTERED), // bpf
    ("K08", FILTERED, FILTERED), // perf_event_open
    ("K09", FILTERED, FILTERED), // userfaultfd
    ("K10", UNKNOWN_CALL, UNKNOWN_CALL), // io_uring_setup
    ("K11", FILTERED, FILTERED), // personality
    ("K13", FILTERED, FILTERED), // TIOCSTI
    ("K14", Works, Works), // no_new_privs is set
    ("K15", Works, Works), // every capability set is empty
    ("K15b", Works, Works), // the capability bounding set is empty
    ("K17", FILTERED, FILTERED), // open_by_handle_at
    ("K18", UNKNOWN_CALL, UNKNOWN_CALL), // clone3
    ("L01", WorksInPrivate, WorksInPrivate), // setsid: allowed, but the process does not outlive the fence

    ("X1", GAINS_NOTHING, GAINS_NOTHING), // set-user-id program
    ("X2", GAINS_NOTHING, GAINS_NOTHING), // program with file capabilities
    ("X3", OUTSIDE, UNSEEN), // ld.so: in the same fence
    ("X4", ACROSS, ACROSS_UNSEEN), // overwrite the launcher
    ("X5", Works, Works), // script whose interpreter is outside
    ("X9", BAD_SYSTEM_CALL, BAD_SYSTEM_CALL), // 32-bit program
    ("Q11", Refused(&["EACCES", "EROFS", "EPERM"]), Refused(&["EACCES", "EROFS", "EPERM", "ENOENT"])), // cgroup
    ("Q12", Refused(&["none"]), Refused(&["none"])), // core dump
    ("Z4", ReachesNothing, ReachesNothing), // set-id file in the scope: none remains
    ("Z5", OUTSIDE, Refused(&["EACCES", "EROFS", "ENOENT"])), // another command's temporary directory
];

const NO_SOCKET: Expected = Refused(&["EPERM", "EBADF"]);
const NO_RIGHT: Expected = Refused(&["EACCES", "EPERM"]);
const NO_ANSWER: Expected = Refused(&["ECONNREFUSED", "EPERM"]);
const NO_PROTOCOL: Expected = Refused(&["EPROTONOSUPPORT", "EPERM"]);
const NO_PEER: Expected = Refused(&["EPERM", "ECONNREFUSED"]);

/// Rows that depend on the network mode, not on the tier: id, outcomes with `none`, `all`, `ports` and a private
/// loopback.
#[rustfmt::skip]
const NETWORK_ROWS: &[(&str, [Expected; 4])] = &[
    ("N01", [NO_SOCKET, Works, NO_RIGHT, NO_ANSWER]), // TCP to a port that is not allowed
    ("N02", [NO_SOCKET, Works, FILTERED, ReachesNothing]), // UDP
    ("N03", [NO_SOCKET, Works, FILTERED, NO_ANSWER]), // Fast Open
    ("N04", [NO_PROTOCOL, Works, NO_PROTOCOL, NO_PROTOCOL]), // MPTCP
    ("N05", [FILTERED, FILTERED, FILTERED, FILTERED]), // raw ICMP
    ("N06", [FILTERED, FILTERED, FILTERED, FILTERED]), // AF_PACKET
    ("N07", [FILTERED, Works, FILTERED, FILTERED]), // netlink route
    ("N08", [FILTERED, FILTERED, FILTERED, FILTERED]), // netlink sock_diag
    ("N09", [FILTERED, FILTERED, FILTERED, FILTERED]), // AF_VSOCK
    ("N10", [NO_RIGHT, NO_RIGHT, NO_RIGHT, NO_RIGHT]), // unix socket by path
    ("N11", [NO_PEER, NO_PEER, NO_PEER, NO_PEER]), // unix socket by name
    ("N12", [FILTERED, FILTERED, FILTERED, FILTERED]), // unix datagram by path
    ("N13", [NO_SOCKET, Works, FILTERED, ReachesNothing]), // listen without bind
    ("N15", [NO_SOCKET, Works, FILTERED, ReachesNothing]), // bind UDP
    ("N17", [BAD_SYSTEM_CALL, BAD_SYSTEM_CALL, BAD_SYSTEM_CALL, BAD_SYSTEM_CALL]), // int 0x80
    ("N18", [CLOSED, CLOSED, CLOSED, CLOSED]), // inherited connection
    ("N19", [Works, Works, Works, Works]), // socketpair
    ("N20", [NO_SOCKET, Works, NO_RIGHT, NO_ANSWER]), // TCP to ::1
    ("N22", [UNKNOWN_CALL, UNKNOWN_CALL, UNKNOWN_CALL, UNKNOWN_CALL]), // x32
    ("N23", [NO_SOCKET, Works, Works, NO_ANSWER]), // TCP to the allowed port
    ("N24", [FILTERED, FILTERED, FILTERED, FILTERED]), // datagram from a pair to a path
    ("N25", [FILTERED, FILTERED, FILTERED, FILTERED]), // the same from a raw pair
    ("W7", [CLOSED, CLOSED, CLOSED, CLOSED]), // descriptor over an inherited unix socket
    ("W8", [FILTERED, FILTERED, FILTERED, FILTERED]), // raw IPv6, SCTP
];

/// The ids of all rows, in alphabetical order.
pub(super) fn all_ids() -> Vec<&'static str> {
    let of_tiers = ROWS.iter().map(|(id, ..)| *id);
    let mut ids: Vec<&str> = of_tiers.chain(NETWORK_ROWS.iter().map(|(id, _)| *id)).collect();
    ids.sort_unstable();
    ids
}

pub(super) fn expected_in(id: &str, fence: Fence, caller: Caller) -> Expected {
    if let Some(expected) = by_mode(id, fence, caller) {
        return expected;
    }
    if let Some((_, tier_a, tier_b)) = ROWS.iter().find(|(row, ..)| *row == id) {
        return match fence.tier {
            Tier::A => *tier_a,
            Tier::B => *tier_b,
        };
    }
    let (_, [none, all, ports, private]) = NETWORK_ROWS.iter().find(|(row, _)| *row == id).unwrap();
    match fence.network {
        Network::None => *none,
        Network::All => *all,
        Network::Ports => *ports,
        Network::Localhost | Network::Loopback | Network::Http => *private,
    }
}

/// The outcome of a row that a read mode, a mirrored port or a caller changes.
fn by_mode(id: &str, fence: Fence, caller: Caller) -> Option<Expected> {
    match (id, fence) {
        // Emptying the bounding set takes a privilege (CAP_SETPCAP) that a plain user lacks in Tier A.
        ("K15b", Fence { tier: Tier::A, .. }) if !caller.is_root() => Some(Refused(&["none"])),
        ("F30" | "X5", Fence { read_mode: ReadMode::Strict, .. }) => Some(Refused(&["EACCES", "ENOENT"])),
        ("N23", Fence { network: Network::Localhost, .. }) => Some(Works),
        _ => None,
    }
}

/// The positive control: every attempt succeeds, except those that the kernel allows to no process or only to root.
pub(super) fn expected_without_fence(id: &str, caller: Caller) -> Expected {
    match id {
        // This kernel has no x32.
        "N22" => UNKNOWN_CALL,
        // These check properties that hold only inside a fence.
        "K14" | "K15b" => Refused(&["none"]),
        "K15" if caller.is_root() => Refused(&["none"]),
        "F32" | "N05" | "N06" | "W8" | "K04" | "K05" | "K06" | "K07" | "K17" if !caller.is_root() => FILTERED,
        "Q11" if !caller.is_root() => Refused(&["EACCES", "EPERM"]),
        // A kernel setting decides whether unprivileged processes may.
        "K13" if !caller.is_root() => ReachesNothing,
        // Only root can prepare these.
        "X1" | "X2" if caller == Caller::Own => GAINS_NOTHING,
        _ => Works,
    }
}
