//! The time of an `initialize` that starts a worker of the built-in server, against starting a program that does
//! nothing in the same fence with the same launcher. The client has no roots: it works in the gateway's own scope, so
//! that the worker starts at once and answers `initialize` itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::benchmarks::round_order::permutation;
use crate::benchmarks::workspace::files::make_scope;
use crate::benchmarks::workspace::legs::{WorkspaceFigure, WorkspaceLeg, WorkspaceMeasurement};
use crate::benchmarks::workspace::memory::workers_of;
use crate::benchmarks::workspace::results::WorkspaceSample;
use crate::benchmarks::workspace::serve_fence::ServeFence;
use crate::benchmarks::workspace::static_program;
use crate::benchmarks::workspace::stdio_worker::StdioWorker;
use crate::error::{Error, WhileDoing};
use crate::legs::running_leg::RunningLeg;
use crate::mcp_client::http_session::HttpSession;
use crate::programs::Programs;
use crate::statistics::percentile;

/// Starts of each leg per round.
const STARTS: usize = 20;

#[derive(Debug)]
pub(crate) struct CreationBench {
    fenced: RunningLeg,
    unfenced: RunningLeg,
    fence: ServeFence,
    program: PathBuf,
    scope: PathBuf,
}

impl CreationBench {
    pub(crate) async fn prepare(programs: &Programs) -> Result<Self, Error> {
        let scope = make_scope(programs, "creation")?;
        let program = scope.join("static-program");
        static_program::write_to(&program)?;
        let fence = ServeFence::prepare(programs, &scope, program.clone())?;
        let start = |name: &'static str, options: &'static [&'static str]| {
            let scope = scope.clone();
            async move {
                let options: Vec<_> = options.iter().map(Into::into).collect();
                RunningLeg::start_serving_in(programs, name, &scope, &options, &[]).await
            }
        };
        let fenced = start("workspace-creation-fenced", &[]).await?;
        let unfenced = start("workspace-creation-unfenced", &["--unfenced"]).await?;
        check_that_workers_start(&fenced, &scope).await?;
        check_that_workers_start(&unfenced, &scope).await?;
        Ok(Self { fenced, unfenced, fence, program, scope })
    }

    pub(crate) async fn measure(
        &self,
        programs: &Programs,
        round: usize,
    ) -> Result<Vec<WorkspaceSample>, Error> {
        let legs = WorkspaceMeasurement::Creation.legs();
        let mut taken = vec![Vec::new(); legs.len()];
        let places: Vec<usize> = (0..legs.len()).collect();
        for start in 0..STARTS {
            for place in permutation(&places, round * STARTS + start) {
                taken[place].push(self.start_once(programs, legs[place]).await?);
            }
        }
        let samples = legs.iter().zip(taken);
        Ok(samples
            .filter_map(|(leg, taken)| Some((*leg, WorkspaceFigure::Initialize, percentile(&taken, 50)?)))
            .collect())
    }

    /// Starts the leg once; returns the time in microseconds.
    async fn start_once(&self, programs: &Programs, leg: WorkspaceLeg) -> Result<f64, Error> {
        let began = Instant::now();
        let took = match leg {
            WorkspaceLeg::BuiltIn => initialize_once(&self.fenced).await?,
            WorkspaceLeg::BuiltInUnfenced => initialize_once(&self.unfenced).await?,
            WorkspaceLeg::StaticFenced => {
                self.fence.launch_and_wait()?;
                began.elapsed().as_secs_f64()
            }
            WorkspaceLeg::Stdio => {
                let worker = StdioWorker::start(programs, &self.scope)?;
                let took = began.elapsed().as_secs_f64();
                worker.stop()?;
                took
            }
            _ => {
                let status = Command::new(&self.program).status().while_doing("starting the program")?;
                if !status.success() {
                    return Err(Error::new("the static program did not end well"));
                }
                began.elapsed().as_secs_f64()
            }
        };
        Ok(took * 1e6)
    }

    pub(crate) async fn stop(self) {
        self.fence.finish();
        self.fenced.stop().await;
        self.unfenced.stop().await;
    }
}

async fn initialize_once(gateway: &RunningLeg) -> Result<f64, Error> {
    let (session, took) = HttpSession::open_timed(gateway.http_endpoint()?).await?;
    session.close().await?;
    Ok(took.as_secs_f64())
}

/// Fails unless `initialize` starts exactly one worker: otherwise the figure would mean something else.
async fn check_that_workers_start(gateway: &RunningLeg, scope: &Path) -> Result<(), Error> {
    let session = HttpSession::open(gateway.http_endpoint()?).await?;
    let workers = workers_of(gateway, scope).len();
    session.close().await?;
    if workers == 1 { Ok(()) } else { Err(Error::new(format!("initialize started {workers} workers"))) }
}
