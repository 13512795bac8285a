//! The time to the first tool result of an `npx` server: started bare with npm's cache warm, against a session of a
//! gateway that has the package installed. One at a time, in turns.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::command_line::CommandLine;
use crate::error::Error;
use crate::legs::running_leg::RunningLeg;
use crate::machine::Machine;
use crate::machine::started_processes;
use crate::mcp_client::messages::{INITIALIZE, INITIALIZED};
use crate::mcp_client::one_call::run_one_call;
use crate::programs::{self, Programs};
use crate::report::write_json;
use crate::statistics::{median, ratios_per_round};

const PACKAGE: &str = "@modelcontextprotocol/server-everything";
const CALL: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"message":"bench"}}}"#;
const ANSWER: &str = "Echo: bench";

/// Milliseconds per round, for each way of starting.
#[derive(Debug, Default)]
struct PackageStarts {
    npx: Vec<Option<f64>>,
    entry: Vec<Option<f64>>,
    session: Vec<Option<f64>>,
}

/// Measures, prints the report and writes the results.
pub(crate) fn run(command_line: &CommandLine) -> Result<(), Error> {
    let programs = programs::build_and_locate()?;
    let measured = started_processes::run_and_kill_orphans(measure(&programs, command_line.rounds()))??;
    println!("{}", measured.markdown(&Machine::read(), command_line.rounds()));
    write_json(&command_line.json_file(&programs, "package-results.json"), &measured.json())
}

async fn measure(programs: &Programs, rounds: u32) -> Result<PackageStarts, Error> {
    let entry = install(programs).await?;
    let command = ["npx", "-y", PACKAGE].map(Into::into);
    let gateway = RunningLeg::start_serving(programs, &command).await?;
    let mut starts = PackageStarts::default();
    // The first round fills npm's cache and warms the gateway.
    for round in 0..=rounds {
        eprintln!("round {round} of {rounds} …");
        let npx = first_result_bare("npx".into(), &["-y", PACKAGE]).await?;
        let bare = first_result_bare(entry.clone(), &[]).await?;
        let session = run_one_call(gateway.http_endpoint()?, CALL).await?;
        check(&session.answer)?;
        if round > 0 {
            starts.npx.push(Some(npx));
            starts.entry.push(Some(bare));
            starts.session.push(Some(session.milliseconds));
        }
    }
    gateway.stop().await;
    Ok(starts)
}

/// Installs the package and returns the program that ringfence executes for it.
async fn install(programs: &Programs) -> Result<PathBuf, Error> {
    let ringfence = || Command::new(&programs.ringfence);
    let added = ringfence().args(["cache", "add", "--", "npx", "-y", PACKAGE]).status().await?;
    if !added.success() {
        return Err(Error::new("the package could not be installed"));
    }
    let listed = ringfence().args(["cache", "list", "--json"]).output().await?;
    let listed: Value = serde_json::from_slice(&listed.stdout)?;
    let packages = listed.as_array().or(listed["packages"].as_array()).cloned().unwrap_or_default();
    let ours = packages.into_iter().find(|package| package.to_string().contains(PACKAGE));
    let entry = ours.and_then(|package| package["program"].as_str().map(PathBuf::from));
    entry.ok_or_else(|| Error::new(format!("the package is not listed: {listed}")))
}

async fn first_result_bare(program: PathBuf, arguments: &[&str]) -> Result<f64, Error> {
    let started = Instant::now();
    let mut server = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut requests = server.stdin.take().ok_or_else(|| Error::new("no stdin"))?;
    let answers = server.stdout.take().ok_or_else(|| Error::new("no stdout"))?;
    let mut lines = BufReader::new(answers).lines();
    requests.write_all(format!("{INITIALIZE}\n").as_bytes()).await?;
    while let Some(line) = lines.next_line().await? {
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        if message["id"] == 1 {
            requests.write_all(format!("{INITIALIZED}\n{CALL}\n").as_bytes()).await?;
        } else if message["id"] == 2 {
            let took = started.elapsed().as_secs_f64() * 1e3;
            check(&line)?;
            drop(requests);
            let _ = server.wait().await;
            return Ok(took);
        }
    }
    Err(Error::new("missing answer: the server ended"))
}

fn check(answer: &str) -> Result<(), Error> {
    if answer.contains(ANSWER) { Ok(()) } else { Err(Error::new(format!("wrong answer: {answer}"))) }
}

impl PackageStarts {
    fn markdown(&self, machine: &Machine, rounds: u32) -> String {
        let of = |samples: &[Option<f64>]| {
            median(&samples.iter().flatten().copied().collect::<Vec<_>>()).unwrap_or_default()
        };
        let ratio = |base: &[Option<f64>]| median(&ratios_per_round(&self.session, base)).unwrap_or_default();
        let Machine { date, kernel, processor, cores } = machine;
        format!(
            "{date}, Linux {kernel}, {cores} cores ({processor}), median of {rounds} interleaved rounds.\n\n\
             | {PACKAGE} to its first tool result | ms | session / this |\n|---|---:|---:|\n\
             | `npx -y` with a warm cache, bare | {:.0} | {:.2} |\n\
             | its entry point, bare | {:.0} | {:.2} |\n\
             | a session of `ringfence serve -- npx -y …`, fenced | {:.0} | 1 |\n",
            of(&self.npx),
            ratio(&self.npx),
            of(&self.entry),
            ratio(&self.entry),
            of(&self.session),
        )
    }

    fn json(&self) -> Value {
        json!({ "npx_ms": self.npx, "entry_ms": self.entry, "session_ms": self.session })
    }
}
