//! Runs one of the parts until it ends.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::parts::parts_dir;

/// How long a part may take. Parts start slowly on a busy machine, and some run many checks.
const PART_DEADLINE: Duration = Duration::from_secs(540);

/// The exit status and the output of a part.
#[derive(Debug)]
pub struct PartRun {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl PartRun {
    /// Panics with the part's output unless it exited with 0.
    #[must_use]
    pub fn succeeded(self, what: &str) -> Self {
        let Self { status, stdout, stderr } = &self;
        assert!(status.success(), "{what} ended with {status}:\n{stdout}\n{stderr}");
        self
    }
}

/// Runs `program` in the directory of the parts until it ends; it is killed if the test ends before.
pub async fn run_part(program: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> PartRun {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(parts_dir()).stdin(Stdio::null()).kill_on_drop(true);
    let Ok(output) = timeout(PART_DEADLINE, command.output()).await else {
        panic!("{} did not end within {PART_DEADLINE:?}", program.display());
    };
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    PartRun { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// How many tokens texts have for a current model.
pub async fn count_tokens(texts: &[&str]) -> Vec<u64> {
    let arguments = std::iter::once("count-tokens.mjs").chain(texts.iter().copied());
    let run = run_part(&crate::parts::node_binary(), arguments).await.succeeded("the tokenizer");
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {}", run.stdout))
}
