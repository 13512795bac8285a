//! A promised figure: what was measured, the bound, and whether it is met.

#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    pub(crate) fn described(self) -> String {
        match self {
            Self::AtMost(limit) => format!("≤ {limit}"),
            Self::AtLeast(limit) => format!("≥ {limit}"),
        }
    }

    fn is_met_by(self, measured: f64) -> bool {
        match self {
            Self::AtMost(limit) => measured <= limit,
            Self::AtLeast(limit) => measured >= limit,
        }
    }
}

#[derive(Debug)]
pub(crate) struct ReachRow {
    pub(crate) figure: String,
    pub(crate) measured: Option<f64>,
    /// `None`: printed for comparison only.
    pub(crate) bound: Option<Bound>,
}

impl ReachRow {
    pub(crate) fn is_met(&self) -> Option<bool> {
        Some(self.bound?.is_met_by(self.measured?))
    }
}
