//! `apply_patch`: applies a diff to one or more files, all of it or nothing.

use serde_json::{Value, json};

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::changes::{ALLOW_SHRINK, Change, DRY_RUN, OpenText, edit_error};
use super::parameters::{Field, Kind};
use super::tool::{Effect, Pace, Tool};
use crate::edit::guards;
use crate::edit::patch::{FilePatch, PatchError, parse};
use crate::files::{Expected, FileMode, Parents, PathError, SessionPath};
use crate::text::EncodeError;

pub(super) const TOOL: Tool = Tool {
    name: "apply_patch",
    title: "Apply a patch",
    about: "Applies a unified diff (as `git diff` prints it) to one or more files: changes, new files, deletions, renames; all of it or nothing. A hunk goes where its lines are; an ambiguous place is an error. The `*** Begin Patch` format works too. Use it to change several files at once.",
    effect: Effect::Changes,
    pace: Pace::Brief,
    takes: &[Field::required("patch", Kind::Text, "The diff.").or(&["diff", "input"]), ALLOW_SHRINK, DRY_RUN],
    gives: &[
        Field::optional(
            "files",
            Kind::Objects(&[]),
            "Each has path, status (added, modified, deleted, renamed), old_path of a renamed file, offsets of hunks that were not where the patch said, and the result fields of an edit.",
        ),
        Field::optional("dry_run", Kind::Flag, "Nothing was written."),
    ],
    run,
};

/// What to do to one file.
enum Step {
    Write { path: SessionPath, before: Option<OpenText>, text: String, offsets: Vec<isize>, mode: FileMode },
    Delete { path: SessionPath, before: OpenText },
    Move { from: SessionPath, to: SessionPath, before: OpenText, text: String, offsets: Vec<isize> },
}

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let patches = parse(arguments.text("patch")).map_err(|error| patch_error(None, &error))?;
    let steps: Vec<Step> = patches
        .iter()
        .map(|part| prepare(call, part, arguments.flag("allow_shrink")))
        .collect::<Result<_, ToolError>>()
        .map_err(|error| ToolError { message: format!("{}; nothing was changed", error.message), ..error })?;
    let is_dry_run = arguments.flag("dry_run");
    let mut done = Done::default();
    for step in steps {
        if let Err(error) = take(call, step, is_dry_run, &mut done) {
            let undone = done.undo(call);
            return Err(ToolError { message: format!("{}; {undone}", error.message), ..error });
        }
    }
    let mut data = json!({ "files": done.files });
    if is_dry_run {
        data["dry_run"] = true.into();
    }
    Ok(Answer::new(done.lines.join("\n"), &data))
}

fn patch_error(path: Option<&SessionPath>, error: &PatchError) -> ToolError {
    let tool_error = ToolError::new(error.code(), error.to_string());
    match path {
        Some(path) => tool_error.at(path.written()),
        None => tool_error,
    }
}

/// Computes the change to a file without touching it.
fn prepare(call: &Call<'_>, part: &FilePatch, allow_shrink: bool) -> Result<Step, ToolError> {
    let workspace = &call.context.workspace;
    let named = |name: &Option<String>| name.as_deref().map(|name| workspace.path(name)).transpose();
    let (old, new) = (named(&part.old_path)?, named(&part.new_path)?);
    let apply = |path: &SessionPath, text: &str| {
        let applied = part.apply(text).map_err(|error| patch_error(Some(path), &error))?;
        Ok::<_, ToolError>((applied.text, applied.offsets))
    };
    let check_collapse = |path: &SessionPath, before: &OpenText, text: &str| {
        guards::check_collapse(&before.text, text, allow_shrink)
            .map_err(|error| edit_error(path, error.code(), error.to_string()))
    };
    let mode = part.executable.map_or(FileMode::Kept, FileMode::Program);
    match (old, new) {
        (Some(from), Some(to)) if from.below() != to.below() || from.root() != to.root() => {
            let before = OpenText::read(call, &from)?;
            check_free(call, &to)?;
            let (text, offsets) = apply(&from, &before.text)?;
            check_collapse(&from, &before, &text)?;
            Ok(Step::Move { from, to, before, text, offsets })
        }
        (Some(path), Some(_)) => {
            let before = OpenText::read(call, &path)?;
            let (text, offsets) = apply(&path, &before.text)?;
            check_collapse(&path, &before, &text)?;
            Ok(Step::Write { path, before: Some(before), text, offsets, mode })
        }
        (Some(path), None) => {
            let before = OpenText::read(call, &path)?;
            let (text, _) = apply(&path, &before.text)?;
            // A part without hunks just deletes the file.
            if !text.is_empty() && !part.hunks.is_empty() {
                let message =
                    format!("the patch deletes `{}`, but does not contain all of its lines", path.written());
                return Err(ToolError::new("patch_mismatch", message).at(path.written()));
            }
            Ok(Step::Delete { path, before })
        }
        (None, Some(path)) => {
            check_free(call, &path)?;
            let (text, offsets) = apply(&path, "")?;
            Ok(Step::Write { path, before: None, text, offsets, mode })
        }
        (None, None) => Err(ToolError::new("patch_malformed", "a part of the patch names no file")),
    }
}

