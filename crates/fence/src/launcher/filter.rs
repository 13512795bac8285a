//! seccomp: which system calls are refused. A deny-list: any program must run, and Landlock already holds the
//! files; what is refused here is what Landlock does not see, and what only the curious need.

use std::collections::BTreeMap;

mod assemble;

use libc::sock_filter as Instruction;

use super::{InStep, StepError, sys};
use crate::plan::SeccompPlan;
use crate::policy::{Network, Tier, UnixSockets};

/// Refused as if the kernel did not have them: libraries know what to do without.
const ABSENT: &[i64] =
    &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_clone3];

/// Other processes' memory and descriptors.
const DEBUGGING: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_process_madvise,
];

/// Mounts and namespaces. `setns` and `chroot` need capabilities as well.
const MOUNTING: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    467, // open_tree_attr
];

/// Keys, kernel surfaces with a history of holes, and what only the administrator does.
const KERNEL: &[i64] = &[
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
];

#[cfg(target_arch = "x86_64")]
const KERNEL_OF_ARCHITECTURE: &[i64] = &[
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_uselib,
    libc::SYS_sysfs,
    libc::SYS_ustat,
];
#[cfg(not(target_arch = "x86_64"))]
const KERNEL_OF_ARCHITECTURE: &[i64] = &[libc::SYS_kexec_file_load];

/// Without an ipc namespace.
const SYSV: &[i64] = &[libc::SYS_shmget, libc::SYS_shmat, libc::SYS_semget, libc::SYS_msgget];

const NAMESPACE_BITS: &[i32] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    0x80, // CLONE_NEWTIME
];

const SET_ID_BITS: &[u32] = &[libc::S_ISUID, libc::S_ISGID];

const PROTOCOL_TCP: u32 = 6;
const PROTOCOL_UDP: u32 = 17;
const PROTOCOL_SMC: u32 = 256;
const PROTOCOL_MPTCP: u32 = 262;
/// An old way to raw packets, for families that should not have it.
const SOCK_PACKET: i32 = 10;
const FAST_OPEN: u32 = 0x2000_0000;
/// The kind of a socket without its flags.
const TYPE_MASK: u32 = 0xf;

/// Installs the filter on this process for good.
pub(super) fn install(plan: &SeccompPlan) -> Result<(), StepError> {
    sys::install_filter(&rules(plan).assemble()).step("seccomp")
}

/// Everything that is refused, each with its answer.
fn rules(plan: &SeccompPlan) -> Rules {
    let mut rules = Rules::default();
    for &call in ABSENT {
        rules.refuse_with(libc::ENOSYS, call);
    }
    rules.refuse_multipath(&plan.network);
    rules.refuse_always(plan);
    rules.refuse_set_id_modes();
    rules.refuse_limiting_others();
    if plan.tier == Tier::A {
        rules.refuse_reaching_others();
    }
    rules.refuse_sockets(plan);
    rules
}

/// The calls that are refused, with what makes them be. The first rule of a call that applies gives the answer.
#[derive(Default)]
struct Rules(BTreeMap<i64, Vec<Rule>>);

/// No conditions: always.
struct Rule {
    conditions: Vec<Condition>,
    errno: i32,
}

/// A comparison of the lower half of one argument.
#[derive(Clone, Copy)]
struct Condition {
    argument: u8,
    mask: u32,
    value: u32,
    is_equal: bool,
}

fn is(argument: u8, value: u32) -> Condition {
    Condition { argument, mask: u32::MAX, value, is_equal: true }
}

fn is_not(argument: u8, value: u32) -> Condition {
    Condition { is_equal: false, ..is(argument, value) }
}

fn has(argument: u8, bits: u32) -> Condition {
    Condition { mask: bits, ..is(argument, bits) }
}

impl Rules {
    fn refuse(&mut self, call: i64) {
        self.refuse_with(libc::EPERM, call);
    }

    fn refuse_with(&mut self, errno: i32, call: i64) {
        self.add(call, Rule { conditions: Vec::new(), errno });
    }

    fn refuse_all(&mut self, calls: &[i64]) {
        for &call in calls {
            self.refuse(call);
        }
    }

    /// Refuses the call when all conditions hold.
    fn refuse_if(&mut self, call: i64, conditions: &[Condition]) {
        self.add(call, Rule { conditions: conditions.to_vec(), errno: libc::EPERM });
    }

