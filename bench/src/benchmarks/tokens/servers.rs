//! The servers, how they are started, and the calls with which each does the work.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::Answered;
use super::conversation::Conversation;
use super::work::{SEARCHED, Work, shell_command};
use crate::benchmarks::workspace::files::{LISTED_DIRECTORY, READ_FILE};
use crate::error::{Error, WhileDoing};
use crate::programs::Programs;

const DESKTOP_COMMANDER: &str = "@wonderwhy-er/desktop-commander";
const DESKTOP_COMMANDER_VERSION: &str = "0.2.52";
const FILESYSTEM_ENTRY: &str = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js";

/// Asking for the results of a search that goes on would cost tokens too.
const SEARCH_TIME: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TokenServer {
    BuiltIn,
    Filesystem,
    DesktopCommander,
}

/// The tool and its arguments.
type Call = (&'static str, Value);

impl TokenServer {
    pub(crate) const ALL: [Self; 3] = [Self::BuiltIn, Self::Filesystem, Self::DesktopCommander];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "ringfence",
            Self::Filesystem => "server-filesystem",
            Self::DesktopCommander => "desktop-commander",
        }
    }

    pub(crate) fn command(self, programs: &Programs, scope: &Path) -> Result<Command, Error> {
        let mut command = match self {
            Self::BuiltIn => Command::new(&programs.ringfence),
            Self::Filesystem | Self::DesktopCommander => Command::new("node"),
        };
        match self {
            Self::BuiltIn => {
                command.args(["workspace", "--root"]).arg(scope);
            }
            Self::Filesystem => {
                let entry = programs.parts_directory().join(FILESYSTEM_ENTRY);
                if !entry.is_file() {
                    return Err(Error::new("it is missing: run scripts/install-test-parts first"));
                }
                command.arg(entry).arg(scope);
            }
            Self::DesktopCommander => {
                let directory = desktop_commander_directory(programs);
                let home = directory.join("home");
                let settings = home.join(".claude-server-commander");
                fs::create_dir_all(&settings).while_doing("making a home")?;
                let chosen = json!({ "telemetryEnabled": false, "allowedDirectories": [scope] });
                fs::write(settings.join("config.json"), chosen.to_string())?;
                let entry = directory.join("node_modules").join(DESKTOP_COMMANDER).join("dist/index.js");
                command.arg(entry).arg("--no-onboarding").current_dir(scope).env("HOME", home);
            }
        }
        Ok(command)
    }

    /// Has the work done. Returns `None` if the server has no tool for it.
    pub(crate) fn answer(
        self,
        work: Work,
        scope: &Path,
        conversation: &mut Conversation,
    ) -> Result<Option<Answered>, Error> {
        if work == Work::ToolList {
            let tools = conversation.ask("tools/list", &json!({}))?["tools"].to_string();
            return Ok(Some(Answered { text: tools.clone(), fed: tools }));
        }
        let calls = self.calls(work, scope);
        if calls.is_empty() {
            return Ok(None);
        }
        let mut all = Answered::default();
        let mut search = String::new();
        for (tool, mut arguments) in calls {
            if let Some(id) = arguments.get_mut("sessionId") {
                *id = search.as_str().into();
                std::thread::sleep(SEARCH_TIME);
            }
            let params = json!({ "name": tool, "arguments": arguments });
            let result = conversation.ask("tools/call", &params)?;
            let text = text_of(&result);
            search = search_id(&text).unwrap_or_default();
            all.fed.push_str(&match &result["structuredContent"] {
                Value::Null => text.clone(),
                data => data.to_string(),
            });
            all.text.push_str(&text);
        }
        check(work, &all.text)?;
        Ok(Some(all))
    }

    fn calls(self, work: Work, scope: &Path) -> Vec<Call> {
        match self {
            Self::BuiltIn => our_calls(work),
            Self::Filesystem => filesystem_calls(work, scope),
            Self::DesktopCommander => desktop_commander_calls(work, scope),
        }
    }
}

fn our_calls(work: Work) -> Vec<Call> {
    match work {
        Work::ToolList => Vec::new(),
        Work::Read => vec![("read_file", json!({ "path": READ_FILE }))],
        Work::Search => vec![("grep_search", json!({ "query": SEARCHED, "path": LISTED_DIRECTORY }))],
        Work::List => vec![("list_dir", json!({ "path": LISTED_DIRECTORY }))],
        Work::Shell => vec![("run_terminal_cmd", json!({ "command": format!("cat {READ_FILE}") }))],
    }
}

/// It cannot search contents, so it reads all files, as an agent would to search them, and has no shell.
fn filesystem_calls(work: Work, scope: &Path) -> Vec<Call> {
    let absolute = |path: &str| scope.join(path).display().to_string();
    match work {
        Work::ToolList | Work::Shell => Vec::new(),
        Work::Read => vec![("read_text_file", json!({ "path": absolute(READ_FILE) }))],
        Work::Search => {
            let files: Vec<String> = (0..20)
                .map(|number| absolute(&format!("{LISTED_DIRECTORY}/entry-{number:02}.txt")))
                .collect();
            vec![("read_multiple_files", json!({ "paths": files }))]
        }
        Work::List => vec![("list_directory", json!({ "path": absolute(LISTED_DIRECTORY) }))],
    }
}

fn desktop_commander_calls(work: Work, scope: &Path) -> Vec<Call> {
    let absolute = |path: &str| scope.join(path).display().to_string();
    match work {
        Work::ToolList => Vec::new(),
        Work::Read => vec![("read_file", json!({ "path": absolute(READ_FILE) }))],
        Work::Search => {
            let search = json!({ "path": absolute(LISTED_DIRECTORY), "pattern": SEARCHED, "searchType": "content", "contextLines": 0 });
            // The id is in the first answer.
            vec![("start_search", search), ("get_more_search_results", json!({ "sessionId": "" }))]
        }
        Work::List => vec![("list_directory", json!({ "path": absolute(LISTED_DIRECTORY) }))],
        Work::Shell => {
            vec![("start_process", json!({ "command": shell_command(scope), "timeout_ms": 5000 }))]
        }
    }
}

fn text_of(result: &Value) -> String {
    let parts = result["content"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// The id that desktop-commander gives a search.
fn search_id(text: &str) -> Option<String> {
    let (_, after) = text.split_once("search session: ")?;
    after.split_whitespace().next().map(str::to_owned)
}

/// Fails if a server did something else.
fn check(work: Work, text: &str) -> Result<(), Error> {
    let (expected, times) = match work {
        Work::ToolList => return Ok(()),
        Work::Read | Work::Shell => ("compute(input[", 32),
        Work::Search => (SEARCHED, 20),
        Work::List => ("entry-", 20),
    };
    let found = text.matches(expected).count();
    if found >= times {
        return Ok(());
    }
    Err(Error::new(format!("wrong answer to {}: {expected:?} occurs {found} times in {text}", work.key())))
}

pub(crate) fn desktop_commander_directory(programs: &Programs) -> PathBuf {
    programs.work_directory.join("desktop-commander")
}

/// What npm installs. One of its dependencies asks for a version that the registry does not have.
pub(crate) fn desktop_commander_manifest() -> Value {
    json!({
        "private": true,
        "dependencies": { DESKTOP_COMMANDER: DESKTOP_COMMANDER_VERSION },
        "overrides": { "typedarray.prototype.slice": "1.0.5" },
    })
}

/// The versions, for the report.
pub(crate) fn described() -> String {
    format!("server-filesystem of the test parts, desktop-commander {DESKTOP_COMMANDER_VERSION}")
}
