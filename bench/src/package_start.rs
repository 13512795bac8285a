//! What a session with an `npx` server takes to its first tool result: the server started bare, with npm's cache
//! warm, against a session of a gateway that has the package installed. One after the other, in turns.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::failure::{Failure, WhileDoing};
use crate::http_connection::HttpConnection;
use crate::machine::Machine;
use crate::mcp_messages::{INITIALIZE, INITIALIZED};
use crate::programs::Programs;
use crate::running_leg::RunningLeg;
use crate::statistics::{median, ratios_per_round};

const PACKAGE: &str = "@modelcontextprotocol/server-everything";
const CALL: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"message":"bench"}}}"#;
const ANSWER: &str = "Echo: bench";

/// Milliseconds of each way in each round.
#[derive(Debug, Default)]
pub(crate) struct PackageStarts {
    npx: Vec<Option<f64>>,
    entry: Vec<Option<f64>>,
    session: Vec<Option<f64>>,
}

pub(crate) async fn measure(programs: &Programs, rounds: u32) -> Result<PackageStarts, Failure> {
    let entry = install(programs).await?;
    let command = ["npx", "-y", PACKAGE].map(Into::into);
    let gateway = RunningLeg::start_serving(programs, &command).await?;
    let mut starts = PackageStarts::default();
    // The first round fills npm's cache and warms the gateway.
    for round in 0..=rounds {
        eprintln!("round {round} of {rounds} …");
        let npx = first_result_bare("npx".into(), &["-y", PACKAGE]).await?;
        let bare = first_result_bare(entry.clone(), &[]).await?;
        let session = first_result_of_session(&gateway).await?;
        if round > 0 {
            starts.npx.push(Some(npx));
            starts.entry.push(Some(bare));
            starts.session.push(Some(session));
        }
    }
    gateway.stop().await;
    Ok(starts)
}

/// The program that ringfence itself executes for the package.
async fn install(programs: &Programs) -> Result<PathBuf, Failure> {
    let ringfence = || Command::new(&programs.ringfence);
    let added = ringfence().args(["cache", "add", "--", "npx", "-y", PACKAGE]).status().await?;
    if !added.success() {
        return Err(Failure::new("the package could not be installed"));
    }
    let listed = ringfence().args(["cache", "list", "--json"]).output().await?;
    let listed: Value = serde_json::from_slice(&listed.stdout)?;
    let packages = listed.as_array().or(listed["packages"].as_array()).cloned().unwrap_or_default();
    let ours = packages.into_iter().find(|package| package.to_string().contains(PACKAGE));
    let entry = ours.and_then(|package| package["program"].as_str().map(PathBuf::from));
    entry.ok_or_else(|| Failure::new(format!("the package is not listed: {listed}")))
}

async fn first_result_bare(program: PathBuf, arguments: &[&str]) -> Result<f64, Failure> {
    let started = Instant::now();
    let mut server = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut requests = server.stdin.take().ok_or_else(|| Failure::new("no stdin"))?;
    let answers = server.stdout.take().ok_or_else(|| Failure::new("no stdout"))?;
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
    Err(Failure::new("missing answer: the server ended"))
}

async fn first_result_of_session(gateway: &RunningLeg) -> Result<f64, Failure> {
    let endpoint = gateway.http_endpoint()?;
    let started = Instant::now();
    let mut connection = HttpConnection::open(endpoint.address).await?;
    let mut session = String::new();
    let mut last = String::new();
    for message in [INITIALIZE, INITIALIZED, CALL] {
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\n{session}Accept: application/json, text/event-stream\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{message}",
            endpoint.path,
            endpoint.address,
            message.len()
        );
        let mut body = Vec::new();
        let head = connection.exchange(request.as_bytes(), |piece| body.extend_from_slice(piece)).await?;
        if let Some(id) = head.session_id {
            session = format!("Mcp-Session-Id: {id}\r\n");
        }
        last = String::from_utf8_lossy(&body).into_owned();
    }
    let took = started.elapsed().as_secs_f64() * 1e3;
    check(&last)?;
    let request = format!("DELETE {} HTTP/1.1\r\nHost: {}\r\n{session}\r\n", endpoint.path, endpoint.address);
    connection.exchange(request.as_bytes(), |_| {}).await.while_doing("DELETE")?;
    Ok(took)
}

fn check(answer: &str) -> Result<(), Failure> {
    if answer.contains(ANSWER) { Ok(()) } else { Err(Failure::new(format!("wrong answer: {answer}"))) }
}

impl PackageStarts {
    pub(crate) fn markdown(&self, machine: &Machine, rounds: u32) -> String {
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

    pub(crate) fn json(&self) -> Value {
        json!({ "npx_ms": self.npx, "entry_ms": self.entry, "session_ms": self.session })
    }
}
