//! `ringfence-fixture`: a stdio MCP server for the revisions with a handshake, used to test and measure ringfence.
//!
//! It offers what the conformance suite asks of a 2025-11-25 server, plus tools that misbehave on request: crash,
//! hang, flood, orphan a daemon, ask the client with no call in flight.

#![allow(clippy::unnecessary_wraps, reason = "all tools share one signature")]
#![allow(clippy::needless_pass_by_value, reason = "JSON is written in the place of an argument")]

mod catalogue;
mod client_requests;
mod dispatch;
mod flags;
mod incoming;
mod life;
mod lingering;
mod outgoing;
mod output;
mod prompts;
mod resources;
mod running_calls;
mod server;
mod stubbornness;
mod task_requests;
mod tasks;
mod tools;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use flags::{Flags, Role};
use server::Server;

fn main() -> ExitCode {
    let flags = match Flags::parse(std::env::args_os().skip(1)) {
        Ok(flags) => flags,
        Err(complaint) => {
            eprintln!("ringfence-fixture: {complaint}");
            return ExitCode::from(2);
        }
    };
    match flags.role {
        Role::Server => run_server(flags),
        Role::Linger => lingering::linger(),
        Role::Daemon => lingering::become_daemon(),
        Role::DaemonStarter => lingering::start_daemon_and_leave(),
    }
}

fn run_server(flags: Flags) -> ExitCode {
    if let Some(path) = &flags.start_log {
        append_line(path, &std::process::id().to_string());
    }
    let life = flags.life_log.as_deref().map(life::Life::begin);
    if let Some(code) = early_exit(&flags) {
        return ExitCode::from(code);
    }
    if let Some(delay) = flags.start_delay {
        std::thread::sleep(delay);
    }
    let server = Arc::new(Server::new(flags));
    if server.flags.ignore_term {
        server.stubbornness.begin();
    }
    dispatch::serve_standard_input(&server, duplicate_standard_input());
    server.stubbornness.stay_if_asked();
    if let Some(life) = life {
        life.end();
    }
    ExitCode::SUCCESS
}

/// The exit code if the flags tell the process to fail before it reads anything.
fn early_exit(flags: &Flags) -> Option<u8> {
    if let Some(code) = flags.exit_at_start {
        if let Some(text) = &flags.stderr_at_start {
            eprintln!("{text}");
        }
        return Some(code);
    }
    let (path, starts_to_crash) = flags.crash_first.as_ref()?;
    let earlier_starts = std::fs::read_to_string(path).map_or(0, |text| text.lines().count());
    append_line(path, &std::process::id().to_string());
    (earlier_starts < *starts_to_crash).then_some(1)
}

fn append_line(path: &Path, line: &str) {
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        eprintln!("ringfence-fixture: cannot append to {}: {error}", path.display());
    }
}

fn duplicate_standard_input() -> File {
    let descriptor = std::io::stdin().as_fd().try_clone_to_owned();
    File::from(descriptor.expect("standard input is open"))
}
