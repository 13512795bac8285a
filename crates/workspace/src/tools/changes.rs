//! Shared by all tools that edit text: they read a file, compute the new text, and replace the file only if it has
//! not changed since it was read.

use rustix::fs::RawMode;
use serde_json::{Value, json};

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::contents::{MAX_TEXT_BYTES, hash_of, not_text, read_all};
use super::parameters::{Field, Kind, Presence};
use crate::edit::guards::{self, GuardError};
use crate::edit::{Landing, Replaced};
use crate::files::{Expected, FileMode, Parents, PathError, Seen, SessionPath};
use crate::journal::Original;
use crate::text::{EncodeError, FileKind, FileText, TextStyle};

/// Arguments that several of them take.
pub(super) const EXPECTED_HASH: Field = Field::optional(
    "expected_hash",
    Kind::Text,
    "Refuse if the file no longer has this hash, which read_file returned.",
);
pub(super) const DRY_RUN: Field = Field::switch("dry_run", "Only show what would change.").or(&["dryRun"]);
pub(super) const ALLOW_SHRINK: Field =
    Field::switch("allow_shrink", "Allow a file to lose most of its lines.").or(&["allowShrink"]);
pub(super) const ALLOW_GROWTH: Field =
    Field::switch("allow_growth", "Allow the file to become much longer by replacing many occurrences.")
        .or(&["allowGrowth"]);

const CREATE_DIRS: &str = "create_dirs";

pub(super) const fn create_dirs(about: &'static str) -> Field {
    Field::optional(CREATE_DIRS, Kind::Flag, about)
        .or(&["createDirs"])
        .with_default(Presence::DefaultFlag(true))
}

/// What `create_dirs` says.
pub(super) fn parents(arguments: &Arguments) -> Parents {
    if arguments.flag(CREATE_DIRS) { Parents::Create } else { Parents::Expect }
}

/// The result fields of every change.
pub(super) const CHANGE_FIELDS: &[Field] = &[
    Field::optional("path", Kind::Text, "The file."),
    Field::optional("created", Kind::Flag, "The file is new."),
    Field::optional("edited", Kind::Flag, "The file was changed."),
    Field::optional("bytes_written", Kind::COUNT, "Size of the file, if it was written."),
    Field::optional("lines_added", Kind::COUNT, "Number of added lines."),
    Field::optional("lines_removed", Kind::COUNT, "Number of removed lines."),
    Field::optional(
        "changed_range",
        Kind::Object,
        "`start` and `end`: the lines, in the new text, where the change landed.",
    ),
    Field::optional("diff", Kind::Text, "The change, as a unified diff."),
    Field::optional("replacements", Kind::COUNT, "Number of replacements."),
    Field::optional("hash", Kind::Text, "SHA-256 of the new contents, for the next `expected_hash`."),
    Field::optional("dry_run", Kind::Flag, "Nothing was written."),
];

/// A text file as it was read.
pub(super) struct OpenText {
    pub(super) text: String,
    pub(super) style: TextStyle,
    bytes: Vec<u8>,
    seen: Seen,
    mode: RawMode,
}

/// A change to one file.
pub(super) struct Change<'a> {
    pub(super) path: &'a SessionPath,
    /// `None`: there is no file yet.
    pub(super) before: Option<OpenText>,
    pub(super) text: String,
    pub(super) parents: Parents,
    pub(super) mode: FileMode,
    pub(super) is_dry_run: bool,
}

