//! Starting a process without forking this one: `posix_spawn` with exact descriptors, and what the kernel
//! tells without a trial.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::process::Pid;

/// Above all descriptors that a child is given, so that none is overwritten before it is passed.
const SAFE_DESCRIPTOR: RawFd = 64;

/// Starts a program with an empty environment and exactly these descriptors.
pub(crate) fn spawn(
    program: &CStr,
    arguments: &[CString],
    passed: &[(BorrowedFd<'_>, RawFd)],
) -> io::Result<Pid> {
    let high: Vec<(OwnedFd, RawFd)> = passed
        .iter()
        .map(|(fd, number)| Ok((rustix::io::fcntl_dupfd_cloexec(fd, SAFE_DESCRIPTOR)?, *number)))
        .collect::<io::Result<_>>()?;
    let mut actions = FileActions::new()?;
    for (fd, number) in &high {
        actions.duplicate(fd.as_raw_fd(), *number)?;
    }
    // What is not given must not be inherited by number; what follows is closed by the launcher itself.
    for number in 0..SAFE_DESCRIPTOR.min(16) {
        if !high.iter().any(|(_, given)| *given == number) {
            actions.close(number)?;
        }
    }
    let pointers: Vec<*mut libc::c_char> =
        arguments.iter().map(|text| text.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect();
    let environment = [std::ptr::null_mut()];
    let mut pid = 0;
    // SAFETY: all strings and lists outlive the call, the lists end with null, the actions are initialised.
    let result = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            program.as_ptr(),
            actions.0.as_ptr(),
            std::ptr::null(),
            pointers.as_ptr(),
            environment.as_ptr(),
        )
    };
    match (result, Pid::from_raw(pid)) {
        (0, Some(pid)) => Ok(pid),
        (errno, _) => Err(io::Error::from_raw_os_error(errno)),
    }
}

struct FileActions(MaybeUninit<libc::posix_spawn_file_actions_t>);

impl FileActions {
    fn new() -> io::Result<Self> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: initialises the structure that it is given.
        result(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) })?;
        Ok(Self(actions))
    }

    fn duplicate(&mut self, from: RawFd, to: RawFd) -> io::Result<()> {
        // SAFETY: the structure was initialised by `new`.
        result(unsafe { libc::posix_spawn_file_actions_adddup2(self.0.as_mut_ptr(), from, to) })
    }

    fn close(&mut self, number: RawFd) -> io::Result<()> {
        // SAFETY: the structure was initialised by `new`.
        result(unsafe { libc::posix_spawn_file_actions_addclose(self.0.as_mut_ptr(), number) })
    }
}

impl Drop for FileActions {
    fn drop(&mut self) {
        // SAFETY: the structure was initialised by `new` and is not used again.
        unsafe { libc::posix_spawn_file_actions_destroy(self.0.as_mut_ptr()) };
    }
}

fn result(errno: libc::c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// The version of Landlock that the kernel enforces; 0 if none.
pub(crate) fn landlock_version() -> u32 {
    const VERSION: libc::c_long = 1;
    // SAFETY: asked with this flag, the call reads nothing and returns a number.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0, VERSION)
    };
    u32::try_from(version).unwrap_or(0)
}

/// Whether filters can answer with an error number.
pub(crate) fn has_seccomp_filters() -> bool {
    const GET_ACTION_AVAIL: libc::c_long = 2;
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads the one number that is pointed to.
    unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}
