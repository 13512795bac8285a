//! The figures that ringfence promises as a bridge, with their bounds.

use crate::benchmarks::bridges::measurements::Figure;
use crate::benchmarks::bridges::results::Results;
use crate::legs::Leg;
use crate::report::bounds::{Bound, ReachRow};
use crate::statistics::median;

pub(crate) fn reach_rows(results: &Results) -> Vec<ReachRow> {
    let mut rows = unfenced_rows(results);
    rows.extend(fenced_rows(results));
    rows.extend(Leg::ALL.into_iter().flat_map(|leg| before_rows(results, leg)));
    rows
}

/// The cost of a leg relative to the build that `--before` names; a ratio above 1 is always worse.
fn before_rows(results: &Results, leg: Leg) -> Vec<ReachRow> {
    let Some(before) = leg.before().filter(|before| results.samples.has(before)) else { return Vec::new() };
    let row = |(words, figure, more_is_better): (&str, Figure, bool)| {
        let (above, below) = if more_is_better { (before, leg) } else { (leg, before) };
        ReachRow {
            figure: format!("{words}, {} / {}", above.name(), below.name()),
            measured: results.samples.ratio(above, below, figure),
            bound: Some(Bound::AtMost(1.05)),
        }
    };
    [
        ("sequential p50", Figure::LatencyP50, false),
        ("throughput 1×32", Figure::Throughput1x32, true),
        ("throughput 32×1", Figure::Throughput32x1, true),
        ("throughput 64×4", Figure::Throughput64x4, true),
        ("gateway CPU per call 1×32", Figure::GatewayCpu, false),
        ("session creation p50", Figure::CreationP50, false),
        ("session creation rate", Figure::CreationRate, true),
        ("1 MiB results", Figure::Big1MiB, true),
        ("8 MiB results", Figure::Big8MiB, true),
        ("gateway memory of 200 idle sessions", Figure::GatewayMemory200, false),
        ("memory of their servers", Figure::ChildrenMemory200, false),
    ]
    .map(row)
    .into()
}

fn unfenced_rows(results: &Results) -> Vec<ReachRow> {
    const OURS: Leg = Leg::RingfenceSession;
    let against = |words: &str, base: Leg, figure: Figure, bound: Bound| ReachRow {
        figure: format!("{words}, {} / {}", OURS.name(), base.name()),
        measured: results.samples.ratio(OURS, base, figure),
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
            measured: results.samples.median(OURS, Figure::GatewayMemoryPerSession),
            bound: Some(Bound::AtMost(48.0)),
        },
    ]
}

fn fenced_rows(results: &Results) -> Vec<ReachRow> {
    let fenced = |words: &str, base: Leg, figure: Figure, bound: Option<Bound>| ReachRow {
        figure: format!("{words}, {} / {}", Leg::RingfenceFenced.name(), base.name()),
        measured: results.samples.ratio(Leg::RingfenceFenced, base, figure),
        bound,
    };
    let peer = Leg::Supergateway;
    vec![
        fenced("session creation p50", Leg::DirectStdio, Figure::CreationP50, Some(Bound::AtMost(5.0))),
        fenced("sequential p50", Leg::RingfenceShared, Figure::LatencyP50, Some(Bound::AtMost(1.05))),
        fenced("throughput 1×32", Leg::RingfenceShared, Figure::Throughput1x32, Some(Bound::AtLeast(0.95))),
        fenced("throughput 64×4", Leg::RingfenceShared, Figure::Throughput64x4, None),
        ReachRow {
            figure: format!("gateway KiB per idle session, {}", Leg::RingfenceFenced.name()),
            measured: results.samples.median(Leg::RingfenceFenced, Figure::GatewayMemoryPerSession),
            bound: Some(Bound::AtMost(64.0)),
        },
        ReachRow {
            figure: "KiB per idle session beyond the server's own, ringfence-fenced".to_owned(),
            measured: fence_memory(results),
            bound: Some(Bound::AtMost(1024.0)),
        },
        ReachRow {
            figure: "of 500 idle sessions, answer, ringfence-fenced".to_owned(),
            measured: results.samples.median(Leg::RingfenceFenced, Figure::Held500),
            bound: Some(Bound::AtLeast(500.0)),
        },
        ReachRow {
            figure: "KiB per vanished client after the grace, ringfence-fenced".to_owned(),
            measured: results.samples.median(Leg::RingfenceFenced, Figure::MemoryPerVanished),
            bound: Some(Bound::AtMost(64.0)),
        },
        fenced("session creation p50", peer, Figure::CreationP50, Some(Bound::AtMost(1.0))),
        fenced("throughput 1×32", peer, Figure::Throughput1x32, Some(Bound::AtLeast(1.0))),
        fenced("throughput 64×4", peer, Figure::Throughput64x4, Some(Bound::AtLeast(1.0))),
        ReachRow {
            figure: "memory of 200 idle sessions with their servers, ringfence-fenced / supergateway"
                .to_owned(),
            measured: memory_of_200(results, Leg::RingfenceFenced)
                .zip(memory_of_200(results, peer))
                .map(|(ours, theirs)| ours / theirs),
            bound: Some(Bound::AtMost(1.0)),
        },
    ]
}

fn memory_of_200(results: &Results, leg: Leg) -> Option<f64> {
    Some(
        results.samples.median(leg, Figure::GatewayMemory200)?
            + results.samples.median(leg, Figure::ChildrenMemory200)?,
    )
}

/// KiB per session beyond the same server without a fence: the gateway's part plus the supervisor.
fn fence_memory(results: &Results) -> Option<f64> {
    let children = |leg| results.samples.median(leg, Figure::ChildrenMemory200);
    let supervisors = (children(Leg::RingfenceFenced)? - children(Leg::RingfenceSession)?) / 200.0;
    Some(results.samples.median(Leg::RingfenceFenced, Figure::GatewayMemoryPerSession)? + supervisors)
}

/// The lowest possible latency ratio to bare axum: that of a gateway that adds nothing to HTTP and pipes.
fn latency_floor(results: &Results) -> Option<f64> {
    let bare = results.samples.per_round(Leg::BareAxum, Figure::LatencyP50);
    let direct = results.samples.per_round(Leg::DirectStdio, Figure::LatencyP50);
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
        results.samples.record(Leg::RingfenceSession, Figure::LatencyP50, 0, 170.0);
        results.samples.record(Leg::BareAxum, Figure::LatencyP50, 0, 100.0);
        results.samples.record(Leg::DirectStdio, Figure::LatencyP50, 0, 50.0);
        let rows = reach_rows(&results);
        assert_eq!(rows[0].is_met(), Some(true));
        assert!(rows[1].measured.is_some_and(|floor| (floor - 1.5).abs() < 1e-9));
        assert_eq!(rows[1].is_met(), None);
        assert_eq!(rows[2].is_met(), None);
    }

    #[test]
    fn an_earlier_build_is_compared_so_that_more_is_worse() {
        let mut results = Results::default();
        assert!(before_rows(&results, Leg::RingfenceShared).is_empty());
        for (leg, latency, throughput) in
            [(Leg::RingfenceShared, 110.0, 900.0), (Leg::BeforeShared, 100.0, 1000.0)]
        {
            results.samples.record(leg, Figure::LatencyP50, 0, latency);
            results.samples.record(leg, Figure::Throughput1x32, 0, throughput);
        }
        let rows = before_rows(&results, Leg::RingfenceShared);
        assert!(rows.iter().take(2).all(|row| row.measured.unwrap() > 1.09 && row.is_met() == Some(false)));
    }
}
