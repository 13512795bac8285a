//! Patches: unified diffs as tools and agents write them, and the envelope `*** Begin Patch`.
//!
//! [`parse`] reads what a patch says, leniently where nothing can be misunderstood (counts that are wrong, line
//! numbers that are missing). [`FilePatch::apply`] is exact: a hunk goes where its lines are.

mod apply;
mod envelope;
mod error;
mod file_names;
mod parse;
#[cfg(test)]
mod tests;

pub use error::PatchError;
pub use parse::parse;

/// What a patch says of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePatch {
    /// `None` if the file is new.
    pub old_path: Option<String>,
    /// `None` if the file is to be deleted.
    pub new_path: Option<String>,
    pub is_rename: bool,
    /// Whether the file is to be a program from now on, if the patch says so.
    pub executable: Option<bool>,
    pub hunks: Vec<Hunk>,
    /// The patch tells CRLF from LF, so its line endings count; else new lines end like those of the file.
    pub(crate) has_own_endings: bool,
}

/// Lines of a file that change, and lines around them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    /// Where it should be, if the patch says so.
    pub(crate) position: Option<Position>,
    /// A line that stands somewhere before the hunk (envelope only).
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
pub struct Applied {
    pub text: String,
    /// How many lines each hunk was away from where its header said; 0 without a header.
    pub offsets: Vec<isize>,
}

impl Hunk {
    /// The lines that must be in the file.
    pub(crate) fn old_lines(&self) -> impl Iterator<Item = &HunkLine> {
        self.lines.iter().filter(|line| line.role != Role::Add)
    }

    /// How many lines it says are there before and after.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |not: Role| self.lines.iter().filter(|line| line.role != not).count();
        (count(Role::Add), count(Role::Remove))
    }
}
