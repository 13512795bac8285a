//! Unified diffs with the headers that git writes.

use std::io::{self, Write};
use std::path::PathBuf;

use crate::changes::Changes;

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

impl Changes {
    /// Writes the diff of everything, or of what the options name. What is executed later comes last, under a heading.
    pub fn write_diff(&self, to: &mut dyn Write, options: &DiffOptions) -> io::Result<()> {
        let _ = (to, options);
        todo!()
    }
}
