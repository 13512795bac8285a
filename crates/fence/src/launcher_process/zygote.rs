//! The zygote: a launcher that is started ahead. Loading this binary takes longer than everything a launcher does in
//! Tier A, so a process that launches often keeps one that is loaded. For each request it forks a copy of itself, as
//! a child of its own parent, and the copy continues as if it had been started for that request.
//!
//! After a launch in Tier B it also has the namespaces and the root of the next one made ahead, by another copy that
//! waits in them. Such a copy serves one request and no other, and is given up if none comes soon: it would keep file
//! systems of the host busy.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};

use super::{InStep, StepError, mounts, namespaces, process_attributes, sys};
use crate::fd_passing;
use crate::launch_request::{Ahead, LaunchRequest, MAX_PASSED, REQUEST_FD, ZYGOTE_FD};

/// Above all numbers at which descriptors are passed.
const HIGH: i32 = 64;
/// Where a copy that waits has its end of the channel.
const CLAIM_FD: i32 = REQUEST_FD + 1;
/// How long a copy waits.
const KEPT_AHEAD: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
const PID_BYTES: usize = size_of::<i32>();
/// What process listings call a copy that waits, and one that serves.
const WAITING_NAME: &CStr = c"ringfence-ahead";
const SERVING_NAME: &CStr = c"ringfence";

/// Serves requests until the parent closes the channel or ends.
pub(super) fn serve() -> ! {
    // Leave the parent's process group, so that the terminal's signals reach the parent only.
    let _ = rustix::process::setsid();
    let _ = sys::close_range(ZYGOTE_FD.unsigned_abs() + 1, u32::MAX, false);
    // SAFETY: the descriptor was given to this process for its whole life.
    let channel = unsafe { BorrowedFd::borrow_raw(ZYGOTE_FD) };
    let mut waiting = WaitingCopies::default();
    loop {
        if !waiting.is_empty() && !is_readable(channel, &KEPT_AHEAD) {
            waiting = WaitingCopies::default();
        }
        let Some(passed) = receive(channel) else { break };
        let pid = waiting.claim(&passed).or_else(|| launch_copy(&passed)).unwrap_or(0);
        if rustix::net::send(channel, &pid.to_ne_bytes(), SendFlags::NOSIGNAL).is_err() {
            break;
        }
        waiting.prepare_next(passed);
    }
    sys::exit(0)
}

fn is_readable(channel: BorrowedFd<'_>, time: &Timespec) -> bool {
    let mut descriptors = [PollFd::new(&channel, PollFlags::IN)];
    !matches!(rustix::io::retry_on_intr(|| poll(&mut descriptors, Some(time))), Ok(0))
}

/// One request: its descriptors, each with the number that a launcher expects it at.
struct Passed {
    ahead: u8,
    numbers: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

fn receive(channel: BorrowedFd<'_>) -> Option<Passed> {
    let mut words = [0; MAX_PASSED + 1];
    let (length, descriptors) = fd_passing::receive(channel, &mut words, RecvFlags::empty()).ok()?;
    let (ahead, numbers) = words[..length].split_first()?;
    Some(Passed { ahead: *ahead, numbers: numbers.to_vec(), descriptors })
}

/// Forks a copy that carries the request out. Returns its pid.
fn launch_copy(passed: &Passed) -> Option<i32> {
    match sys::fork_sibling() {
        Ok(0) => {
            take_places(&passed.numbers, &passed.descriptors);
            super::launch();
        }
        copy => copy.ok(),
    }
}

/// In the copy: puts the descriptors at the numbers that a launcher expects, and closes all others below `HIGH`.
fn take_places(numbers: &[u8], descriptors: &[OwnedFd]) {
    let high: Vec<(OwnedFd, u8)> = descriptors
        .iter()
        .zip(numbers)
        .filter_map(|(fd, number)| Some((rustix::io::fcntl_dupfd_cloexec(fd, HIGH).ok()?, *number)))
        .collect();
    let _ = sys::close_range(0, HIGH.unsigned_abs() - 1, false);
    for (fd, number) in &high {
        sys::duplicate_to(fd.as_raw_fd(), i32::from(*number));
    }
}

/// The copies that wait, at most one of each kind.
#[derive(Default)]
struct WaitingCopies {
    in_host_network: Option<WaitingCopy>,
    in_own_network: Option<WaitingCopy>,
}

/// It ends when the channel closes.
struct WaitingCopy {
    pid: i32,
    channel: OwnedFd,
}

impl WaitingCopies {
    fn is_empty(&self) -> bool {
        self.in_host_network.is_none() && self.in_own_network.is_none()
    }

