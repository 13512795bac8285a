//! Other MCP clients on this machine: the file where each keeps its servers, and its format.

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
}

impl Client {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::VsCode => "VS Code",
            Self::Cursor => "Cursor",
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Codex => "Codex",
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
        })
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
            Self::Cursor | Self::ClaudeCode | Self::ClaudeDesktop => &["mcpServers"],
        }
    }

    /// The values of `type` for a server at a URL and for one that the client starts. `None` for clients that need no
    /// `type`.
    pub(crate) fn kinds(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::VsCode | Self::ClaudeCode => Some(("http", "stdio")),
            Self::Cursor | Self::ClaudeDesktop | Self::Codex => None,
        }
    }

    /// Whether the client can start servers but not connect to a URL.
    pub(crate) fn only_starts(self) -> bool {
        self == Self::ClaudeDesktop
    }
}

/// Where applications with windows keep their settings.
fn settings_directory() -> Option<PathBuf> {
    if cfg!(target_os = "macos") {
        return Some(home()?.join("Library/Application Support"));
    }
    configuration_directory()
}
