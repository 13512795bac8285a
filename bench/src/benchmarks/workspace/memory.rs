//! The memory of an idle worker of the built-in server, measured while only its gateway runs: further processes of
//! the same program would share pages and make the worker look smaller.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use memchr::memmem;

use crate::benchmarks::workspace::files::make_scope;
use crate::benchmarks::workspace::legs::{WorkspaceFigure, WorkspaceLeg};
use crate::benchmarks::workspace::results::WorkspaceSample;
use crate::error::{Error, WhileDoing};
use crate::legs::running_leg::RunningLeg;
use crate::machine::process_table::memory_kib;
use crate::mcp_client::http_session::HttpSession;
use crate::programs::Programs;

const SESSIONS_AT_ONCE: usize = 8;
const LOOKS: u32 = 500;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

pub(crate) async fn measure(programs: &Programs) -> Result<Vec<WorkspaceSample>, Error> {
    // Pages of a program that was just built count as dirty until they are on the disk.
    File::open(&programs.ringfence)?.sync_all().while_doing("writing ringfence to the disk")?;
    let scope = make_scope(programs, "memory")?;
    let gateway = RunningLeg::start_serving_in(programs, "workspace-memory", &scope, &[], &[]).await?;
    let mut sessions = vec![open_idle_session(&gateway).await?];
    wait_for_strangers_to_go(&gateway, &scope).await?;
    let alone = mean_of_workers(&gateway, &scope, 1)?;
    for _ in 1..SESSIONS_AT_ONCE {
        sessions.push(open_idle_session(&gateway).await?);
    }
    let among_others = mean_of_workers(&gateway, &scope, SESSIONS_AT_ONCE)?;
    for session in sessions {
        session.close().await?;
    }
    gateway.stop().await;
    Ok(vec![
        (WorkspaceLeg::BuiltIn, WorkspaceFigure::MemoryAlone, alone),
        (WorkspaceLeg::BuiltIn, WorkspaceFigure::MemoryAmongOthers, among_others),
    ])
}

async fn open_idle_session(gateway: &RunningLeg) -> Result<HttpSession, Error> {
    let mut session = HttpSession::open(gateway.http_endpoint()?).await?;
    session.list_tools().await?;
    Ok(session)
}

/// The mean PSS of the workers in KiB; fails unless there are `count` of them.
fn mean_of_workers(gateway: &RunningLeg, scope: &Path, count: usize) -> Result<f64, Error> {
    let workers = workers_of(gateway, scope);
    if workers.len() != count {
        return Err(Error::new(format!("{} workers run, not {count}", workers.len())));
    }
    let mut sum = 0.0;
    for worker in &workers {
        let unreadable = || Error::new("the memory of a worker can only be read by root");
        sum += memory_kib(*worker).ok_or_else(unreadable)?.0;
    }
    #[allow(clippy::cast_precision_loss, reason = "a handful of sessions")]
    Ok(sum / count as f64)
}

/// Descendants of the gateway that were started as `ringfence workspace` for this scope. A gateway also starts one in
/// an empty scope for a short time, to probe it.
pub(crate) fn workers_of(gateway: &RunningLeg, scope: &Path) -> Vec<u32> {
    let scope = scope.as_os_str().as_encoded_bytes();
    let read =
        |process_id: u32, file: &str| fs::read(format!("/proc/{process_id}/{file}")).unwrap_or_default();
    let is_worker = |process_id: &u32| {
        let words = read(*process_id, "cmdline");
        words.split(|byte| *byte == 0).nth(1) == Some(b"workspace")
            && memmem::find(&read(*process_id, "environ"), scope).is_some()
    };
    gateway.descendants().into_iter().filter(is_worker).collect()
}

/// Waits until the gateway only runs workers of this scope, so that none shares memory with a process that is about
/// to end.
async fn wait_for_strangers_to_go(gateway: &RunningLeg, scope: &Path) -> Result<(), Error> {
    for _ in 0..LOOKS {
        if workers_of(gateway, Path::new("")).len() == workers_of(gateway, scope).len() {
            return Ok(());
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    Err(Error::new("a worker of no session does not end"))
}
