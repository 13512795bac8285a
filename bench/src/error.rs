//! The benchmark's only error type: a sentence that says what went wrong.

use std::fmt;

#[derive(Debug, Clone)]
pub(crate) struct Error {
    message: String,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// Prefixes an error with what was being done when it occurred.
pub(crate) trait WhileDoing<T> {
    fn while_doing(self, what: &str) -> Result<T, Error>;
}

impl<T, E: fmt::Display> WhileDoing<T> for Result<T, E> {
    fn while_doing(self, what: &str) -> Result<T, Error> {
        self.map_err(|error| Error::new(format!("{what}: {error}")))
    }
}
