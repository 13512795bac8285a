//! Patches: unified diffs as tools and agents write them, and the envelope `*** Begin Patch`.
//!
//! [`parse`] tolerates mistakes that cannot be misunderstood (wrong counts, missing line numbers).
//! [`FilePatch::apply`] is exact: a hunk goes where its lines are.

mod apply;
mod envelope;
mod error;
mod file_names;
mod parse;
#[cfg(test)]
mod tests;

pub(crate) use error::PatchError;
pub(crate) use parse::parse;

/// The part of a patch about one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilePatch {
    /// `None` if the file is new.
    pub(crate) old_path: Option<String>,
    /// `None` if the patch deletes the file.
    pub(crate) new_path: Option<String>,
    pub(crate) is_rename: bool,
    /// The executable bit, if the patch sets it.
    pub(crate) executable: Option<bool>,
    pub(crate) hunks: Vec<Hunk>,
    /// The patch uses both CRLF and LF, so its line endings are meant. Otherwise new lines end like the file's.
    pub(crate) has_own_endings: bool,
}

/// Lines that change, with their context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// The position in the header, if there is one.
    pub(crate) position: Option<Position>,
    /// A line of the file somewhere before the hunk (envelope only).
    pub(crate) section: Option<String>,
    /// The hunk reaches to the end of the file (envelope only).
    pub(crate) is_at_end: bool,
    pub(crate) lines: Vec<HunkLine>,
}

/// From the header of a hunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) old_start: usize,
    pub(crate) old_count: usize,
    pub(crate) new_count: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HunkLine {
    pub(crate) role: Role,
    pub(crate) body: String,
    pub(crate) is_crlf: bool,
    /// `\ No newline at end of file` follows.
    pub(crate) lacks_newline: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Keep,
    Remove,
    Add,
}

/// A file after its patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) text: String,
    /// Distance in lines between each hunk and the position in its header; 0 without a header.
    pub(crate) offsets: Vec<isize>,
}

impl Hunk {
    /// The lines that the file must have.
    pub(crate) fn old_lines(&self) -> impl Iterator<Item = &HunkLine> {
        self.lines.iter().filter(|line| line.role != Role::Add)
    }

    /// The number of lines before and after the change.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |not: Role| self.lines.iter().filter(|line| line.role != not).count();
        (count(Role::Add), count(Role::Remove))
    }
}
