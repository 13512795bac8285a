//! The other processes that the fixture starts from its own executable: a child that stays alive, and a daemon that
//! leaves the process group and loses its parent. Both end by themselves after `LIFETIME`.

use std::io::{Error, Read};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

const LIFETIME: Duration = Duration::from_secs(1000);

pub(crate) fn linger() -> ExitCode {
    std::thread::sleep(LIFETIME);
    ExitCode::SUCCESS
}

pub(crate) fn become_daemon() -> ExitCode {
    rustix::process::setsid().expect("a freshly started child leads no process group");
    // Printed only after `setsid`: the reader of the pid relies on the new session.
    println!("{}", std::process::id());
    close_standard_output();
    linger()
}

/// Replaces standard output with `/dev/null`, so that the reader of the pid sees the end of the stream.
fn close_standard_output() {
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null").expect("/dev/null opens");
    rustix::stdio::dup2_stdout(&null).expect("standard output may be replaced");
}

pub(crate) fn start_daemon_and_leave() -> ExitCode {
    let started = this_executable().and_then(|mut command| command.arg("--daemon").spawn());
    started.map_or(ExitCode::FAILURE, |_daemon| ExitCode::SUCCESS)
}

/// Starts a direct child that stays alive, and returns its pid.
pub(crate) fn spawn_child() -> Result<u32, Error> {
    let child = this_executable()?
        .arg("--linger")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(child.id())
}

/// Starts a daemon, and returns its pid once it leads its own session and has lost its parent.
pub(crate) fn spawn_daemon(keep_stderr: bool) -> Result<u32, Error> {
    let stderr = if keep_stderr { Stdio::inherit() } else { Stdio::null() };
    let mut starter = this_executable()?
        .arg("--daemon-starter")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()?;
    let mut pid = String::new();
    if let Some(mut stdout) = starter.stdout.take() {
        stdout.read_to_string(&mut pid)?;
    }
    starter.wait()?;
    pid.trim().parse().map_err(Error::other)
}

fn this_executable() -> Result<Command, Error> {
    Ok(Command::new(std::env::current_exe()?))
}
