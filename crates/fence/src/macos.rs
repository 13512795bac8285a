//! macOS: a command under `sandbox-exec`. The decisions are in `seatbelt`; this only puts the command together. Not
//! yet run on a Mac, so the report says `verified: config`.

use std::path::Path;
use std::process;

use crate::confinement::Confinement;
use crate::policy::{Command, Policy};
use crate::seatbelt::{self, SANDBOX_EXEC};

/// Why a command cannot run under a profile.
#[derive(Debug, thiserror::Error)]
pub enum SeatbeltCommandError {
    #[error(transparent)]
    Policy(#[from] crate::Refusal),
    #[error(transparent)]
    Profile(Box<dyn std::error::Error + Send + Sync>),
}

/// The command with its profile around it, ready to be started.
pub fn seatbelt_command(
    policy: &Policy,
    command: &Command,
    proxy_port: Option<u16>,
) -> Result<process::Command, SeatbeltCommandError> {
    let tag = format!("ringfence-{}", process::id());
    let request = seatbelt::request(policy, proxy_port, &tag)?;
    let refused = |error: seatbelt::SeatbeltError| SeatbeltCommandError::Profile(Box::new(error));
    seatbelt::refuse_linked_writable(&request, Path::is_symlink).map_err(refused)?;
    let profile = seatbelt::profile(&request).map_err(refused)?;
    let mut confined = process::Command::new(SANDBOX_EXEC);
    confined
        .args(seatbelt::sandbox_exec_arguments(&profile, &command.program, &command.arguments))
        .env_clear()
        .envs(command.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&command.directory);
    Ok(confined)
}

/// What the profile of a policy protects.
pub fn seatbelt_confinement(policy: &Policy) -> Confinement {
    seatbelt::confinement(policy)
}