    fn add(&mut self, call: i64, rule: Rule) {
        self.0.entry(call).or_default().push(rule);
    }

    fn refuse_always(&mut self, plan: &SeccompPlan) {
        self.refuse_all(MOUNTING);
        self.refuse_all(KERNEL);
        self.refuse_all(KERNEL_OF_ARCHITECTURE);
        if !plan.debug {
            self.refuse_all(DEBUGGING);
        }
        if !plan.nested_userns {
            for &bit in NAMESPACE_BITS {
                let bits = bit.unsigned_abs();
                self.refuse_if(libc::SYS_unshare, &[has(0, bits)]);
                // In clone the low byte is a signal number, so the bit of time namespaces means nothing there.
                if bits > 0xff {
                    self.refuse_if(libc::SYS_clone, &[has(0, bits)]);
                }
            }
        }
        for command in [0x5412, 0x541C] {
            // TIOCSTI and TIOCLINUX type into a terminal.
            self.refuse_if(libc::SYS_ioctl, &[is(1, command)]);
        }
        // Asking (all bits) and setting the default are harmless.
        self.refuse_if(libc::SYS_personality, &[is_not(0, 0), is_not(0, 0xffff_ffff)]);
    }

    /// Set-id files would outlive the fence.
    fn refuse_set_id_modes(&mut self) {
        const CREATE: u32 = libc::O_CREAT.unsigned_abs();
        const TEMPORARY: u32 = libc::O_TMPFILE.unsigned_abs();
        const FCHMODAT2: i64 = 452;
        for &bit in SET_ID_BITS {
            self.refuse_if(libc::SYS_fchmod, &[has(1, bit)]);
            self.refuse_if(libc::SYS_fchmodat, &[has(2, bit)]);
            self.refuse_if(FCHMODAT2, &[has(2, bit)]);
            self.refuse_if(libc::SYS_mknodat, &[has(2, bit)]);
            self.refuse_if(libc::SYS_openat, &[has(2, CREATE), has(3, bit)]);
            self.refuse_if(libc::SYS_openat, &[has(2, TEMPORARY), has(3, bit)]);
            #[cfg(target_arch = "x86_64")]
            {
                self.refuse_if(libc::SYS_chmod, &[has(1, bit)]);
                self.refuse_if(libc::SYS_creat, &[has(1, bit)]);
                self.refuse_if(libc::SYS_mknod, &[has(1, bit)]);
                self.refuse_if(libc::SYS_open, &[has(1, CREATE), has(2, bit)]);
                self.refuse_if(libc::SYS_open, &[has(1, TEMPORARY), has(2, bit)]);
            }
        }
    }

    /// A limit on processor time kills, and a limit on files stops, whoever it is put on: the supervisor too.
    fn refuse_limiting_others(&mut self) {
        self.refuse_if(libc::SYS_prlimit64, &[is_not(0, 0)]);
    }

    /// Without a pid namespace: priorities and shared memory of other processes.
    fn refuse_reaching_others(&mut self) {
        const USER: u32 = 2; // PRIO_USER
        const IO_USER: u32 = 3; // IOPRIO_WHO_USER
        for call in [
            libc::SYS_sched_setaffinity,
            libc::SYS_sched_setscheduler,
            libc::SYS_sched_setparam,
            libc::SYS_sched_setattr,
        ] {
            self.refuse_if(call, &[is_not(0, 0)]);
        }
        for (call, user) in [(libc::SYS_setpriority, USER), (libc::SYS_ioprio_set, IO_USER)] {
            self.refuse_if(call, &[is_not(1, 0)]);
            self.refuse_if(call, &[is(0, user)]);
        }
        self.refuse_all(SYSV);
    }

