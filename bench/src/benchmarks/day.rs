//! What an agent and its user do all day in one project: the tests, a fresh install of packages, a build. Each is run
//! by the user, and as the first call of a new session; in turns, on a project that does not change.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
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
    /// What the least is that a session could do, as a command for outside, and why that is so.
    floor: Option<(&'static str, &'static str)>,
}

const UV_PROJECT: &[(&str, &str)] = &[(
    "pyproject.toml",
    "[project]\nname = \"day\"\nversion = \"0.1.0\"\nrequires-python = \">=3.10\"\n\
     dependencies = [\"rich\", \"httpx\"]\n",
)];

const WORKS: [Work; 7] = [
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
        floor: None,
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
        floor: None,
    },
    Work {
        name: "uv sync",
        program: "uv",
        files: UV_PROJECT,
        prepare: "uv sync",
        removed: None,
        command: "uv sync",
        floor: None,
    },
    Work {
        name: "uv sync into a new .venv",
        program: "uv",
        files: UV_PROJECT,
        prepare: "uv sync",
        removed: Some(".venv"),
        command: "uv sync",
        floor: Some(("copying instead of linking", "UV_LINK_MODE=copy uv sync")),
    },
    Work {
        name: "pip install into a new .venv",
        program: "python3",
        files: &[("requirements.txt", "rich\nhttpx\n")],
        prepare: PIP_INSTALL,
        removed: Some(".venv"),
        command: PIP_INSTALL,
        floor: None,
    },
    Work {
        name: "go build",
        program: "go",
        files: &[
            ("go.mod", "module day\n\ngo 1.19\n"),
            ("main.go", "package main\n\nimport \"net/http\"\n\nfunc main() { _ = http.ListenAndServe }\n"),
        ],
        // The version in the repository is no part of the build.
        prepare: "go build -buildvcs=false -o day",
        removed: Some("day"),
        command: "go build -buildvcs=false -o day",
        floor: None,
    },
    Work {
        name: "mvn compile",
        program: "mvn",
        files: &[
            (
                "pom.xml",
                "<project><modelVersion>4.0.0</modelVersion><groupId>day</groupId><artifactId>day</artifactId>\
                 <version>1</version><properties><maven.compiler.source>17</maven.compiler.source>\
                 <maven.compiler.target>17</maven.compiler.target></properties></project>",
            ),
            ("src/main/java/Day.java", "class Day {}\n"),
        ],
        prepare: "mvn --batch-mode --quiet compile",
        removed: None,
        command: "mvn --batch-mode --quiet compile",
        floor: None,
    },
];

const PIP_INSTALL: &str =
    "python3 -m venv .venv && .venv/bin/pip install --disable-pip-version-check -r requirements.txt";

/// What is in no repository of a project.
const IGNORED: &str = "target\nnode_modules\n.venv\n/day\n";

/// Milliseconds per round.
#[derive(Debug, Default)]
struct Times {
    session: Vec<Option<f64>>,
    /// The user's own run right after the session's.
    after_session: Vec<Option<f64>>,
    /// The user's own run right after another of the user's.
    outside: Vec<Option<f64>>,
    /// The user's own run of what a session must do at least.
    floor: Vec<Option<f64>>,
}

#[derive(Debug)]
enum Outcome {
    Measured(Times),
    /// Why it was not measured.
    NotMeasured(String),
}

/// Where the program of a piece of work is.
#[derive(Debug)]
enum Place {
    SearchPath,
    /// Among the parts of the tests: the directory of the program, and what it needs beside itself.
    Parts {
        directory: PathBuf,
        readable: PathBuf,
    },
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
        let outcome = match find(work.program, programs) {
            Some(place) => measure_work(work, &place, programs, rounds).await?,
            None => Outcome::NotMeasured(format!(
                "{} is neither on the PATH nor installed by scripts/install-test-parts",
                work.program
            )),
        };
        measured.push((work, outcome));
    }
    Ok(measured)
}

/// Looks on the `PATH`, then among the parts of the tests.
fn find(program: &str, programs: &Programs) -> Option<Place> {
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&search_path).any(|directory| directory.join(program).is_file()) {
        return Some(Place::SearchPath);
    }
    let venv = programs.parts_directory().join("venv");
    let libraries = std::fs::read_dir(venv.join("lib")).into_iter().flatten().flatten();
    // The Go toolchain is a package of Python there.
    let toolchains = libraries.map(|library| library.path().join("site-packages").join(program));
    let mut places = std::iter::once(venv).chain(toolchains);
    let readable = places.find(|place| place.join("bin").join(program).is_file())?;
    Some(Place::Parts { directory: readable.join("bin"), readable })
}

impl Place {
    /// A script that finds the program under its name.
    fn script(&self, command: &str) -> String {
        match self {
            Self::SearchPath => command.to_owned(),
            Self::Parts { directory, .. } => {
                format!("export PATH='{}':\"$PATH\"; {command}", directory.display())
            }
        }
    }

