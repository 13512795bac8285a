//! `move_file`: moves or renames a file, directory or link.

use parking_lot::Mutex;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FileType;
use serde_json::json;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::changes::{create_dirs, parents};
use super::copy_file::copy_contents;
use super::parameters::{Field, Kind};
use super::tool::{Effect, Pace, Tool};
use crate::files::{Expected, Parents, PathError, Seen, SessionPath, Target};
use crate::journal::{MAX_BYTES, Original};
use crate::search::{Finding, Walk, WalkFilter};

/// Files of a moved directory that `session_diff` can show, at most.
const MAX_NOTED: usize = 1000;

pub(super) const TOOL: Tool = Tool {
    name: "move_file",
    title: "Move or rename",
    about: "Moves or renames a file, directory or symlink inside the workspace, in one step. Does not replace an existing file unless `overwrite` is set.",
    effect: Effect::Changes,
    pace: Pace::Long,
    takes: &[
        Field::required("source", Kind::Text, "What to move.").or(&["source_path", "sourcePath", "path"]),
        Field::required("destination", Kind::Text, "Its new path, with its new name.").or(&[
            "target_path",
            "targetPath",
            "destination_path",
        ]),
        Field::switch("overwrite", "Replace an existing file."),
        create_dirs("Create missing directories above the new path."),
    ],
    gives: &[
        Field::optional("source", Kind::Text, "The old path."),
        Field::optional("destination", Kind::Text, "The new path."),
    ],
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let workspace = &call.context.workspace;
    let (from, to) =
        (workspace.path(arguments.text("source"))?, workspace.path(arguments.text("destination"))?);
    let source = workspace.target(&from, Parents::Expect)?;
    let moved = Moved::look_at(call, &source, &from, &to)?;
    let parents = parents(arguments);
    let destination = workspace.target(&to, parents)?;
    let is_overwriting = arguments.flag("overwrite");
    match source.rename_to(&destination, is_overwriting) {
        // The directories of a session may be on different file systems.
        Err(PathError::Io { error, .. }) if error.kind() == io::ErrorKind::CrossesDevices => {
            let expected = if is_overwriting { Expected::Anything } else { Expected::Absent };
            move_by_copy(call, (&from, &source), &destination, expected)?;
        }
        outcome => outcome?,
    }
    moved.note(call);
    call.did("move_from", &from, 0);
    call.did("move_to", &to, 0);
    let (from, to) = (workspace.show(&from), workspace.show(&to));
    Ok(Answer::new(format!("moved {from} to {to}"), &json!({ "source": from, "destination": to })))
}

/// Moves a file between file systems: copies it, then deletes the old one if it has not changed.
fn move_by_copy(
    call: &Call<'_>,
    (from, source): (&SessionPath, &Target),
    destination: &Target,
    expected: Expected,
) -> Result<(), ToolError> {
    if !source.is_file() {
        let message = format!(
            "`{}` is on another file system than the destination, and only files can be moved between file systems",
            from.written()
        );
        return Err(ToolError::new("io_error", message)
            .with_hint("run_terminal_cmd with `cp -a` and `rm -r` moves directories and links")
            .at(from.written()));
    }
    let found = call.context.workspace.open_file(from)?;
    let seen = Seen::from(&found.stat);
    copy_contents(call, found, destination, expected)?;
    source.delete_unchanged(seen)?;
    Ok(())
}

/// The originals of all files that a move affects.
struct Moved(Vec<(SessionPath, Original)>);

impl Moved {
    fn look_at(
        call: &Call<'_>,
        source: &Target,
        from: &SessionPath,
        to: &SessionPath,
    ) -> Result<Self, ToolError> {
        let (mut files, mut room) = (Vec::new(), MAX_BYTES);
        let moved = if source.is_directory() { files_below(call, from)? } else { vec![from.plain_below()] };
        for below in moved {
            let rest = below.strip_prefix(from.plain_below()).unwrap_or(Path::new("")).to_owned();
            let (old, new) = (SessionPath::found(from.root(), below), to.beneath(&rest));
            let mut original = |path: &SessionPath| {
                let original = if room > 0 { call.original(path) } else { Original::Unkept };
                room = room.saturating_sub(original.size());
                original
            };
            let (before, replaced) = (original(&old), original(&new));
            files.extend([(old, before), (new, replaced)]);
        }
        Ok(Self(files))
    }

    fn note(self, call: &Call<'_>) {
        for (path, before) in self.0 {
            call.note_change(&path, before);
        }
    }
}

/// The files below a directory, up to the limit. Refuses a directory that contains blocked entries: under another
/// name they might not be blocked.
fn files_below(call: &Call<'_>, path: &SessionPath) -> Result<Vec<PathBuf>, ToolError> {
    let workspace = &call.context.workspace;
    let start = workspace.open_directory(path)?;
    let (rules, begin) = (workspace.rules_in(start.as_fd()), path.plain_below());
    let is_blocked = |finding: &Finding<'_>| {
        rules.block(finding.below.strip_prefix(&begin).unwrap_or(finding.below), true)
    };
    let files: Mutex<Vec<PathBuf>> = Mutex::default();
    let has_blocked = AtomicBool::new(false);
    let filter = WalkFilter { hidden: true, ignored: true, blocked: true, ..WalkFilter::default() };
    let outcome = call.with_patience(|patience| {
        Walk::new(workspace, path, start, filter, patience).run(|| {
            |finding: &Finding<'_>| {
                has_blocked.fetch_or(is_blocked(finding), Ordering::Relaxed);
                let mut files = files.lock();
                if finding.kind == FileType::RegularFile && files.len() < MAX_NOTED {
                    files.push(finding.below.to_owned());
                }
                // Without rules, the walk can end when enough files are noted.
                workspace.path_rules().is_some() || files.len() < MAX_NOTED
            }
        })
    });
    let is_unknown = workspace.path_rules().is_some() && (outcome.is_incomplete() || outcome.unreadable > 0);
    if is_unknown || has_blocked.load(Ordering::Relaxed) {
        let rule = "something in it is blocked by the operator".to_owned();
        return Err(PathError::Blocked { path: path.written().to_owned(), rule }.into());
    }
    Ok(std::mem::take(&mut *files.lock()))
}
