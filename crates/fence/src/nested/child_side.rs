//! The fork server's own code. It runs in the child of a process with threads, so it only makes system calls.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};

/// The fork server's side of the channel. It runs in the child of a process with threads without an exec, so its code
/// must not allocate, take a lock or panic.
#[derive(Clone, Copy)]
pub(super) struct ChildSide {
    pub(super) channel: RawFd,
    pub(super) nothing: RawFd,
    pub(super) ruleset: Option<RawFd>,
    pub(super) page: usize,
}

impl ChildSide {
    /// The only descriptor that a fork server keeps besides the standard ones.
    const CHANNEL: RawFd = 3;
    const LAST_SIGNAL: i32 = 64;

    pub(super) fn serve(self) -> ! {
        let code = self.prepare().map_or(1, |()| self.receive_commands());
        // SAFETY: ends the process; nothing runs after it.
        unsafe { libc::_exit(code) }
    }

    fn prepare(self) -> io::Result<()> {
        // Every process inside the domain has a session other than the server's.
        rustix::process::setsid()?;
        if let Some(ruleset) = self.ruleset {
            restrict(ruleset)?;
        }
        // SAFETY: the numbers belong to this process alone, which uses nothing that is replaced or closed. Default
        // actions and an empty mask are valid for every signal; refusals (KILL, STOP) are meant.
        unsafe {
            libc::prctl(libc::PR_SET_NAME, c"ringfence-fork".as_ptr());
            for number in 0..3 {
                libc::dup2(self.nothing, number);
            }
            if self.channel != Self::CHANNEL {
                libc::dup3(self.channel, Self::CHANNEL, libc::O_CLOEXEC);
            }
            libc::syscall(libc::SYS_close_range, Self::CHANNEL + 1, libc::c_uint::MAX, 0);
            for signal in 1..=Self::LAST_SIGNAL {
                libc::signal(signal, libc::SIG_DFL);
            }
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        }
        Ok(())
    }

    /// Starts commands until the server has ended. Returns the exit code.
    fn receive_commands(self) -> i32 {
        // SAFETY: `prepare` has put it there, for the whole life of this process.
        let channel = unsafe { BorrowedFd::borrow_raw(Self::CHANNEL) };
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut word = [0];
            let flags = RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(channel, &mut [IoSliceMut::new(&mut word)], &mut control, flags) {
                Ok(received) if received.bytes == 1 => {}
                Err(rustix::io::Errno::INTR) => continue,
                _ => return 0,
            }
            let mut given = [const { None }; 3];
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                    given
                        .iter_mut()
                        .zip(descriptors)
                        .for_each(|(place, descriptor)| *place = Some(descriptor));
                }
            }
            let [Some(directory), Some(output), Some(failure)] = given else { return 1 };
            let answer = self.fork_command(&directory, &output, &failure);
            if rustix::net::send(channel, &answer.to_ne_bytes(), SendFlags::NOSIGNAL).is_err() {
                return 0;
            }
        }
    }

    /// The pid of a new child of the server, or a negative error number.
    fn fork_command(self, directory: &OwnedFd, output: &OwnedFd, failure: &OwnedFd) -> i32 {
        let flags = libc::CLONE_PARENT | libc::SIGCHLD;
        // SAFETY: without CLONE_VM the child has its own copy of everything, stack included; there is one thread.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        if pid == 0 {
            let error = self.become_command(directory, output);
            let _ = rustix::io::write(failure, &error.raw_os_error().unwrap_or(libc::EIO).to_ne_bytes());
            // SAFETY: ends the process; nothing runs after it.
            unsafe { libc::_exit(127) }
        }
        let errno = || -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        i32::try_from(pid).ok().filter(|pid| *pid > 0).unwrap_or_else(errno)
    }

    /// Returns only the error.
    fn become_command(self, directory: &OwnedFd, output: &OwnedFd) -> io::Error {
        let entered = rustix::process::setsid().and_then(|_| rustix::process::fchdir(directory));
        if let Err(error) = entered {
            return error.into();
        }
        let words = std::ptr::with_exposed_provenance::<usize>(self.page);
        // SAFETY: the server has filled the page as `ExecPage::write` says, and leaves it alone until this process has
        // become the program or ended. All descriptors above the standard ones are closed by exec.
        unsafe {
            libc::dup2(output.as_raw_fd(), 1);
            libc::dup2(output.as_raw_fd(), 2);
            libc::syscall(libc::SYS_close_range, Self::CHANNEL, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            let program = std::ptr::with_exposed_provenance(*words);
            let environment = std::ptr::with_exposed_provenance(*words.add(1));
            libc::execve(program, words.add(2).cast(), environment);
        }
        io::Error::last_os_error()
    }
}

pub(super) fn restrict(ruleset: RawFd) -> io::Result<()> {
    // Inside a fence this is set already.
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: plain numbers; the only thread restricts itself.
    if unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
