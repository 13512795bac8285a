//! Direct system calls, their errors by name, and the few helpers that all attempts share.

use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The result of one attempt: a detail of its success, or the error that refused it.
pub(crate) type Attempt = Result<String, Errno>;

/// An error number. Zero stands for "nothing failed, and nothing was gained".
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const NOTHING_GAINED: Self = Self(0);

    pub(crate) fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

macro_rules! error_names {
    ($($name:ident)*) => {
        const NAMES: &[(i32, &str)] = &[(0, "none"), $((libc::$name, stringify!($name)),)*];
    };
}

error_names! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST
    EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE
    ENAMETOOLONG ENOSYS ENOTEMPTY ELOOP ENODATA EPROTO EOVERFLOW ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE
    ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE
    EADDRNOTAVAIL ENETDOWN ENETUNREACH ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ETIMEDOUT
    ECONNREFUSED EHOSTUNREACH EALREADY EINPROGRESS ESTALE EDQUOT ENOKEY EKEYREVOKED
}

/// A value that fits into a register of a system call.
pub(crate) trait Register {
    fn register(&self) -> libc::c_long;
}

macro_rules! number_registers {
    ($($number:ty)*) => {
        $(#[allow(clippy::cast_lossless, reason = "some of these numbers are narrower, some are not")]
        impl Register for $number {
            fn register(&self) -> libc::c_long {
                *self as libc::c_long
            }
        })*
    };
}

number_registers!(i32 u32 i64 u64 usize);

impl<T> Register for *const T {
    fn register(&self) -> libc::c_long {
        self.addr() as libc::c_long
    }
}

impl<T> Register for *mut T {
    fn register(&self) -> libc::c_long {
        self.addr() as libc::c_long
    }
}

impl Register for CString {
    fn register(&self) -> libc::c_long {
        self.as_ptr().register()
    }
}

impl Register for &std::ffi::CStr {
    fn register(&self) -> libc::c_long {
        self.as_ptr().register()
    }
}

/// A system call by number. Pointers among the arguments must stay valid until the call returns; temporaries do.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::system::system_call($number, &[$($crate::system::Register::register(&$argument)),*])
    };
}
pub(crate) use call;

pub(crate) fn system_call(number: libc::c_long, registers: &[libc::c_long]) -> Result<i64, Errno> {
    let mut all = [0; 6];
    all[..registers.len()].copy_from_slice(registers);
    let [first, second, third, fourth, fifth, sixth] = all;
    // SAFETY: the callers pass pointers to living buffers of the size that the call expects, and make no call that
    // unmaps memory of Rust's.
    let answer = unsafe { libc::syscall(number, first, second, third, fourth, fifth, sixth) };
    if answer == -1 { Err(Errno::last()) } else { Ok(answer) }
}

/// A path as a C string.
pub(crate) fn c_path(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).expect("paths of the stage have no NUL")
}

pub(crate) fn open(path: impl AsRef<Path>, flags: i32, mode: u32) -> Result<i32, Errno> {
    Ok(call!(libc::SYS_openat, libc::AT_FDCWD, c_path(path), flags | libc::O_CLOEXEC, mode)? as i32)
}

pub(crate) fn write(descriptor: i32, text: &str) -> Result<(), Errno> {
    call!(libc::SYS_write, descriptor, text.as_ptr(), text.len()).map(drop)
}

/// Reads up to a page of text.
pub(crate) fn read(descriptor: i32) -> Result<String, Errno> {
    let mut buffer = [0_u8; 4096];
    let length = call!(libc::SYS_read, descriptor, buffer.as_mut_ptr(), buffer.len())? as usize;
    Ok(String::from_utf8_lossy(&buffer[..length]).replace('\0', " "))
}

pub(crate) fn close(descriptor: i32) {
    drop(call!(libc::SYS_close, descriptor));
}

/// Which side of a fork this is.
pub(crate) enum Fork {
    Child,
    Parent { child: i32 },
}

pub(crate) fn fork() -> Result<Fork, Errno> {
    // SAFETY: this program has one thread, so the child may do everything that the parent may.
    match unsafe { libc::fork() } {
        -1 => Err(Errno::last()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent { child }),
    }
}

/// Exits a forked child without running its parent's exit handlers.
pub(crate) fn leave(code: i32) -> ! {
    // SAFETY: `_exit` only ends the process.
    unsafe { libc::_exit(code) }
}

/// Waits until a child ends, and returns its status.
pub(crate) fn wait_for(child: i32) -> Result<i32, Errno> {
    let mut status = 0_i32;
    loop {
        match call!(libc::SYS_wait4, child, &raw mut status, 0, 0) {
            Ok(_) => return Ok(status),
            Err(Errno(libc::EINTR)) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Makes `attempt` in a child process, because a process cannot undo its effects.
pub(crate) fn in_child(attempt: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    match fork()? {
        Fork::Child => leave(attempt().map_or_else(|errno| errno.0, |()| 0)),
        Fork::Parent { child } => {
            let status = wait_for(child)?;
            if libc::WIFSIGNALED(status) {
                // Ends this process with the signal that ended its child.
                drop(call!(libc::SYS_kill, std::process::id(), libc::WTERMSIG(status)));
            }
            match libc::WEXITSTATUS(status) {
                0 => Ok(()),
                errno => Err(Errno(errno)),
            }
        }
    }
}

pub(crate) fn pause_for_ever() -> ! {
    loop {
        drop(call!(libc::SYS_pause));
    }
}
