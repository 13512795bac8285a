//! `ringfence cache`: installs packages ahead of time, lists, refreshes and removes them; lists and removes what package
//! managers have downloaded in workspaces.

mod refresh_report;
mod workspace_caches;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use fence::{HostEnvironment, Launcher};
use packages::{InstalledPackage, Installer, PackageError, Pinned, RefreshChoice};
use serde_json::{Value, json};

use self::refresh_report::RefreshReport;
use self::workspace_caches::WorkspacesArguments;
use crate::environment::Variable;
use crate::error::Error;
use crate::fenced::{self, FenceOptions};
use crate::output::print_line;

const EXAMPLES: &str = "\
Examples:
  ringfence cache add -- npx -y @modelcontextprotocol/server-everything
      installs now the package that `ringfence serve -- npx -y …` would install at its first start
  ringfence cache list
  ringfence cache refresh --dry-run
      shows what a refresh would change
  ringfence cache refresh @modelcontextprotocol/server-everything
  ringfence cache clear
  ringfence cache workspaces
      shows what cargo, npm, pip and others have downloaded in each workspace, and how much disk it takes

An installed package stays at its version until it is refreshed. Its lock, beside it, has the version and the hashes
of everything that belongs to it; a package whose files are lost is installed again from that lock.

Exit codes: 0 done, 1 something could not be installed, refreshed or removed, 2 bad arguments";

const ADD_EXAMPLES: &str = "\
Examples:
  ringfence cache add -- npx -y @modelcontextprotocol/server-everything
  ringfence cache add -- uvx --python 3.12 mcp-server-time
  ringfence cache add --allow-install-scripts -- npx -y some-server-with-native-parts
      for `ringfence serve --allow-install-scripts`, and servers with `allowInstallScripts: true`
  ringfence cache add --net http --allow-host registry.example -- npx -y some-server
      the installation reaches one host only

Of the fence options, only those about the network, the tier and missing protections apply: an installation has
a scope, limits and temporary files of its own, and reads none of the user's files.";

const LIST_EXAMPLES: &str = "\
Examples:
  ringfence cache list
  ringfence cache list --json

A package without a lock was installed by an older ringfence: `ringfence cache refresh` pins it.";

const REFRESH_EXAMPLES: &str = "\
Examples:
  ringfence cache refresh --dry-run            what would change
  ringfence cache refresh                      all packages
  ringfence cache refresh mcp-server-time      one, by its name, or by name and version as first given
  ringfence cache refresh --accept-changed some-server
      also if the registry now has other files under a version that is installed

Processes that run keep the files that they were started from. Nothing is asked.";

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
    /// List the installed packages with their versions and hashes.
    List(ListArguments),
    /// Look for newer versions, show what changed, and install them.
    Refresh(Box<RefreshArguments>),
    /// Remove packages.
    Clear(ClearArguments),
    /// List or remove what package managers downloaded in workspaces.
    Workspaces(WorkspacesArguments),
}

#[derive(Debug, Args)]
#[command(after_help = ADD_EXAMPLES)]
struct AddArguments {
    /// Let the package run code when it is installed, inside the fence of the installation: install scripts of npm, and
    /// builds of Python packages that have no wheel.
    #[arg(long)]
    allow_install_scripts: bool,
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
    /// Only show what would change.
    #[arg(long)]
    dry_run: bool,
    /// Install a package even if the registry replaced files under the version that is installed.
    #[arg(long)]
    accept_changed: bool,
    #[command(flatten)]
    installation: InstallationOptions,
    /// Print what changed as one JSON array.
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
        Action::Workspaces(arguments) => workspace_caches::run(arguments, &host_environment)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn add(arguments: &AddArguments, host_environment: &HostEnvironment) -> Result<(), Error> {
    let written = || arguments.command.join(OsStr::new(" ")).to_string_lossy().into_owned();
    let command = packages::recognise(&arguments.command).ok_or_else(|| Error::NotAPackage(written()))?;
    let command = command.allow_install_scripts(arguments.allow_install_scripts);
    let installed =
        arguments.installation.with_installer(host_environment, |installer| installer.install(&command))?;
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
        print_line(&in_words(installed));
    }
    Ok(())
}

