//! Other MCP clients on this machine: the file where each keeps its servers, its format, and what it can do.

use std::path::PathBuf;

use clap::ValueEnum;
use config::client_file::ClientSyntax;

use crate::config_path::{absolute, configuration_directory, home};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    /// The user's `mcp.json` of Visual Studio Code.
    #[value(name = "vscode")]
    VsCode,
    /// `~/.cursor/mcp.json`.
    Cursor,
    /// `~/.claude.json`.
    ClaudeCode,
    /// `claude_desktop_config.json`.
    ClaudeDesktop,
    /// `~/.codex/config.toml`.
    Codex,
    /// `~/.gemini/settings.json` of Gemini CLI.
    Gemini,
    /// `~/.qwen/settings.json` of Qwen Code.
    Qwen,
    /// `~/.config/opencode/opencode.json`.
    #[value(name = "opencode")]
    OpenCode,
    /// `~/.codeium/windsurf/mcp_config.json`.
    Windsurf,
    /// `~/.config/zed/settings.json`.
    Zed,
    /// `~/.junie/mcp/mcp.json` of Junie, which works in the IDEs of `JetBrains`.
    #[value(name = "jetbrains", alias = "junie")]
    JetBrains,
}

/// How a client lets a server know in which directory to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkspaceSource {
    /// It answers `roots/list`, so an address is enough.
    Roots,
    /// It starts its servers in the directory of the project, and tells a server at a URL nothing.
    WorkingDirectory,
    /// It tells a server nothing, and starts it anywhere. The entry has to name the directory.
    Nothing,
}

/// The keys of an entry for a server at a URL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UrlKeys {
    pub(crate) url: &'static str,
    pub(crate) headers: &'static str,
}

/// How a client writes the command of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandStyle {
    /// The program in `command`, its arguments in `args`.
    Split,
    /// All words in `command`.
    List,
}

/// Finds a file of the user.
type FileLookup = fn() -> Option<PathBuf>;

/// The settings of a client that switch off its own shell and file tools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnTools {
    /// The file of the settings. `None`: the file where the client keeps its servers.
    file: Option<FileLookup>,
    pub(crate) settings: &'static [Setting],
}

/// One key of a client's settings, as it is when the client's own tools are off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) section: &'static [&'static str],
    pub(crate) key: &'static str,
    pub(crate) off: Off,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Off {
    /// A list, of which these are elements.
    Listed(&'static [&'static str]),
    False,
    Text(&'static str),
}

impl OwnTools {
    /// The settings' file, where it is not the one with the servers.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.file.and_then(|file| file())
    }
}

const fn setting(section: &'static [&'static str], key: &'static str, off: Off) -> Setting {
    Setting { section, key, off }
}

const OFF_IN_CLAUDE_CODE: &[Setting] = &[setting(
    &["permissions"],
    "deny",
    Off::Listed(&[
        "Bash",
        "Read",
        "Edit",
        "Write",
        "NotebookEdit",
        "Glob",
        "Grep",
        "Monitor",
        "EnterWorktree",
    ]),
)];

/// Newer models keep `apply_patch`, which cannot be switched off; in a read-only sandbox, Codex asks before it writes.
const OFF_IN_CODEX: &[Setting] = &[
    setting(&[], "sandbox_mode", Off::Text("read-only")),
    setting(&["features"], "shell_tool", Off::False),
    setting(&["features"], "view_image", Off::False),
];

const OFF_IN_GEMINI: &[Setting] = &[setting(
    &["tools"],
    "exclude",
    Off::Listed(&[
        "run_shell_command",
        "read_file",
        "read_many_files",
        "write_file",
        "replace",
        "list_directory",
        "glob",
        "grep_search",
    ]),
)];

const OFF_IN_QWEN: &[Setting] = &[setting(
    &["permissions"],
    "deny",
    Off::Listed(&[
        "run_shell_command",
        "monitor",
        "read_file",
        "write_file",
        "edit",
        "list_directory",
        "glob",
        "grep_search",
    ]),
)];

const OFF_IN_OPENCODE: &[Setting] = &[
    setting(&["permission"], "bash", Off::Text("deny")),
    setting(&["permission"], "read", Off::Text("deny")),
    setting(&["permission"], "edit", Off::Text("deny")),
    setting(&["permission"], "glob", Off::Text("deny")),
    setting(&["permission"], "grep", Off::Text("deny")),
    setting(&["permission"], "list", Off::Text("deny")),
];

