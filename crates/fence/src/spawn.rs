//! Starts processes with `posix_spawn`, which does not copy this process, and with exactly the descriptors that
//! they are given.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::Pid;

/// Above all descriptors that a child gets, so that none is overwritten before it is passed.
const SAFE_DESCRIPTOR: RawFd = 64;

/// Starts this binary again in the role that `argument` names.
pub(crate) fn spawn_self(
    executable: &Path,
    argument: &str,
    passed: &[(BorrowedFd<'_>, RawFd)],
) -> io::Result<Pid> {
    let executable = CString::new(executable.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let arguments = [c"ringfence".to_owned(), CString::new(argument).map_err(io::Error::other)?];
    spawn(&executable, &arguments, passed)
}

/// Starts a program with an empty environment and exactly these descriptors.
fn spawn(program: &CStr, arguments: &[CString], passed: &[(BorrowedFd<'_>, RawFd)]) -> io::Result<Pid> {
    let high: Vec<(OwnedFd, RawFd)> = passed
        .iter()
        .map(|(fd, number)| Ok((rustix::io::fcntl_dupfd_cloexec(fd, SAFE_DESCRIPTOR)?, *number)))
        .collect::<io::Result<_>>()?;
    let mut actions = FileActions::new()?;
    for (fd, number) in &high {
        actions.duplicate(fd.as_raw_fd(), *number)?;
    }
    // Close the low numbers that are not passed. The launcher itself closes the higher ones.
    for number in 0..SAFE_DESCRIPTOR.min(16) {
        if !high.iter().any(|(_, given)| *given == number) {
            actions.close(number)?;
        }
    }
    run_spawn(program, arguments, &[], actions.0.as_ptr(), std::ptr::null())
}

/// Starts a command in a session of its own, with all signals at their default and none blocked. All descriptors that
/// it must not inherit are marked close-on-exec already.
pub(crate) fn spawn_command(
    program: &CStr,
    arguments: &[CString],
    environment: &[CString],
) -> io::Result<Pid> {
    let attributes = Attributes::for_command()?;
    run_spawn(program, arguments, environment, std::ptr::null(), attributes.0.as_ptr())
}

fn run_spawn(
    program: &CStr,
    arguments: &[CString],
    environment: &[CString],
    actions: *const libc::posix_spawn_file_actions_t,
    attributes: *const libc::posix_spawnattr_t,
) -> io::Result<Pid> {
    let pointers = |strings: &[CString]| -> Vec<*mut libc::c_char> {
        strings.iter().map(|text| text.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    let mut pid = 0;
    // SAFETY: all strings and lists outlive the call, the lists end with null; actions and attributes are null
    // or initialised.
    let errno = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            program.as_ptr(),
            actions,
            attributes,
            arguments.as_ptr(),
            environment.as_ptr(),
        )
    };
    result(errno)?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::from(io::ErrorKind::Other))
}

struct Attributes(MaybeUninit<libc::posix_spawnattr_t>);

impl Attributes {
    fn for_command() -> io::Result<Self> {
        const SETSID: libc::c_int = 0x80;
        let flags = SETSID | libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        let flags = libc::c_short::try_from(flags).map_err(io::Error::other)?;
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised first; the sets are initialised before they are read.
        unsafe {
            result(libc::posix_spawnattr_init(attributes.as_mut_ptr()))?;
            let (mut all, mut none) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::sigemptyset(&raw mut none);
            result(libc::posix_spawnattr_setsigdefault(attributes.as_mut_ptr(), &raw const all))?;
            result(libc::posix_spawnattr_setsigmask(attributes.as_mut_ptr(), &raw const none))?;
            result(libc::posix_spawnattr_setflags(attributes.as_mut_ptr(), flags))?;
        }
        Ok(Self(attributes))
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: the attributes were initialised by `for_command` and are not used again.
        unsafe { libc::posix_spawnattr_destroy(self.0.as_mut_ptr()) };
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
