//! System calls that have no safe wrapper: each one alone, with what makes it sound.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Ends this process without running anything of the C library's on the way.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: ends the process; nothing runs after it.
    unsafe { libc::_exit(code) }
}

/// Becomes another program; returns only the error.
pub(super) fn exec(program: &CStr, arguments: &[CString], environment: &[CString]) -> i32 {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both lists end with null, and their strings outlive the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Returns 0 in the child.
pub(super) fn fork() -> io::Result<i32> {
    // SAFETY: this process has one thread, so the child may do all that the parent may.
    let pid = unsafe { libc::fork() };
    check(libc::c_long::from(pid))?;
    Ok(pid)
}

/// Forks a child whose parent is this process's parent. Returns 0 in the child.
pub(super) fn fork_sibling() -> io::Result<i32> {
    fork_sibling_into(0)
}

/// The same for a child that is in new namespaces.
pub(super) fn fork_sibling_into(namespaces: i32) -> io::Result<i32> {
    let flags = libc::CLONE_PARENT | libc::SIGCHLD | namespaces;
    // SAFETY: without CLONE_VM the child has its own copy of everything, stack included; there is one thread.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    i32::try_from(pid).map_err(io::Error::other)
}

/// Sets attributes of a mount, and of all mounts below it if `recursive`.
pub(super) fn mount_setattr(
    directory: Option<BorrowedFd<'_>>,
    path: &CStr,
    attributes: u64,
    recursive: bool,
) -> io::Result<()> {
    let attribute = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    change_mount(directory, path, &attribute, recursive)
}

/// Takes attributes of a mount away.
pub(super) fn mount_clear_attributes(
    directory: Option<BorrowedFd<'_>>,
    path: &CStr,
    attributes: u64,
) -> io::Result<()> {
    let attribute = libc::mount_attr { attr_set: 0, attr_clr: attributes, propagation: 0, userns_fd: 0 };
    change_mount(directory, path, &attribute, false)
}

fn change_mount(
    directory: Option<BorrowedFd<'_>>,
    path: &CStr,
    attribute: &libc::mount_attr,
    recursive: bool,
) -> io::Result<()> {
    let fd = directory.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd());
    let mut flags = if recursive { libc::AT_RECURSIVE as u32 } else { 0 };
    if path.is_empty() {
        flags |= libc::AT_EMPTY_PATH as u32;
    }
    // SAFETY: the path is a string and the structure is as long as is said; both outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd,
            path.as_ptr(),
            flags,
            std::ptr::from_ref(attribute),
            size_of::<libc::mount_attr>(),
        )
    })?;
    Ok(())
}

/// Starts a session keyring of its own. `Ok(false)`: this kernel has no keyrings.
pub(super) fn join_new_keyring() -> io::Result<bool> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: a null name asks for an anonymous keyring.
    let joined = check(unsafe {
        libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>(), 0, 0, 0)
    });
    match joined {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes `number` another name of a descriptor, which exec does not close.
pub(super) fn duplicate_to(descriptor: i32, number: i32) {
    // SAFETY: this process has given up the descriptor that had that number.
    unsafe { libc::dup2(descriptor, number) };
}

/// Puts a filter on this process, for good.
pub(super) fn install_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, which is as long as is said, and changes nothing of it.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) })?;
    Ok(())
}

/// Allows what `rights` says below a file or directory.
pub(super) fn add_landlock_rule(
    ruleset: BorrowedFd<'_>,
    beneath: BorrowedFd<'_>,
    rights: u64,
) -> io::Result<()> {
    const PATH_BENEATH: libc::c_long = 1;
    #[repr(C, packed)]
    struct PathBeneath {
        rights: u64,
        beneath: libc::c_int,
    }
    let rule = PathBeneath { rights, beneath: beneath.as_raw_fd() };
    // SAFETY: the structure is the one that the kernel expects for this kind of rule, and outlives the call.
    check(unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), PATH_BENEATH, &raw const rule, 0)
    })?;
    Ok(())
}

/// Closes descriptors, or marks them to be closed by exec.
pub(super) fn close_range(first: u32, last: u32, on_exec: bool) -> io::Result<()> {
    let flags = if on_exec { libc::CLOSE_RANGE_CLOEXEC } else { 0 };
    // SAFETY: only descriptors that this process does not use lie in the range, or they only get a flag.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) })?;
    Ok(())
}

/// These signals to their default action, and none blocked.
pub(super) fn reset_signals(signals: impl IntoIterator<Item = i32>) {
    // SAFETY: default actions and an empty mask are valid for every signal; refusals (KILL, STOP) are meant.
    unsafe {
        for signal in signals {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// A descriptor that reads the given signals, which no longer interrupt.
pub(super) fn signal_descriptor(signals: &[i32]) -> io::Result<std::os::fd::OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before it is read; the new descriptor is ours alone.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        check(libc::c_long::from(fd))?;
        Ok(std::os::fd::FromRawFd::from_raw_fd(fd))
    }
}

/// The number of the signal that is waiting, if one is.
pub(super) fn next_signal(descriptor: BorrowedFd<'_>) -> Option<i32> {
    let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
    match rustix::io::read(descriptor, &mut bytes) {
        // The number is the first field.
        Ok(length) if length >= 4 => {
            i32::try_from(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).ok()
        }
        _ => None,
    }
}

/// Sends a signal: to one process, to a group (negative), to all that can be reached (-1).
pub(super) fn kill(target: i32, signal: i32) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(libc::c_long::from(unsafe { libc::kill(target, signal) }))?;
    Ok(())
}

/// Brings the loopback interface of this network namespace up.
pub(super) fn bring_loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: zeros are a valid ifreq; name and flags are set before the call, which reads no more.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
            *place = libc::c_char::try_from(*byte).unwrap_or(0);
        }
        request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0);
        check(libc::c_long::from(libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )))?;
    }
    Ok(())
}

/// Gives memory back that a process which only waits will not need again.
pub(super) fn release_unused_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: only returns free memory of the allocator to the system.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A system call by number, for canaries: the error number, or `None` if it succeeded.
pub(super) fn attempt(number: libc::c_long, arguments: [libc::c_long; 4]) -> Option<i32> {
    let [a, b, c, d] = arguments;
    // SAFETY: canaries pass numbers that no success could turn into a write to memory.
    let result = unsafe { libc::syscall(number, a, b, c, d) };
    if result < 0 { io::Error::last_os_error().raw_os_error() } else { None }
}

/// Calls the 32-bit interface of the kernel (getpid). Killed if a filter watches it.
#[cfg(target_arch = "x86_64")]
pub(super) fn call_foreign_interface() -> i64 {
    let result: i64;
    // SAFETY: getpid takes no arguments; int 0x80 clobbers nothing but the result and r8 to r11.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inlateout("rax") 20_i64 => result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    result
}
