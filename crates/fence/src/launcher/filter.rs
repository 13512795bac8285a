//! seccomp: which system calls are refused. A deny-list: any program must run, and Landlock already holds the
//! files; what is refused here is what Landlock does not see, and what only the curious need.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use super::{InStep, StepError};
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

const SET_ID_BITS: &[u64] = &[libc::S_ISUID as u64, libc::S_ISGID as u64];

const PROTOCOL_TCP: u64 = 6;
const PROTOCOL_UDP: u64 = 17;
const PROTOCOL_SMC: u64 = 256;
const PROTOCOL_MPTCP: u64 = 262;
/// An old way to raw packets, for families that should not have it.
const SOCK_PACKET: i32 = 10;
const FAST_OPEN: u64 = 0x2000_0000;
/// The kind of a socket without its flags.
const TYPE_MASK: u64 = 0xf;

/// Installs the filters on this process for good.
pub(super) fn install(plan: &SeccompPlan) -> Result<(), StepError> {
    for program in compile(plan)? {
        seccompiler::apply_filter(&program).step("seccomp")?;
    }
    Ok(())
}

/// One program for each answer that a refused call gets.
fn compile(plan: &SeccompPlan) -> Result<Vec<BpfProgram>, StepError> {
    let mut absent = Rules::default();
    absent.refuse_all(ABSENT);
    let mut unsupported = Rules::default();
    unsupported.refuse_multipath(&plan.network);
    let mut forbidden = Rules::default();
    forbidden.refuse_always(plan);
    forbidden.refuse_set_id_modes();
    if plan.tier == Tier::A {
        forbidden.refuse_reaching_others();
    }
    forbidden.refuse_sockets(plan);
    [(absent, libc::ENOSYS), (unsupported, libc::EPROTONOSUPPORT), (forbidden, libc::EPERM)]
        .into_iter()
        .filter(|(rules, _)| !rules.0.is_empty())
        .map(|(rules, errno)| rules.compile(errno))
        .collect()
}

/// The calls that get one answer, with the arguments that make them get it. No arguments: always.
#[derive(Default)]
struct Rules(BTreeMap<i64, Vec<SeccompRule>>);

/// One condition on one argument: number, length, comparison, value.
type Condition = (u8, Len, Op, u64);

fn is(argument: u8, value: u64) -> Condition {
    (argument, Len::Dword, Op::Eq, value)
}

fn is_not(argument: u8, value: u64) -> Condition {
    (argument, Len::Dword, Op::Ne, value)
}

fn has(argument: u8, bits: u64) -> Condition {
    (argument, Len::Dword, Op::MaskedEq(bits), bits)
}

impl Rules {
    fn refuse(&mut self, call: i64) {
        // An empty chain matches always, so it must stay empty.
        self.0.insert(call, Vec::new());
    }

    fn refuse_all(&mut self, calls: &[i64]) {
        for &call in calls {
            self.refuse(call);
        }
    }

    /// Refuses the call when all conditions hold.
    fn refuse_if(&mut self, call: i64, conditions: &[Condition]) {
        let conditions: Result<Vec<SeccompCondition>, _> = conditions
            .iter()
            .cloned()
            .map(|(argument, length, operator, value)| {
                SeccompCondition::new(argument, length, operator, value)
            })
            .collect();
        let rule = conditions.and_then(SeccompRule::new);
        // The conditions are constants of this file, so a failure is a mistake in it: refuse the call always.
        match (rule, self.0.get_mut(&call)) {
            (Ok(rule), Some(chain)) if !chain.is_empty() => chain.push(rule),
            (Ok(rule), None) => {
                self.0.insert(call, vec![rule]);
            }
            (Ok(_), Some(_)) => {}
            (Err(_), _) => self.refuse(call),
        }
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
                let bits = u64::from(bit.unsigned_abs());
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
        const CREATE: u64 = libc::O_CREAT as u64;
        const TEMPORARY: u64 = libc::O_TMPFILE as u64;
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

    /// Without a pid namespace: limits, priorities and shared memory of other processes.
    fn refuse_reaching_others(&mut self) {
        const USER: u64 = 2; // PRIO_USER
        const IO_USER: u64 = 3; // IOPRIO_WHO_USER
        for call in [
            libc::SYS_prlimit64,
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
        const INET: u64 = libc::AF_INET as u64;
        const INET6: u64 = libc::AF_INET6 as u64;
        const UNIX: u64 = libc::AF_UNIX as u64;
        const NETLINK: u64 = libc::AF_NETLINK as u64;
        // Pairs of connected sockets reach nobody.
        self.refuse_if(libc::SYS_socketpair, &[is_not(0, UNIX)]);
        let unix = (plan.unix_sockets == UnixSockets::Allow).then_some(UNIX);
        let mut families: Vec<u64> = unix.into_iter().collect();
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

    fn refuse_internet_sockets(&mut self, family: u64, network: &Network) {
        let kind_is = |kind: i32| (1, Len::Dword, Op::MaskedEq(TYPE_MASK), u64::from(kind.unsigned_abs()));
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
            self.refuse_if(libc::SYS_socket, &[is(2, protocol)]);
        }
    }

    fn compile(self, errno: i32) -> Result<BpfProgram, StepError> {
        let arch = TargetArch::try_from(std::env::consts::ARCH).step("seccomp")?;
        let answer = SeccompAction::Errno(errno.unsigned_abs());
        let filter = SeccompFilter::new(self.0, SeccompAction::Allow, answer, arch).step("seccomp")?;
        let program: BpfProgram = filter.try_into().step("seccomp")?;
        Ok(with_x32_guard(program))
    }
}

/// The filter's first instructions end a process of another architecture. The x32 interface has the same
/// architecture but other numbers, so it needs its own check.
fn with_x32_guard(mut program: BpfProgram) -> BpfProgram {
    const AFTER_ARCHITECTURE_CHECK: usize = 3;
    const LOAD: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const RETURN_ERRNO: u32 = 0x0005_0000;
    const X32: u32 = 0x4000_0000;
    if cfg!(target_arch = "x86_64") {
        let guard = [
            sock_filter { code: LOAD, jt: 0, jf: 0, k: 0 },
            sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: X32 },
            sock_filter { code: RETURN, jt: 0, jf: 0, k: RETURN_ERRNO | libc::ENOSYS.unsigned_abs() },
        ];
        program.splice(AFTER_ARCHITECTURE_CHECK..AFTER_ARCHITECTURE_CHECK, guard);
    }
    program
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

    #[test]
    fn every_mode_compiles_and_begins_with_the_architecture() {
        let modes = [
            Network::All,
            Network::None,
            Network::Localhost { ports: vec![1] },
            Network::Http { hosts: None },
            Network::Ports { ports: vec![443] },
        ];
        for network in modes {
            for unix_sockets in [UnixSockets::Deny, UnixSockets::Allow] {
                let plan = SeccompPlan { unix_sockets, ..plan(network.clone()) };
                for program in compile(&plan).unwrap() {
                    // Load the architecture, compare, kill.
                    assert_eq!((program[0].code, program[0].k, program[2].k), (0x20, 4, 0x8000_0000));
                    assert_eq!(program[4].k, 0x4000_0000);
                    assert!(program.len() < 4096);
                }
            }
        }
    }

    #[test]
    fn a_call_that_is_always_refused_stays_so() {
        let mut rules = Rules::default();
        rules.refuse(libc::SYS_socket);
        rules.refuse_if(libc::SYS_socket, &[is(0, 1)]);
        assert!(rules.0[&libc::SYS_socket].is_empty());
    }
}
