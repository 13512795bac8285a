//! The one error type of the benchmark: a sentence that says what went wrong.

use std::fmt;

#[derive(Debug, Clone)]
pub(crate) struct Failure {
    message: String,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// Says what was being done when an error came up.
pub(crate) trait WhileDoing<T> {
    fn while_doing(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> WhileDoing<T> for Result<T, E> {
    fn while_doing(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(format!("{what}: {error}")))
    }
}
