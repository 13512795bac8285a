//! The command line as the user writes it: the subcommands, and the older form without one.

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::add::AddArguments;
use crate::audit::AuditArguments;
use crate::cache_command::CacheArguments;
use crate::config_command::ConfigArguments;
use crate::connect::ConnectArguments;
use crate::environment;
use crate::error::Error;
use crate::fenced::{DoctorArguments, RunArguments, ShellArguments};
use crate::http_options::HttpOptions;
use crate::import::ImportArguments;
use crate::register::RegisterArguments;
use crate::serve::{LifecycleChoice, ServeArguments};
use crate::server_options::ServerOptions;
use crate::session_command::SessionArguments;
use crate::sessions::SessionsArguments;
use crate::stdio;
use crate::token::TokenArguments;
use crate::upgrade_command::UpgradeArguments;
use crate::workspace_options::WorkspaceArguments;

const EXAMPLES: &str = "\
Examples:
  ringfence serve
  ringfence serve -- npx -y @modelcontextprotocol/server-everything
  ringfence serve --port 0 --json -- uvx mcp-server-time
  ringfence serve --shared --env API_KEY -- ./my-server --flag
  ringfence run --scope . -- npx -y some-tool
  ringfence --mode stdio -- npx -y @modelcontextprotocol/server-filesystem .

Exit codes:
  0  ended by a signal or the end of its input
  1  could not start or continue (port taken, server does not start, …)
  2  bad arguments
  ringfence run has its own: ringfence run --help";

/// One MCP endpoint for every agent, each session with its own server process.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    legacy: LegacyCommandLine,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the built-in tools, or any stdio MCP server, over Streamable HTTP, each session in its own fence.
    Serve(Box<ServeArguments>),
    /// Serve one client on stdin and stdout, its server inside a fence.
    #[command(after_help = stdio::EXAMPLES)]
    Stdio(Box<ServerOptions>),
    /// Serve one client on stdin and stdout, with servers for its files here and the rest on a gateway elsewhere.
    Connect(Box<ConnectArguments>),
    /// Serve file, search, edit and shell tools for a directory on stdin and stdout.
    Workspace(Box<WorkspaceArguments>),
    /// Run a command inside a fence: it writes only in its scope.
    Run(Box<RunArguments>),
    /// Run a shell script inside a fence.
    #[command(name = "sandboxed_shell")]
    SandboxedShell(Box<ShellArguments>),
    /// Show which protections this host can enforce, and how to get the others.
    Doctor(Box<DoctorArguments>),
    /// Make copies of a project for tasks, review what changed in them, and take it over.
    Session(Box<SessionArguments>),
    /// List, show and stop the sessions of running gateways.
    Sessions(Box<SessionsArguments>),
    /// Replace the program of running gateways, without a refused connection and with all sessions.
    Upgrade(UpgradeArguments),
    /// Make or revoke a token of a caller of `serve --auth-token-file`.
    Token(TokenArguments),
    /// Install packages of npx and uvx once, so that sessions start fast and cannot alter them.
    Cache(Box<CacheArguments>),
    /// Check a configuration file, or print its schema and documentation.
    Config(ConfigArguments),
    /// Add a server to the configuration.
    Add(Box<AddArguments>),
    /// Copy servers from the configurations of other clients.
    Import(ImportArguments),
    /// Add ringfence to the configuration of a client, or remove it.
    Register(Box<RegisterArguments>),
    /// Check or show an audit log, or make a key for one.
    Audit(AuditArguments),
    /// Print completions for a shell.
    Completions { shell: Shell },
}

/// The form without a subcommand: `ringfence --mode http|stdio … -- COMMAND`.
#[derive(Debug, Args)]
struct LegacyCommandLine {
    /// Serve over HTTP (one process for all clients unless --session-isolation), or on stdin and stdout.
    #[arg(long)]
    mode: Option<Mode>,
    /// Port of --mode http. [default: 3000]
    #[arg(long)]
    http_port: Option<u16>,
    /// Address of --mode http. [default: 127.0.0.1]
    #[arg(long)]
    http_host: Option<String>,
    /// One process of the server for each session. `ENABLE_SESSION_ISOLATION=true` means the same.
    #[arg(long)]
    session_isolation: bool,
    #[command(flatten)]
    http: HttpOptions,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Http,
    Stdio,
}

impl Arguments {
    /// Returns the subcommand. The form without one becomes the subcommand that it stands for.
    pub(crate) fn into_command(self) -> Result<Command, Error> {
        match (self.command, self.legacy.mode) {
            (Some(command), _) => Ok(command),
            (None, Some(Mode::Http)) => Ok(Command::Serve(Box::new(self.legacy.into_serve()))),
            (None, Some(Mode::Stdio)) => Ok(Command::Stdio(Box::new(self.legacy.server))),
            (None, None) => Err(Error::NothingToDo),
        }
    }
}

impl LegacyCommandLine {
    fn into_serve(self) -> ServeArguments {
        let is_isolated = self.session_isolation || environment::is_set("ENABLE_SESSION_ISOLATION");
        ServeArguments {
            host: self.http_host,
            port: self.http_port,
            lifecycle: Some(if is_isolated { LifecycleChoice::Session } else { LifecycleChoice::Shared }),
            session_isolation: false,
            shared: false,
            http: self.http,
            server: self.server,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use upstream::Lifecycle;

    fn command(line: &str) -> Command {
        Arguments::try_parse_from(line.split(' ')).unwrap().into_command().unwrap()
    }

    fn serve(line: &str) -> ServeArguments {
        match command(line) {
            Command::Serve(serve) => *serve,
            _ => panic!("{line} does not serve"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_token_is_made_with_and_without_the_word_and_revoked_with_it() {
        let parsed = |line: &str| Arguments::try_parse_from(line.split(' ')).is_ok();
        for good in [
            "ringfence token alice",
            "ringfence token alice --file tokens --expires 30d",
            "ringfence token create alice --file tokens --note x",
            "ringfence token revoke alice --file tokens",
        ] {
            assert!(parsed(good), "{good}");
        }
        for bad in ["ringfence token", "ringfence token create", "ringfence token revoke alice"] {
            assert!(!parsed(bad), "{bad}");
        }
    }

    #[test]
    fn serve_isolates_unless_told_to_share() {
        assert_eq!(serve("ringfence serve -- server").lifecycle(), Lifecycle::Session);
        assert_eq!(serve("ringfence serve --session-isolation -- server").lifecycle(), Lifecycle::Session);
        assert_eq!(serve("ringfence serve --shared -- server").lifecycle(), Lifecycle::Shared);
    }

    #[test]
    fn the_legacy_command_line_shares_unless_told_to_isolate() {
        let shared = serve("ringfence --mode http --http-port 4000 -- server --flag");
        assert_eq!((shared.lifecycle(), shared.port), (Lifecycle::Shared, Some(4000)));
        assert_eq!(shared.server.upstream.command, ["server", "--flag"]);
        let isolated = serve("ringfence --mode http --session-isolation -- server");
        assert_eq!((isolated.lifecycle(), isolated.port), (Lifecycle::Session, None));
        assert!(matches!(command("ringfence --mode stdio -- server"), Command::Stdio(_)));
    }
}
