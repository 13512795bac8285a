//! K19–K27: undoing the layers of a fence from inside: namespaces by every flag, registers with more than a filter
//! compares, a filter and a Landlock domain of one's own, and capabilities.

use testkit::AttackStage;

use crate::files::{create, done};
use crate::kernel::controlling_terminal;
use crate::row::Row;
use crate::system::{Attempt, Errno, Fork, call, fork, leave, open, wait_for};

pub(crate) const ROWS: &[Row] = &[
    ("K19", |_| unshare_any()),
    ("K20", |_| clone_with_junk()),
    ("K21", |_| type_with_junk()),
    ("K22", |_| done(call!(libc::SYS_personality, JUNK | i64::from(libc::ADDR_NO_RANDOMIZE)))),
    ("K23", |_| {
        install(&[returns(libc::SECCOMP_RET_ALLOW)], 0)?;
        done(call!(libc::SYS_unshare, libc::CLONE_NEWUSER))
    }),
    ("K24", |_| answer_own_calls()),
    ("K25", grant_everything),
    ("K26", |_| done(call!(libc::SYS_prctl, libc::PR_SET_SECUREBITS, 0, 0, 0, 0))),
    ("K27", |_| done(call!(libc::SYS_fanotify_init, libc::FAN_REPORT_FID, 0))),
];

/// A bit of a register that the kernel ignores where it takes 32 bits.
const JUNK: i64 = 1 << 32;

/// Tries every namespace but the user's, each alone.
fn unshare_any() -> Attempt {
    const TIME: i32 = 0x80;
    let flags = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWCGROUP,
        TIME,
    ];
    let mut answer = Err(Errno(libc::EINVAL));
    for flag in flags {
        answer = call!(libc::SYS_unshare, flag);
        if answer.is_ok() {
            break;
        }
    }
    done(answer)
}

fn clone_with_junk() -> Attempt {
    let flags = JUNK | i64::from(libc::CLONE_NEWUSER) | i64::from(libc::SIGCHLD);
    let child = call!(libc::SYS_clone, flags, 0, 0, 0, 0)? as i32;
    if child == 0 {
        leave(0);
    }
    wait_for(child)?;
    Ok(String::new())
}

/// Types into a terminal. Tries a pipe first, where anything but `ENOTTY` comes from a filter.
fn type_with_junk() -> Attempt {
    let command = JUNK | libc::TIOCSTI as i64;
    let mut ends = [0_i32; 2];
    call!(libc::SYS_pipe2, ends.as_mut_ptr(), 0)?;
    let byte = b'x';
    call!(libc::SYS_ioctl, ends[0], command, &raw const byte).or_else(|errno| match errno {
        Errno(libc::ENOTTY) => Ok(0),
        errno => Err(errno),
    })?;
    done(call!(libc::SYS_ioctl, controlling_terminal()?, command, &raw const byte))
}

const fn statement(code: u32, jump_if_not: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: jump_if_not, k: value }
}

const fn returns(action: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, 0, action)
}

/// Installs a filter of its own, on top of those that there are.
fn install(program: &[libc::sock_filter], flags: u64) -> Result<i32, Errno> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    call!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)?;
    let installed = call!(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)?;
    Ok(installed as i32)
}

/// Has the kernel ask this process about `unshare`, and tells it to go on.
fn answer_own_calls() -> Attempt {
    const RECEIVE: u64 = 0xc050_2100; // SECCOMP_IOCTL_NOTIF_RECV
    const SEND: u64 = 0xc018_2101; // SECCOMP_IOCTL_NOTIF_SEND
    const GO_ON: u64 = 1 << 32; // SECCOMP_USER_NOTIF_FLAG_CONTINUE, behind an error of 0
    let program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_unshare as u32),
        returns(libc::SECCOMP_RET_USER_NOTIF),
        returns(libc::SECCOMP_RET_ALLOW),
    ];
    let listener = install(&program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
    match fork()? {
        Fork::Child => {
            leave(call!(libc::SYS_unshare, libc::CLONE_NEWUSER).map_or_else(|errno| errno.0, |_| 0))
        }
        Fork::Parent { child } => {
            if is_asked(listener, child)? {
                let mut question = [0_u64; 10];
                call!(libc::SYS_ioctl, listener, RECEIVE, question.as_mut_ptr())?;
                let answer = [question[0], 0, GO_ON];
                call!(libc::SYS_ioctl, listener, SEND, answer.as_ptr())?;
            }
            match libc::WEXITSTATUS(wait_for(child)?) {
                0 => Ok(String::new()),
                errno => Err(Errno(errno)),
            }
        }
    }
}

/// Waits for a question or for the end of the child. Returns true if there is a question.
fn is_asked(listener: i32, child: i32) -> Result<bool, Errno> {
    let end = call!(libc::SYS_pidfd_open, child, 0)? as i32;
    let mut polled = [listener, end].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    call!(libc::SYS_poll, polled.as_mut_ptr(), polled.len(), -1)?;
    Ok(polled[0].revents & libc::POLLIN != 0)
}

/// Enters a Landlock domain that allows to write and make files everywhere.
fn grant_everything(stage: &AttackStage) -> Attempt {
    const WRITE_AND_MAKE: u64 = (1 << 1) | (1 << 8);
    const BENEATH: i32 = 1;
    let handled = [WRITE_AND_MAKE];
    let ruleset = call!(libc::SYS_landlock_create_ruleset, handled.as_ptr(), size_of_val(&handled), 0)?;
    let root = open("/", libc::O_PATH, 0)?;
    // `struct landlock_path_beneath_attr`: what is allowed, in two halves, and where.
    let rule = [WRITE_AND_MAKE as u32, 0, root as u32];
    call!(libc::SYS_landlock_add_rule, ruleset, BENEATH, rule.as_ptr(), 0)?;
    call!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)?;
    call!(libc::SYS_landlock_restrict_self, ruleset, 0)?;
    create(stage.outside("k25"))
}
