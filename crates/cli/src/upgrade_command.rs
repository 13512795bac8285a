//! `ringfence upgrade`: has running gateways go on with the program that is now at their path, and waits until they do.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use fence::{HostEnvironment, ProcessStat};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::discovery::{self, Discovered};
use crate::error::Error;
use crate::operator_client::OperatorClient;
use crate::output::print_line;

/// How often it is looked whether the new program serves.
const LOOK_EVERY: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  mv ringfence.new ~/.local/bin/ringfence && ringfence upgrade
      the gateway that runs goes on with the new program: same process, same sockets, same sessions
  ringfence upgrade 4711
  ringfence upgrade --all --json

Exit codes: 0 done, 1 refused or failed, with the reason; what was refused goes on as it is; 2 bad arguments";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpgradeArguments {
    /// The process id of the gateway. It can be left out if one runs.
    pid: Option<u32>,
    /// Upgrade all gateways that this user runs, one after the other.
    #[arg(long, conflicts_with = "pid")]
    all: bool,
    /// Also upgrade a gateway that keeps no sessions; they end.
    #[arg(long)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &UpgradeArguments) -> Result<ExitCode, Error> {
    let host_environment = HostEnvironment::of_this_process()?;
    let own = host_environment.outside();
    let gateways = chosen(discovery::running(own), arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut results, mut has_failed) = (Vec::new(), false);
    for gateway in gateways {
        let (pid, url) = (gateway.pid, gateway.url.clone());
        let outcome = upgrade(gateway, own, &runtime, arguments.force);
        has_failed |= outcome.is_err();
        if !arguments.json {
            match &outcome {
                Ok(version) => print_line(&format!("{url} (process {pid}) is now version {version}")),
                Err(reason) => eprintln!("ringfence: {url} (process {pid}) was not upgraded: {reason}"),
            }
        }
        results.push(match outcome {
            Ok(version) => json!({ "pid": pid, "url": url, "upgraded": true, "version": version }),
            Err(reason) => json!({ "pid": pid, "url": url, "upgraded": false, "reason": reason }),
        });
    }
    if arguments.json {
        print_line(&format!("{:#}", json!({ "gateways": results })));
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn chosen(mut gateways: Vec<Discovered>, arguments: &UpgradeArguments) -> Result<Vec<Discovered>, Error> {
    if let Some(pid) = arguments.pid {
        gateways.retain(|gateway| gateway.pid == pid);
    }
    match gateways.len() {
        0 => Err(Error::NoGateway),
        1 => Ok(gateways),
        _ if arguments.all => Ok(gateways),
        _ => Err(Error::SeveralGateways(gateways.iter().map(|gateway| gateway.pid).collect())),
    }
}

/// Returns the version that serves now, or why the upgrade was refused or failed.
fn upgrade(gateway: Discovered, own: &Path, runtime: &Runtime, is_forced: bool) -> Result<String, String> {
    let (pid, before) = (gateway.pid, gateway.token.clone());
    let client = OperatorClient::new(gateway, own, runtime).map_err(|error| error.message())?;
    let path = if is_forced { "/upgrade?force" } else { "/upgrade" };
    let (status, answer) = client.ask_at_socket(Method::POST, path)?;
    if status == StatusCode::NOT_FOUND {
        return Err("it is too old to be upgraded; restart it".to_owned());
    }
    if !status.is_success() {
        let reason = answer["error"]["message"].as_str().unwrap_or("it did not say why");
        return Err(reason.trim_start_matches("Conflict: ").to_owned());
    }
    let within =
        Duration::from_secs_f64(answer["within_seconds"].as_f64().unwrap_or_default().clamp(0.0, 1e9));
    let now = wait_for_successor(pid, &before, own, runtime, Instant::now() + within)?;
    let version = now["version"].as_str().unwrap_or_default().to_owned();
    match now["last"]["failed"].as_str() {
        Some(reason) => {
            Err(format!("the new program could not be executed, and version {version} goes on: {reason}"))
        }
        None => Ok(version),
    }
}

fn is_running(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.and_then(ProcessStat::of).is_some_and(|stat| !stat.has_ended)
}

/// Waits until a program of this process answers that has another token than the one before.
fn wait_for_successor(
    pid: u32,
    before: &str,
    own: &Path,
    runtime: &Runtime,
    deadline: Instant,
) -> Result<Value, String> {
    while Instant::now() < deadline {
        if !is_running(pid) {
            return Err("its process has ended; its log says why".to_owned());
        }
        let found = discovery::running(own).into_iter().find(|one| one.pid == pid && one.token != before);
        if let Some(found) = found {
            let client = OperatorClient::new(found, own, runtime).map_err(|error| error.message())?;
            if let Ok((StatusCode::OK, answer)) = client.ask_at_socket(Method::GET, "/upgrade") {
                return Ok(answer);
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Err("the new program does not answer yet; the log of the gateway says more".to_owned())
}
