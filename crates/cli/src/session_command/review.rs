//! `ringfence session diff`, `apply`, `undo` and `compare`.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use staging::{
    Applied, ApplyRequest, Change, ChangeKind, ChangeOptions, Changes, DiffOptions, RecoveryOutcome,
    WorkspaceCopy, Workspaces, write_comparison,
};

use super::commits::{Repository, counted};
use super::listing::printable;
use super::{AsJson, FencedPrograms, SessionCommandError, project};
use crate::output::print_line;

/// The exit code of `diff --exit-code` and `compare` where something differs.
const DIFFERS: u8 = 1;

#[derive(Debug, Args)]
pub(super) struct DiffArguments {
    /// The workspace.
    name: String,
    /// Only these paths and globs, relative to the project (repeatable).
    #[arg(long, value_name = "PATH")]
    only: Vec<PathBuf>,
    /// Show what git ignores, too.
    #[arg(long)]
    include_ignored: bool,
    /// List the paths without their contents.
    #[arg(long)]
    stat: bool,
    /// End with exit code 1 if something changed.
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    output: AsJson,
}

#[derive(Debug, Args)]
pub(super) struct ApplyArguments {
    /// The workspace.
    name: String,
    /// Only these paths and globs, relative to the project (repeatable).
    #[arg(long, value_name = "PATH")]
    only: Vec<PathBuf>,
    /// Take over what programs on this machine execute or obey, too: hooks, editor tasks, settings of agents, build
    /// files.
    #[arg(long)]
    include_executables: bool,
    /// Take over what git ignores, too.
    #[arg(long)]
    include_ignored: bool,
    /// Only the changes that `diff` showed with this fingerprint. Others are refused.
    #[arg(long, value_name = "FINGERPRINT")]
    reviewed: Option<String>,
    /// Say what would happen, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: AsJson,
}

#[derive(Debug, Args)]
pub(super) struct CompareArguments {
    /// One workspace.
    one: String,
    /// Another one of the same project.
    other: String,
    /// Only these paths and globs, relative to the project (repeatable).
    #[arg(long, value_name = "PATH")]
    only: Vec<PathBuf>,
    /// List the paths without their contents.
    #[arg(long)]
    stat: bool,
    #[command(flatten)]
    output: AsJson,
}

pub(super) fn diff(
    workspaces: &Workspaces,
    arguments: &DiffArguments,
) -> Result<ExitCode, SessionCommandError> {
    let copy = workspaces.find(&arguments.name)?;
    let options = ChangeOptions { include_ignored: arguments.include_ignored, ..ChangeOptions::default() };
    let changes = copy.changes(&options)?;
    let diff = DiffOptions { only: arguments.only.clone(), ..DiffOptions::default() };
    let is_named = diff.selection()?;
    let named: Vec<&Change> = changes.entries.iter().filter(|change| is_named(&change.path)).collect();
    if arguments.output.json {
        let mut report = json!(changes);
        report["entries"] = json!(named);
        report["workspace"] = copy.name().into();
        report["fingerprint"] = changes.fingerprint().into();
        print_line(&format!("{report:#}"));
    } else if arguments.stat {
        print_paths(&changes, &named);
    } else {
        let mut output = HarmlessOutput::new();
        // A reader that has seen enough closes the pipe.
        let _ = changes.write_diff(&mut output, &diff).and_then(|()| output.flush());
    }
    // The fingerprint is of all changes, whichever are shown.
    if !arguments.output.json && !changes.is_empty() {
        let (name, fingerprint) = (copy.name(), changes.fingerprint());
        print_line(&format!(
            "# Take over exactly this: ringfence session apply {name} --reviewed {fingerprint}"
        ));
    }
    let differs = arguments.exit_code && !named.is_empty();
    Ok(if differs { ExitCode::from(DIFFERS) } else { ExitCode::SUCCESS })
}

fn print_paths(changes: &Changes, named: &[&Change]) {
    for change in named {
        let sign = match change.kind {
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
            ChangeKind::Deleted => 'D',
            ChangeKind::ModeChanged => 'm',
            ChangeKind::TypeChanged => 'T',
        };
        let note =
            if change.executed_later { "   (executed or obeyed by programs on this machine)" } else { "" };
        print_line(&format!("{sign} {}{note}", printable(&change.path)));
    }
    for left in &changes.left_aside {
        print_line(&format!("# Never taken over: {} ({})", printable(&left.path), left.reason));
    }
    for tree in &changes.ignored {
        print_line(&format!(
            "# Ignored: {} ({} files, {} bytes)",
            printable(&tree.path),
            tree.files,
            tree.bytes
        ));
    }
}

