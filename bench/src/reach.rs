//! How far ringfence reaches: each promised figure, what was measured, the bound, and whether it is met.

use crate::legs::Leg;
use crate::measurement_names::Figure;
use crate::results::Results;
use crate::statistics::median;

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
    /// None: printed for comparison only.
    pub(crate) bound: Option<Bound>,
}

impl ReachRow {
    pub(crate) fn is_met(&self) -> Option<bool> {
        Some(self.bound?.is_met_by(self.measured?))
    }
}

pub(crate) fn reach_rows(results: &Results) -> Vec<ReachRow> {
    const OURS: Leg = Leg::RingfenceSession;
    let against = |words: &str, base: Leg, figure: Figure, bound: Bound| ReachRow {
        figure: format!("{words}, {} / {}", OURS.name(), base.name()),
        measured: results.ratio(OURS, base, figure),
        bound: Some(bound),
    };
    let bare = Leg::BareAxum;
    let peer = Leg::Supergateway;
    vec![
        against("sequential p50", bare, Figure::LatencyP50, Bound::AtMost(1.8)),
        ReachRow {
            figure: "its floor: (bare-axum + direct-stdio) / bare-axum".to_owned(),
            measured: latency_floor(results),
            bound: None,
        },
        against("throughput 1×32", bare, Figure::Throughput1x32, Bound::AtLeast(0.6)),
        against("throughput 64×4", bare, Figure::Throughput64x4, Bound::AtLeast(0.6)),
        against("throughput 1×32", peer, Figure::Throughput1x32, Bound::AtLeast(15.0)),
        against("throughput 64×4", peer, Figure::Throughput64x4, Bound::AtLeast(15.0)),
        against("sequential p50", peer, Figure::LatencyP50, Bound::AtMost(0.3)),
        against("session creation p50", Leg::DirectStdio, Figure::CreationP50, Bound::AtMost(1.5)),
        against("8 MiB results", bare, Figure::Big8MiB, Bound::AtLeast(0.5)),
        ReachRow {
            figure: format!("gateway KiB per idle session, {}", OURS.name()),
            measured: results.median(OURS, Figure::GatewayMemoryPerSession),
            bound: Some(Bound::AtMost(48.0)),
        },
    ]
}

/// What a gateway that added nothing of its own to HTTP and pipes would measure.
fn latency_floor(results: &Results) -> Option<f64> {
    let bare = results.per_round(Leg::BareAxum, Figure::LatencyP50);
    let direct = results.per_round(Leg::DirectStdio, Figure::LatencyP50);
    let floors: Vec<f64> =
        bare.iter().zip(direct).filter_map(|(bare, direct)| Some(1.0 + (*direct)? / (*bare)?)).collect();
    median(&floors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_met_from_its_side() {
        let mut results = Results::default();
        results.record(Leg::RingfenceSession, Figure::LatencyP50, 0, 170.0);
        results.record(Leg::BareAxum, Figure::LatencyP50, 0, 100.0);
        results.record(Leg::DirectStdio, Figure::LatencyP50, 0, 50.0);
        let rows = reach_rows(&results);
        assert_eq!(rows[0].is_met(), Some(true));
        assert!(rows[1].measured.is_some_and(|floor| (floor - 1.5).abs() < 1e-9));
        assert_eq!(rows[1].is_met(), None);
        assert_eq!(rows[2].is_met(), None);
    }
}
