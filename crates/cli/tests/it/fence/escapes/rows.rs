//! The tables of expected outcomes, one row for each attempt: its id, what is tried, and what comes of it in each tier or
//! network mode. A row lists every error that is right.

use super::expected::Expected::{
    self, Killed, ReachesNothing, Refused, Works, WorksAndIsReported, WorksInPrivate,
};

const OUTSIDE: Expected = Refused(&["EACCES", "EROFS"]);
/// Outside, and with strict reads not even there.
const UNSEEN: Expected = Refused(&["EACCES", "EROFS", "ENOENT"]);
const ACROSS: Expected = Refused(&["EACCES", "EXDEV", "EROFS"]);
const ACROSS_UNSEEN: Expected = Refused(&["EACCES", "EXDEV", "EROFS", "ENOENT"]);
pub(super) const DENIED: Expected = Refused(&["EACCES"]);
pub(super) const FILTERED: Expected = Refused(&["EPERM"]);
const CLOSED: Expected = Refused(&["EBADF"]);
const ABSENT: Expected = Refused(&["ENOENT"]);
const NOBODY: Expected = Refused(&["ESRCH", "EPERM"]);
const NO_SUCH_ID: Expected = Refused(&["EINVAL", "EIDRM", "EACCES"]);
pub(super) const UNKNOWN_CALL: Expected = Refused(&["ENOSYS"]);
pub(super) const GAINS_NOTHING: Expected = Refused(&["none", "EPERM", "EACCES"]);
const METADATA_WRITE: Expected = WorksAndIsReported("fs_metadata_writes");
const METADATA_READ: Expected = WorksAndIsReported("fs_metadata_reads");
const PROCESS_SEEN: Expected = WorksAndIsReported("proc_visibility");
const NOT_KEPT: Expected = WorksAndIsReported("scope_metadata");
/// Settings of the kernel, which a root of its own may not show.
const SETTING: Expected = Refused(&["EACCES", "EROFS", "EPERM", "ENOENT"]);
const DEVICE: Expected = Refused(&["EACCES", "EPERM", "ENOENT"]);
const BY_MAPPING: Expected = Refused(&["EPERM", "EACCES", "EROFS", "ENOENT"]);
const BAD_SYSTEM_CALL: Expected = Killed(31);

