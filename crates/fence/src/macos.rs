//! macOS: a command under `sandbox-exec`. Everything that can be decided elsewhere is decided in `seatbelt`;
//! this is only the wire. Not yet run on a Mac: the report says `verified: config`.

use std::path::Path;
use std::process;

use crate::policy::{Command, Policy};
use crate::seatbelt::{self, SANDBOX_EXEC};

/// Why there is no command.
#[derive(Debug, thiserror::Error)]
pub enum SeatbeltRefusal {
    #[error(transparent)]
    Policy(#[from] crate::Refusal),
    #[error(transparent)]
    Profile(#[from] seatbelt::SeatbeltError),
}

/// The command with its profile around it, ready to be started.
pub fn confined(
    policy: &Policy,
    command: &Command,
    proxy_port: Option<u16>,
) -> Result<process::Command, SeatbeltRefusal> {
    let tag = format!("ringfence-{}", process::id());
    let request = seatbelt::request(policy, proxy_port, &tag)?;
    seatbelt::refuse_linked_writable(&request, Path::is_symlink)?;
    let profile = seatbelt::profile(&request)?;
    let mut confined = process::Command::new(SANDBOX_EXEC);
    confined
        .args(seatbelt::sandbox_exec_arguments(&profile, &command.program, &command.arguments))
        .env_clear()
        .envs(command.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&command.directory);
    Ok(confined)
}
