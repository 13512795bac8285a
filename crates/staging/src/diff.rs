//! Unified diffs with the headers that git writes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use similar::{Algorithm, TextDiff};

use crate::changes::{Change, ChangeKind, Changes, Contents, EntryFacts, EntryKind, is_binary};
use crate::error::StagingError;
use crate::quoting::quote;
use crate::selection::Selection;

/// A diff that takes longer is coarser.
const MAX_TIME: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct DiffOptions {
    /// Only these paths and globs, as for [`crate::ApplyRequest`].
    pub only: Vec<PathBuf>,
    /// Lines around each change.
    pub context: usize,
    /// Longer files are summarised.
    pub max_file_bytes: u64,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self { only: Vec::new(), context: 3, max_file_bytes: 1024 * 1024 }
    }
}

impl DiffOptions {
    /// Tells whether a path is among those that the options name.
    pub fn selection(&self) -> Result<impl Fn(&Path) -> bool, StagingError> {
        let selection = Selection::new(&self.only)?;
        Ok(move |path: &Path| selection.has(path))
    }
}

impl Changes {
    /// Writes the diff of everything, or of what the options name. What is executed later comes last, under a heading.
    pub fn write_diff(&self, to: &mut dyn Write, options: &DiffOptions) -> io::Result<()> {
        let selection = Selection::new(&options.only).map_err(io::Error::other)?;
        let selected = || self.entries.iter().filter(|change| selection.has(&change.path));
        for change in selected().filter(|change| !change.executed_later) {
            self.write_change(to, change, options)?;
        }
        if selected().any(|change| change.executed_later) {
            writeln!(to, "# Programs outside execute or obey these: review them first.")?;
        }
        for change in selected().filter(|change| change.executed_later) {
            self.write_change(to, change, options)?;
        }
        for left in &self.left_aside {
            writeln!(to, "# Never taken over: {} ({})", quote("", &left.path), left.reason)?;
        }
        for tree in &self.ignored {
            let (path, files) = (quote("", &tree.path), tree.files);
            writeln!(to, "# Ignored: {path} ({files} files, {} bytes)", tree.bytes)?;
        }
        Ok(())
    }

    fn write_change(&self, to: &mut dyn Write, change: &Change, options: &DiffOptions) -> io::Result<()> {
        // A rename is shown once, where the file is now.
        if change.renamed_to.is_some() {
            return Ok(());
        }
        let is_directory = |facts: &Option<EntryFacts>| {
            facts.as_ref().is_none_or(|facts| facts.kind == EntryKind::Directory)
        };
        if is_directory(&change.before) && is_directory(&change.after) {
            return self.write_directory(to, change);
        }
        if change.kind == ChangeKind::TypeChanged {
            // git shows two changes.
            let (mut gone, mut made) = (change.clone(), change.clone());
            (gone.after, gone.kind) = (None, ChangeKind::Deleted);
            (made.before, made.kind) = (None, ChangeKind::Added);
            self.write_file(to, &gone, options)?;
            return self.write_file(to, &made, options);
        }
        self.write_file(to, change, options)
    }

    /// git knows no directories: shown are those that no file tells of.
    fn write_directory(&self, to: &mut dyn Write, change: &Change) -> io::Result<()> {
        let path = quote("", &change.path);
        let tells_of_it = |other: &Change| other.path != change.path && other.path.starts_with(&change.path);
        let start = self.entries.partition_point(|other| other.path <= change.path);
        let is_told = self.entries.get(start).is_some_and(tells_of_it);
        match (&change.before, &change.after) {
            (None, Some(after)) if !is_told => {
                writeln!(to, "# New directory: {path} (mode {:03o})", after.mode)
            }
            (Some(_), None) if !is_told => writeln!(to, "# Deleted directory: {path}"),
            (Some(before), Some(after)) => {
                writeln!(to, "# Mode of directory {path}: {:03o} -> {:03o}", before.mode, after.mode)
            }
            _ => Ok(()),
        }
    }