/// Rows that do not depend on the network mode: id, outcome in Tier A, outcome in Tier B.
#[rustfmt::skip]
pub(super) const ROWS: &[(&str, Expected, Expected)] = &[
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
    ("F42", ACROSS, ACROSS_UNSEEN), // exchange with a file in the scope
    ("F43", OUTSIDE, UNSEEN), // rename and leave a whiteout
    ("F44", ACROSS, ACROSS_UNSEEN), // link a descriptor of the scope to a name outside
    ("F45", METADATA_WRITE, UNSEEN), // set an attribute by descriptor
    ("F46", METADATA_WRITE, UNSEEN), // set times by descriptor
    ("F47", METADATA_WRITE, UNSEEN), // chmod by a descriptor without rights
    ("F48", METADATA_WRITE, UNSEEN), // set flags of the inode
    ("F49", BY_MAPPING, BY_MAPPING), // open the file of a mapping for writing
    ("F50", OUTSIDE, UNSEEN), // create through a link to nothing
    ("F51", FILTERED, FILTERED), // lease on a readable file, for which others that open it wait

    ("R01", DENIED, Refused(&["ENOENT", "EACCES"])), // read ~/.ssh/id_rsa
    ("R02", DENIED, ReachesNothing), // list ~/.ssh
    ("R03", METADATA_READ, Refused(&["ENOENT", "EACCES"])), // stat
    ("R04", METADATA_READ, ReachesNothing), // inotify
    ("R05", DENIED, Refused(&["ENOENT", "EACCES"])), // through /proc/self/root
    ("R06", DENIED, Refused(&["ENOENT", "EACCES"])), // through a symlink in the scope
    ("R07", METADATA_READ, Refused(&["ENOENT", "EACCES"])), // O_PATH
    ("R08", METADATA_READ, Refused(&["ENOENT", "EACCES"])), // getxattr
    ("R09", UNKNOWN_CALL, UNKNOWN_CALL), // io_uring openat

    ("S01", FILTERED, FILTERED), // unmount the scope
    ("S02", FILTERED, FILTERED), // remount it
    ("S03", FILTERED, FILTERED), // make a mount writable with mount_setattr
    ("S04", FILTERED, FILTERED), // move a mount
    ("S05", FILTERED, FILTERED), // pivot_root once more
    ("S06", FILTERED, FILTERED), // fspick
    ("S07", OUTSIDE, UNSEEN), // .. above the root
    ("S08", DENIED, DENIED), // the supervisor's root in /proc
    ("S09", Works, WorksInPrivate), // the host's mounts in /proc/self/mountinfo
    ("S10", Works, Refused(&["ENOENT", "EPERM"])), // statmount of the host's root

    ("D01", SETTING, SETTING), // /proc/sys: the program that gets core dumps
    ("D02", SETTING, SETTING), // /proc/sys/net
    ("D03", SETTING, SETTING), // sysrq, interrupts
    ("D04", DEVICE, DEVICE), // the kernel's log
    ("D05", SETTING, SETTING), // /sys
    ("D06", DEVICE, DEVICE), // read the disk
    ("D07", Refused(&["EACCES", "EPERM"]), Refused(&["EACCES", "EPERM"])), // block device in the scope
    ("D08", DEVICE, DEVICE), // a terminal of another program
    ("D09", OUTSIDE, UNSEEN), // open a descriptor again for writing
    ("D10", OUTSIDE, UNSEEN), // truncate what a descriptor stands for

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
    ("P17", NOBODY, NOBODY), // tgkill
    ("P18", NOBODY, NOBODY), // rt_sigqueueinfo
    ("P19", ReachesNothing, NOBODY), // signal to the owner of a pipe
    ("P20", NOBODY, NOBODY), // setpriority
    ("P21", NOBODY, NOBODY), // ioprio_set
    ("P22", NOBODY, NOBODY), // sched_setscheduler
    ("P23", FILTERED, NOBODY), // process_madvise
    ("P24", DENIED, DENIED), // the supervisor's memory
    ("P25", FILTERED, FILTERED), // ptrace of the supervisor
    ("P26", FILTERED, FILTERED), // pidfd_getfd from the supervisor
    ("P27", FILTERED, Refused(&["none"])), // stop the supervisor
    ("P28", FILTERED, FILTERED), // prlimit of the supervisor
    ("P29", FILTERED, FILTERED), // move_pages
    ("P30", NOBODY, NOBODY), // get_robust_list
    ("P31", FILTERED, FILTERED), // process_vm_writev
    ("P32", FILTERED, NOBODY), // setns by a descriptor of the victim
    ("P33", DENIED, DENIED), // the supervisor's descriptors

    ("I01", FILTERED, Refused(&["EINVAL", "EPERM"])), // shmat
    ("I02", FILTERED, Refused(&["ENOENT", "EACCES"])), // POSIX queue
    ("I03", FILTERED, FILTERED), // keyctl
    ("I04", FILTERED, FILTERED), // add_key
    ("I05", FILTERED, NO_SUCH_ID), // msgsnd by id
    ("I06", FILTERED, NO_SUCH_ID), // msgrcv by id
    ("I07", FILTERED, NO_SUCH_ID), // semop by id
    ("I08", FILTERED, NO_SUCH_ID), // remove a queue by id
    ("I09", FILTERED, Refused(&["ENOENT", "EACCES"])), // remove a POSIX queue by name
    ("I10", PROCESS_SEEN, Refused(&["none"])), // list all segments
    ("I11", FILTERED, NO_SUCH_ID), // semctl by id
    ("I12", DENIED, ABSENT), // read a POSIX shared memory object
    ("I13", FILTERED, FILTERED), // request_key

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
    ("K19", FILTERED, FILTERED), // unshare every other namespace
    ("K20", FILTERED, FILTERED), // clone NEWUSER, with more bits than a filter compares
    ("K21", FILTERED, FILTERED), // TIOCSTI with such bits
    ("K22", FILTERED, FILTERED), // personality with such bits
    ("K23", FILTERED, FILTERED), // a filter that allows everything
    ("K24", FILTERED, FILTERED), // a filter that asks the attacker
    ("K25", OUTSIDE, UNSEEN), // a Landlock domain that allows everything
    ("K26", FILTERED, FILTERED), // securebits
    ("K27", FILTERED, FILTERED), // fanotify
    ("K28", FILTERED, FILTERED), // swapon
    ("K29", FILTERED, FILTERED), // acct
    ("K30", FILTERED, FILTERED), // reboot
    ("K31", FILTERED, FILTERED), // syslog
    ("K32", FILTERED, FILTERED), // set the clock
    ("K33", FILTERED, FILTERED), // set the names of the host
    ("K34", FILTERED, FILTERED), // modify_ldt, iopl, ioperm
    ("K35", FILTERED, FILTERED), // kexec and modules
    ("K36", FILTERED, FILTERED), // quotactl
    ("K37", FILTERED, FILTERED), // obsolete calls
    ("L01", WorksInPrivate, WorksInPrivate), // setsid: allowed, but the process does not outlive the fence
    ("L02", WorksInPrivate, WorksInPrivate), // the same as a child of its maker's parent
    ("L03", WorksInPrivate, WorksInPrivate), // the same, stopped

    ("M01", NOT_KEPT, NOT_KEPT), // make a git hook
    ("M02", NOT_KEPT, NOT_KEPT), // replace git's configuration
    ("M03", NOT_KEPT, NOT_KEPT), // rename a directory in .git
    ("M04", NOT_KEPT, NOT_KEPT), // lead git elsewhere for hooks and configuration
    ("M05", NOT_KEPT, NOT_KEPT), // make a missing .vscode as a link
    ("M06", NOT_KEPT, NOT_KEPT), // make a missing .claude with settings
    ("M07", NOT_KEPT, NOT_KEPT), // make a missing .envrc
    ("M08", NOT_KEPT, NOT_KEPT), // rename a directory to a missing .devcontainer
    ("M09", NOT_KEPT, NOT_KEPT), // O_TMPFILE in .husky, then a name for it
    ("M10", NOT_KEPT, NOT_KEPT), // O_TMPFILE in the scope, then a name in .cursor
    ("M11", NOT_KEPT, NOT_KEPT), // exchange .mcp.json with another file
    ("M12", NOT_KEPT, NOT_KEPT), // chmod in .idea
    ("M13", NOT_KEPT, NOT_KEPT), // write where the link .codex leads
    ("M14", NOT_KEPT, NOT_KEPT), // remove the link
    ("M15", NOT_KEPT, NOT_KEPT), // make what the link .gemini leads to
    ("M16", NOT_KEPT, NOT_KEPT), // rename the directory above a link's target
    ("M17", NOT_KEPT, NOT_KEPT), // rename .git
    ("M18", NOT_KEPT, NOT_KEPT), // replace a link on the way from .devcontainer.json
    ("M19", NOT_KEPT, NOT_KEPT), // write the script that a hook is a link to
    ("M20", NOT_KEPT, NOT_KEPT), // make a file that an included configuration includes
    ("M21", NOT_KEPT, NOT_KEPT), // make an included file inside .git
    ("M22", NOT_KEPT, NOT_KEPT), // make a hooks path whose directories are missing
    ("M23", NOT_KEPT, NOT_KEPT), // make the scope itself a repository

    ("X1", GAINS_NOTHING, GAINS_NOTHING), // set-user-id program
    ("X2", GAINS_NOTHING, GAINS_NOTHING), // program with file capabilities
    ("X3", OUTSIDE, UNSEEN), // ld.so: in the same fence
    ("X4", ACROSS, ACROSS_UNSEEN), // overwrite the launcher
    ("X5", Works, Works), // script whose interpreter is outside
    ("X9", BAD_SYSTEM_CALL, BAD_SYSTEM_CALL), // 32-bit program
    ("Q11", Refused(&["EACCES", "EROFS", "EPERM"]), Refused(&["EACCES", "EROFS", "EPERM", "ENOENT"])), // cgroup
    ("Q12", Refused(&["none"]), Refused(&["none"])), // core dump
    ("Q13", SETTING, SETTING), // join the host's control group
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
pub(super) const NETWORK_ROWS: &[(&str, [Expected; 4])] = &[
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
    ("N26", [FILTERED, FILTERED, FILTERED, FILTERED]), // every other family
    ("N27", [FILTERED, FILTERED, FILTERED, FILTERED]), // every other netlink protocol
    ("N28", [FILTERED, FILTERED, FILTERED, FILTERED]), // N24 with more bits than a filter compares
    ("N29", [NO_SOCKET, Works, FILTERED, NO_ANSWER]), // Fast Open by sendmmsg
    ("N30", [NO_SOCKET, Works, NO_RIGHT, NO_ANSWER]), // Fast Open at connect
    ("N31", [NO_SOCKET, Works, NO_RIGHT, ReachesNothing]), // bind TCP
    ("N32", [FILTERED, Works, FILTERED, FILTERED]), // UDP-Lite
    ("N33", [FILTERED, FILTERED, FILTERED, FILTERED]), // SOCK_PACKET
    ("N34", [FILTERED, FILTERED, FILTERED, FILTERED]), // pairs of other families
    ("N35", [NO_SOCKET, Works, NO_RIGHT, NO_ANSWER]), // TCP to ::ffff:127.0.0.1
    ("W7", [CLOSED, CLOSED, CLOSED, CLOSED]), // descriptor over an inherited unix socket
    ("W8", [FILTERED, FILTERED, FILTERED, FILTERED]), // raw IPv6, SCTP
];
