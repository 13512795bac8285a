//! What `initialize` takes when it starts a worker of the built-in server, against starting a program that does
//! nothing in the same fence by the same launcher. The client has no roots: its workspace is the gateway's own scope,
//! so that the worker starts at once and `initialize` is answered by it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::failure::{Failure, WhileDoing};
use crate::fence_schedule::permutation;
use crate::http_session::HttpSession;
use crate::programs::Programs;
use crate::running_leg::RunningLeg;
use crate::serve_fence::ServeFence;
use crate::static_program;
use crate::statistics::percentile;
use crate::stdio_worker::StdioWorker;
use crate::workspace_files::make_scope;
use crate::workspace_legs::{WorkspaceFigure, WorkspaceLeg, WorkspaceMeasurement};
use crate::workspace_memory::workers_of;
use crate::workspace_results::WorkspaceSample;

/// Of each leg in a round.
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
    pub(crate) async fn prepare(programs: &Programs) -> Result<Self, Failure> {
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
    ) -> Result<Vec<WorkspaceSample>, Failure> {
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

    /// Microseconds.
    async fn start_once(&self, programs: &Programs, leg: WorkspaceLeg) -> Result<f64, Failure> {
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
                    return Err(Failure::new("the static program did not end well"));
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

async fn initialize_once(gateway: &RunningLeg) -> Result<f64, Failure> {
    let (session, took) = HttpSession::open_timed(gateway.http_endpoint()?).await?;
    session.close().await?;
    Ok(took.as_secs_f64())
}

/// Otherwise something else would be measured.
async fn check_that_workers_start(gateway: &RunningLeg, scope: &Path) -> Result<(), Failure> {
    let session = HttpSession::open(gateway.http_endpoint()?).await?;
    let workers = workers_of(gateway, scope).len();
    session.close().await?;
    if workers == 1 { Ok(()) } else { Err(Failure::new(format!("initialize started {workers} workers"))) }
}
