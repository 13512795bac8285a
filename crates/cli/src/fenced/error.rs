//! Why a command did not run in its fence: one message, a hint, and the exit code that shells expect.

use std::fmt;
use std::io;
use std::process::ExitCode;

use fence::{FenceError, FenceSetupError, LaunchError, Refusal};
use packages::ProgramError;

use crate::environment::MissingVariableError;

/// Nothing ran.
const REFUSED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

#[derive(Debug)]
pub(crate) enum FencedCommandError {
    Fence(FenceError),
    Argument { message: String, hint: String },
    Program(ProgramError),
    Variable(MissingVariableError),
    Io { what: &'static str, error: io::Error },
}

impl FencedCommandError {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Program(ProgramError::NotFound(_)) => NOT_FOUND,
            Self::Program(ProgramError::NotExecutable(_)) => NOT_EXECUTABLE,
            Self::Fence(FenceError::Launch(LaunchError::Exec { error, .. })) => match error.kind() {
                io::ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_EXECUTABLE,
            },
            _ => REFUSED,
        })
    }

    /// The message without the hint.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Fence(error) => error.message(),
            Self::Argument { message, .. } => format!("refused: {message}"),
            Self::Program(error) => error.to_string(),
            Self::Variable(error) => error.to_string(),
            Self::Io { what, error } => format!("{what}: {error}"),
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Fence(error) => error.hint(),
            Self::Argument { hint, .. } => Some(hint.clone()),
            Self::Program(error) => Some(error.hint()),
            Self::Variable(error) => Some(error.hint()),
            Self::Io { .. } => None,
        }
    }
}

impl fmt::Display for FencedCommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message())?;
        match self.hint() {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<FenceError> for FencedCommandError {
    fn from(error: FenceError) -> Self {
        Self::Fence(error)
    }
}

impl From<FenceSetupError> for FencedCommandError {
    fn from(error: FenceSetupError) -> Self {
        Self::Fence(error.into())
    }
}

impl From<Refusal> for FencedCommandError {
    fn from(refusal: Refusal) -> Self {
        Self::Fence(refusal.into())
    }
}

impl From<LaunchError> for FencedCommandError {
    fn from(error: LaunchError) -> Self {
        Self::Fence(error.into())
    }
}

impl From<ProgramError> for FencedCommandError {
    fn from(error: ProgramError) -> Self {
        Self::Program(error)
    }
}

impl From<MissingVariableError> for FencedCommandError {
    fn from(error: MissingVariableError) -> Self {
        Self::Variable(error)
    }
}
