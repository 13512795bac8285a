//! The built-in server against `@modelcontextprotocol/server-filesystem`, through the same bridge and in the same
//! fence. The official server takes absolute paths and cannot search contents: to match `grep_search` it reads all
//! files of the tree, as an agent would to search them.

use std::path::Path;

use serde_json::{Value, json};

use crate::benchmarks::workspace::files::{
    EDITED_FILE, RARE_WORD, READ_FILE, WRITTEN_FILE, changing_line, make_scope, module_files, text_of,
};
use crate::benchmarks::workspace::legs::{WorkspaceFigure, WorkspaceLeg};
use crate::benchmarks::workspace::overhead::write;
use crate::benchmarks::workspace::results::WorkspaceSample;
use crate::benchmarks::workspace::tool_lanes::{CallKind, ToolLane, WrittenCall, measure_round};
use crate::error::Error;
use crate::legs::running_leg::RunningLeg;
use crate::programs::Programs;

const ENTRY: &str = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js";
const KINDS: [CallKind; 5] = [
    CallKind { figure: WorkspaceFigure::PeerRead, per_turn: 10 },
    CallKind { figure: WorkspaceFigure::PeerWrite, per_turn: 10 },
    CallKind { figure: WorkspaceFigure::PeerEdit, per_turn: 10 },
    CallKind { figure: WorkspaceFigure::PeerFindName, per_turn: 3 },
    CallKind { figure: WorkspaceFigure::PeerFindText, per_turn: 3 },
];
/// The file that the searches have to find: the only match for its name, and the only one with the rare word.
const FOUND: &str = "src/module_3/unit_07.rs";

#[derive(Debug)]
pub(crate) struct PeerBench {
    lanes: Vec<ToolLane>,
}

impl PeerBench {
    /// Returns `None` if the official server is not installed.
    pub(crate) async fn prepare(programs: &Programs) -> Result<Option<Self>, Error> {
        let entry = programs.parts_directory().join(ENTRY);
        if !entry.is_file() {
            return Ok(None);
        }
        let scope = make_scope(programs, "peer-built-in")?;
        let gateway =
            RunningLeg::start_serving_in(programs, "workspace-peer-built-in", &scope, &[], &[]).await?;
        let mut ours = ToolLane::open(WorkspaceLeg::BuiltIn, gateway).await?;
        for (figure, calls) in our_calls() {
            ours.prepare(figure, calls);
        }
        let scope = make_scope(programs, "peer-official")?;
        let command = ["node".into(), entry.into_os_string(), scope.clone().into_os_string()];
        let gateway =
            RunningLeg::start_serving_in(programs, "workspace-peer-official", &scope, &[], &command).await?;
        let mut theirs = ToolLane::open(WorkspaceLeg::Filesystem, gateway).await?;
        for (figure, calls) in their_calls(&scope) {
            theirs.prepare(figure, calls);
        }
        Ok(Some(Self { lanes: vec![ours, theirs] }))
    }

    pub(crate) async fn measure(&mut self, round: usize) -> Result<Vec<WorkspaceSample>, Error> {
        measure_round(&mut self.lanes, &KINDS, round).await
    }

    pub(crate) async fn stop(self) {
        for lane in self.lanes {
            lane.stop().await;
        }
    }
}

fn our_calls() -> [(WorkspaceFigure, Vec<WrittenCall>); 5] {
    let edit = |from: usize, to: usize| -> WrittenCall {
        let arguments = json!({
            "path": EDITED_FILE, "old_string": changing_line(from), "new_string": changing_line(to),
        });
        ("search_replace", arguments, changing_line(to))
    };
    [
        (WorkspaceFigure::PeerRead, vec![("read_file", json!({ "path": READ_FILE }), changing_line(0))]),
        (WorkspaceFigure::PeerWrite, vec![write(1), write(2)]),
        (WorkspaceFigure::PeerEdit, vec![edit(0, 1), edit(1, 0)]),
        (
            WorkspaceFigure::PeerFindName,
            vec![("file_search", json!({ "query": "module_3/unit_07" }), FOUND.to_owned())],
        ),
        (
            WorkspaceFigure::PeerFindText,
            vec![("grep_search", json!({ "query": RARE_WORD, "path": "src" }), FOUND.to_owned())],
        ),
    ]
}

fn their_calls(scope: &Path) -> [(WorkspaceFigure, Vec<WrittenCall>); 5] {
    let absolute = |path: &str| Value::from(scope.join(path).to_string_lossy());
    let write = |version: usize| -> WrittenCall {
        let arguments = json!({ "path": absolute(WRITTEN_FILE), "content": text_of(version) });
        ("write_file", arguments, "Successfully wrote".to_owned())
    };
    let edit = |from: usize, to: usize| -> WrittenCall {
        let edits = json!([{ "oldText": changing_line(from), "newText": changing_line(to) }]);
        ("edit_file", json!({ "path": absolute(EDITED_FILE), "edits": edits }), changing_line(to))
    };
    let all: Vec<Value> = module_files().iter().map(|path| absolute(&path.to_string_lossy())).collect();
    [
        (
            WorkspaceFigure::PeerRead,
            vec![("read_text_file", json!({ "path": absolute(READ_FILE) }), changing_line(0))],
        ),
        (WorkspaceFigure::PeerWrite, vec![write(1), write(2)]),
        (WorkspaceFigure::PeerEdit, vec![edit(0, 1), edit(1, 0)]),
        (
            WorkspaceFigure::PeerFindName,
            vec![(
                "search_files",
                json!({ "path": absolute("."), "pattern": "**/module_3/unit_07*" }),
                FOUND.to_owned(),
            )],
        ),
        (
            WorkspaceFigure::PeerFindText,
            vec![("read_multiple_files", json!({ "paths": all }), RARE_WORD.to_owned())],
        ),
    ]
}
