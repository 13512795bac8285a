//! Why a command did not run in its fence: one message, a hint, and the exit code that shells expect.

use std::fmt;
use std::io;
use std::process::ExitCode;

use fence::{FenceSetupError, LaunchError, Refusal};
use packages::ProgramError;

use crate::environment::MissingVariableError;

/// Nothing ran.
const REFUSED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

#[derive(Debug)]
pub(crate) enum FenceFailure {
    FenceSetup(FenceSetupError),
    Refused(Refusal),
    Launch(LaunchError),
    Argument { message: String, hint: String },
    Program(ProgramError),
    Variable(MissingVariableError),
    Io { what: &'static str, error: io::Error },
}

impl FenceFailure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Program(ProgramError::NotFound(_)) => NOT_FOUND,
            Self::Launch(LaunchError::Exec { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                NOT_FOUND
            }
            Self::Program(ProgramError::NotExecutable(_)) | Self::Launch(LaunchError::Exec { .. }) => {
                NOT_EXECUTABLE
            }
            _ => REFUSED,
        })
    }

    /// The message alone.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::FenceSetup(error @ FenceSetupError::Directory(_)) => error.to_string(),
            Self::FenceSetup(error) => format!("refused: {error}"),
            Self::Refused(refusal) => format!("refused: {refusal}"),
            Self::Launch(error @ LaunchError::Exec { .. }) => format!("cannot execute {error}"),
            Self::Launch(error) => format!("refused: {error}"),
            Self::Argument { message, .. } => format!("refused: {message}"),
            Self::Program(error) => error.to_string(),
            Self::Variable(error) => error.to_string(),
            Self::Io { what, error } => format!("{what}: {error}"),
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::FenceSetup(error) => error.hint(),
            Self::Refused(refusal) => Some(refusal.hint()),
            Self::Argument { hint, .. } => Some(hint.clone()),
            Self::Program(error) => Some(error.hint()),
            Self::Variable(error) => Some(error.hint()),
            Self::Launch(LaunchError::Exec { error, .. }) if error.kind() == io::ErrorKind::PermissionDenied => {
                Some("the command, or the program that its first line names, is not executable or not readable \
                      inside the fence; --read PATH makes a path readable"
                    .to_owned())
            }
            Self::Launch(LaunchError::Refused { .. }) => {
                Some("`ringfence doctor` shows what this host can enforce".to_owned())
            }
            Self::Launch(_) | Self::Io { .. } => None,
        }
    }
}

impl fmt::Display for FenceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message())?;
        match self.hint() {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<FenceSetupError> for FenceFailure {
    fn from(error: FenceSetupError) -> Self {
        Self::FenceSetup(error)
    }
}

impl From<Refusal> for FenceFailure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<LaunchError> for FenceFailure {
    fn from(error: LaunchError) -> Self {
        Self::Launch(error)
    }
}

impl From<ProgramError> for FenceFailure {
    fn from(error: ProgramError) -> Self {
        Self::Program(error)
    }
}

impl From<MissingVariableError> for FenceFailure {
    fn from(error: MissingVariableError) -> Self {
        Self::Variable(error)
    }
}