impl OpenText {
    /// `Ok(None)`: the path does not exist.
    pub(super) fn read_if_there(call: &Call<'_>, path: &SessionPath) -> Result<Option<Self>, ToolError> {
        match Self::read(call, path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.code == "not_found" => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn read(call: &Call<'_>, path: &SessionPath) -> Result<Self, ToolError> {
        let workspace = &call.context.workspace;
        let mut found = workspace.open_file(path)?;
        let size = u64::try_from(found.stat.st_size).unwrap_or(0);
        if size > MAX_TEXT_BYTES {
            let path = path.written().to_owned();
            return Err(PathError::TooLarge { path, size, limit: MAX_TEXT_BYTES }.into());
        }
        let (seen, mode) = (Seen::from(&found.stat), found.stat.st_mode);
        let bytes = read_all(path, &mut found)?;
        match FileText::decode(&bytes) {
            Ok(FileText { text, style }) => Ok(Self { text, style, bytes, seen, mode }),
            Err(_) => Err(not_text(&workspace.show(path), FileKind::of(&bytes), size)),
        }
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen
    }

    /// What is needed to restore it.
    pub(super) fn kept(&self) -> (Vec<u8>, FileMode) {
        (self.bytes.clone(), FileMode::Of(self.mode))
    }

    pub(super) fn mode(&self) -> RawMode {
        self.mode
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn hash(&self) -> String {
        hash_of(&self.bytes)
    }

    /// Refuses if the client expects another version.
    pub(super) fn check_hash(
        before: Option<&Self>,
        path: &SessionPath,
        arguments: &Arguments,
    ) -> Result<(), ToolError> {
        match arguments.given_text("expected_hash") {
            Some(expected) if before.is_none_or(|before| before.hash() != expected) => {
                Err(PathError::Changed { path: path.written().to_owned() }.into())
            }
            _ => Ok(()),
        }
    }
}

/// Writes the replaced text, if the guards allow it. `hits` is the number of occurrences for the growth guard.
pub(super) fn commit_replaced(
    call: &Call<'_>,
    arguments: &Arguments,
    (path, before): (&SessionPath, OpenText),
    replaced: Replaced,
    hits: usize,
) -> Result<Answer, ToolError> {
    let refused = |error: GuardError| edit_error(path, error.code(), error.to_string());
    guards::check_growth(&before.text, &replaced.text, hits, arguments.flag("allow_growth"))
        .map_err(refused)?;
    guards::check_collapse(&before.text, &replaced.text, arguments.flag("allow_shrink")).map_err(refused)?;
    let change = Change {
        path,
        before: Some(before),
        text: replaced.text,
        parents: Parents::Expect,
        mode: FileMode::Kept,
        is_dry_run: arguments.flag("dry_run"),
    };
    let mut changed = change.commit(call)?;
    changed.data["replacements"] = replaced.places.len().into();
    Ok(changed.into_answer())
}

/// The error for an edit that cannot be made.
pub(super) fn edit_error(path: &SessionPath, code: &'static str, message: String) -> ToolError {
    ToolError::new(code, message).at(path.written())
}

/// The current version of a file, if it has the expected hash.
fn seen_with_hash(call: &Call<'_>, path: &SessionPath, hash: &str) -> Result<Seen, PathError> {
    let mut found = call.context.workspace.open_file(path)?;
    let seen = Seen::from(&found.stat);
    if hash_of(&read_all(path, &mut found)?) == hash {
        Ok(seen)
    } else {
        Err(PathError::Changed { path: path.written().to_owned() })
    }
}

/// Replaces a file that is binary, or too long to be compared, by text.
pub(super) fn replace_binary(
    call: &Call<'_>,
    path: &SessionPath,
    content: &str,
    arguments: &Arguments,
) -> Result<Answer, ToolError> {
    let expected = match arguments.given_text("expected_hash") {
        None => Expected::Anything,
        Some(hash) => Expected::Unchanged(seen_with_hash(call, path, hash)?),
    };
    let workspace = &call.context.workspace;
    let shown = workspace.show(path);
    if arguments.flag("dry_run") {
        let data = json!({ "path": shown, "dry_run": true, "bytes_written": 0 });
        return Ok(Answer::new(format!("would replace {shown}, which is not text now"), &data));
    }
    let original = call.original(path);
    let target = workspace.write_target(path, Parents::Expect)?;
    let written = workspace.write(&target, content.as_bytes(), expected)?;
    call.note_change(path, original);
    call.did("write", path, written.bytes);
    let data = json!({ "path": shown, "created": false, "edited": true, "bytes_written": written.bytes, "hash": hash_of(content.as_bytes()) });
    Ok(Answer::new(format!("replaced {shown}, which was no text ({} bytes)", written.bytes), &data))
}

/// What a change did, or would do.
pub(super) struct Changed {
    pub(super) data: Value,
    pub(super) text: String,
}

impl Change<'_> {
    /// Writes the new text, unless this is a dry run. Describes what changed and where.
    pub(super) fn commit(self, call: &Call<'_>) -> Result<Changed, ToolError> {
        let workspace = &call.context.workspace;
        let path = self.path;
        let style = self.before.as_ref().map_or_else(TextStyle::default, |before| before.style);
        let bytes = style.encode(&self.text).map_err(|error| {
            ToolError::new(EncodeError::CODE, error.to_string()).at(path.written()).with_hint(
                "the file has an old encoding; convert it first, for example with `iconv` in run_terminal_cmd",
            )
        })?;
        let shown = workspace.show(path);
        let old = self.before.as_ref().map_or("", |before| before.text.as_str());
        let landing = Landing::between(old, &self.text, &shown);
        let is_new = self.before.is_none();
        let is_unchanged =
            self.mode == FileMode::Kept && self.before.as_ref().is_some_and(|before| before.bytes == bytes);
        if !self.is_dry_run && !is_unchanged {
            let target = workspace.write_target(path, self.parents)?;
            let (expected, original) = match self.before {
                Some(before) => (Expected::Unchanged(before.seen), Original::Contents(before.bytes)),
                None => (Expected::Absent, Original::Nothing),
            };
            workspace.write_as(&target, &bytes, expected, self.mode)?;
            call.note_change(path, original);
            call.did("write", path, bytes.len() as u64);
        }
        let mut data = json!({
            "path": shown,
            "created": is_new && !self.is_dry_run,
            "edited": !is_unchanged && !self.is_dry_run,
            "bytes_written": if is_unchanged || self.is_dry_run { 0 } else { bytes.len() },
            "lines_added": landing.added,
            "lines_removed": landing.removed,
            "diff": landing.diff,
            "hash": hash_of(&bytes),
        });
        if let Some((start, end)) = landing.changed {
            data["changed_range"] = json!({ "start": start, "end": end });
        }
        if self.is_dry_run {
            data["dry_run"] = true.into();
        }
        Ok(Changed { text: in_words(&shown, &landing, is_new, self.is_dry_run), data })
    }
}

fn in_words(path: &str, landing: &Landing, is_new: bool, is_dry_run: bool) -> String {
    let did = match (is_new, is_dry_run) {
        (true, false) => "created",
        (true, true) => "would create",
        (false, false) => "edited",
        (false, true) => "would edit",
    };
    let place = match landing.changed {
        Some((start, end)) if start != end => format!(", lines {start} to {end}"),
        Some((start, _)) => format!(", line {start}"),
        None if landing.added + landing.removed == 0 => {
            return format!("{path} is as it was: nothing to change");
        }
        None => String::new(),
    };
    let head = format!("{did} {path}{place} (+{} -{})", landing.added, landing.removed);
    if is_new && !is_dry_run { head } else { format!("{head}\n{}", landing.diff) }
}

impl Changed {
    pub(super) fn into_answer(self) -> Answer {
        Answer::new(self.text, &self.data)
    }
}
