//! Tries what must fail, in the process that becomes the command. A surprise in either direction ends the launch, so a
//! fence is known to hold and not only to be configured.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

use super::{StepError, sys};
use crate::ProtectionName as Name;
use crate::launch_request::LaunchRequest;
use crate::policy::{Network, Tier, UnixSockets};

const REFUSALS: &[Errno] = &[Errno::ACCESS, Errno::PERM, Errno::ROFS, Errno::NOENT];

/// Tries files, before the filter is installed.
pub(super) fn after_landlock(request: &LaunchRequest) -> Result<Vec<Name>, StepError> {
    let mut shown = Vec::new();
    let tier = request.steps.tier;
    write_outside(tier, &request.canaries.outside)?;
    for root in &request.steps.landlock.read_write {
        write_inside(root.path())?;
    }
    for root in &request.steps.landlock.read_only {
        write_outside(tier, root.path())?;
    }
    shown.push(Name::FsWriteScope);
    if read_denied(request)? {
        shown.push(Name::DenyRead);
    }
    if kept_paths_are_read_only(request)? {
        shown.push(Name::ScopeMetadata);
    }
    if tier == Tier::B {
        own_process_namespace()?;
        own_root()?;
        shown.extend([Name::ProcVisibility, Name::Signals]);
    } else if request.steps.landlock.version >= 6 {
        expect(
            "signal to the parent",
            sys::attempt(libc::SYS_kill, [request.parent.into(), 0, 0, 0]),
            &[libc::EPERM],
        )?;
        shown.push(Name::Signals);
    }
    descriptors_close_on_exec()?;
    shown.extend([Name::InheritedFds, Name::Capabilities]);
    if !rustix::thread::no_new_privs().unwrap_or(false) {
        return Err(surprise("no_new_privs", "is not set"));
    }
    shown.push(Name::NoNewPrivs);
    Ok(shown)
}

/// Tries system calls, with the filter installed.
pub(super) fn after_seccomp(request: &LaunchRequest) -> Result<Vec<Name>, StepError> {
    let seccomp = &request.steps.seccomp;
    let mut shown = vec![Name::OtherFamilies, Name::IoUring, Name::Keyring];
    expect("io_uring_setup", sys::attempt(libc::SYS_io_uring_setup, [0, 0, 0, 0]), &[libc::ENOSYS])?;
    expect("keyctl", sys::attempt(libc::SYS_keyctl, [0, 0, 0, 0]), &[libc::EPERM])?;
    expect("AF_VSOCK", socket(libc::AF_VSOCK, libc::SOCK_STREAM), &[libc::EPERM])?;
    if seccomp.unix_sockets == UnixSockets::Deny {
        expect("AF_UNIX", socket(libc::AF_UNIX, libc::SOCK_STREAM), &[libc::EPERM])?;
        expect("AF_UNIX datagrams", socket(libc::AF_UNIX, libc::SOCK_DGRAM), &[libc::EPERM])?;
        expect("pair of AF_UNIX datagrams", socket_pair(libc::SOCK_DGRAM), &[libc::EPERM])?;
        expect("pair of raw AF_UNIX sockets", socket_pair(libc::SOCK_RAW), &[libc::EPERM])?;
        shown.extend([Name::UnixPathname, Name::UnixAbstract]);
    }
    match seccomp.network {
        Network::None => {
            expect("TCP", socket(libc::AF_INET, libc::SOCK_STREAM), &[libc::EPERM])?;
            expect("UDP", socket(libc::AF_INET, libc::SOCK_DGRAM), &[libc::EPERM])?;
            shown.extend([Name::Tcp, Name::Udp]);
        }
        Network::Ports { .. } => {
            expect("UDP", socket(libc::AF_INET, libc::SOCK_DGRAM), &[libc::EPERM])?;
            shown.push(Name::Udp);
        }
        _ => {}
    }
    if !seccomp.nested_userns {
        expect(
            "unshare",
            sys::attempt(libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0, 0]),
            &[libc::EPERM],
        )?;
        shown.push(Name::NestedUserns);
    }
    if !seccomp.debug {
        expect("kcmp", sys::attempt(libc::SYS_kcmp, [0, 0, 0, 0]), &[libc::EPERM])?;
        shown.push(Name::Ptrace);
    }
    if request.steps.tier == Tier::A {
        for (what, call) in [
            ("shmat", libc::SYS_shmat),
            ("shmctl", libc::SYS_shmctl),
            ("semop", libc::SYS_semop),
            ("semctl", libc::SYS_semctl),
            ("msgsnd", libc::SYS_msgsnd),
            ("msgrcv", libc::SYS_msgrcv),
            ("msgctl", libc::SYS_msgctl),
            ("mq_open", libc::SYS_mq_open),
            ("mq_unlink", libc::SYS_mq_unlink),
        ] {
            expect(what, sys::attempt(call, [-1, 0, 0, 0]), &[libc::EPERM])?;
        }
        expect("setpriority", sys::attempt(libc::SYS_setpriority, [2, 0, 19, 0]), &[libc::EPERM])?;
        shown.extend([Name::SysvIpc, Name::SchedControl]);
    }
    if request.canaries.foreign_calls {
        foreign_calls_are_fatal()?;
    }
    Ok(shown)
}

fn surprise(what: &str, reason: &str) -> StepError {
    StepError::new("canary", format!("{what}: {reason}"))
}