    fn refuse_sockets(&mut self, plan: &SeccompPlan) {
        const INET: u32 = libc::AF_INET.unsigned_abs();
        const INET6: u32 = libc::AF_INET6.unsigned_abs();
        const UNIX: u32 = libc::AF_UNIX.unsigned_abs();
        const NETLINK: u32 = libc::AF_NETLINK.unsigned_abs();
        // Pairs of connected sockets reach nobody.
        self.refuse_if(libc::SYS_socketpair, &[is_not(0, UNIX)]);
        let unix = (plan.unix_sockets == UnixSockets::Allow).then_some(UNIX);
        let mut families: Vec<u32> = unix.into_iter().collect();
        match &plan.network {
            Network::None => {
                if unix.is_none() {
                    self.refuse(libc::SYS_socket);
                    for call in [
                        libc::SYS_connect,
                        libc::SYS_accept,
                        libc::SYS_accept4,
                        libc::SYS_bind,
                        libc::SYS_listen,
                    ] {
                        self.refuse(call);
                    }
                    return;
                }
            }
            Network::All => families.extend([INET, INET6, NETLINK]),
            _ => families.extend([INET, INET6]),
        }
        let other: Vec<Condition> = families.iter().map(|&family| is_not(0, family)).collect();
        self.refuse_if(libc::SYS_socket, &other);
        self.refuse_if(libc::SYS_socket, &[is(0, NETLINK), is_not(2, 0)]);
        for family in [INET, INET6] {
            self.refuse_internet_sockets(family, &plan.network);
        }
        if matches!(plan.network, Network::Ports { .. }) {
            self.refuse(libc::SYS_listen);
            self.refuse_if(libc::SYS_sendto, &[has(3, FAST_OPEN)]);
            self.refuse_if(libc::SYS_sendmsg, &[has(2, FAST_OPEN)]);
            self.refuse_if(libc::SYS_sendmmsg, &[has(3, FAST_OPEN)]);
        }
    }

    fn refuse_internet_sockets(&mut self, family: u32, network: &Network) {
        let kind_is = |kind: i32| Condition { mask: TYPE_MASK, ..is(1, kind.unsigned_abs()) };
        let mut kinds = vec![libc::SOCK_RAW, SOCK_PACKET];
        let mut protocols = vec![0, PROTOCOL_TCP, PROTOCOL_UDP, PROTOCOL_SMC, PROTOCOL_MPTCP];
        match network {
            Network::All => {
                for kind in kinds {
                    self.refuse_if(libc::SYS_socket, &[is(0, family), kind_is(kind)]);
                }
                return;
            }
            Network::Ports { .. } => {
                kinds.push(libc::SOCK_DGRAM);
                protocols.retain(|protocol| *protocol != PROTOCOL_UDP);
            }
            _ => {}
        }
        kinds.extend([libc::SOCK_RDM, libc::SOCK_SEQPACKET, libc::SOCK_DCCP]);
        for kind in kinds {
            self.refuse_if(libc::SYS_socket, &[is(0, family), kind_is(kind)]);
        }
        // The last two have an answer of their own.
        let other: Vec<Condition> = std::iter::once(is(0, family))
            .chain(protocols.into_iter().map(|protocol| is_not(2, protocol)))
            .collect();
        self.refuse_if(libc::SYS_socket, &other);
    }

    /// Transports that pass Landlock's port rules; libraries fall back to TCP when told that there are none.
    fn refuse_multipath(&mut self, network: &Network) {
        if matches!(network, Network::All | Network::None) {
            return;
        }
        for protocol in [PROTOCOL_SMC, PROTOCOL_MPTCP] {
            let rule = Rule { conditions: vec![is(2, protocol)], errno: libc::EPROTONOSUPPORT };
            self.add(libc::SYS_socket, rule);
        }
    }

