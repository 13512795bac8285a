//! Tries what must fail, in the process that becomes the command. A surprise in either direction ends the launch, so a
//! fence is known to hold and not only to be configured.

use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{StepError, sys};
use crate::ProtectionName as Name;
use crate::launch_request::LaunchRequest;
use crate::policy::{Network, Tier, UnixSockets};

const REFUSALS: &[Errno] = &[Errno::ACCESS, Errno::PERM, Errno::ROFS, Errno::NOENT];

/// Tries files, before the filter is installed.
pub(super) fn after_landlock(request: &LaunchRequest) -> Result<Vec<Name>, StepError> {
    let mut shown = Vec::new();
    write_outside(&request.canaries.outside)?;
    for root in &request.steps.landlock.read_write {
        write_inside(root.path())?;
    }
    for root in &request.steps.landlock.read_only {
        write_outside(root.path())?;
    }
    shown.push(Name::FsWriteScope);
    if read_denied(request)? {
        shown.push(Name::DenyRead);
    }
    if request.steps.tier == Tier::B {
        own_process_namespace()?;
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
        expect("shmat", sys::attempt(libc::SYS_shmat, [-1, 0, 0, 0]), &[libc::EPERM])?;
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

fn write_outside(directory: &Path) -> Result<(), StepError> {
    let path = directory.join("canary");
    match rustix::fs::open(
        &path,
        OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o600),
    ) {
        Err(errno) if REFUSALS.contains(&errno) => Ok(()),
        Err(errno) => Err(surprise("write outside the scope", &format!("unexpected {errno}"))),
        Ok(_) => Err(surprise("write outside the scope", "was not refused")),
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

/// Checks that a denied path is gone or covered. Returns false if no denied path exists.
fn read_denied(request: &LaunchRequest) -> Result<bool, StepError> {
    let Some(denied) = &request.canaries.denied else { return Ok(false) };
    match rustix::fs::open(&denied.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Err(_) => Ok(true),
        Ok(file) => match rustix::fs::fstat(&file) {
            Ok(stat) if (stat.st_dev, stat.st_ino) != (denied.device, denied.inode) => Ok(true),
            _ => Err(surprise(&denied.path.display().to_string(), "can be read")),
        },
    }
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
