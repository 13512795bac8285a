//! The cost of the resolver and the fence: the built-in server against one that does the same with plain `std::fs`.

use std::ffi::OsString;

use serde_json::json;

use crate::benchmarks::workspace::files::{
    LISTED_DIRECTORY, READ_FILE, WRITTEN_FILE, changing_line, make_scope, text_of,
};
use crate::benchmarks::workspace::legs::{WorkspaceFigure, WorkspaceLeg};
use crate::benchmarks::workspace::results::WorkspaceSample;
use crate::benchmarks::workspace::tool_lanes::{CallKind, ToolLane, WrittenCall, measure_round};
use crate::error::Error;
use crate::legs::running_leg::RunningLeg;
use crate::machine::one_core::OneCore;
use crate::programs::Programs;

const KINDS: [CallKind; 3] = [
    CallKind { figure: WorkspaceFigure::Read, per_turn: 30 },
    CallKind { figure: WorkspaceFigure::Write, per_turn: 30 },
    CallKind { figure: WorkspaceFigure::List, per_turn: 30 },
];

#[derive(Debug)]
pub(crate) struct OverheadBench {
    lanes: Vec<ToolLane>,
}

impl OverheadBench {
    pub(crate) async fn prepare(programs: &Programs) -> Result<Self, Error> {
        let _one_core = OneCore::enter()?;
        let mut lanes = Vec::new();
        for leg in [WorkspaceLeg::BuiltIn, WorkspaceLeg::BuiltInUnfenced, WorkspaceLeg::PlainUnfenced] {
            lanes.push(open_lane(programs, leg).await?);
        }
        let mut bench = Self { lanes };
        bench.compare_answers().await?;
        Ok(bench)
    }

    /// Fails unless all lanes give the same answers.
    async fn compare_answers(&mut self) -> Result<(), Error> {
        for CallKind { figure, .. } in KINDS {
            let mut first = None;
            for lane in &mut self.lanes {
                let result = lane.result(figure).await?;
                let expected = first.get_or_insert_with(|| result.clone());
                if result != *expected {
                    let (key, name) = (figure.key(), lane.leg.name());
                    return Err(Error::new(format!(
                        "{key}: {name} answers {result}, built-in answers {expected}"
                    )));
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn measure(&mut self, round: usize) -> Result<Vec<WorkspaceSample>, Error> {
        let _one_core = OneCore::enter()?;
        measure_round(&mut self.lanes, &KINDS, round).await
    }

    pub(crate) async fn stop(self) {
        for lane in self.lanes {
            lane.stop().await;
        }
    }
}

async fn open_lane(programs: &Programs, leg: WorkspaceLeg) -> Result<ToolLane, Error> {
    let name = format!("overhead-{}", leg.name());
    let scope = make_scope(programs, &name)?;
    let unfenced: Vec<OsString> =
        if leg == WorkspaceLeg::BuiltIn { Vec::new() } else { vec!["--unfenced".into()] };
    let command: Vec<OsString> = if leg == WorkspaceLeg::PlainUnfenced {
        vec![programs.bench.clone().into(), "plain-file-server".into(), scope.clone().into()]
    } else {
        Vec::new()
    };
    let gateway = RunningLeg::start_serving_in(programs, &name, &scope, &unfenced, &command).await?;
    let mut lane = ToolLane::open(leg, gateway).await?;
    lane.prepare(WorkspaceFigure::Read, vec![("read_file", json!({ "path": READ_FILE }), changing_line(0))]);
    lane.prepare(WorkspaceFigure::Write, vec![write(1), write(2)]);
    lane.prepare(
        WorkspaceFigure::List,
        vec![("list_dir", json!({ "path": LISTED_DIRECTORY }), "entry-19.txt".to_owned())],
    );
    Ok(lane)
}

/// A `write_file` call; alternating two versions makes every write change the file.
pub(crate) fn write(version: usize) -> WrittenCall {
    let arguments = json!({ "path": WRITTEN_FILE, "content": text_of(version) });
    ("write_file", arguments, changing_line(version))
}
