//! What a tool is: its name, what it does to the workspace, and the tables of what it takes and returns.

use serde_json::{Value, json};

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::parameters::{Field, object_schema, result_schema};

/// One tool.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Tells the model what the tool does and when to use it.
    pub(crate) about: &'static str,
    pub(crate) effect: Effect,
    pub(crate) pace: Pace,
    pub(crate) takes: &'static [Field],
    /// The fields of `structuredContent`, for clients that get one.
    pub(crate) gives: &'static [Field],
    pub(crate) run: fn(&Call<'_>, &Arguments) -> Result<Answer, ToolError>,
}

/// What a tool does to the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    /// Creates something; a second call changes nothing.
    Adds,
    /// Changes or removes what exists.
    Changes,
    /// Runs a command, which can do anything that the fence allows.
    Runs,
    /// Waits for commands or ends them.
    Manages,
    /// Changes what is said about the session.
    Describes,
    /// Changes the project that the workspace is a copy of.
    TakesOver,
}

impl Effect {
    /// Only what differs from what the protocol takes for granted: that a tool writes, may destroy, has another effect
    /// each time and reaches the outside world.
    fn annotations(self) -> Value {
        match self {
            Self::Reads => json!({ "readOnlyHint": true, "openWorldHint": false }),
            Self::Adds => json!({ "destructiveHint": false, "idempotentHint": true, "openWorldHint": false }),
            Self::Changes => json!({ "openWorldHint": false }),
            Self::Runs | Self::TakesOver => json!({}),
            Self::Manages | Self::Describes => json!({ "destructiveHint": false, "openWorldHint": false }),
        }
    }
}

/// What the results of tools consist of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultForm {
    /// Text alone. Clients that get both hand the data to the model, where it costs more and is harder to read.
    #[default]
    Text,
    TextAndData,
}

/// Where a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// On the thread that reads messages.
    Brief,
    /// On a thread of its own, so that other calls do not wait for it.
    Long,
}

impl Tool {
    pub(crate) fn writes_files(&self) -> bool {
        matches!(self.effect, Effect::Adds | Effect::Changes)
    }

    /// Whether it reads or writes files itself, without a command.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn handles_files(&self) -> bool {
        !matches!(self.effect, Effect::Runs | Effect::Manages) && !self.name.starts_with("session_")
    }

    /// The entry in the result of `tools/list`. A tool with an output schema must give data with every result.
    pub(crate) fn to_json(&self, results: ResultForm) -> Value {
        let mut entry = json!({
            "name": self.name,
            "title": self.title,
            "description": self.about,
            "inputSchema": object_schema(self.takes),
            "annotations": self.effect.annotations(),
        });
        if results == ResultForm::TextAndData {
            entry["outputSchema"] = result_schema(self.gives);
        }
        entry
    }
}
