//! What an agent and its user do all day in one project: the tests, a fresh install of packages, a build. Each is run
//! by the user, and as the first call of a new session; in turns, on a project that does not change.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::command_line::CommandLine;
use crate::error::{Error, WhileDoing};
use crate::legs::running_leg::RunningLeg;
use crate::machine::Machine;
use crate::machine::started_processes;
use crate::mcp_client::one_call::run_one_call;
use crate::programs::{self, Programs};
use crate::report::write_json;
use crate::statistics::{median, ratios_per_round};

/// One piece of work in a project of its own.
#[derive(Debug, Clone, Copy)]
struct Work {
    name: &'static str,
    /// The program that it needs.
    program: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// Makes lock files and fills the user's caches.
    prepare: &'static str,
    /// Removed before each run.
    removed: Option<&'static str>,
    command: &'static str,
}

const WORKS: [Work; 4] = [
    Work {
        name: "cargo test",
        program: "cargo",
        files: &[
            (
                "Cargo.toml",
                "[workspace]\n[package]\nname = \"day\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
                 [dependencies]\nserde_json = \"1\"\nregex = \"1\"\n",
            ),
            (
                "src/lib.rs",
                "#[test]\nfn parses() { assert!(serde_json::from_str::<serde_json::Value>(\"{}\").is_ok()); }\n",
            ),
        ],
        prepare: "cargo test",
        removed: None,
        command: "cargo test",
    },
    Work {
        name: "npm ci",
        program: "npm",
        files: &[(
            "package.json",
            r#"{"name": "day", "version": "1.0.0", "dependencies": {"express": "^5", "zod": "^4"}}"#,
        )],
        prepare: "npm install --no-audit --no-fund",
        removed: Some("node_modules"),
        command: "npm ci --no-audit --no-fund",
    },
    Work {
        name: "uv sync",
        program: "uv",
        files: &[(
            "pyproject.toml",
            "[project]\nname = \"day\"\nversion = \"0.1.0\"\nrequires-python = \">=3.10\"\n\
             dependencies = [\"rich\", \"httpx\"]\n",
        )],
        prepare: "uv sync",
        removed: Some(".venv"),
        command: "uv sync",
    },
    Work {
        name: "go build",
        program: "go",
        files: &[
            ("go.mod", "module day\n\ngo 1.19\n"),
            ("main.go", "package main\n\nimport \"net/http\"\n\nfunc main() { _ = http.ListenAndServe }\n"),
        ],
        prepare: "go build -o day",
        removed: Some("day"),
        command: "go build -o day",
    },
];

/// Milliseconds per round.
#[derive(Debug, Default)]
struct Times {
    session: Vec<Option<f64>>,
    /// The user's own run right after the session's.
    after_session: Vec<Option<f64>>,
    /// The user's own run right after another of the user's.
    outside: Vec<Option<f64>>,
}

#[derive(Debug)]
enum Outcome {
    Measured(Times),
    /// The program is not there.
    Missing,
}

/// Measures, prints the report and writes the results.
pub(crate) fn run(command_line: &CommandLine) -> Result<(), Error> {
    let programs = programs::build_and_locate()?;
    let rounds = command_line.rounds();
    let measured = started_processes::run_and_kill_orphans(measure(&programs, rounds))??;
    println!("{}", markdown(&measured, &Machine::read(), rounds));
    write_json(&command_line.json_file(&programs, "day-results.json"), &as_json(&measured))
}

async fn measure(programs: &Programs, rounds: u32) -> Result<Vec<(Work, Outcome)>, Error> {
    let mut measured = Vec::new();
    for work in WORKS {
        let is_there =
            Command::new(work.program).arg("--version").stdout(Stdio::null()).status().await.is_ok();
        let outcome = if is_there {
            Outcome::Measured(measure_work(work, programs, rounds).await?)
        } else {
            Outcome::Missing
        };
        measured.push((work, outcome));
    }
    Ok(measured)
}