impl Client {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::VsCode => "VS Code",
            Self::Cursor => "Cursor",
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Qwen => "Qwen Code",
            Self::OpenCode => "opencode",
            Self::Windsurf => "Windsurf",
            Self::Zed => "Zed",
            Self::JetBrains => "Junie",
        }
    }

    /// Its file for all projects of this user.
    pub(crate) fn file(self) -> Option<PathBuf> {
        Some(match self {
            Self::VsCode => settings_directory()?.join("Code/User/mcp.json"),
            Self::Cursor => home()?.join(".cursor/mcp.json"),
            Self::ClaudeCode => absolute("CLAUDE_CONFIG_DIR").or_else(home)?.join(".claude.json"),
            Self::ClaudeDesktop => settings_directory()?.join("Claude/claude_desktop_config.json"),
            Self::Codex => {
                absolute("CODEX_HOME").or_else(|| Some(home()?.join(".codex")))?.join("config.toml")
            }
            Self::Gemini => absolute("GEMINI_CLI_HOME").or_else(home)?.join(".gemini/settings.json"),
            Self::Qwen => {
                absolute("QWEN_HOME").or_else(|| Some(home()?.join(".qwen")))?.join("settings.json")
            }
            Self::OpenCode => {
                let directory = configuration_directory()?.join("opencode");
                let with_comments = directory.join("opencode.jsonc");
                if with_comments.exists() { with_comments } else { directory.join("opencode.json") }
            }
            Self::Windsurf => home()?.join(".codeium/windsurf/mcp_config.json"),
            Self::Zed => configuration_directory()?.join("zed/settings.json"),
            Self::JetBrains => home()?.join(".junie/mcp/mcp.json"),
        })
    }

    /// Every file that `register` may write for it.
    pub(crate) fn files(self) -> impl Iterator<Item = PathBuf> {
        self.file().into_iter().chain(self.own_tools().and_then(|own| own.file()))
    }

    pub(crate) fn syntax(self) -> ClientSyntax {
        match self {
            Self::Codex => ClientSyntax::Toml,
            _ => ClientSyntax::Json,
        }
    }

    /// The key under which its servers are.
    pub(crate) fn section(self) -> &'static [&'static str] {
        match self {
            Self::VsCode => &["servers"],
            Self::Codex => &["mcp_servers"],
            Self::OpenCode => &["mcp"],
            Self::Zed => &["context_servers"],
            Self::Cursor
            | Self::ClaudeCode
            | Self::ClaudeDesktop
            | Self::Gemini
            | Self::Qwen
            | Self::Windsurf
            | Self::JetBrains => &["mcpServers"],
        }
    }

    /// The values of `type` for a server at a URL and for one that the client starts. `None` for clients that need no
    /// `type`.
    pub(crate) fn kinds(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::VsCode | Self::ClaudeCode => Some(("http", "stdio")),
            Self::OpenCode => Some(("remote", "local")),
            _ => None,
        }
    }

    /// The keys of a server at a URL. `None` for clients that can only start servers.
    pub(crate) fn url_keys(self) -> Option<UrlKeys> {
        let keys = |url, headers| Some(UrlKeys { url, headers });
        match self {
            Self::ClaudeDesktop | Self::JetBrains => None,
            Self::Codex => keys("url", "http_headers"),
            Self::Gemini | Self::Qwen => keys("httpUrl", "headers"),
            Self::Windsurf => keys("serverUrl", "headers"),
            Self::VsCode | Self::Cursor | Self::ClaudeCode | Self::OpenCode | Self::Zed => {
                keys("url", "headers")
            }
        }
    }

    pub(crate) fn command_style(self) -> CommandStyle {
        if self == Self::OpenCode { CommandStyle::List } else { CommandStyle::Split }
    }

    pub(crate) fn workspace_source(self) -> WorkspaceSource {
        match self {
            Self::VsCode | Self::Cursor | Self::ClaudeCode | Self::Gemini | Self::Qwen | Self::OpenCode => {
                WorkspaceSource::Roots
            }
            Self::Codex | Self::Zed => WorkspaceSource::WorkingDirectory,
            Self::ClaudeDesktop | Self::Windsurf | Self::JetBrains => WorkspaceSource::Nothing,
        }
    }

    /// The settings that switch off its own shell and file tools, if it has such.
    pub(crate) fn own_tools(self) -> Option<OwnTools> {
        let (file, settings): (Option<FileLookup>, _) = match self {
            Self::ClaudeCode => (Some(claude_code_settings), OFF_IN_CLAUDE_CODE),
            Self::Codex => (None, OFF_IN_CODEX),
            Self::Gemini => (None, OFF_IN_GEMINI),
            Self::Qwen => (None, OFF_IN_QWEN),
            Self::OpenCode => (None, OFF_IN_OPENCODE),
            Self::VsCode
            | Self::Cursor
            | Self::ClaudeDesktop
            | Self::Windsurf
            | Self::Zed
            | Self::JetBrains => return None,
        };
        Some(OwnTools { file, settings })
    }
}

/// Where Claude Code keeps its permissions.
fn claude_code_settings() -> Option<PathBuf> {
    let directory = absolute("CLAUDE_CONFIG_DIR").or_else(|| Some(home()?.join(".claude")))?;
    Some(directory.join("settings.json"))
}

/// Where applications with windows keep their settings.
fn settings_directory() -> Option<PathBuf> {
    if cfg!(target_os = "macos") {
        return Some(home()?.join("Library/Application Support"));
    }
    configuration_directory()
}
