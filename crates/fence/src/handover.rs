//! Listening sockets that were passed to this process when it started, as systemd passes them, and passing them on to
//! the program that takes the place of this one.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;

use rustix::io::FdFlags;

/// The descriptor of the first socket, by the convention of `sd_listen_fds(3)`.
const FIRST: RawFd = 3;

/// More sockets than a gateway has addresses, and few enough that their descriptors stay below those of `SAFE`.
const MOST: usize = 32;

/// Above all descriptors that are passed, so that none is overwritten before it is passed.
const SAFE: RawFd = 64;

/// The variables of the convention.
const VARIABLES: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// What a program calls the sockets that it keeps while another takes its place.
const UPGRADED: &str = "ringfence-upgrade";

/// The sockets that were passed to this process.
#[derive(Debug, Default)]
pub struct PassedSockets {
    pub sockets: Vec<OwnedFd>,
    /// They are from an earlier program of this same process.
    pub is_upgrade: bool,
    /// Holds the first number free, so that a socket that is opened later can be passed on.
    _place: Option<OwnedFd>,
}

impl PassedSockets {
    /// Takes the sockets that `LISTEN_FDS` announces to this process, and removes the variables, so that no child takes
    /// them for its own. Call it once, before any thread is started and any file is opened.
    pub fn take() -> io::Result<Self> {
        let variable = |name: &str| std::env::var(name).ok();
        let own = rustix::process::getpid().as_raw_nonzero().to_string();
        let count =
            (variable("LISTEN_PID").as_deref() == Some(&own)).then(|| variable("LISTEN_FDS")).flatten();
        let names = variable("LISTEN_FDNAMES").unwrap_or_default();
        remove_variables()?;
        let Some(count) = count else {
            return Ok(Self { _place: hold_first_number(), ..Self::default() });
        };
        let count = count.parse::<usize>().ok().filter(|count| *count <= MOST).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("LISTEN_FDS={count} is no number up to {MOST}"),
            )
        })?;
        let sockets = (FIRST..).take(count).map(take_inherited).collect::<io::Result<Vec<_>>>()?;
        let is_upgrade = names.split(':').any(|name| name == UPGRADED);
        let place = if sockets.is_empty() { hold_first_number() } else { None };
        Ok(Self { sockets, is_upgrade, _place: place })
    }
}

/// Does nothing where none is set.
fn remove_variables() -> io::Result<()> {
    if VARIABLES.iter().all(|name| std::env::var_os(name).is_none()) {
        return Ok(());
    }
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the variables of passed sockets are read too late"));
    }
    for name in VARIABLES {
        // SAFETY: this process has one thread, so no other reads the environment meanwhile.
        unsafe { std::env::remove_var(name) };
    }
    Ok(())
}

fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: `F_GETFD` fails for a number that is no descriptor, and changes nothing.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("LISTEN_FDS announces descriptor {number}, which is not open"),
        ));
    }
    // SAFETY: the descriptor is open, and was passed to this process, which takes it here alone and has opened no file.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    Ok(socket)
}

/// `None` if the first number is taken by a descriptor that was inherited. That one may be replaced, too: nothing here
/// uses it.
fn hold_first_number() -> Option<OwnedFd> {
    let nothing = std::fs::File::open("/dev/null").ok()?;
    (nothing.as_raw_fd() == FIRST).then(|| nothing.into())
}

/// Replaces the program of this process: it keeps its pid, its parent and what it inherited, and gets these variables
/// and listening sockets. Returns only if that fails; then this program goes on with its signals as they were.
///
/// [`PassedSockets::take`] must have come first, and what it returned must live: it keeps the numbers of these sockets
/// from being those of other files. So there can be one socket, or as many as were passed.
pub fn become_program(
    program: &Path,
    arguments: &[OsString],
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    sockets: &[BorrowedFd<'_>],
) -> io::Error {
    let replaced = || -> io::Result<std::convert::Infallible> {
        let count = pass(sockets)?;
        let signals = KeptSignals::prepare();
        let error = std::process::Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(environment)
            .env("LISTEN_PID", rustix::process::getpid().as_raw_nonzero().to_string())
            .env("LISTEN_FDS", count.to_string())
            .env("LISTEN_FDNAMES", vec![UPGRADED; count].join(":"))
            .exec();
        signals.restore();
        keep(count);
        Err(error)
    };
    match replaced() {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

/// Puts the sockets where the next program looks for them. Returns how many there are.
fn pass(sockets: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let high = sockets.iter().map(|socket| rustix::io::fcntl_dupfd_cloexec(socket, SAFE));
    let high = high.collect::<Result<Vec<OwnedFd>, _>>()?;
    for (socket, number) in high.iter().zip(FIRST..) {
        // SAFETY: these numbers are those of the same sockets, or of the place that is held for one, or were inherited
        // and are used by nothing here.
        if unsafe { libc::dup2(socket.as_raw_fd(), number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(high.len())
}

/// Keeps the sockets from children again.
fn keep(count: usize) {
    for number in (FIRST..).take(count) {
        // SAFETY: the descriptor is open, and only its flag changes.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Signals whose disposition differs for the next program. One that asks for an upgrade must not end it before it can
/// listen to it, so that is ignored until then.
struct KeptSignals([(libc::c_int, libc::sigaction); 2]);

impl KeptSignals {
    fn prepare() -> Self {
        let kept = [libc::SIGUSR2, libc::SIGPIPE].map(|signal| {
            let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: asks for the present action, which is written to a structure of its type; all zeroes is a valid one.
            let action = unsafe {
                libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
                action.assume_init()
            };
            (signal, action)
        });
        // SAFETY: ignoring a signal runs no code of this process.
        unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
        Self(kept)
    }

    /// `exec` of the standard library resets one of them before it fails.
    fn restore(&self) {
        for (signal, action) in &self.0 {
            // SAFETY: the action is the one that this process had before.
            unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
        }
    }
}
