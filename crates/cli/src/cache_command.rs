//! `ringfence cache`: installs packages ahead of time, lists, refreshes and removes them.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use fence::{HostEnvironment, Launcher, ReadChoice};
use packages::{DEFAULT_MAX_AGE, InstalledPackage, Installer, PackageError};
use serde_json::{Value, json};

use crate::environment::Variable;
use crate::error::Error;
use crate::fenced::{self, FenceOptions};
use crate::output::print_line;
use crate::seconds::seconds;

const EXAMPLES: &str = "\
Examples:
  ringfence cache add -- npx -y @modelcontextprotocol/server-everything
      installs now the package that `ringfence serve -- npx -y …` would install at its first start
  ringfence cache list
  ringfence cache refresh @modelcontextprotocol/server-everything
  ringfence cache clear

Exit codes: 0 done, 1 something could not be installed or removed, 2 bad arguments";

const ADD_EXAMPLES: &str = "\
Examples:
  ringfence cache add -- npx -y @modelcontextprotocol/server-everything
  ringfence cache add -- uvx --python 3.12 mcp-server-time
  ringfence cache add --max-age 3600 -- npx -y -p some-package some-program
      keeps an installed package that is at most an hour old
  ringfence cache add --net http --allow-host registry.example -- npx -y some-server
      the installation reaches one host only

Of the fence options, only those about the network, the tier and missing protections apply: an installation has
a scope, limits and temporary files of its own, and reads none of the user's files.";

const LIST_EXAMPLES: &str = "\
Examples:
  ringfence cache list
  ringfence cache list --json";

const REFRESH_EXAMPLES: &str = "\
Examples:
  ringfence cache refresh                      all packages
  ringfence cache refresh mcp-server-time      one, by its name, or by name and version as first given";

const CLEAR_EXAMPLES: &str = "\
Examples:
  ringfence cache clear                        all packages that no running ringfence uses
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
    /// List the installed packages.
    List(ListArguments),
    /// Install packages anew.
    Refresh(Box<RefreshArguments>),
    /// Remove packages.
    Clear(ClearArguments),
}

#[derive(Debug, Args)]
#[command(after_help = ADD_EXAMPLES)]
struct AddArguments {
    /// Keep the installed package if it is at most this old. By default, a day.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    max_age: Option<Duration>,
    #[command(flatten)]
    installation: InstallationOptions,
    /// Print the program and the directories that it reads as one line of JSON.
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
    /// Print the new packages as one JSON array.
    #[arg(long)]
    json: bool,
    /// Refresh only these packages.
    #[arg(value_name = "PACKAGE")]
    packages: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = CLEAR_EXAMPLES)]
struct ClearArguments {
    /// Print the removed packages as one JSON array.
    #[arg(long)]
    json: bool,
    /// Remove only these packages.
    #[arg(value_name = "PACKAGE")]
    packages: Vec<String>,
}

#[derive(Debug, Args)]
struct InstallationOptions {
    /// Pass an environment variable to the installation, or set one (repeatable). Install scripts can read it.
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<Variable>,
    #[command(flatten)]
    fence: FenceOptions,
}

pub(crate) fn run(arguments: &CacheArguments) -> Result<ExitCode, Error> {
    let host_environment = HostEnvironment::of_this_process()?;
    match &arguments.action {
        Action::Add(arguments) => add(arguments, &host_environment)?,
        Action::List(arguments) => list(arguments, &host_environment)?,
        Action::Refresh(arguments) => refresh(arguments, &host_environment)?,
        Action::Clear(arguments) => clear(arguments, &host_environment)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn add(arguments: &AddArguments, host_environment: &HostEnvironment) -> Result<(), Error> {
    let written = || arguments.command.join(OsStr::new(" ")).to_string_lossy().into_owned();
    let command = packages::recognise(&arguments.command).ok_or_else(|| Error::NotAPackage(written()))?;
    let installed = arguments.installation.with_installer(host_environment, |installer| {
        installer.install(&command, arguments.max_age.unwrap_or(DEFAULT_MAX_AGE))
    })?;
    if arguments.json {
        let lossy: Vec<_> = installed.arguments.iter().map(|word| word.to_string_lossy()).collect();
        print_line(
            &json!({
                "package": command.package.specification(),
                "tool": command.package.tool().as_str(),
                "program": installed.program,
                "arguments": lossy,
                "readable": installed.readable,
                "programs": installed.programs,
            })
            .to_string(),
        );
    } else {
        print_line(&installed.program.display().to_string());
    }
    Ok(())
}

fn list(arguments: &ListArguments, host_environment: &HostEnvironment) -> Result<(), Error> {
    let found = packages::installed(host_environment, &[])?;
    if arguments.json {
        print_line(&found.iter().map(described).collect::<Value>().to_string());
        return Ok(());
    }
    for installed in &found {
        let (tool, specification) =
            (installed.package().tool().as_str(), installed.package().specification());
        let (age, size) = (installed.age_in_words(), size(installed.bytes()));
        print_line(&format!(
            "{tool}  {specification}  {age} old  {size}\n     {}",
            installed.program().display()
        ));
    }
    Ok(())
}

fn refresh(arguments: &RefreshArguments, host_environment: &HostEnvironment) -> Result<(), Error> {
    let chosen = packages::installed(host_environment, &arguments.packages)?;
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    arguments.installation.with_installer(host_environment, |installer| {
        for old in &chosen {
            match installer.refresh(old) {
                Ok(new) => done.push(new),
                Err(error) => {
                    let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                    progress(&format!("{error}{hint}"));
                    failed.push(old.package().specification());
                }
            }
        }
        Ok(())
    })?;
    if arguments.json {
        print_line(&done.iter().map(described).collect::<Value>().to_string());
    }
    if failed.is_empty() { Ok(()) } else { Err(Error::NotRefreshed(failed)) }
}

fn clear(arguments: &ClearArguments, host_environment: &HostEnvironment) -> Result<(), Error> {
    let cleared = packages::clear(host_environment, &arguments.packages, &progress)?;
    if arguments.json {
        let one = |cleared: &packages::ClearedPackage| json!({"package": cleared.name, "removed": cleared.is_removed});
        print_line(&cleared.iter().map(one).collect::<Value>().to_string());
    }
    Ok(())
}

impl InstallationOptions {
    fn with_installer<T>(
        &self,
        host_environment: &HostEnvironment,
        act: impl FnOnce(&Installer<'_>) -> Result<T, PackageError>,
    ) -> Result<T, Error> {
        let parent = &host_environment.environment;
        let mut variables = Vec::new();
        for variable in &self.env {
            if fence::environment::is_stripped(OsStr::new(variable.name())) {
                progress(&format!("{} is left out, because it makes programs load code", variable.name()));
            } else {
                variables.push((variable.name().into(), variable.value_in(parent)?));
            }
        }
        let installer = Installer {
            settings: &fenced::settings(&self.fence, ReadChoice::Strict)?,
            host_environment,
            launcher: &Launcher::new(),
            variables: &variables,
            progress: &progress,
        };
        Ok(act(&installer)?)
    }
}

fn described(installed: &InstalledPackage) -> Value {
    json!({
        "package": installed.package().specification(),
        "tool": installed.package().tool().as_str(),
        "program": installed.program(),
        "directory": installed.tree(),
        "age_seconds": installed.age().as_secs(),
        "bytes": installed.bytes(),
    })
}

fn progress(text: &str) {
    eprintln!("ringfence: {text}");
}

/// For people: `3 MiB`.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}
