//! `ringfence session stop`, `discard`, `restore` and `prune`.

use std::time::{Duration, Instant};

use clap::Args;
use fence::HostEnvironment;
use reqwest::Method;
use serde_json::json;
use staging::{PruneRules, StagingError, Unsaved, WorkspaceCopy, Workspaces};
use workspace::size_in_words;

use super::commits::{counted, unsaved};
use super::fenced_program::FencedPrograms;
use super::{AsJson, SessionCommandError};
use crate::error::Error;
use crate::fenced::size;
use crate::operator_client::{Answer, Asked, OperatorClient};
use crate::output::print_line;
use crate::seconds::age;

/// How long ended sessions may take to let go of a copy.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub(super) struct DiscardArguments {
    /// The workspace.
    name: String,
    /// Also with changes or commits that the project does not have.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    output: AsJson,
}

#[derive(Debug, Args)]
pub(super) struct PruneArguments {
    /// Move those to the trash that were not used for so long: 12h, 30d, 4w.
    #[arg(long, value_name = "TIME", value_parser = age)]
    older_than: Option<Duration>,
    /// Remove the least recently used ones for good, until all take no more than this.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Also those with changes or commits that the project does not have.
    #[arg(long)]
    force: bool,
    /// Say what would be removed, and remove nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: AsJson,
}

/// Ends the sessions that work in a copy. The copy stays as it is.
pub(super) fn stop(workspaces: &Workspaces, name: &str, as_json: bool) -> Result<(), Error> {
    let copy = workspaces.find(name)?;
    let host = HostEnvironment::of_this_process()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut stopped = Vec::new();
    for gateway in OperatorClient::all(host.outside(), &runtime)? {
        let Some(Answer::Found(listed)) = gateway.ask(&Asked::get("")) else { continue };
        for session in listed["sessions"].as_array().into_iter().flatten() {
            let Some(handle) = session["session"].as_str().filter(|_| session["copy"] == name) else {
                continue;
            };
            gateway.ask(&Asked { method: Method::DELETE, ..Asked::get(handle) });
            stopped.push(handle.to_owned());
        }
    }
    // The last fence lets go of the copy a moment after its session is over.
    let until = Instant::now() + PATIENCE;
    while copy.user().is_some() && !stopped.is_empty() && Instant::now() < until {
        std::thread::sleep(LOOK_EVERY);
    }
    if let Some(pid) = copy.user() {
        return Err(SessionCommandError::from(StagingError::InUse { name: name.to_owned(), pid }).into());
    }
    if as_json {
        print_line(&json!({ "stopped": stopped }).to_string());
    } else {
        print_line(&format!("ended {} in {name}", counted(stopped.len(), "session")));
    }
    Ok(())
}

pub(super) fn discard(
    workspaces: &Workspaces,
    arguments: &DiscardArguments,
) -> Result<(), SessionCommandError> {
    let copy = workspaces.find(&arguments.name)?;
    let unsaved = if arguments.force { Unsaved::default() } else { unsaved(&FencedPrograms::new()?, &copy)? };
    let trashed = workspaces.discard(copy, unsaved, arguments.force)?;
    let (name, deadline) = (&trashed.record.name, trashed.deadline);
    if arguments.output.json {
        print_line(&json!({ "discarded": name, "deadline": deadline }).to_string());
    } else {
        print_line(&format!("{name} is in the trash until {deadline}: ringfence session restore {name}"));
    }
    Ok(())
}

pub(super) fn restore(workspaces: &Workspaces, name: &str, as_json: bool) -> Result<(), SessionCommandError> {
    let mut trash = workspaces.trash()?;
    trash.retain(|trashed| trashed.record.name.as_str() == name);
    // The newest, if several had the name.
    let trashed = trash.pop().ok_or_else(|| SessionCommandError::NotInTrash(name.to_owned()))?;
    let copy = workspaces.restore(&trashed, None)?;
    if as_json {
        print_line(&json!({ "restored": copy.name() }).to_string());
    } else {
        print_line(&format!("{name} is back: ringfence session show {name}"));
    }
    Ok(())
}

pub(super) fn prune(workspaces: &Workspaces, arguments: &PruneArguments) -> Result<(), SessionCommandError> {
    let rules = PruneRules {
        older_than: arguments.older_than,
        most_bytes: arguments.size,
        force: arguments.force,
        dry_run: arguments.dry_run,
    };
    let programs = FencedPrograms::new()?;
    // Commits that cannot be looked for may be unsaved.
    let unsaved_of = |copy: &WorkspaceCopy| unsaved(&programs, copy).unwrap_or(Unsaved { commits: 1 });
    let pruned = workspaces.prune(&rules, &unsaved_of)?;
    if arguments.output.json {
        let kept: Vec<_> =
            pruned.kept.iter().map(|(name, why)| json!({ "name": name, "why": why })).collect();
        print_line(&format!(
            "{:#}",
            json!({
                "removed": pruned.removed, "kept": kept, "expired": pruned.expired,
                "freed_bytes": pruned.freed_bytes, "dry_run": arguments.dry_run,
            })
        ));
        return Ok(());
    }
    let would = if arguments.dry_run { "would be removed" } else { "was removed" };
    for name in &pruned.removed {
        print_line(&format!("{name} {would}"));
    }
    for (name, why) in &pruned.kept {
        print_line(&format!("{name} stays: {why}"));
    }
    print_line(&format!(
        "{} workspaces, {} of the trash, {} freed",
        pruned.removed.len(),
        pruned.expired,
        size_in_words(pruned.freed_bytes)
    ));
    Ok(())
}