pub(super) fn apply(workspaces: &Workspaces, arguments: &ApplyArguments) -> Result<(), SessionCommandError> {
    let copy = workspaces.find(&arguments.name)?;
    let request = ApplyRequest {
        only: arguments.only.clone(),
        include_executables: arguments.include_executables,
        include_ignored: arguments.include_ignored,
        reviewed: arguments.reviewed.clone(),
        dry_run: arguments.dry_run,
        ..ApplyRequest::default()
    };
    let base = project(&copy)?;
    let programs = FencedPrograms::new()?;
    let repository = Repository { programs: &programs, base: &base };
    let start = copy.record().start.as_ref().map(|start| start.id.clone());
    let ancestor = |path: &Path| repository.file_at(start.as_deref()?, path);
    let applied = copy.apply(&request, &ancestor)?;
    if arguments.output.json {
        print_line(&format!("{:#}", json!(applied)));
    } else {
        print_applied(copy.name(), &applied, arguments.dry_run);
    }
    Ok(())
}

fn print_applied(name: &str, applied: &Applied, is_dry: bool) {
    let merged: BTreeSet<&PathBuf> = applied.merged.iter().collect();
    for path in &applied.paths {
        let note = if merged.contains(path) { "   (merged with the project's own changes)" } else { "" };
        print_line(&format!("{}{note}", printable(path)));
    }
    for path in &applied.executables_left_out {
        print_line(&format!(
            "# Left out, because programs on this machine execute or obey it: {}",
            printable(path)
        ));
    }
    for left in &applied.left_aside {
        print_line(&format!("# Never taken over: {} ({})", printable(&left.path), left.reason));
    }
    for path in &applied.directories_kept {
        print_line(&format!("# Stays, because the project has new files in it: {}", printable(path)));
    }
    let paths = counted(applied.paths.len(), "path");
    print_line(&match (applied.paths.is_empty(), is_dry) {
        (true, _) => "nothing to take over".to_owned(),
        (false, true) => format!("would take over {paths}"),
        (false, false) => {
            format!("took over {paths}; to give the old ones back: ringfence session undo {name}")
        }
    });
    if !applied.executables_left_out.is_empty() {
        eprintln!("hint: --include-executables takes over the others, once you have looked at them");
    }
}

pub(super) fn undo(copy: &WorkspaceCopy, as_json: bool) -> Result<(), SessionCommandError> {
    let undone = copy.undo()?;
    if as_json {
        print_line(&format!("{:#}", json!(undone)));
    } else {
        for path in &undone.paths {
            print_line(&printable(path));
        }
        print_line(&format!("gave back {}", counted(undone.paths.len(), "path")));
    }
    Ok(())
}

pub(super) fn compare(
    workspaces: &Workspaces,
    arguments: &CompareArguments,
) -> Result<ExitCode, SessionCommandError> {
    let of = |name: &str| -> Result<Changes, SessionCommandError> {
        Ok(workspaces.find(name)?.changes(&ChangeOptions::default())?)
    };
    let (one, other) = (of(&arguments.one)?, of(&arguments.other)?);
    let options = DiffOptions { only: arguments.only.clone(), ..DiffOptions::default() };
    let paths: BTreeSet<&PathBuf> =
        one.entries.iter().chain(&other.entries).map(|change| &change.path).collect();
    let mut differing = Vec::new();
    let mut output = HarmlessOutput::new();
    let is_named = options.selection()?;
    for path in paths.into_iter().filter(|path| is_named(path)) {
        let mut difference = Vec::new();
        write_comparison(&one, &other, path, &mut difference, &options)?;
        if difference.is_empty() {
            continue;
        }
        differing.push(path);
        if !arguments.output.json && !arguments.stat {
            let _ = output.write_all(&difference);
        }
    }
    let _ = output.flush();
    if arguments.output.json {
        let paths: Vec<String> = differing.iter().map(|path| printable(path)).collect();
        print_line(&format!("{:#}", json!({ "differing": paths })));
    } else if arguments.stat {
        for path in &differing {
            print_line(&printable(path));
        }
    }
    Ok(if differing.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERS) })
}

/// What became of an apply that a crash interrupted.
pub(super) fn outcome_in_words(outcome: &RecoveryOutcome) -> String {
    match outcome {
        RecoveryOutcome::Finished => "it is finished".to_owned(),
        RecoveryOutcome::RolledBack => "nothing of it was taken over".to_owned(),
        RecoveryOutcome::NotRestored { conflicts, kept } => format!(
            "{} files were changed meanwhile and stay as they are; their originals are in {}",
            conflicts.len(),
            printable(kept)
        ),
        RecoveryOutcome::Postponed { reason } => format!("it cannot be ended now: {reason}"),
    }
}

/// Standard output. On a terminal, control characters are replaced: agents wrote what is shown.
struct HarmlessOutput {
    inner: BufWriter<io::Stdout>,
    is_terminal: bool,
    /// Whether the byte before began a two-byte control character.
    after_c2: bool,
}

impl HarmlessOutput {
    fn new() -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        Self { inner: BufWriter::new(stdout), is_terminal, after_c2: false }
    }
}

impl Write for HarmlessOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.inner.write(bytes);
        }
        let mut shown = Vec::with_capacity(bytes.len());
        for byte in bytes {
            let is_control = matches!(byte, 0..=8 | 11..=31 | 127) || (self.after_c2 && *byte < 0xa0);
            shown.push(if is_control { b'?' } else { *byte });
            self.after_c2 = *byte == 0xc2;
        }
        self.inner.write_all(&shown)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
