//! A launcher that was started ahead. Loading this binary takes longer than everything a launcher does in
//! Tier A, so a process that launches often keeps one that is loaded: for each order it makes a copy of
//! itself, a child of its own parent, which goes on as if it had been started for that order alone.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};

use super::sys;
use crate::order::{MAX_PASSED, ZYGOTE_FD};
use crate::passing;

/// Above all numbers that descriptors are passed as.
const HIGH: i32 = 64;

/// Waits for orders until the parent closes the other end, or is no more.
pub(super) fn tend() -> ! {
    // What a terminal sends to the parent's group is the parent's to pass on.
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

/// The descriptors of one order, each with the number that it is to have.
fn receive(channel: BorrowedFd<'_>) -> Option<Vec<(OwnedFd, u8)>> {
    let mut numbers = [0; MAX_PASSED];
    let (length, descriptors) = passing::receive(channel, &mut numbers, RecvFlags::empty()).ok()?;
    (length > 0).then(|| descriptors.into_iter().zip(numbers[..length].iter().copied()).collect())
}

/// In the copy: puts the descriptors where a launcher looks for them, and closes every other.
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