/// Refuses a path that exists or cannot be created.
fn check_free(call: &Call<'_>, path: &SessionPath) -> Result<(), ToolError> {
    match call.context.workspace.target(path, Parents::Expect).map(|target| target.is_taken()) {
        Ok(false) | Err(PathError::NotFound { .. }) => Ok(()),
        Ok(true) => Err(PathError::Exists { path: path.written().to_owned() }.into()),
        Err(error) => Err(error.into()),
    }
}

/// The previous contents and mode of a path; `None` if it did not exist.
type Held = Option<(Vec<u8>, FileMode)>;

/// The steps done so far, and how to undo them.
#[derive(Default)]
struct Done {
    files: Vec<Value>,
    lines: Vec<String>,
    before: Vec<(SessionPath, Held)>,
    /// Directories that were missing.
    made: Vec<SessionPath>,
}

impl Done {
    fn note(&mut self, mut data: Value, status: &str, offsets: &[isize], line: String) {
        data["status"] = status.into();
        if offsets.iter().any(|offset| *offset != 0) {
            data["offsets"] = offsets.into();
        }
        self.files.push(data);
        self.lines.push(line);
    }

    /// Undoes all steps, the last one first.
    fn undo(self, call: &Call<'_>) -> &'static str {
        let mut is_whole = true;
        for (path, contents) in self.before.into_iter().rev() {
            let workspace = &call.context.workspace;
            let undone = match contents {
                Some((contents, mode)) => workspace.write_target(&path, Parents::Create).and_then(|target| {
                    workspace.write_as(&target, &contents, Expected::Anything, mode).map(drop)
                }),
                None => workspace.target(&path, Parents::Expect).and_then(|target| target.delete()),
            };
            is_whole &= undone.is_ok();
            call.did("undo", &path, 0);
        }
        for path in self.made.into_iter().rev() {
            let workspace = &call.context.workspace;
            // Fails for a directory that was not created or is in use by now; both are fine.
            let _ =
                workspace.target(&path, Parents::Expect).and_then(|target| target.delete_empty_directory());
        }
        if is_whole { "nothing was changed" } else { "some files could not be restored" }
    }
}

fn take(call: &Call<'_>, step: Step, is_dry_run: bool, done: &mut Done) -> Result<(), ToolError> {
    let workspace = &call.context.workspace;
    match step {
        Step::Write { path, before, text, offsets, mode } => {
            done.made.extend(workspace.missing_above(&path));
            let status = if before.is_some() { "modified" } else { "added" };
            let contents = before.as_ref().map(OpenText::kept);
            let change = Change { path: &path, before, text, parents: Parents::Create, mode, is_dry_run };
            let changed = change.commit(call)?;
            done.note(changed.data, status, &offsets, changed.text);
            done.before.extend((!is_dry_run).then_some((path, contents)));
        }
        Step::Delete { path, before } => {
            let shown = workspace.show(&path);
            if !is_dry_run {
                delete(call, &path, &before)?;
                done.before.push((path, Some(before.kept())));
            }
            done.note(json!({ "path": shown }), "deleted", &[], format!("deleted {shown}"));
        }
        Step::Move { from, to, before, text, offsets } => {
            let style = before.style;
            let (old, new) = (workspace.show(&from), workspace.show(&to));
            if !is_dry_run {
                let bytes = style
                    .encode(&text)
                    .map_err(|error| edit_error(&to, EncodeError::CODE, error.to_string()))?;
                done.made.extend(workspace.missing_above(&to));
                let target = workspace.write_target(&to, Parents::Create)?;
                workspace.write_as(&target, &bytes, Expected::Absent, FileMode::Of(before.mode()))?;
                done.before.push((to.clone(), None));
                call.note_change(&to, crate::journal::Original::Nothing);
                call.did("write", &to, bytes.len() as u64);
                delete(call, &from, &before)?;
                done.before.push((from, Some(before.kept())));
            }
            let data = json!({ "path": new, "old_path": old });
            done.note(data, "renamed", &offsets, format!("renamed {old} to {new}"));
        }
    }
    Ok(())
}

fn delete(call: &Call<'_>, path: &SessionPath, before: &OpenText) -> Result<(), ToolError> {
    let target = call.context.workspace.target(path, Parents::Expect)?;
    target.delete_unchanged(before.seen())?;
    call.note_change(path, crate::journal::Original::Contents(before.bytes().to_vec()));
    call.did("delete", path, 0);
    Ok(())
}
