//! The tools: one file each, one table of them all.

mod answer;
mod arguments;
mod call;
mod parameters;

mod apply_patch;
mod await_operation;
mod cancel_operation;
mod changes;
mod copy_file;
mod create_directory;
mod delete_file;
mod describe;
mod directory_tree;
mod edit_file;
mod file_info;
mod file_search;
mod grep_search;
mod list_dir;
mod listing;
mod long_file;
mod move_file;
mod multi_edit;
mod operation_status;
mod operations;
mod read_file;
mod run_terminal_cmd;
mod search_replace;
mod session_argument;
mod session_diff;
mod session_info;
mod write_file;

pub(crate) use answer::{Answer, Failure};
pub(crate) use arguments::Arguments;
pub(crate) use call::{Call, Cancellation, Progress};
pub use changes::hash_of;
pub use describe::tools_in_markdown;
pub use listing::size_in_words;
pub(crate) use parameters::Field;
pub(crate) use session_argument::take_session;

use serde_json::{Value, json};

use parameters::{object_schema, result_schema};

/// One tool.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// For the model: what it does, and when to use it.
    pub(crate) about: &'static str,
    pub(crate) effect: Effect,
    pub(crate) pace: Pace,
    pub(crate) takes: &'static [Field],
    /// The fields of `structuredContent`.
    pub(crate) gives: &'static [Field],
    pub(crate) run: fn(&Call<'_>, &Arguments) -> Result<Answer, Failure>,
}

/// What a tool does to the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    /// Adds something; doing it twice is doing it once.
    Adds,
    /// Changes or removes what is there.
    Changes,
    /// Anything that a command can do.
    Runs,
    /// Ends or waits for commands.
    Manages,
}

/// Whether others may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Brief,
    Long,
}

/// All of them, in the order in which they are listed.
pub(crate) static TOOLS: &[Tool] = &[
    read_file::TOOL,
    write_file::TOOL,
    edit_file::TOOL,
    search_replace::TOOL,
    multi_edit::TOOL,
    apply_patch::TOOL,
    list_dir::TOOL,
    directory_tree::TOOL,
    file_search::TOOL,
    grep_search::TOOL,
    file_info::TOOL,
    create_directory::TOOL,
    move_file::TOOL,
    copy_file::TOOL,
    delete_file::TOOL,
    run_terminal_cmd::TOOL,
    run_terminal_cmd::ALIAS,
    await_operation::TOOL,
    operation_status::TOOL,
    cancel_operation::TOOL,
    session_info::TOOL,
    session_diff::TOOL,
];

impl Tool {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        TOOLS.iter().find(|tool| tool.name == name)
    }

    pub(crate) fn writes_files(&self) -> bool {
        matches!(self.effect, Effect::Adds | Effect::Changes)
    }

    /// As `tools/list` shows it.
    pub(crate) fn to_json(&self) -> Value {
        let reads = self.effect == Effect::Reads;
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.about,
            "inputSchema": object_schema(self.takes),
            "outputSchema": result_schema(self.gives),
            "annotations": {
                "title": self.title,
                "readOnlyHint": reads,
                "destructiveHint": matches!(self.effect, Effect::Changes | Effect::Runs),
                "idempotentHint": reads || self.effect == Effect::Adds,
                "openWorldHint": self.effect == Effect::Runs,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_schemas_are_what_every_client_accepts() {
        for tool in TOOLS {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            assert!(
                (1..=64).contains(&tool.name.len()) && tool.name.bytes().all(is_allowed),
                "{}",
                tool.name
            );
            let shown = tool.to_json();
            assert_eq!(shown["inputSchema"]["type"], "object", "{}", tool.name);
            assert_eq!(shown["outputSchema"]["type"], "object", "{}", tool.name);
            assert!(tool.takes.iter().all(|field| !field.about.is_empty()), "{}", tool.name);
            assert_eq!(TOOLS.iter().filter(|other| other.name == tool.name).count(), 1);
        }
    }
}