    fn options(&self) -> Vec<OsString> {
        match self {
            Self::SearchPath => Vec::new(),
            Self::Parts { readable, .. } => vec!["--read".into(), readable.into()],
        }
    }
}

async fn measure_work(work: Work, place: &Place, programs: &Programs, rounds: u32) -> Result<Outcome, Error> {
    let project = make_project(work, programs)?;
    // What cannot be done outside, for instance without a network, says nothing about sessions.
    if let Err(error) = run_outside(work, &project, &place.script(work.prepare)).await {
        return Ok(Outcome::NotMeasured(one_line(&error.to_string())));
    }
    commit(&project).await?;
    let name = format!("ringfence-day-{}", work.directory());
    let gateway = RunningLeg::start_serving_in(programs, &name, &project, &place.options(), &[]).await?;
    let measured = measure_rounds(work, place, &project, &gateway, rounds).await;
    gateway.stop().await;
    measured.map(Outcome::Measured)
}

async fn measure_rounds(
    work: Work,
    place: &Place,
    project: &Path,
    gateway: &RunningLeg,
    rounds: u32,
) -> Result<Times, Error> {
    let command = place.script(work.command);
    let mut times = Times::default();
    // The first round fills the kept caches.
    for round in 0..=rounds {
        eprintln!("{}: round {round} of {rounds} …", work.name);
        let session = run_in_session(work, &command, project, gateway).await?;
        let after_session = run_outside(work, project, &command).await?;
        let outside = run_outside(work, project, &command).await?;
        let floor = match work.floor {
            Some((_, floor)) => Some(run_outside(work, project, &place.script(floor)).await?),
            None => None,
        };
        if round > 0 {
            times.floor.push(floor);
            times.session.push(Some(session));
            times.after_session.push(Some(after_session));
            times.outside.push(Some(outside));
        }
    }
    Ok(times)
}

/// The beginning of a text, on one line of a table.
fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "/");
    words.chars().take(200).collect()
}

fn make_project(work: Work, programs: &Programs) -> Result<PathBuf, Error> {
    let project = programs.work_directory.join("day").join(work.directory());
    for (path, text) in work.files.iter().chain(&[(".gitignore", IGNORED)]) {
        let path = project.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(&project)).while_doing("making a project")?;
        // A file that is as it should be keeps its time, so that nothing is built anew.
        if std::fs::read_to_string(&path).map_or(true, |there| there != *text) {
            std::fs::write(&path, text).while_doing("making a project")?;
        }
    }
    Ok(project)
}

/// Makes the project a repository, as projects are: the first command of a session waits for a snapshot of it.
async fn commit(project: &Path) -> Result<(), Error> {
    let commit = "git init --quiet && git add --all && git -c user.name=day -c user.email=day@example.org commit --quiet \
                  --message day --allow-empty";
    let output = Command::new("bash").args(["-c", commit]).current_dir(project).output().await?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::new(format!("{commit}: {}", String::from_utf8_lossy(&output.stderr))))
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

async fn run_in_session(
    work: Work,
    command: &str,
    project: &Path,
    gateway: &RunningLeg,
) -> Result<f64, Error> {
    clear(work, project)?;
    let arguments = json!({"command": format!("{command} && echo all-done"), "wait_seconds": 300});
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
            Outcome::Measured(times) => times.rows(work),
            Outcome::NotMeasured(reason) => format!("| `{}` | not measured: {reason} | | | |\n", work.name),
        };
        text.push_str(&row);
    }
    text
}

impl Work {
    fn directory(&self) -> String {
        self.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
    }
}

impl Times {
    fn rows(&self, work: &Work) -> String {
        let of = |samples: &[Option<f64>]| {
            median(&samples.iter().flatten().copied().collect::<Vec<_>>()).unwrap_or_default()
        };
        let ratio = |samples| median(&ratios_per_round(samples, &self.outside)).unwrap_or_default();
        let row = format!(
            "| `{}` | {:.0} | {:.0} | {:.2} | {:.2} |\n",
            work.name,
            of(&self.outside),
            of(&self.session),
            ratio(&self.session),
            ratio(&self.after_session),
        );
        let row_of_floor = |(why, command)| {
            let (floor, ratio) = (of(&self.floor), ratio(&self.floor));
            format!("| its floor, {why}: `{command}` outside | – | {floor:.0} | {ratio:.2} | – |\n")
        };
        row + &work.floor.map(row_of_floor).unwrap_or_default()
    }
}

fn as_json(measured: &[(Work, Outcome)]) -> Value {
    let of = |outcome: &Outcome| match outcome {
        Outcome::Measured(times) => json!({
            "session_ms": times.session, "after_session_ms": times.after_session, "outside_ms": times.outside,
            "floor_ms": times.floor
        }),
        Outcome::NotMeasured(reason) => json!({"not_measured": reason}),
    };
    measured.iter().map(|(work, outcome)| (work.name, of(outcome))).collect()
}
