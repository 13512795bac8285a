//! The tools: one file each, and the table of all of them.

mod answer;
mod arguments;
mod call;
mod parameters;
mod tool;

mod apply_patch;
mod await_operation;
mod cancel_operation;
mod changes;
mod contents;
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
mod operation_answer;
mod operation_status;
mod read_file;
mod refusal_note;
mod run_terminal_cmd;
mod search_replace;
mod session_apply;
mod session_argument;
mod session_context;
mod session_diff;
mod session_info;
mod text_answer;
mod write_file;

pub(crate) use answer::{Answer, ToolError};
pub(crate) use arguments::Arguments;
pub(crate) use call::{Call, Cancellation, Progress};
pub use contents::hash_of;
pub use describe::tools_in_markdown;
pub use listing::size_in_words;
pub(crate) use session_argument::take_session;
pub use tool::ResultForm;
pub(crate) use tool::{Pace, Tool};

use tool::Effect;

#[cfg(any(test, fuzzing))]
pub(crate) use parameters::{Field, Kind};

/// The arguments that are paths.
#[cfg(any(test, fuzzing))]
pub(crate) const FIELDS_WITH_PATHS: &[&str] = &["path", "source", "destination"];

/// All tools, in the order of `tools/list`.
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
    await_operation::TOOL,
    operation_status::TOOL,
    cancel_operation::TOOL,
    session_info::TOOL,
    session_context::TOOL,
    session_diff::TOOL,
    session_apply::TOOL,
];

/// Names that other servers use for one of these tools. They answer, but are not listed: a model that sees two tools for
/// one job pays for both.
const ALIASES: &[(&str, &str)] = &[("sandboxed_shell", "run_terminal_cmd")];

/// The listed name of a tool.
pub(crate) fn listed_name(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, listed)| listed)
}

/// The tool with this name.
pub(crate) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == listed_name(name))
}

/// The listed names of all tools.
pub(crate) fn names() -> Vec<&'static str> {
    TOOLS.iter().map(|tool| tool.name).collect()
}

/// All names under which tools answer.
pub(crate) fn all_names() -> Vec<&'static str> {
    names().into_iter().chain(ALIASES.iter().map(|(alias, _)| *alias)).collect()
}

/// Whether a tool changes the project that the workspace is a copy of.
pub(crate) fn takes_over(name: &str) -> bool {
    find(name).is_some_and(|tool| tool.effect == Effect::TakesOver)
}

/// The names of the tools that remain when nothing may be written. Outside a fence that excludes commands too,
/// because nothing else keeps them from writing.
pub(crate) fn names_of_readers(is_fenced: bool) -> Vec<&'static str> {
    let may_write = |tool: &Tool| match tool.effect {
        Effect::Runs => !is_fenced,
        Effect::TakesOver => true,
        _ => tool.writes_files(),
    };
    TOOLS.iter().filter(|tool| !may_write(tool)).map(|tool| tool.name).collect()
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
            let shown = tool.to_json(ResultForm::TextAndData);
            assert_eq!(shown["inputSchema"]["type"], "object", "{}", tool.name);
            assert_eq!(shown["outputSchema"]["type"], "object", "{}", tool.name);
            assert!(tool.to_json(ResultForm::Text).get("outputSchema").is_none(), "{}", tool.name);
            assert!(tool.takes.iter().all(|field| !field.about.is_empty()), "{}", tool.name);
            assert_eq!(all_names().iter().filter(|other| **other == tool.name).count(), 1);
        }
    }
}