    fn of(&mut self, ahead: u8) -> Option<&mut Option<WaitingCopy>> {
        const HOST_NETWORK: u8 = Ahead::HostNetwork as u8;
        const OWN_NETWORK: u8 = Ahead::OwnNetwork as u8;
        match ahead {
            HOST_NETWORK => Some(&mut self.in_host_network),
            OWN_NETWORK => Some(&mut self.in_own_network),
            _ => None,
        }
    }

    /// Hands the request to a copy that waits for one of its kind. Returns its pid.
    fn claim(&mut self, passed: &Passed) -> Option<i32> {
        let copy = self.of(passed.ahead)?.take()?;
        let words = [&copy.pid.to_ne_bytes()[..], &passed.numbers].concat();
        let descriptors: Vec<BorrowedFd<'_>> = passed.descriptors.iter().map(AsFd::as_fd).collect();
        // One that could not be prepared has ended.
        fd_passing::send(&copy.channel, &words, &descriptors).ok().map(|()| copy.pid)
    }

    /// Forks a copy that waits for the next request of this kind.
    fn prepare_next(&mut self, passed: Passed) {
        let own_network = passed.ahead == Ahead::OwnNetwork as u8;
        let Some(slot) = self.of(passed.ahead) else { return };
        let is_request = |number: &u8| i32::from(*number) == REQUEST_FD;
        let Some(place) = passed.numbers.iter().position(is_request) else { return };
        // The other descriptors are the command's, which would not see them close.
        let Some(request) = passed.descriptors.into_iter().nth(place) else { return };
        let Ok((channel, end)) = fd_passing::channel() else { return };
        match namespaces::fork_ahead(own_network) {
            Ok(0) => wait_in_namespaces(&end, &request),
            Ok(pid) => *slot = Some(WaitingCopy { pid, channel }),
            Err(_) => {}
        }
    }
}

/// In the copy that waits: builds the root as for the request before, and goes on with the one that comes.
fn wait_in_namespaces(end: &OwnedFd, earlier: &OwnedFd) -> ! {
    let _ = rustix::thread::set_name(WAITING_NAME);
    keep_only(end, earlier);
    // SAFETY: `keep_only` has put the channel there, and nothing else uses it.
    let end = unsafe { OwnedFd::from_raw_fd(CLAIM_FD) };
    let ahead = process_attributes::leave_terminal_and_signals()
        .and_then(|()| read_earlier())
        .and_then(|request| mounts::build_ahead(&request.steps, HIGH))
        .ok();
    let mut words = [0; MAX_PASSED + PID_BYTES];
    let received = fd_passing::receive(&end, &mut words, RecvFlags::empty());
    let Ok((length @ PID_BYTES.., descriptors)) = received else { sys::exit(0) };
    let (pid, numbers) = words[..length].split_at(PID_BYTES);
    let _ = rustix::thread::set_name(SERVING_NAME);
    // `take_places` closes it.
    std::mem::forget(end);
    take_places(numbers, &descriptors);
    let pid = pid.try_into().map_or(0, i32::from_ne_bytes);
    super::launch_in_namespaces(pid, ahead)
}

/// Closes everything but the null device at the standard streams and these two.
fn keep_only(end: &OwnedFd, earlier: &OwnedFd) {
    let high = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, HIGH);
    if let (Ok(end), Ok(earlier)) = (high(end), high(earlier)) {
        sys::duplicate_to(earlier.as_raw_fd(), REQUEST_FD);
        sys::duplicate_to(end.as_raw_fd(), CLAIM_FD);
        std::mem::forget((end, earlier));
    }
    let _ = sys::close_range(CLAIM_FD.unsigned_abs() + 1, u32::MAX, false);
}

/// Reads the request before, whose own launcher moves the position in the file.
fn read_earlier() -> Result<LaunchRequest, StepError> {
    // SAFETY: `keep_only` has put it there, and it is used here alone.
    let file = unsafe { File::from_raw_fd(REQUEST_FD) };
    let length = file.metadata().step("request")?.len();
    let mut bytes = vec![0; usize::try_from(length).step("request")?];
    file.read_exact_at(&mut bytes, 0).step("request")?;
    serde_json::from_slice(&bytes).step("request")
}
