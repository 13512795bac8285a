//! Tool calls in turns: each lane is one session of one leg with one call in flight, and all lanes make a few
//! calls of one kind before the next kind begins.

use std::collections::BTreeMap;

use crate::benchmarks::workspace::legs::{WorkspaceFigure, WorkspaceLeg};
use crate::benchmarks::workspace::results::WorkspaceSample;
use crate::error::{Error, WhileDoing};
use crate::legs::running_leg::RunningLeg;
use crate::mcp_client::http_session::{HttpSession, PreparedCall};
use crate::statistics::percentile;

/// Turns of one kind of call in a round.
const TURNS: usize = 10;

#[derive(Debug)]
pub(crate) struct ToolLane {
    pub(crate) leg: WorkspaceLeg,
    gateway: RunningLeg,
    session: HttpSession,
    /// The calls of each kind, used in turn, and how many were made so far.
    calls: BTreeMap<WorkspaceFigure, (Vec<PreparedCall>, usize)>,
}

/// A kind of call, and how many calls of it a lane makes per turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallKind {
    pub(crate) figure: WorkspaceFigure,
    pub(crate) per_turn: usize,
}

/// A call: the tool, its arguments, and the text that the answer must contain.
pub(crate) type WrittenCall = (&'static str, serde_json::Value, String);

impl ToolLane {
    pub(crate) async fn open(leg: WorkspaceLeg, gateway: RunningLeg) -> Result<Self, Error> {
        let session = HttpSession::open(gateway.http_endpoint()?).await.while_doing(leg.name())?;
        Ok(Self { leg, gateway, session, calls: BTreeMap::new() })
    }

    pub(crate) fn prepare(&mut self, figure: WorkspaceFigure, calls: Vec<WrittenCall>) {
        let prepared = calls
            .into_iter()
            .map(|(tool, arguments, expected)| self.session.prepare_call(tool, &arguments, &expected))
            .collect();
        self.calls.insert(figure, (prepared, 0));
    }

    /// Makes the next call of a kind; returns its time in microseconds.
    async fn call(&mut self, figure: WorkspaceFigure) -> Result<f64, Error> {
        let (calls, next) =
            self.calls.get_mut(&figure).ok_or_else(|| Error::new("a call was not prepared"))?;
        let position = *next % calls.len();
        *next += 1;
        let took = self.session.call_prepared(&mut calls[position]).await;
        Ok(took.while_doing(&format!("{}, {}", self.leg.name(), figure.key()))?.as_secs_f64() * 1e6)
    }

    /// The result of one call of a kind.
    pub(crate) async fn result(&mut self, figure: WorkspaceFigure) -> Result<serde_json::Value, Error> {
        self.call(figure).await?;
        self.session.last_result().ok_or_else(|| Error::new("an answer has no result"))
    }

    pub(crate) async fn stop(self) {
        self.gateway.stop().await;
    }
}

/// Measures a round: the p50 of every kind of call in every lane.
pub(crate) async fn measure_round(
    lanes: &mut [ToolLane],
    kinds: &[CallKind],
    round: usize,
) -> Result<Vec<WorkspaceSample>, Error> {
    let mut taken: BTreeMap<(WorkspaceLeg, WorkspaceFigure), Vec<f64>> = BTreeMap::new();
    for turn in 0..TURNS {
        for kind in kinds {
            for position in 0..lanes.len() {
                let lane = (position + turn + round) % lanes.len();
                let lane = &mut lanes[lane];
                for _ in 0..kind.per_turn {
                    let took = lane.call(kind.figure).await?;
                    taken.entry((lane.leg, kind.figure)).or_default().push(took);
                }
            }
        }
    }
    Ok(taken
        .into_iter()
        .filter_map(|((leg, figure), samples)| Some((leg, figure, percentile(&samples, 50)?)))
        .collect())
}
