//! `ringfence sessions`: what the running gateways are doing, and a way to stop it.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use fence::HostEnvironment;
use serde_json::{Value, json};

use crate::discovery::{self, Discovered};
use crate::error::Failure;

/// A session may take its grace time to end.
const PATIENCE: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  ringfence sessions list
  ringfence sessions list --json
  ringfence sessions show s-1a2b3c4d
  ringfence sessions stop s-1a2b3c4d
      ends the session and its processes; its client starts a new one when it needs one

Exit codes: 0 done, 1 no such session or no gateway runs, 2 bad arguments";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SessionsArguments {
    #[command(subcommand)]
    command: SessionsCommand,
    /// Only the gateway at this address, such as `http://127.0.0.1:3000`.
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// All sessions of the gateways that this user runs.
    List,
    /// One session, with its processes and what holds around them.
    Show {
        /// The handle, as list shows it.
        session: String,
    },
    /// End a session.
    Stop {
        /// The handle, as list shows it.
        session: String,
    },
}

pub(crate) fn run(arguments: &SessionsArguments) -> Result<ExitCode, Failure> {
    let host_environment = HostEnvironment::of_this_process().map_err(Failure::FenceSetup)?;
    let mut gateways = discovery::running(host_environment.outside());
    if let Some(url) = &arguments.url {
        // Addresses have many spellings, and two gateways of one host hardly share a port.
        let port = |url: &str| {
            url.trim_end_matches('/').trim_end_matches("/mcp").rsplit(':').next().map(str::to_owned)
        };
        gateways.retain(|gateway| port(&gateway.url) == port(url));
    }
    if gateways.is_empty() {
        return Err(Failure::NoGateway);
    }
    match &arguments.command {
        SessionsCommand::List => list(&gateways, arguments.json),
        SessionsCommand::Show { session } => {
            let found = find(&gateways, |gateway| ask(gateway, "GET", session))?;
            print(&if arguments.json { format!("{found:#}") } else { described(&found) });
        }
        SessionsCommand::Stop { session } => {
            let stopped = find(&gateways, |gateway| ask(gateway, "DELETE", session))?;
            print(&if arguments.json { stopped.to_string() } else { format!("{session} was stopped") });
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(gateways: &[Discovered], as_json: bool) {
    let mut sessions = Vec::new();
    for gateway in gateways {
        let Some(Value::Array(found)) = ask(gateway, "GET", "").map(|mut answer| answer["sessions"].take())
        else {
            continue;
        };
        sessions.extend(found.into_iter().map(|mut session| {
            session["gateway"] = gateway.url.clone().into();
            session
        }));
    }
    if as_json {
        return print(&format!("{:#}", json!({ "sessions": sessions })));
    }
    if sessions.is_empty() {
        return print("no sessions");
    }
    let bold =
        |text: String| if std::io::stdout().is_terminal() { format!("\x1b[1m{text}\x1b[0m") } else { text };
    print(&bold(row(["SESSION", "STATE", "CLIENT", "CALLS", "MEMORY", "IDLE", "SCOPE"].map(str::to_owned))));
    for session in &sessions {
        print(&row([
            text(&session["session"]),
            text(&session["state"]),
            text(&session["client"]),
            session["calls"].to_string(),
            memory(session),
            format!("{:.0} s", session["idle_seconds"].as_f64().unwrap_or_default()),
            scope(session),
        ]));
    }
}

fn row([session, state, client, calls, memory, idle, scope]: [String; 7]) -> String {
    format!("{session:<12} {state:<15} {client:<24} {calls:>7} {memory:>9} {idle:>8}  {scope}")
}

fn described(session: &Value) -> String {
    let mut lines = vec![
        format!("session     {} ({})", text(&session["session"]), text(&session["state"])),
        format!("client      {} (instance {})", text(&session["client"]), text(&session["instance"])),
        format!("scope       {} (from {})", scope(session), text(&session["scope_source"])),
        format!(
            "calls       {} ({} failed, {} running)",
            session["calls"], session["errors"], session["in_flight"]
        ),
        format!(
            "age         {:.0} s, idle for {:.0} s",
            session["age_seconds"].as_f64().unwrap_or_default(),
            session["idle_seconds"].as_f64().unwrap_or_default()
        ),
    ];
    for worker in session["workers"].as_array().into_iter().flatten() {
        lines.push(format!(
            "worker      {} {}, pid {}, generation {}, {} processes, {}, {:.2} s of processor time",
            text(&worker["upstream"]),
            text(&worker["state"]),
            worker["pid"],
            worker["generation"],
            worker["processes"],
            format_args!("{} MiB", worker["pss_bytes"].as_u64().unwrap_or_default() >> 20),
            worker["cpu_seconds"].as_f64().unwrap_or_default(),
        ));
        let confinement = worker["confinement"].as_str().unwrap_or("none: it runs without a fence");
        lines.push(format!("fence       {confinement}"));
    }
    lines.join("\n")
}

/// What clients call themselves must not reach the terminal as control characters.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn scope(session: &Value) -> String {
    let paths: Vec<String> = session["scope"].as_array().into_iter().flatten().map(text).collect();
    if paths.is_empty() { "-".to_owned() } else { paths.join(", ") }
}

fn memory(session: &Value) -> String {
    let workers = session["workers"].as_array().into_iter().flatten();
    let bytes: u64 = workers.filter_map(|worker| worker["pss_bytes"].as_u64()).sum();
    format!("{} MiB", bytes >> 20)
}

/// The first gateway that knows the session.
fn find(gateways: &[Discovered], ask: impl Fn(&Discovered) -> Option<Value>) -> Result<Value, Failure> {
    gateways.iter().find_map(ask).ok_or(Failure::NoSuchSession)
}

/// `None`: the gateway knows no such session, or does not answer, which is told.
fn ask(gateway: &Discovered, verb: &str, session: &str) -> Option<Value> {
    let separator = if session.is_empty() { "" } else { "/" };
    let url = format!("{}/sessions{separator}{session}", gateway.operator_url());
    let authorization = format!("Bearer {}", gateway.token);
    let agent =
        ureq::Agent::new_with_config(ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build());
    let answer = match verb {
        "DELETE" => agent.delete(&url).header("authorization", authorization).call(),
        _ => agent.get(&url).header("authorization", authorization).call(),
    };
    match answer {
        Ok(mut answer) => serde_json::from_str(&answer.body_mut().read_to_string().ok()?).ok(),
        Err(ureq::Error::StatusCode(404)) => None,
        Err(error) => {
            eprintln!("ringfence: the gateway at {} does not answer: {error}", gateway.url);
            None
        }
    }
}

/// A reader that has seen enough is not an error.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