    fn write_file(&self, to: &mut dyn Write, change: &Change, options: &DiffOptions) -> io::Result<()> {
        let from = change.renamed_from.as_deref().unwrap_or(&change.path);
        let regular =
            |facts: &Option<EntryFacts>| facts.clone().filter(|facts| facts.kind != EntryKind::Directory);
        let (before, after) = (regular(&change.before), regular(&change.after));
        if before.is_none() && after.is_none() {
            return Ok(());
        }
        writeln!(to, "diff --git {} {}", quote("a/", from), quote("b/", &change.path))?;
        if let Some(from) = &change.renamed_from {
            writeln!(to, "similarity index 100%")?;
            writeln!(to, "rename from {}", quote("", from))?;
            return writeln!(to, "rename to {}", quote("", &change.path));
        }
        match (&before, &after) {
            (None, Some(after)) => writeln!(to, "new file mode {}", git_mode(after))?,
            (Some(before), None) => writeln!(to, "deleted file mode {}", git_mode(before))?,
            (Some(before), Some(after)) if git_mode(before) != git_mode(after) => {
                writeln!(to, "old mode {}", git_mode(before))?;
                writeln!(to, "new mode {}", git_mode(after))?;
            }
            _ => {}
        }
        if change.kind == ChangeKind::ModeChanged {
            return Ok(());
        }
        let shown = Change { before, after, ..change.clone() };
        self.write_contents(to, &shown, options)
    }

    fn write_contents(&self, to: &mut dyn Write, change: &Change, options: &DiffOptions) -> io::Result<()> {
        let name = |prefix: &str, facts: &Option<EntryFacts>| match facts {
            Some(_) => quote(prefix, &change.path),
            None => "/dev/null".to_owned(),
        };
        let (old, new) = (name("a/", &change.before), name("b/", &change.after));
        let bytes = |facts: &Option<EntryFacts>| facts.as_ref().map_or(0, |facts| facts.bytes);
        let sizes = format!("{} -> {} bytes", bytes(&change.before), bytes(&change.after));
        if bytes(&change.before).max(bytes(&change.after)) > options.max_file_bytes {
            return writeln!(to, "Files {old} and {new} differ, too large to be shown ({sizes})");
        }
        let Ok(Contents { before, after }) = self.contents(change, options.max_file_bytes) else {
            return writeln!(to, "Files {old} and {new} differ, and cannot be read ({sizes})");
        };
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        if is_binary(&before) || is_binary(&after) {
            return writeln!(to, "Binary files {old} and {new} differ ({sizes})");
        }
        write_text(to, (&before, &after), (&old, &new), options.context)
    }
}

fn write_text(
    to: &mut dyn Write,
    (before, after): (&[u8], &[u8]),
    (old, new): (&str, &str),
    context: usize,
) -> io::Result<()> {
    let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
    let mut configuration = TextDiff::configure();
    let diff = configuration.algorithm(Algorithm::Myers).timeout(MAX_TIME).diff_lines(&*before, &*after);
    write!(to, "{}", diff.unified_diff().context_radius(context).header(old, new))
}

/// The mode as git writes it, but with all permissions.
fn git_mode(facts: &EntryFacts) -> String {
    if facts.kind == EntryKind::Link { "120000".to_owned() } else { format!("100{:03o}", facts.mode) }
}

/// Shows how the same paths differ in two copies: contents of `one` against those of `other`.
pub fn write_comparison(
    one: &Changes,
    other: &Changes,
    path: &Path,
    to: &mut dyn Write,
    options: &DiffOptions,
) -> Result<(), StagingError> {
    let read = |changes: &Changes| {
        let change = changes.entry(path);
        change.map(|change| changes.contents(change, options.max_file_bytes)).transpose()
    };
    let (one, other) = (read(one)?, read(other)?);
    // A copy that did not change a path has what the base has.
    let unchanged = one.as_ref().or(other.as_ref()).and_then(|contents| contents.before.clone());
    let after = |contents: Option<Contents>| contents.map_or_else(|| unchanged.clone(), |it| it.after);
    let (before, after) = (after(one).unwrap_or_default(), after(other).unwrap_or_default());
    if before == after {
        return Ok(());
    }
    let (old, new) = (quote("a/", path), quote("b/", path));
    let written = if is_binary(&before) || is_binary(&after) {
        writeln!(to, "Binary files {old} and {new} differ")
    } else {
        write_text(to, (&before, &after), (&old, &new), options.context)
    };
    written.map_err(|error| StagingError::io("cannot write the difference of", path, error))
}
