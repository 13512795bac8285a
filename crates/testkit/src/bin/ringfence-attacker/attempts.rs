//! Tries the rows one after the other, each in a process of its own, so that neither a kill nor a hang ends the rest,
//! and prints each outcome as a line of JSON.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use testkit::{AttackOutcome, AttackResult, AttackStage};

use crate::row::Row;
use crate::system::{Attempt, Errno, Fork, call, close, fork, leave, read, wait_for, write};
use crate::{
    administration, devices, file_calls, files, ipc, kernel, layers, leftovers, metadata, must_work, network,
    other_processes, own_root, processes, programs, reads, sockets, supervisor,
};

/// An attempt that takes longer counts as hanging.
const ROW_DEADLINE_MS: i32 = 60_000;

const ALL_ROWS: &[&[Row]] = &[
    files::ROWS,
    file_calls::ROWS,
    reads::ROWS,
    own_root::ROWS,
    devices::ROWS,
    processes::ROWS,
    other_processes::ROWS,
    supervisor::ROWS,
    ipc::ROWS,
    kernel::ROWS,
    layers::ROWS,
    administration::ROWS,
    network::ROWS,
    sockets::ROWS,
    programs::ROWS,
    leftovers::ROWS,
    must_work::ROWS,
    metadata::ROWS,
];

/// Tries the rows named in `only`, or all rows if it is empty.
pub(crate) fn try_rows(stage: &Path, only: &BTreeSet<String>) -> Result<(), String> {
    let stage = std::fs::read(stage).map_err(|error| format!("{}: {error}", stage.display()))?;
    let stage: AttackStage = serde_json::from_slice(&stage).map_err(|error| error.to_string())?;
    // A panic in an attempt must abort its process, not unwind into code that belongs to the parent.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("ringfence-attacker: {panic}");
        std::process::abort();
    }));
    let rows = ALL_ROWS.iter().copied().flatten();
    for (id, attempt) in rows.filter(|(id, _)| only.is_empty() || only.contains(*id)) {
        let result = try_row(id, *attempt, &stage).map_err(|errno| format!("{id}: {errno}"))?;
        print_line(&serde_json::to_string(&result).map_err(|error| error.to_string())?)?;
    }
    Ok(())
}

fn print_line(line: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(|error| error.to_string())
}

fn try_row(
    id: &str,
    attempt: fn(&AttackStage) -> Attempt,
    stage: &AttackStage,
) -> Result<AttackResult, Errno> {
    let mut ends = [0_i32; 2];
    call!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC)?;
    let [answers, answer] = ends;
    match fork()? {
        Fork::Child => {
            drop(write(answer, &told(id, attempt(stage))));
            leave(0)
        }
        Fork::Parent { child } => {
            close(answer);
            let is_ready = is_readable_in_time(answers);
            let text = if is_ready { read(answers)? } else { String::new() };
            close(answers);
            if !is_ready {
                call!(libc::SYS_kill, child, libc::SIGKILL)?;
            }
            let status = wait_for(child)?;
            Ok(serde_json::from_str(&text).unwrap_or_else(|_| unfinished(id, is_ready, status)))
        }
    }
}

/// The child's report on its attempt, short enough for one write into a pipe.
fn told(id: &str, attempt: Attempt) -> String {
    let (outcome, detail) = match attempt {
        Ok(detail) => (AttackOutcome::Allowed, detail),
        Err(errno) => (AttackOutcome::Refused { errno: errno.to_string() }, String::new()),
    };
    let detail = detail.chars().take(500).collect();
    let result = AttackResult { id: id.to_owned(), outcome, detail };
    serde_json::to_string(&result).expect("strings and numbers are valid JSON")
}

/// The result of a row whose child reported nothing.
fn unfinished(id: &str, is_ready: bool, status: i32) -> AttackResult {
    let outcome = match (is_ready, libc::WIFSIGNALED(status)) {
        (false, _) => AttackOutcome::Hung,
        (true, true) => AttackOutcome::Killed { signal: libc::WTERMSIG(status) },
        (true, false) => AttackOutcome::Refused { errno: format!("exit code {}", libc::WEXITSTATUS(status)) },
    };
    AttackResult { id: id.to_owned(), outcome, detail: String::new() }
}

fn is_readable_in_time(descriptor: i32) -> bool {
    let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: the one element that is pointed to lives until the call returns.
    unsafe { libc::poll(&raw mut poll, 1, ROW_DEADLINE_MS) == 1 }
}