    fn assemble(self) -> Vec<Instruction> {
        let calls: Vec<(u32, Vec<Rule>)> =
            self.0.into_iter().filter_map(|(call, rules)| Some((u32::try_from(call).ok()?, rules))).collect();
        assemble::program(&calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(network: Network) -> SeccompPlan {
        SeccompPlan {
            tier: Tier::A,
            network,
            unix_sockets: UnixSockets::Deny,
            debug: false,
            nested_userns: false,
        }
    }

    /// What the filter answers to a call with these arguments: an error number, or `None` for "allowed".
    fn answer(plan: &SeccompPlan, call: i64, arguments: [u32; 4]) -> Option<u32> {
        assemble::tests::run(&rules(plan).assemble(), u32::try_from(call).unwrap(), arguments)
    }

    #[test]
    fn every_refused_call_gets_its_answer_and_the_others_pass() {
        let plan = plan(Network::All);
        for call in MOUNTING.iter().chain(KERNEL).chain(KERNEL_OF_ARCHITECTURE).chain(DEBUGGING).chain(SYSV) {
            assert_eq!(answer(&plan, *call, [0; 4]), Some(libc::EPERM.unsigned_abs()), "{call}");
        }
        for call in ABSENT {
            assert_eq!(answer(&plan, *call, [0; 4]), Some(libc::ENOSYS.unsigned_abs()), "{call}");
        }
        let refused = rules(&plan).0;
        for call in (0..600).filter(|call| !refused.contains_key(call)) {
            assert_eq!(answer(&plan, call, [u32::MAX; 4]), None, "{call}");
        }
    }

    #[test]
    fn arguments_decide_where_they_should() {
        let plan = plan(Network::All);
        let openat = |flags: i32, mode| answer(&plan, libc::SYS_openat, [0, 0, flags.unsigned_abs(), mode]);
        assert_eq!(openat(libc::O_RDONLY, 0o4000), None, "without O_CREAT the mode means nothing");
        assert_eq!(openat(libc::O_CREAT | libc::O_WRONLY, 0o644), None);
        assert_eq!(openat(libc::O_CREAT | libc::O_WRONLY, 0o4755), Some(libc::EPERM.unsigned_abs()));
        assert_eq!(openat(libc::O_TMPFILE | libc::O_WRONLY, 0o2755), Some(libc::EPERM.unsigned_abs()));
        let unshare = |flags: i32| answer(&plan, libc::SYS_unshare, [flags.unsigned_abs(), 0, 0, 0]);
        assert_eq!(unshare(libc::CLONE_FILES), None);
        assert_eq!(unshare(libc::CLONE_FILES | libc::CLONE_NEWUSER), Some(libc::EPERM.unsigned_abs()));
        let personality = |value| answer(&plan, libc::SYS_personality, [value, 0, 0, 0]);
        assert_eq!([personality(0), personality(0xffff_ffff)], [None, None]);
        assert_eq!(personality(0x0004_0000), Some(libc::EPERM.unsigned_abs()));
    }

    #[test]
    fn sockets_follow_the_network_mode() {
        let socket = |network: &Network, family: i32, kind: i32, protocol: u32| {
            let arguments = [family.unsigned_abs(), kind.unsigned_abs(), protocol, 0];
            answer(&plan(network.clone()), libc::SYS_socket, arguments)
        };
        let (inet, unix, stream, datagram) =
            (libc::AF_INET, libc::AF_UNIX, libc::SOCK_STREAM, libc::SOCK_DGRAM);
        let ports = Network::Ports { ports: vec![443] };
        let refused = Some(libc::EPERM.unsigned_abs());
        assert_eq!(socket(&Network::All, inet, stream | libc::SOCK_CLOEXEC, 0), None);
        assert_eq!(socket(&Network::All, inet, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 1), refused);
        assert_eq!(socket(&Network::All, libc::AF_NETLINK, libc::SOCK_RAW, 0), None);
        assert_eq!(socket(&Network::All, libc::AF_NETLINK, libc::SOCK_RAW, 4), refused);
        assert_eq!(socket(&Network::None, inet, stream, 0), refused);
        for network in [&Network::All, &Network::None, &ports, &Network::Http { hosts: None }] {
            assert_eq!(socket(network, unix, stream, 0), refused);
            assert_eq!(socket(network, libc::AF_VSOCK, stream, 0), refused);
            let pair = answer(&plan(network.clone()), libc::SYS_socketpair, [unix.unsigned_abs(), 1, 0, 0]);
            assert_eq!(pair, None, "pairs reach nobody");
        }
        assert_eq!(socket(&ports, inet, stream, 6), None);
        assert_eq!(socket(&ports, inet, stream, PROTOCOL_MPTCP), Some(libc::EPROTONOSUPPORT.unsigned_abs()));
        assert_eq!(socket(&ports, inet, datagram, 0), refused);
        assert_eq!(socket(&Network::Http { hosts: None }, inet, datagram, 17), None);
    }

    #[test]
    fn other_architectures_are_fatal_and_x32_is_absent() {
        let program = rules(&plan(Network::All)).assemble();
        assert_eq!((program[0].code, program[0].k, program[2].k), (0x20, 4, 0x8000_0000));
        let x32 = assemble::tests::run(&program, 0x4000_0000 | 0x29, [2, 1, 0, 0]);
        assert_eq!(x32, if cfg!(target_arch = "x86_64") { Some(libc::ENOSYS.unsigned_abs()) } else { None });
    }
}
