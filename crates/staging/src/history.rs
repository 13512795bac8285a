//! What happened to a copy, in a bounded file of JSON lines beside its record.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::state_files::{lock, write_atomically};

/// Beyond this, the older half is forgotten.
const MAX_BYTES: u64 = 1024 * 1024;

/// One line of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    pub at: Timestamp,
    #[serde(flatten)]
    pub event: Event,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    Created {
        method: crate::Method,
    },
    SetUp {
        command: String,
        exit_code: Option<i32>,
    },
    /// A session of a client works in the copy.
    Attached {
        client: String,
        session: Option<String>,
    },
    Detached {
        client: String,
        session: Option<String>,
    },
    Applied {
        paths: usize,
    },
    /// Commits went to a ref of the main repository.
    Merged {
        commits: usize,
        into: String,
    },
    Undone {
        paths: usize,
    },
    Recovered {
        outcome: String,
    },
    Discarded,
    Restored,
    Note {
        text: String,
    },
}

/// The history of one copy.
pub(crate) struct History<'a> {
    pub(crate) directory: &'a Path,
}

impl History<'_> {
    fn file(&self) -> PathBuf {
        self.directory.join("history.jsonl")
    }

    /// Adds a line. A file that grew too long keeps its newer half.
    pub(crate) fn add(&self, event: Event) -> io::Result<()> {
        let _lock = lock(&self.directory.join("history.lock"))?;
        let file = self.file();
        let mut line = serde_json::to_vec(&HistoryLine { at: Timestamp::now(), event })?;
        line.push(b'\n');
        if line.len() as u64 > MAX_BYTES / 4 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if file.metadata().is_ok_and(|metadata| metadata.len() + line.len() as u64 > MAX_BYTES) {
            self.forget_the_older_half()?;
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(file)?;
        file.write_all(&line)
    }

    fn forget_the_older_half(&self) -> io::Result<()> {
        let bytes = std::fs::read(self.file())?;
        let half = &bytes[bytes.len() / 2..];
        let start = half.iter().position(|byte| *byte == b'\n').map_or(half.len(), |end| end + 1);
        write_atomically(&self.file(), &half[start..])
    }

    /// All lines, the oldest first. One that a crash cut off is passed over.
    pub(crate) fn lines(&self) -> io::Result<Vec<HistoryLine>> {
        let text = match std::fs::read_to_string(self.file()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read?,
        };
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_bounded_and_keeps_the_newest() {
        let directory = crate::tests::directory("history");
        let history = History { directory: &directory };
        let long = "x".repeat(10_000);
        for number in 0..300 {
            history.add(Event::Note { text: format!("{number} {long}") }).unwrap();
        }
        let lines = history.lines().unwrap();
        assert!(history.file().metadata().unwrap().len() <= MAX_BYTES && lines.len() > 40);
        let Event::Note { text } = &lines.last().unwrap().event else { panic!("{lines:?}") };
        assert!(text.starts_with("299 "));
        let cut = std::fs::read(history.file()).unwrap();
        std::fs::write(history.file(), &cut[..cut.len() - 20]).unwrap();
        assert_eq!(history.lines().unwrap().len(), lines.len() - 1);
    }
}
