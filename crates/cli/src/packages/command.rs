//! `ringfence cache`: installs packages ahead of time, shows them, installs them anew, removes them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use fence::{HostEnvironment, Launcher, ReadChoice};
use serde_json::{Value, json};

use super::failure::PackageFailure;
use super::store::{Generation, PackageDirectory};
use super::{DEFAULT_MAX_AGE, Installer, recognise};
use crate::arguments::seconds;
use crate::environment::Variable;
use crate::fenced::{self, FenceFailure, FenceOptions};

const EXAMPLES: &str = "\
Examples:
  ringfence cache add -- npx -y @modelcontextprotocol/server-everything
      installs now what `ringfence serve -- npx -y …` would install at its first start
  ringfence cache list
  ringfence cache refresh @modelcontextprotocol/server-everything
  ringfence cache clear

Exit codes: 0 done, 1 something could not be installed or removed, 2 bad arguments";

const ADD_EXAMPLES: &str = "\
Examples:
  ringfence cache add -- npx -y @modelcontextprotocol/server-everything
  ringfence cache add -- uvx --python 3.12 mcp-server-time
  ringfence cache add --max-age 3600 -- npx -y -p some-package some-program
      keeps what is there if it is not older than an hour
  ringfence cache add --net http --allow-host registry.example -- npx -y some-server
      the installation reaches one host only

Of the options of a fence, those about the network, the tier and what may be missing count: an installation
has a scope, limits and temporary files of its own, and reads nothing of the user.";

const LIST_EXAMPLES: &str = "\
Examples:
  ringfence cache list
  ringfence cache list --json";

const REFRESH_EXAMPLES: &str = "\
Examples:
  ringfence cache refresh                      all of them
  ringfence cache refresh mcp-server-time      by name, or by name and version as they were given";

const CLEAR_EXAMPLES: &str = "\
Examples:
  ringfence cache clear                        all that no running ringfence uses
  ringfence cache clear mcp-server-time";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CacheArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Install the package of a command now.
    Add(Box<AddArguments>),
    /// Show what is installed.
    List(ListArguments),
    /// Install packages anew.
    Refresh(Box<RefreshArguments>),
    /// Remove packages.
    Clear(ClearArguments),
}

#[derive(Debug, Args)]
#[command(after_help = ADD_EXAMPLES)]
struct AddArguments {
    /// Keep what is installed if it is not older than this (a day, if it is not said).
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    max_age: Option<Duration>,
    #[command(flatten)]
    installation: InstallationOptions,
    /// Print the program and what it reads as one line of JSON.
    #[arg(long)]
    json: bool,
    /// The command that launches the package: npx or uvx.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
struct ListArguments {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = REFRESH_EXAMPLES)]
struct RefreshArguments {
    #[command(flatten)]
    installation: InstallationOptions,
    /// Print what was done as one JSON array.
    #[arg(long)]
    json: bool,
    /// Only these.
    #[arg(value_name = "PACKAGE")]
    packages: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = CLEAR_EXAMPLES)]
struct ClearArguments {
    /// Print what was done as one JSON array.
    #[arg(long)]
    json: bool,
    /// Only these.
    #[arg(value_name = "PACKAGE")]
    packages: Vec<String>,
}

/// How packages are installed.
#[derive(Debug, Args)]
struct InstallationOptions {
    /// Pass an environment variable to the installation, or set one (repeatable). Install scripts can read it.
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<Variable>,
    #[command(flatten)]
    fence: FenceOptions,
}

