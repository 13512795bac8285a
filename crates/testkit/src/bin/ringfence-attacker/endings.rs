//! Programs that use up resources or refuse to end, for tests of the fence's limits and of its end. Those that use up
//! resources stop by themselves, far above any limit that a test sets.

use std::io::{BufRead, Write};
use std::path::Path;

use crate::files::create;
use crate::processes::{close_all_but, take_lock};
use crate::system::{Attempt, Errno, Fork, call, fork, leave, open, pause_for_ever, read, write};

const MEBIBYTE: usize = 1 << 20;
const MOST_PROCESSES: u32 = 300;
const MOST_FILES: u32 = 30_000;
const MOST_FILLED_MEBIBYTES: u32 = 256;

/// Forks as often as it can, and reports how often.
pub(crate) fn fork_bomb() -> Result<(), String> {
    for count in 0..MOST_PROCESSES {
        match fork() {
            Ok(Fork::Child) => pause_for_ever(),
            Ok(Fork::Parent { .. }) => {}
            Err(errno) => return Err(format!("forked {count}, then {errno}")),
        }
    }
    println!("forked {MOST_PROCESSES}");
    Ok(())
}

/// Allocates memory, and prints a line if it got all of it.
pub(crate) fn hog_memory(mebibytes: usize) {
    let mut blocks = Vec::new();
    for number in 0..mebibytes {
        let mut block = vec![0_u8; MEBIBYTE];
        // Writes to every page, and different contents to each block.
        block.iter_mut().step_by(512).for_each(|byte| *byte = number as u8);
        blocks.push(block);
    }
    println!("got {} MiB", blocks.len());
}

/// Writes a file as long as it can, and reports its length.
pub(crate) fn fill(directory: &Path) -> Result<(), String> {
    let path = directory.join("filler");
    let file = open(&path, libc::O_WRONLY | libc::O_CREAT, 0o600).map_err(|errno| errno.to_string())?;
    let block = " ".repeat(MEBIBYTE);
    for count in 0..MOST_FILLED_MEBIBYTES {
        write(file, &block).map_err(|errno| format!("filled {count} MiB, then {errno}"))?;
    }
    println!("filled {MOST_FILLED_MEBIBYTES} MiB");
    Ok(())
}

/// Opens as many files as it can, and reports how many.
pub(crate) fn open_files() -> Result<(), String> {
    for count in 0..MOST_FILES {
        open("/dev/null", libc::O_RDONLY, 0).map_err(|errno| format!("opened {count}, then {errno}"))?;
    }
    println!("opened {MOST_FILES}");
    Ok(())
}

/// Writes to standard output, and says on standard error when all is written.
pub(crate) fn flood(mebibytes: u32) -> Result<(), String> {
    // A page at a time: other processes see what was written when the call returns.
    let block = "flooded\n".repeat(512);
    let mut stdout = std::io::stdout().lock();
    for _ in 0..mebibytes * 256 {
        stdout.write_all(block.as_bytes()).map_err(|error| error.to_string())?;
    }
    eprintln!("flooded");
    Ok(())
}

/// Leaves a process behind that has neither a parent nor a terminal, ignores SIGTERM, SIGHUP, SIGINT and SIGQUIT, and
/// holds a lock.
pub(crate) fn daemonise(lock: &Path) -> Attempt {
    let mut ends = [0_i32; 2];
    call!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC)?;
    let [told, teller] = ends;
    if let Fork::Child = fork()? {
        drop(call!(libc::SYS_setsid));
        if let Ok(Fork::Child) = fork() {
            stay_as_daemon(lock, teller);
        }
        leave(0);
    }
    match read(told)?.as_str() {
        "locked" => Ok("locked".to_owned()),
        _ => Err(Errno(libc::ENOLCK)),
    }
}

fn stay_as_daemon(lock: &Path, teller: i32) -> ! {
    ignore_polite_signals();
    let held = take_lock(lock);
    let text = held.as_ref().map_or_else(Errno::to_string, |_| "locked".to_owned());
    drop(write(teller, &text));
    close_all_but(held.unwrap_or(0));
    pause_for_ever();
}

/// Holds a lock until a signal ends it; only SIGKILL does if `is_stubborn`.
pub(crate) fn stay(lock: &Path, is_stubborn: bool) -> Attempt {
    if is_stubborn {
        ignore_polite_signals();
    }
    take_lock(lock)?;
    println!("locked");
    pause_for_ever();
}

fn ignore_polite_signals() {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Prints the directory for temporary files, and stays until the end of its input.
pub(crate) fn show_temp() -> Result<(), String> {
    println!("{}", std::env::var("TMPDIR").unwrap_or_default());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).map_err(|error| error.to_string())?;
    Ok(())
}

/// Creates the next file for each line it reads, and prints the outcome.
pub(crate) fn create_when_told(paths: &[String]) -> Result<(), String> {
    println!("ready");
    let mut lines = std::io::stdin().lock().lines();
    for path in paths {
        lines.next().transpose().map_err(|error| error.to_string())?;
        println!("{}", create(path).map_or_else(|errno| errno.to_string(), |_| "created".to_owned()));
    }
    Ok(())
}
