//! `grep_search` over a large tree against the program ripgrep: one search each, in turns, with the tree in the page
//! cache.
//!
//! Requests go to the worker through its pipes. It counts every match and shows the first 1 000; ripgrep prints all.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;

use crate::benchmarks::workspace::legs::{WorkspaceFigure, WorkspaceLeg};
use crate::benchmarks::workspace::results::WorkspaceSample;
use crate::benchmarks::workspace::source_tree::{self, COMMON, COMMON_HITS, RARE, RARE_HITS};
use crate::benchmarks::workspace::stdio_worker::StdioWorker;
use crate::error::{Error, WhileDoing};
use crate::mcp_client::messages::result_of_answer;
use crate::programs::Programs;
use crate::statistics::median;

/// Searches by each program per round; the median counts.
const SEARCHES: usize = 3;
const SHOWN: usize = 1000;

#[derive(Debug)]
pub(crate) struct GrepBench {
    tree: PathBuf,
    worker: StdioWorker,
    has_ripgrep: bool,
}

impl GrepBench {
    pub(crate) fn prepare(programs: &Programs) -> Result<Self, Error> {
        let tree = source_tree::make_once(programs)?;
        let mut worker = StdioWorker::start(programs, &tree)?;
        worker.say_initialized()?;
        let version = Command::new("rg").arg("--version").output();
        Ok(Self { tree, worker, has_ripgrep: version.is_ok_and(|version| version.status.success()) })
    }

    pub(crate) fn has_ripgrep(&self) -> bool {
        self.has_ripgrep
    }

    pub(crate) fn measure(&mut self, round: usize) -> Result<Vec<WorkspaceSample>, Error> {
        let mut samples = Vec::new();
        for (figure, pattern, hits) in
            [(WorkspaceFigure::GrepFew, RARE, RARE_HITS), (WorkspaceFigure::GrepMany, COMMON, COMMON_HITS)]
        {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for turn in 0..SEARCHES {
                let is_ours_first = (turn + round).is_multiple_of(2);
                for is_ours in [is_ours_first, !is_ours_first] {
                    if is_ours {
                        ours.push(self.search(pattern, hits)?);
                    } else if self.has_ripgrep {
                        theirs.push(self.search_with_ripgrep(pattern, hits)?);
                    }
                }
            }
            samples.extend(median(&ours).map(|value| (WorkspaceLeg::Stdio, figure, value)));
            samples.extend(median(&theirs).map(|value| (WorkspaceLeg::Ripgrep, figure, value)));
        }
        Ok(samples)
    }

    fn search(&mut self, pattern: &str, hits: usize) -> Result<f64, Error> {
        let began = Instant::now();
        let answer = self.worker.call("grep_search", &json!({ "query": pattern, "limit": SHOWN }))?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        let result = result_of_answer(answer.as_bytes()).unwrap_or_default();
        let data = &result["structuredContent"];
        let shown = data["matches"].as_array().map_or(0, Vec::len);
        if data["total_matches"] != hits || shown != hits.min(SHOWN) {
            return Err(Error::new(format!(
                "wrong answer: grep_search shows {shown} of {} matches, not {hits}",
                data["total_matches"]
            )));
        }
        Ok(took)
    }

    fn search_with_ripgrep(&self, pattern: &str, hits: usize) -> Result<f64, Error> {
        let began = Instant::now();
        let output = Command::new("rg")
            .args(["-n", "-i", "--no-config", "--no-ignore-parent", pattern, "."])
            .current_dir(&self.tree)
            .stdin(Stdio::null())
            .output()
            .while_doing("running rg")?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        let lines = memchr::memchr_iter(b'\n', &output.stdout).count();
        if lines == hits {
            return Ok(took);
        }
        Err(Error::new(format!("wrong answer: rg found {lines} lines, not {hits}")))
    }

    pub(crate) fn stop(self) -> Result<(), Error> {
        self.worker.stop()
    }
}
