//! The zygote: a launcher that is started ahead. Loading this binary takes longer than everything a launcher does in
//! Tier A, so a process that launches often keeps one that is loaded. For each request it forks a copy of itself, as
//! a child of its own parent, and the copy continues as if it had been started for that request.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};

use super::sys;
use crate::fd_passing;
use crate::launch_request::{MAX_PASSED, ZYGOTE_FD};

/// Above all numbers at which descriptors are passed.
const HIGH: i32 = 64;

/// Serves requests until the parent closes the channel or ends.
pub(super) fn serve() -> ! {
    // Leave the parent's process group, so that the terminal's signals reach the parent only.
    let _ = rustix::process::setsid();
    let _ = sys::close_range(ZYGOTE_FD.unsigned_abs() + 1, u32::MAX, false);
    // SAFETY: the descriptor was given to this process for its whole life.
    let channel = unsafe { BorrowedFd::borrow_raw(ZYGOTE_FD) };
    while let Some(passed) = receive(channel) {
        let copy = sys::fork_sibling();
        if let Ok(0) = copy {
            take_places(passed);
            super::launch();
        }
        let pid = copy.unwrap_or(0);
        if rustix::net::send(channel, &pid.to_ne_bytes(), SendFlags::NOSIGNAL).is_err() {
            break;
        }
    }
    sys::exit(0)
}

/// The descriptors of one request, each with the number that a launcher expects it at.
fn receive(channel: BorrowedFd<'_>) -> Option<Vec<(OwnedFd, u8)>> {
    let mut numbers = [0; MAX_PASSED];
    let (length, descriptors) = fd_passing::receive(channel, &mut numbers, RecvFlags::empty()).ok()?;
    (length > 0).then(|| descriptors.into_iter().zip(numbers[..length].iter().copied()).collect())
}

/// In the copy: puts the descriptors at the numbers that a launcher expects, and closes all others.
fn take_places(passed: Vec<(OwnedFd, u8)>) {
    let high: Vec<(OwnedFd, u8)> = passed
        .into_iter()
        .filter_map(|(fd, number)| Some((rustix::io::fcntl_dupfd_cloexec(&fd, HIGH).ok()?, number)))
        .collect();
    let _ = sys::close_range(0, HIGH.unsigned_abs() - 1, false);
    for (fd, number) in &high {
        sys::duplicate_to(fd.as_raw_fd(), i32::from(*number));
    }
}
