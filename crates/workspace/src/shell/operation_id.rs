//! The id of an operation, as clients write it.

use std::fmt;
use std::str::FromStr;

/// Numbers the operations of one session from 1; no number is used twice. Shown as `op-1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OperationId(pub(crate) u64);

impl fmt::Display for OperationId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "op-{}", self.0)
    }
}

impl FromStr for OperationId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let id = text.strip_prefix("op-").and_then(|number| number.parse().ok()).map(Self);
        // There is one spelling: `op-01` and `op-+1` are unknown.
        id.filter(|id| id.to_string() == text).ok_or(())
    }
}