fn refresh(arguments: &RefreshArguments, host_environment: &HostEnvironment) -> Result<(), Error> {
    let chosen = packages::installed(host_environment, &arguments.packages)?;
    let choice = RefreshChoice { dry_run: arguments.dry_run, accept_changed: arguments.accept_changed };
    let (mut reports, mut failed) = (Vec::new(), Vec::new());
    arguments.installation.with_installer(host_environment, |installer| {
        for old in &chosen {
            let report = RefreshReport { old, result: installer.refresh(old, choice) };
            if !arguments.json {
                print_line(&report.in_words());
            }
            for line in report.warnings() {
                warning(&line);
            }
            if report.has_failed() {
                failed.push(old.package().specification());
            }
            reports.push(report.as_json());
        }
        Ok(())
    })?;
    if arguments.json {
        print_line(&Value::from(reports).to_string());
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
            settings: &fenced::settings(&self.fence, fenced::MetadataDefault::Writable)?,
            host_environment,
            launcher: &Launcher::new(),
            variables: &variables,
            checks_all_files: true,
            progress: &progress,
            warning: &warning,
        };
        Ok(act(&installer)?)
    }
}

/// An installed package on a few lines.
fn in_words(installed: &InstalledPackage) -> String {
    let package = installed.package();
    let (tool, specification) = (package.tool().as_str(), package.specification());
    let (age, size) = (installed.age_in_words(), size(installed.bytes()));
    let program = installed.program();
    let program = program.display();
    let Some(pinned) = installed.pinned() else {
        return format!(
            "{tool}  {specification}  not pinned  {age} old  {size}\n     ringfence cache refresh {} pins it\n     {program}",
            package.name()
        );
    };
    let Pinned { version, installer, .. } = pinned;
    let packages = counted(pinned.packages, "package");
    let scripts = match (pinned.install_scripts_ran, &pinned.install_scripts[..]) {
        (true, _) => "; install scripts ran".to_owned(),
        (false, []) => String::new(),
        (false, names) => format!("; install scripts did not run: {}", names.join(", ")),
    };
    format!(
        "{tool}  {specification}  {version}  {age} old  {size}\n     {}\n     {packages}, {installer}{scripts}\n     {program}",
        integrity_in_words(&pinned.integrity)
    )
}

/// The first hash. A version of a Python package has one for each system that it can be installed on.
fn integrity_in_words(hashes: &[String]) -> String {
    match hashes {
        [] => "no hash".to_owned(),
        [only] => only.clone(),
        [first, rest @ ..] => format!("{first} or {}", counted(rest.len(), "other file")),
    }
}

fn described(installed: &InstalledPackage) -> Value {
    let package = installed.package();
    let pinned = installed.pinned();
    json!({
        "name": package.name(),
        "package": package.specification(),
        "tool": package.tool().as_str(),
        "pinned": pinned.is_some(),
        "version": pinned.map(|pinned| &pinned.version),
        "integrity": pinned.map(|pinned| &pinned.integrity),
        "packages": pinned.map(|pinned| pinned.packages),
        "installer": pinned.map(|pinned| &pinned.installer),
        "install_scripts": pinned.map(|pinned| &pinned.install_scripts),
        "install_scripts_ran": pinned.map(|pinned| pinned.install_scripts_ran),
        "install_scripts_allowed": package.allows_install_scripts(),
        "program": installed.program(),
        "directory": installed.tree(),
        "installed_at": installed.time(),
        "age_seconds": installed.age().as_secs(),
        "bytes": installed.bytes(),
    })
}

fn progress(text: &str) {
    eprintln!("ringfence: {text}");
}

fn warning(text: &str) {
    progress(&format!("warning: {text}"));
}

/// For people: `1 package`, `3 packages`.
fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// For people: `3 MiB`.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}
