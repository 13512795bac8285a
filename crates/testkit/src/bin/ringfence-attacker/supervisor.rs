//! P24–P28, P33: the supervisor of the fence: its memory, its descriptors, and stopping it. Without a fence, another
//! process of this program stands in for it.

use std::process::{Command, ExitCode};
use std::time::Duration;

use testkit::AttackStage;

use crate::files::done;
use crate::row::Row;
use crate::system::{Attempt, Errno, call, open};

pub(crate) const ROWS: &[Row] = &[
    ("P24", |_| open(format!("/proc/{}/mem", supervisor()?), libc::O_RDONLY, 0).map(|_| String::new())),
    ("P25", |_| done(call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, supervisor()?, 0, 0))),
    ("P26", take_descriptor),
    ("P27", stop),
    ("P28", |_| {
        let limit = [1000_u64, 1000];
        done(call!(libc::SYS_prlimit64, supervisor()?, libc::RLIMIT_NOFILE, limit.as_ptr(), 0))
    }),
    ("P33", open_descriptor),
];

/// Stands in for a supervisor: waits for a command.
pub(crate) fn supervise(program: &str, arguments: &[String]) -> Result<ExitCode, String> {
    let status = Command::new(program).args(arguments).status().map_err(|error| error.to_string())?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// The parent of the process that tries the rows, which is the parent of this one.
pub(crate) fn supervisor() -> Result<i32, Errno> {
    let parent = call!(libc::SYS_getppid)?;
    let state = fields(parent as i32)?;
    state.get(1).and_then(|parent| parent.parse().ok()).ok_or(Errno(libc::ENODATA))
}

/// The fields of `/proc/PID/stat` that follow the name: state, parent and others.
fn fields(process: i32) -> Result<Vec<String>, Errno> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = text.rsplit_once(") ").ok_or(Errno(libc::ENODATA))?;
    Ok(fields.split(' ').map(str::to_owned).collect())
}

fn take_descriptor(_: &AttackStage) -> Attempt {
    let supervisor = call!(libc::SYS_pidfd_open, supervisor()?, 0)?;
    done(call!(libc::SYS_pidfd_getfd, supervisor, 0, 0))
}

/// Stops the supervisor, so that it would not notice the end of its parent, and lets it go on.
fn stop(_: &AttackStage) -> Attempt {
    let supervisor = supervisor()?;
    call!(libc::SYS_kill, supervisor, libc::SIGSTOP)?;
    let is_stopped =
        || fields(supervisor).is_ok_and(|fields| fields.first().is_some_and(|state| state == "T"));
    let has_worked = (0..TRIES).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        is_stopped()
    });
    call!(libc::SYS_kill, supervisor, libc::SIGCONT)?;
    if has_worked { Ok(String::new()) } else { Err(Errno::NOTHING_GAINED) }
}

/// A process stops a moment after its signal.
const TRIES: u32 = 200;

/// Opens any descriptor of the supervisor again. One of them is its lifeline.
fn open_descriptor(_: &AttackStage) -> Attempt {
    let supervisor = supervisor()?;
    let opened = (0..16)
        .map(|number| open(format!("/proc/{supervisor}/fd/{number}"), libc::O_RDONLY | libc::O_NONBLOCK, 0));
    let mut refusal = Errno(libc::ENOENT);
    for opened in opened {
        match opened {
            Ok(_) => return Ok(String::new()),
            Err(errno) if errno != Errno(libc::ENOENT) => refusal = errno,
            Err(_) => {}
        }
    }
    Err(refusal)
}
