//! `list_dir`: lists one directory.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::FileType;
use serde::Serialize;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::listing::{Entry, is_placeholder};
use super::parameters::{Field, Kind, Presence};
use super::tool::{Effect, Pace, Tool};
use crate::files::PathError;
use crate::search::{LISTING_BYTES, known_kind, list_entries};

/// More entries are counted, not shown.
const MAX_ENTRIES: usize = 1000;

pub(super) const TOOL: Tool = Tool {
    name: "list_dir",
    title: "List a directory",
    about: "Lists a directory of the workspace, subdirectories first. Symlinks are shown, not followed. Use it for one directory, directory_tree for several levels.",
    effect: Effect::Reads,
    pace: Pace::Brief,
    takes: &[
        Field::optional("path", Kind::Text, "The directory; by default, the workspace.")
            .or(&["relative_workspace_path", "target_directory"])
            .with_default(Presence::DefaultText(".")),
        Field::switch("show_hidden", "Also show names that begin with a dot.").or(&["showHidden"]),
    ],
    gives: &[
        Field::optional("path", Kind::Text, "The directory."),
        Field::optional(
            "entries",
            Kind::Objects(&[]),
            "Each has name, type (file, directory, symlink, …), size of files, target of symlinks, and a uri if the name is not valid UTF-8.",
        ),
        Field::optional("total_entries", Kind::COUNT, "Number of entries, shown or not."),
        Field::optional("truncated", Kind::Flag, "Not all are shown."),
    ],
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let workspace = &call.context.workspace;
    let path = workspace.path(arguments.text("path"))?;
    let directory = workspace.open_directory(&path)?;
    let failed = |errno: rustix::io::Errno| PathError::io(path.written(), errno);
    let rules = workspace.rules_in(directory.as_fd());
    let is_blocked = |name: &OsString, kind: FileType| {
        let is_directory = known_kind(directory.as_fd(), name, kind) == FileType::Directory;
        rules.block(name, is_directory) || (is_directory && is_placeholder(directory.as_fd(), name))
    };
    let names = names_in(directory.as_fd(), arguments.flag("show_hidden"), is_blocked).map_err(failed)?;
    let absolute = workspace.absolute(&path);
    let total = names.len();
    let mut entries: Vec<Entry> =
        names.iter().take(MAX_ENTRIES).map(|name| Entry::read(directory.as_fd(), name, &absolute)).collect();
    // The names are sorted already.
    entries.sort_by_key(|entry| !entry.is(FileType::Directory));
    call.did("list", &path, 0);
    let is_truncated = total > entries.len();
    let text = in_words(&entries, total);
    let data =
        Listing { path: workspace.show(&path), entries, total_entries: total, truncated: is_truncated };
    Ok(Answer::new(text, &data))
}

#[derive(Serialize)]
struct Listing {
    path: String,
    entries: Vec<Entry>,
    total_entries: usize,
    truncated: bool,
}

fn in_words(entries: &[Entry], total: usize) -> String {
    if total == 0 {
        return "(empty)".to_owned();
    }
    let mut text = String::new();
    for entry in entries {
        if !text.is_empty() {
            text.push('\n');
        }
        entry.write_to(&mut text);
    }
    if total > entries.len() {
        let _ = write!(text, "\n… and {} more", total - entries.len());
    }
    text
}

fn names_in(
    directory: BorrowedFd<'_>,
    show_hidden: bool,
    is_blocked: impl Fn(&OsString, FileType) -> bool,
) -> rustix::io::Result<Vec<OsString>> {
    let entries = list_entries(directory, &mut Vec::with_capacity(LISTING_BYTES))?;
    let is_shown = |(name, kind): &(OsString, FileType)| {
        (show_hidden || !name.as_bytes().starts_with(b".")) && !is_blocked(name, *kind)
    };
    let mut names: Vec<OsString> = entries.into_iter().filter(is_shown).map(|(name, _)| name).collect();
    names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    Ok(names)
}
