//! The work that every server is asked to do, and what a shell prints for it.

use std::path::Path;
use std::process::Command;

use crate::benchmarks::workspace::files::{LISTED_DIRECTORY, READ_FILE};
use crate::error::{Error, WhileDoing};

/// Occurs once in each of the listed files.
pub(crate) const SEARCHED: &str = "value_016";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    ToolList,
    Read,
    Search,
    List,
    Shell,
}

impl Work {
    pub(crate) const ALL: [Self; 5] = [Self::ToolList, Self::Read, Self::Search, Self::List, Self::Shell];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::ToolList => "list of tools",
            Self::Read => "read a file of 2 KiB",
            Self::Search => "find a word in 20 files",
            Self::List => "list a directory of 20 files",
            Self::Shell => "run a command that prints 2 KiB",
        }
    }

    /// The name in the JSON file.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::ToolList => "tool_list",
            Self::Read => "read",
            Self::Search => "search",
            Self::List => "list",
            Self::Shell => "shell",
        }
    }
}

/// The command that does the work of [`Work::Shell`].
pub(crate) fn shell_command(scope: &Path) -> String {
    format!("cat {}", scope.join(READ_FILE).display())
}

/// What a shell prints for the work; nothing for what only a server has.
pub(crate) fn plain_text(work: Work, scope: &Path) -> Result<Option<String>, Error> {
    let script = match work {
        Work::ToolList => return Ok(None),
        Work::Read | Work::Shell => shell_command(scope),
        Work::Search => format!("grep -rn {SEARCHED} {LISTED_DIRECTORY}"),
        Work::List => format!("ls {LISTED_DIRECTORY}"),
    };
    let output = Command::new("sh").args(["-c", &script]).current_dir(scope).output().while_doing(&script)?;
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}
