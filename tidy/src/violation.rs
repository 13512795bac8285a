//! One broken rule, at one place.

use std::fmt;

/// Printed as `file:line: [rule] message`, with the hint on a line of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    pub(crate) rule: &'static str,
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, file, line, message, hint } = self;
        write!(f, "{file}:{line}: [{rule}] {message}\n  hint: {hint}")
    }
}
