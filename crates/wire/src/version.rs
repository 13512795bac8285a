//! The protocol revisions of the legacy era, in order.

use std::fmt;

/// A revision with an `initialize` handshake. Ordered by date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
}

impl Version {
    pub const ALL: [Self; 4] = [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25];
    pub const NEWEST: Self = Self::V2025_11_25;

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// Only 2025-03-26 has JSON-RPC batches.
    pub fn allows_batches(self) -> bool {
        self == Self::V2025_03_26
    }

    /// Older clients cannot parse an event with empty data, so they get no priming event. Without an event id they
    /// cannot resume, so their streams are never closed early.
    pub fn understands_priming(self) -> bool {
        self >= Self::V2025_11_25
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
