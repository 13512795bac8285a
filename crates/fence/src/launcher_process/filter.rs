//! seccomp: which system calls are refused. It is a deny list, because any program must run. Landlock guards the files;
//! this refuses what Landlock does not see, and what ordinary programs do not need.

mod assemble;
#[cfg(all(test, target_arch = "x86_64"))]
mod call_table;
mod refused_calls;

use std::collections::BTreeMap;

use libc::sock_filter as Instruction;

use self::assemble::AssembleError;
use self::refused_calls::{ABSENT, DEBUGGING, IPC, KERNEL, KERNEL_OF_ARCHITECTURE, MOUNTING};
use super::{InStep, StepError, sys};
use crate::plan::SeccompPlan;
use crate::policy::{Network, Tier, UnixSockets};

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
    let program = rules(plan).assemble().step("seccomp")?;
    sys::install_filter(&program).step("seccomp")
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

/// The rules of each call that can be refused. The first rule that applies gives the answer.
#[derive(Default)]
struct Rules(BTreeMap<i64, Vec<Rule>>);

/// Refuses a call when all conditions hold.
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
        // A lease makes every process that opens the file wait, on the whole host.
        self.refuse_if(libc::SYS_fcntl, &[is(1, libc::F_SETLEASE.unsigned_abs())]);
        // Reading (all bits set) and setting the default are harmless.
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

    /// A limit on processor time kills its process, and one on files stops it; the supervisor could be that process.
    fn refuse_limiting_others(&mut self) {
        self.refuse_if(libc::SYS_prlimit64, &[is_not(0, 0)]);
    }

    /// Without namespaces: priorities, shared memory and queues of other processes.
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
        self.refuse_all(IPC);
    }

    fn refuse_sockets(&mut self, plan: &SeccompPlan) {
        const INET: u32 = libc::AF_INET.unsigned_abs();
        const INET6: u32 = libc::AF_INET6.unsigned_abs();
        const UNIX: u32 = libc::AF_UNIX.unsigned_abs();
        const NETLINK: u32 = libc::AF_NETLINK.unsigned_abs();
        self.refuse_if(libc::SYS_socketpair, &[is_not(0, UNIX)]);
        let unix = (plan.unix_sockets == UnixSockets::Allow).then_some(UNIX);
        if unix.is_none() {
            // A pair reaches no other process, as long as it cannot send elsewhere: one of datagrams can, to any path.
            let kind_is_not = |kind: i32| Condition { mask: TYPE_MASK, ..is_not(1, kind.unsigned_abs()) };
            let others = [kind_is_not(libc::SOCK_STREAM), kind_is_not(libc::SOCK_SEQPACKET)];
            self.refuse_if(libc::SYS_socketpair, &others);
        }
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
        // SMC and MPTCP have an answer of their own.
        let other: Vec<Condition> = std::iter::once(is(0, family))
            .chain(protocols.into_iter().map(|protocol| is_not(2, protocol)))
            .collect();
        self.refuse_if(libc::SYS_socket, &other);
    }

    /// Transports that bypass Landlock's port rules. Libraries fall back to TCP when these are not supported.
    fn refuse_multipath(&mut self, network: &Network) {
        if matches!(network, Network::All | Network::None) {
            return;
        }
        for protocol in [PROTOCOL_SMC, PROTOCOL_MPTCP] {
            let rule = Rule { conditions: vec![is(2, protocol)], errno: libc::EPROTONOSUPPORT };
            self.add(libc::SYS_socket, rule);
        }
    }

    fn assemble(self) -> Result<Vec<Instruction>, AssembleError> {
        let numbered = |(call, rules)| {
            u32::try_from(call).map(|number| (number, rules)).map_err(|_| AssembleError::NotACall(call))
        };
        let calls: Vec<(u32, Vec<Rule>)> = self.0.into_iter().map(numbered).collect::<Result<_, _>>()?;
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
        assemble::tests::run(&rules(plan).assemble().unwrap(), u32::try_from(call).unwrap(), arguments)
    }

    #[test]
    fn every_refused_call_gets_its_answer_and_the_others_pass() {
        let plan = plan(Network::All);
        for call in MOUNTING.iter().chain(KERNEL).chain(KERNEL_OF_ARCHITECTURE).chain(DEBUGGING).chain(IPC) {
            assert_eq!(answer(&plan, *call, [0; 4]), Some(libc::EPERM.unsigned_abs()), "{call}");
        }
        for call in ABSENT {
            assert_eq!(answer(&plan, *call, [0; 4]), Some(libc::ENOSYS.unsigned_abs()), "{call}");
        }
        let refused = rules(&plan).0;
        for call in (0..=336).chain(424..470).filter(|call| !refused.contains_key(call)) {
            assert_eq!(answer(&plan, call, [u32::MAX; 4]), None, "{call}");
        }
        for call in (337..424).chain([470, 471, 600, 0x4000_0000, 0x4000_0001]) {
            let absent = Some(libc::ENOSYS.unsigned_abs());
            assert_eq!(answer(&plan, call, [0; 4]), absent, "{call}: no such call is known");
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
        let fcntl = |command: i32| answer(&plan, libc::SYS_fcntl, [0, command.unsigned_abs(), 0, 0]);
        assert_eq!([fcntl(libc::F_SETLK), fcntl(libc::F_GETLEASE)], [None, None]);
        assert_eq!(fcntl(libc::F_SETLEASE), Some(libc::EPERM.unsigned_abs()));
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
            let pair = |kind: i32| {
                let arguments = [unix.unsigned_abs(), kind.unsigned_abs(), 0, 0];
                answer(&plan(network.clone()), libc::SYS_socketpair, arguments)
            };
            for kind in [stream, libc::SOCK_SEQPACKET, stream | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK] {
                assert_eq!(pair(kind), None, "these pairs reach no other process");
            }
            // The kernel takes a raw socket of this family for one of datagrams.
            for kind in [datagram, libc::SOCK_RAW, datagram | libc::SOCK_CLOEXEC] {
                assert_eq!(pair(kind), refused, "{kind}");
            }
        }
        assert_eq!(socket(&ports, inet, stream, 6), None);
        assert_eq!(socket(&ports, inet, stream, PROTOCOL_MPTCP), Some(libc::EPROTONOSUPPORT.unsigned_abs()));
        assert_eq!(socket(&ports, inet, datagram, 0), refused);
        assert_eq!(socket(&Network::Http { hosts: None }, inet, datagram, 17), None);
    }

    #[test]
    fn other_architectures_are_fatal_and_x32_is_absent() {
        let program = rules(&plan(Network::All)).assemble().unwrap();
        assert_eq!((program[0].code, program[0].k, program[2].k), (0x20, 4, 0x8000_0000));
        let x32 = assemble::tests::run(&program, 0x4000_0000 | 0x29, [2, 1, 0, 0]);
        assert_eq!(x32, if cfg!(target_arch = "x86_64") { Some(libc::ENOSYS.unsigned_abs()) } else { None });
    }
}