fn expect(what: &str, got: Option<i32>, expected: &[i32]) -> Result<(), StepError> {
    match got {
        Some(errno) if expected.contains(&errno) => Ok(()),
        Some(errno) => {
            Err(surprise(what, &format!("unexpected {}", std::io::Error::from_raw_os_error(errno))))
        }
        None => Err(surprise(what, "was not refused")),
    }
}

fn socket(family: i32, kind: i32) -> Option<i32> {
    sys::attempt(libc::SYS_socket, [family.into(), kind.into(), 0, 0])
}

/// Tries to make a pair. There is no place to put it, so the kernel refuses in any case, but with another error.
fn socket_pair(kind: i32) -> Option<i32> {
    sys::attempt(libc::SYS_socketpair, [libc::AF_UNIX.into(), kind.into(), 0, 0])
}

fn write_outside(tier: Tier, directory: &Path) -> Result<(), StepError> {
    match create_canary(directory) {
        // The place of a mount below it, in the private temporary directory.
        Ok(file) if is_of_own_root(tier, &file) => {
            let _ = rustix::fs::unlink(directory.join(CANARY));
            Ok(())
        }
        created => must_be_refused("write outside the scope", &created),
    }
}

const CANARY: &str = "canary";

fn create_canary(directory: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    rustix::fs::open(directory.join(CANARY), flags, Mode::from_raw_mode(0o600))
}

fn must_be_refused(what: &str, opened: &rustix::io::Result<OwnedFd>) -> Result<(), StepError> {
    match opened {
        Err(errno) if REFUSALS.contains(errno) => Ok(()),
        Err(errno) => Err(surprise(what, &format!("unexpected {errno}"))),
        Ok(_) => Err(surprise(what, "was not refused")),
    }
}

/// The fence must allow what it is meant to allow.
fn write_inside(directory: &Path) -> Result<(), StepError> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::from_raw_mode(0o600)) {
        // File systems without unnamed files cannot be tried without leaving a trace.
        Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOSPC | Errno::DQUOT) => Ok(()),
        Err(errno) => Err(surprise(&format!("write in {}", directory.display()), &errno.to_string())),
    }
}

/// Checks that no denied path can be read. Returns false if none exists.
fn read_denied(request: &LaunchRequest) -> Result<bool, StepError> {
    for path in &request.canaries.denied {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { continue };
        // In a root of its own, the place of something below it that is shown, or what covers it.
        if !is_of_own_root(request.steps.tier, &file) {
            return Err(surprise(&path.display().to_string(), "can be read"));
        }
    }
    Ok(!request.canaries.denied.is_empty())
}

/// Whether a file lies in the tmpfs that is the root of this fence.
fn is_of_own_root(tier: Tier, file: &OwnedFd) -> bool {
    let root = rustix::fs::stat("/").map(|stat| stat.st_dev);
    tier == Tier::B && rustix::fs::fstat(file).is_ok_and(|stat| root == Ok(stat.st_dev))
}

/// Checks that the root is this fence's own and that the kernel's settings in it cannot be changed.
fn own_root() -> Result<(), StepError> {
    must_be_refused("write in the root", &create_canary(Path::new("/")))?;
    let settings = "/proc/sys/kernel/hostname";
    let opened = rustix::fs::open(settings, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    must_be_refused(settings, &opened)
}

/// Checks that every path that is kept lies on a read-only mount. Returns false if there is none.
fn kept_paths_are_read_only(request: &LaunchRequest) -> Result<bool, StepError> {
    let kept = request.steps.kept();
    for path in kept {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mount = rustix::fs::open(path, flags, Mode::empty()).and_then(rustix::fs::fstatvfs);
        if !mount.is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY)) {
            return Err(surprise(&path.display().to_string(), "can be changed"));
        }
    }
    Ok(!kept.is_empty())
}

fn own_process_namespace() -> Result<(), StepError> {
    match std::fs::read_link("/proc/self") {
        Ok(link) if link == Path::new("1") => Ok(()),
        _ => Err(surprise("pid namespace", "/proc shows another one")),
    }
}

fn descriptors_close_on_exec() -> Result<(), StepError> {
    for entry in std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // SAFETY: asks for a flag of a descriptor; one that is closed by now is an error that is handled.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        if number > 2 && flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            return Err(surprise("descriptors", &format!("{number} would stay open")));
        }
    }
    Ok(())
}

/// The 32-bit interface has other call numbers, so the filter kills a process that uses it.
#[cfg(target_arch = "x86_64")]
fn foreign_calls_are_fatal() -> Result<(), StepError> {
    use rustix::process::WaitOptions;
    let child = sys::fork().map_err(|error| StepError::new("canary", error))?;
    if child == 0 {
        let result = sys::call_foreign_interface();
        // A kernel without that interface ends the process too, or says that it has no such call.
        sys::exit(i32::from(result > 0));
    }
    let status = rustix::process::waitpid(rustix::process::Pid::from_raw(child), WaitOptions::empty());
    match status {
        Ok(Some((_, status))) if status.terminating_signal().is_some() || status.exit_status() == Some(0) => {
            Ok(())
        }
        _ => Err(surprise("32-bit system call", "was not refused")),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn foreign_calls_are_fatal() -> Result<(), StepError> {
    Ok(())
}
