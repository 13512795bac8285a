//! `ringfence session`: copies of a project for one task each, reviewed before they touch the project.

mod commits;
mod endpoint;
mod ends;
mod error;
mod fenced_program;
mod listing;
mod review;
mod start;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use fence::{StagedScope, VettedDirectory};
use staging::{WorkspaceCopy, Workspaces};

use self::commits::MergeArguments;
use self::ends::{DiscardArguments, PruneArguments};
pub(crate) use self::error::SessionCommandError;
use self::fenced_program::{FencedPrograms, Ground};
use self::review::{ApplyArguments, CompareArguments, DiffArguments};
use self::start::{ResumeArguments, StartArguments};
use crate::error::Error;
use crate::fenced::{RunArguments, run_in_copy};
use crate::scope_options::workspaces_root;

const EXAMPLES: &str = "\
Examples:
  ringfence session start fix-login --mcp
      makes a copy of this project, and an endpoint whose agents work in the copy
  ringfence session diff fix-login
      what an apply would change in the project
  ringfence session apply fix-login --only src
      takes these files over, all or none; `ringfence session undo fix-login` gives the old ones back
  ringfence session merge fix-login
      puts the commits of the copy on the branch ringfence/fix-login, and checks nothing out
  ringfence session run fix-login -- cargo test
      runs a command in the copy, inside a fence
  ringfence session discard fix-login
      moves the copy to the trash, for a week

Exit codes: 0 done, 1 refused or failed, 2 bad arguments; compare and diff --exit-code: 1 if something differs";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SessionArguments {
    #[command(subcommand)]
    command: SessionCommand,
}

#[derive(Debug, Subcommand)]
enum SessionCommand {
    /// Make a copy of a project for a task.
    Start(Box<StartArguments>),
    /// Print the endpoint of a workspace again, or serve it.
    Resume(ResumeArguments),
    /// List the workspaces and what is in the trash.
    List(AsJson),
    /// Show one workspace.
    Show(Named),
    /// Show what happened to a workspace: who worked in it, what was taken over.
    Log(Named),
    /// Show what an apply would change in the project.
    Diff(DiffArguments),
    /// Take changes over into the project, all or none.
    Apply(ApplyArguments),
    /// Give the project back what the last apply replaced.
    Undo(Named),
    /// Put the commits of a workspace on a branch of the project.
    Merge(MergeArguments),
    /// Show how two workspaces differ.
    Compare(CompareArguments),
    /// Run a command in a workspace, inside a fence.
    Run(Box<RunInCopyArguments>),
    /// End the sessions that work in a workspace. Its files stay.
    Stop(Named),
    /// Add a note to a workspace.
    Note {
        /// The workspace.
        name: String,
        /// The note.
        text: String,
    },
    /// Move a workspace to the trash.
    Discard(DiscardArguments),
    /// Take a workspace out of the trash.
    Restore(Named),
    /// Remove workspaces that were not used for long, or take too much room.
    Prune(PruneArguments),
}

/// A command that prints.
#[derive(Clone, Copy, Debug, Args)]
struct AsJson {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A command about one workspace.
#[derive(Debug, Args)]
struct Named {
    /// The workspace.
    name: String,
    #[command(flatten)]
    output: AsJson,
}

#[derive(Debug, Args)]
struct RunInCopyArguments {
    /// The workspace.
    name: String,
    #[command(flatten)]
    run: RunArguments,
}

pub(crate) fn run(arguments: SessionArguments) -> Result<ExitCode, Error> {
    match arguments.command {
        // These may go on to serve.
        SessionCommand::Start(start) => start::run(&start),
        SessionCommand::Resume(resume) => start::resume(&resume),
        SessionCommand::Stop(named) => {
            ends::stop(&open_workspaces()?, &named.name, named.output.json)?;
            Ok(ExitCode::SUCCESS)
        }
        command => Ok(run_here(command)?),
    }
}

fn run_here(command: SessionCommand) -> Result<ExitCode, SessionCommandError> {
    let workspaces = open_workspaces()?;
    match command {
        SessionCommand::Start(_) | SessionCommand::Resume(_) | SessionCommand::Stop(_) => {}
        SessionCommand::List(output) => listing::list(&workspaces, output.json)?,
        SessionCommand::Show(named) => listing::show(&workspaces.find(&named.name)?, named.output.json)?,
        SessionCommand::Log(named) => listing::log(&workspaces.find(&named.name)?, named.output.json)?,
        SessionCommand::Diff(diff) => return review::diff(&workspaces, &diff),
        SessionCommand::Apply(apply) => review::apply(&workspaces, &apply)?,
        SessionCommand::Undo(named) => review::undo(&workspaces.find(&named.name)?, named.output.json)?,
        SessionCommand::Merge(merge) => commits::merge(&workspaces, &merge)?,
        SessionCommand::Compare(compare) => return review::compare(&workspaces, &compare),
        SessionCommand::Run(run) => return run_in(&workspaces.find(&run.name)?, &run.run),
        SessionCommand::Note { name, text } => {
            workspaces.find(&name)?.note(staging::Event::Note { text })?;
        }
        SessionCommand::Discard(discard) => ends::discard(&workspaces, &discard)?,
        SessionCommand::Restore(named) => ends::restore(&workspaces, &named.name, named.output.json)?,
        SessionCommand::Prune(prune) => ends::prune(&workspaces, &prune)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the workspaces of this user, and ends what a crash left half done.
fn open_workspaces() -> Result<Workspaces, SessionCommandError> {
    let workspaces = Workspaces::open(&workspaces_root().ok_or(SessionCommandError::NoState)?)?;
    for recovered in workspaces.recover()? {
        eprintln!(
            "ringfence: an apply of {} had been interrupted: {}",
            recovered.name,
            review::outcome_in_words(&recovered.outcome)
        );
    }
    Ok(workspaces)
}

/// The project of a copy. It must be the directory that it was.
fn project(copy: &WorkspaceCopy) -> Result<VettedDirectory, SessionCommandError> {
    Ok(VettedDirectory::own(copy.record().base_path())?)
}

/// A copy that this process has, so that programs can work in it.
struct Occupied {
    base: VettedDirectory,
    staged: StagedScope,
}

impl Occupied {
    fn of(copy: &WorkspaceCopy) -> Result<Self, SessionCommandError> {
        Ok(Self { base: project(copy)?, staged: copy.stage()? })
    }

    fn ground(&self) -> Ground<'_> {
        Ground::Copy(&self.base, &self.staged)
    }
}

fn run_in(copy: &WorkspaceCopy, arguments: &RunArguments) -> Result<ExitCode, SessionCommandError> {
    if !arguments.fence.scope.is_empty() {
        return Err(SessionCommandError::NotWithRun { option: "--scope" });
    }
    let occupied = Occupied::of(copy)?;
    Ok(run_in_copy(arguments, &occupied.base, &occupied.staged)?)
}