async fn measure_work(work: Work, programs: &Programs, rounds: u32) -> Result<Times, Error> {
    let project = make_project(work, programs)?;
    run_outside(work, &project, work.prepare).await?;
    let name = format!("ringfence-day-{}", work.program);
    let gateway = RunningLeg::start_serving_in(programs, &name, &project, &[], &[]).await?;
    let mut times = Times::default();
    // The first round fills the kept caches.
    for round in 0..=rounds {
        eprintln!("{}: round {round} of {rounds} …", work.name);
        let session = run_in_session(work, &project, &gateway).await?;
        let after_session = run_outside(work, &project, work.command).await?;
        let outside = run_outside(work, &project, work.command).await?;
        if round > 0 {
            times.session.push(Some(session));
            times.after_session.push(Some(after_session));
            times.outside.push(Some(outside));
        }
    }
    gateway.stop().await;
    Ok(times)
}

fn make_project(work: Work, programs: &Programs) -> Result<PathBuf, Error> {
    let project = programs.work_directory.join("day").join(work.program);
    for (path, text) in work.files {
        let path = project.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(&project)).while_doing("making a project")?;
        // A file that is as it should be keeps its time, so that nothing is built anew.
        if std::fs::read_to_string(&path).map_or(true, |there| there != *text) {
            std::fs::write(&path, text).while_doing("making a project")?;
        }
    }
    Ok(project)
}

fn clear(work: Work, project: &Path) -> Result<(), Error> {
    let Some(path) = work.removed.map(|name| project.join(name)) else { return Ok(()) };
    let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

async fn run_outside(work: Work, project: &Path, command: &str) -> Result<f64, Error> {
    clear(work, project)?;
    let started = Instant::now();
    let output = Command::new("bash").args(["-c", command]).current_dir(project).output().await?;
    let took = started.elapsed().as_secs_f64() * 1e3;
    if output.status.success() {
        return Ok(took);
    }
    Err(Error::new(format!("{command}: {}", String::from_utf8_lossy(&output.stderr))))
}

async fn run_in_session(work: Work, project: &Path, gateway: &RunningLeg) -> Result<f64, Error> {
    clear(work, project)?;
    let arguments = json!({"command": format!("{} && echo all-done", work.command), "wait_seconds": 300});
    let params = json!({"name": "run_terminal_cmd", "arguments": arguments});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
    let made = run_one_call(gateway.http_endpoint()?, &call.to_string()).await?;
    if !made.answer.contains("all-done") {
        return Err(Error::new(format!("{} in a session: {}", work.name, made.answer)));
    }
    Ok(made.milliseconds)
}

fn markdown(measured: &[(Work, Outcome)], machine: &Machine, rounds: u32) -> String {
    let Machine { date, kernel, processor, cores } = machine;
    let mut text = format!(
        "{date}, Linux {kernel}, {cores} cores ({processor}), median of {rounds} interleaved rounds.\n\n\
         | unchanged project | outside ms | in a new session ms | session / outside | outside after a session / \
         outside |\n|---|--:|--:|--:|--:|\n"
    );
    for (work, outcome) in measured {
        let row = match outcome {
            Outcome::Measured(times) => times.row(work.name),
            Outcome::Missing => {
                format!("| `{}` | not measured: {} is not installed | | | |\n", work.name, work.program)
            }
        };
        text.push_str(&row);
    }
    text
}

impl Times {
    fn row(&self, name: &str) -> String {
        let of = |samples: &[Option<f64>]| {
            median(&samples.iter().flatten().copied().collect::<Vec<_>>()).unwrap_or_default()
        };
        let ratio = |samples| median(&ratios_per_round(samples, &self.outside)).unwrap_or_default();
        format!(
            "| `{name}` | {:.0} | {:.0} | {:.2} | {:.2} |\n",
            of(&self.outside),
            of(&self.session),
            ratio(&self.session),
            ratio(&self.after_session),
        )
    }
}

fn as_json(measured: &[(Work, Outcome)]) -> Value {
    let of = |outcome: &Outcome| match outcome {
        Outcome::Measured(times) => json!({
            "session_ms": times.session, "after_session_ms": times.after_session, "outside_ms": times.outside
        }),
        Outcome::Missing => Value::Null,
    };
    measured.iter().map(|(work, outcome)| (work.name, of(outcome))).collect()
}