pub(crate) fn run(arguments: &CacheArguments) -> Result<ExitCode, PackageFailure> {
    let host_environment = HostEnvironment::of_this_process().map_err(FenceFailure::from)?;
    match &arguments.action {
        Action::Add(arguments) => add(arguments, &host_environment)?,
        Action::List(arguments) => list(arguments, &host_environment)?,
        Action::Refresh(arguments) => refresh(arguments, &host_environment)?,
        Action::Clear(arguments) => clear(arguments, &host_environment)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn add(arguments: &AddArguments, host_environment: &HostEnvironment) -> Result<(), PackageFailure> {
    let written = || arguments.command.join(OsStr::new(" ")).to_string_lossy().into_owned();
    let command = recognise(&arguments.command).ok_or_else(|| PackageFailure::NotAPackage(written()))?;
    let installed = arguments.installation.with_installer(host_environment, |installer| {
        installer.install(&command, arguments.max_age.unwrap_or(DEFAULT_MAX_AGE))
    })?;
    if arguments.json {
        let lossy: Vec<_> = installed.arguments.iter().map(|word| word.to_string_lossy()).collect();
        print(
            &json!({
                "package": command.package.specification(),
                "tool": command.package.tool.as_str(),
                "program": installed.program,
                "arguments": lossy,
                "readable": installed.readable,
                "programs": installed.programs,
            })
            .to_string(),
        );
    } else {
        print(&installed.program.display().to_string());
    }
    Ok(())
}

fn list(arguments: &ListArguments, host_environment: &HostEnvironment) -> Result<(), PackageFailure> {
    let found: Vec<Generation> =
        installed(host_environment, &[])?.into_iter().map(|(_, generation)| generation).collect();
    if arguments.json {
        print(&found.iter().map(described).collect::<Value>().to_string());
        return Ok(());
    }
    for generation in &found {
        let package = &generation.marker.package;
        let (tool, specification) = (package.tool.as_str(), package.specification());
        let (age, size) = (duration(generation.age()), size(generation.marker.bytes));
        print(&format!("{tool}  {specification}  {age} old  {size}\n     {}", generation.entry().display()));
    }
    Ok(())
}

fn refresh(arguments: &RefreshArguments, host_environment: &HostEnvironment) -> Result<(), PackageFailure> {
    let chosen = installed(host_environment, &arguments.packages)?;
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    arguments.installation.with_installer(host_environment, |installer| {
        for (directory, old) in &chosen {
            match installer.refresh(directory, &old.marker) {
                Ok(new) => done.push(new),
                Err(failure) => {
                    let hint = failure.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                    (installer.progress)(&format!("{failure}{hint}"));
                    failed.push(old.marker.package.specification());
                }
            }
        }
        Ok(())
    })?;
    if arguments.json {
        print(&done.iter().map(described).collect::<Value>().to_string());
    }
    if failed.is_empty() { Ok(()) } else { Err(PackageFailure::NotRefreshed(failed)) }
}

fn clear(arguments: &ClearArguments, host_environment: &HostEnvironment) -> Result<(), PackageFailure> {
    let chosen: Vec<(PackageDirectory, Option<String>)> = if arguments.packages.is_empty() {
        // Also those that were never finished.
        let all = PackageDirectory::all(host_environment)
            .map_err(PackageFailure::directory("read the packages"))?;
        let name = |directory: &PackageDirectory| {
            directory.newest().map(|newest| newest.marker.package.specification())
        };
        all.into_iter().map(|directory| (directory.clone(), name(&directory))).collect()
    } else {
        let chosen = installed(host_environment, &arguments.packages)?.into_iter();
        chosen.map(|(directory, newest)| (directory, Some(newest.marker.package.specification()))).collect()
    };
    let mut told = Vec::new();
    for (directory, name) in chosen {
        let name = name.unwrap_or_else(|| "an unfinished installation".to_owned());
        let _lock = directory
            .lock(|| progress(&format!("waiting for another ringfence that installs {name}")))
            .map_err(PackageFailure::directory("lock the package"))?;
        let is_removed = directory.clear().map_err(PackageFailure::directory("remove the package"))?;
        if !is_removed {
            progress(&format!("{name} is in use, so some of it stays"));
        }
        told.push(json!({"package": name, "removed": is_removed}));
    }
    if arguments.json {
        print(&Value::from(told).to_string());
    }
    Ok(())
}

impl InstallationOptions {
    fn with_installer<T>(
        &self,
        host_environment: &HostEnvironment,
        act: impl FnOnce(&Installer<'_>) -> Result<T, PackageFailure>,
    ) -> Result<T, PackageFailure> {
        let parent: &BTreeMap<OsString, OsString> = &host_environment.environment;
        let variables: Vec<(OsString, OsString)> = self
            .env
            .iter()
            .filter(|variable| {
                let is_stripped = fence::environment::is_stripped(OsStr::new(variable.name()));
                if is_stripped {
                    progress(&format!(
                        "{} is left out, because it makes programs load code",
                        variable.name()
                    ));
                }
                !is_stripped
            })
            .map(|variable| Ok((variable.name().into(), variable.value_in(parent)?)))
            .collect::<Result<_, _>>()
            .map_err(PackageFailure::Program)?;
        act(&Installer {
            settings: &fenced::settings(&self.fence, ReadChoice::Strict)?,
            host_environment,
            launcher: &Launcher::new(),
            variables: &variables,
            progress: &progress,
        })
    }
}

/// The newest generation of each package that is meant; of all, if none is named.
fn installed(
    host_environment: &HostEnvironment,
    meant: &[String],
) -> Result<Vec<(PackageDirectory, Generation)>, PackageFailure> {
    let all =
        PackageDirectory::all(host_environment).map_err(PackageFailure::directory("read the packages"))?;
    let found: Vec<(PackageDirectory, Generation)> = all
        .into_iter()
        .filter_map(|directory| {
            let newest = directory.newest()?;
            Some((directory, newest))
        })
        .collect();
    let is_one = |word: &String| found.iter().any(|(_, newest)| newest.marker.package.is_meant_by(word));
    if let Some(unknown) = meant.iter().find(|word| !is_one(word)) {
        return Err(PackageFailure::Unknown(unknown.clone()));
    }
    let is_meant = |(_, newest): &(PackageDirectory, Generation)| {
        meant.is_empty() || meant.iter().any(|word| newest.marker.package.is_meant_by(word))
    };
    Ok(found.into_iter().filter(is_meant).collect())
}

fn described(generation: &Generation) -> Value {
    let marker = &generation.marker;
    json!({
        "package": marker.package.specification(),
        "tool": marker.package.tool.as_str(),
        "program": generation.entry(),
        "directory": generation.tree,
        "age_seconds": generation.age().as_secs(),
        "bytes": marker.bytes,
    })
}

fn progress(text: &str) {
    eprintln!("ringfence: {text}");
}

/// A reader that has seen enough is not an error.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// For people: `3 days`.
pub(super) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (number, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7200 => (seconds / 60, "minute"),
        7200..172_800 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {unit}{plural}")
}

/// For people: `3 MiB`.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}
