//! The command line: what the user wrote, and the task that it means.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use audit::{AuditLog, AuditSettings};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use gateway::{AllowedHost, AllowedOrigin};
use session::{Lifecycle, Settings};

use crate::access_options::AccessOptions;
use crate::add::AddArguments;
use crate::audit::AuditArguments;
use crate::config_command::ConfigArguments;
use crate::connect::ConnectTask;
use crate::environment::{self, Variable};
use crate::error::Failure;
use crate::fenced::{DoctorArguments, FenceOptions, RunArguments, ShellArguments};
use crate::import::ImportArguments;
use crate::logging::LogOptions;
use crate::packages::CacheArguments;
use crate::register::RegisterArguments;
use crate::scope_options::ScopeOptions;
use crate::sessions::SessionsArguments;
use crate::token::TokenArguments;
use crate::workspace_options::{WorkspaceArguments, WorkspaceOptions};

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
  1  could not start or go on (port taken, server does not start, …)
  2  bad arguments
  ringfence run has its own: ringfence run --help";

const SERVE_EXAMPLES: &str = "\
Examples:
  ringfence serve
      file, search, edit and shell tools for each session, in its own workspace
  ringfence serve --read-only --block-tool run_terminal_cmd,sandboxed_shell
      the same for looking only
  ringfence serve -- npx -y @modelcontextprotocol/server-everything
      one process of the server for each MCP session, at http://127.0.0.1:3000/mcp
  ringfence serve --shared --port 8080 -- uvx mcp-server-time
      one process for all clients; each still has its own session and sees only its own data
  ringfence serve --env API_KEY --env MODE=test --timeout 300 -- ./my-server
      passes two variables on and lets calls take five minutes without progress
  ringfence serve --allow-scope ~/projects --net none -- ./my-server
      sessions may only be of directories in ~/projects, and have no network
  ringfence serve --workspace docs=/srv/docs --lifecycle workspace -- ./my-server
      clients that connect to /mcp/w/docs share one process in /srv/docs
  ringfence serve --host 0.0.0.0 --auth-token-file tokens --tls-cert cert.pem --tls-key key.pem
      for other machines too: callers show a token, made with `ringfence token NAME --file tokens`";

const STDIO_EXAMPLES: &str = "\
Examples:
  ringfence stdio
      file, search, edit and shell tools for the client's workspace
  ringfence stdio -- npx -y @modelcontextprotocol/server-filesystem .
      what an IDE starts in place of the server: the same server, confined to the window's project
  ringfence stdio --scope . --net none -- ./my-server
      the same for a client without roots";

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
enum Command {
    /// Serve the built-in tools, or any stdio MCP server, over Streamable HTTP: each session in its own fence.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<Serve>),
    /// Serve one client on stdin and stdout, its server inside a fence.
    #[command(after_help = STDIO_EXAMPLES)]
    Stdio(Box<ServerTask>),
    /// Serve one client on stdin and stdout: its files here, the rest on a gateway elsewhere.
    Connect(Box<ConnectTask>),
    /// Serve file, search, edit and shell tools for a directory on stdin and stdout.
    Workspace(Box<WorkspaceArguments>),
    /// Run a command inside a fence: it writes only in its scope.
    Run(Box<RunArguments>),
    /// Run a shell script inside a fence.
    #[command(name = "sandboxed_shell")]
    SandboxedShell(Box<ShellArguments>),
    /// Show what this host can enforce, and what to do about the rest.
    Doctor(Box<DoctorArguments>),
    /// See and stop the sessions of running gateways.
    Sessions(Box<SessionsArguments>),
    /// Make a token for a caller of `serve --auth-token-file`.
    Token(TokenArguments),
    /// Install packages of npx and uvx once, for sessions that start fast and alter nothing.
    Cache(Box<CacheArguments>),
    /// Check a configuration file, or print what can stand in one.
    Config(ConfigArguments),
    /// Add a server to the configuration.
    Add(Box<AddArguments>),
    /// Take over the servers that other clients have.
    Import(ImportArguments),
    /// Point a client at ringfence, or no longer.
    Register(Box<RegisterArguments>),
    /// Check or show an audit log.
    Audit(AuditArguments),
    /// Print completions for a shell.
    Completions { shell: Shell },
}

/// The command line without a subcommand: `ringfence --mode http|stdio … -- COMMAND`.
#[derive(Debug, Args)]
struct LegacyCommandLine {
    /// Serve over HTTP (one process for all clients unless --session-isolation), or on stdin and stdout.
    #[arg(long)]
    mode: Option<Mode>,
    /// Port of --mode http.
    #[arg(long, default_value_t = 3000)]
    http_port: u16,
    /// Address of --mode http.
    #[arg(long, default_value = "127.0.0.1")]
    http_host: String,
    /// One process of the server for each session. `ENABLE_SESSION_ISOLATION=true` means the same.
    #[arg(long)]
    session_isolation: bool,
    #[command(flatten)]
    http: Http,
    #[command(flatten)]
    server: ServerTask,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Http,
    Stdio,
}

#[derive(Debug, Args)]
struct Serve {
    /// Address to listen on. One that is not loopback needs --auth-token-file, and --tls-cert or --behind-proxy.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 takes any free one.
    #[arg(long, default_value_t = 3000)]
    port: u16,
    /// Who shares a process of the server: session (each MCP session has its own, the default), workspace
    /// (sessions on one directory), shared (all clients), call (nobody: one for each request).
    #[arg(long, value_enum, conflicts_with_all = ["shared", "session_isolation"])]
    lifecycle: Option<LifecycleChoice>,
    /// The same as --lifecycle session.
    #[arg(long, conflicts_with = "shared")]
    session_isolation: bool,
    /// The same as --lifecycle shared: the scope is fixed at start, and all clients work in it.
    #[arg(long)]
    shared: bool,
    #[command(flatten)]
    http: Http,
    #[command(flatten)]
    server: ServerTask,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LifecycleChoice {
    Shared,
    Workspace,
    Session,
    Call,
}

/// What concerns HTTP clients.
#[derive(Clone, Debug, Args)]
pub(crate) struct Http {
    #[command(flatten)]
    pub(crate) access: AccessOptions,
    /// Another name under which clients reach this endpoint (repeatable).
    #[arg(long, value_name = "NAME[:PORT]")]
    pub(crate) allowed_host: Vec<AllowedHost>,
    /// A web origin whose pages may call this endpoint (repeatable).
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allowed_origin: Vec<AllowedOrigin>,
    /// Close event streams after this long and let clients of 2025-11-25 come back for the rest.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) park_after: Option<Duration>,
    /// What clients are told to wait before they come back.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "1")]
    pub(crate) retry: Duration,
    /// End a session that was not used for this long.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "3600")]
    idle_timeout: Duration,
    /// End a session that became this old. Never, if it is not given.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    max_session_age: Option<Duration>,
    /// End a session whose client never finished its handshake after this long without a request.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    handshake_timeout: Duration,
    /// End a process of --lifecycle shared or workspace that no session uses after this long; the next call
    /// starts another.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    idle_stop: Duration,
    /// Sessions at once; more are refused with 503.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_sessions: usize,
    /// Sessions of one caller at once; more are refused with 429.
    #[arg(long, value_name = "N")]
    max_sessions_per_principal: Option<usize>,
    /// Sessions of one client window at once; more are refused with 429.
    #[arg(long, value_name = "N")]
    max_sessions_per_instance: Option<usize>,
    /// Requests of one session at once; more are refused with 429.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_calls: usize,
    /// Requests of one caller in a second; more are refused with 429.
    #[arg(long, value_name = "N")]
    calls_per_second: Option<NonZeroU32>,
    /// Requests of one client window in a second; more are refused with 429.
    #[arg(long, value_name = "N")]
    instance_calls_per_second: Option<NonZeroU32>,
    /// On SIGINT or SIGTERM, what calls in flight may take to finish.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "5")]
    pub(crate) drain: Duration,
    /// Print the address as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What concerns the MCP server behind.
#[derive(Clone, Debug, Args)]
pub(crate) struct UpstreamOptions {
    /// Pass an environment variable on, or set one (repeatable). Only PATH, USER, LANG, LC_*, TERM, TZ and the
    /// variables that name CA certificates and toolchains are passed on by themselves; HOME and TMPDIR are the
    /// session's own.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<Variable>,
    /// The same for variables that make programs load code (`LD_*`, `NODE_OPTIONS`, …), which --env leaves out.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) force_env: Vec<Variable>,
    /// Look for a newer version of an `npx` or `uvx` package when the installed one is this old.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "86400")]
    pub(crate) package_age: Duration,
    /// Run `npx` and `uvx` as written in every session, instead of the package that they would fetch.
    #[arg(long)]
    pub(crate) no_package_cache: bool,
    /// Give a call up after this long without an answer or progress.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    timeout: Duration,
    /// Give a call up after this long, progress or not.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "3600")]
    max_timeout: Duration,
    /// What the server may take to start and answer initialize.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    start_timeout: Duration,
    /// What the server may take to end after its input closed, and again after SIGTERM.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "2")]
    grace: Duration,
    /// Longest message in either direction.
    #[arg(long, value_name = "BYTES", default_value_t = wire::MAX_MESSAGE_BYTES)]
    pub(crate) max_message_bytes: usize,
    /// Write an audit log to this file: sessions, processes and calls, chained by hash; `ringfence audit
    /// verify` checks it.
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,
    /// Write the arguments of calls to the audit log too. They may hold secrets.
    #[arg(long, requires = "audit_log")]
    audit_arguments: bool,
    /// Put the client window and project of each session into `_meta` of its results. `MCP_VERBOSE=true` means
    /// the same.
    #[arg(long)]
    verbose_meta: bool,
    #[command(flatten)]
    pub(crate) log: LogOptions,
    /// The MCP server to run, with its arguments. Without one: the built-in server.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What ringfence is to do.
pub(crate) enum Task {
    Serve(Box<ServeTask>),
    Stdio(Box<ServerTask>),
    Connect(Box<ConnectTask>),
    Workspace(Box<WorkspaceArguments>),
    Run(Box<RunArguments>),
    SandboxedShell(Box<ShellArguments>),
    Doctor(Box<DoctorArguments>),
    Sessions(Box<SessionsArguments>),
    Token(TokenArguments),
    Cache(Box<CacheArguments>),
    Config(ConfigArguments),
    Add(Box<AddArguments>),
    Import(ImportArguments),
    Register(Box<RegisterArguments>),
    Audit(AuditArguments),
    Completions(Shell),
}

pub(crate) struct ServeTask {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) http: Http,
    pub(crate) server: ServerTask,
}

/// The MCP servers, and where they may work.
#[derive(Debug, Args)]
pub(crate) struct ServerTask {
    /// Serve the servers that this file names, as one. Without it and without a command, the file that `ringfence
    /// config path` names is used if it exists.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Leave that file alone.
    #[arg(long, conflicts_with = "config")]
    pub(crate) no_config: bool,
    #[command(flatten)]
    pub(crate) scope: ScopeOptions,
    #[command(flatten)]
    pub(crate) fence: FenceOptions,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceOptions,
    #[command(flatten)]
    pub(crate) upstream: UpstreamOptions,
}

impl Arguments {
    pub(crate) fn into_task(self) -> Result<Task, Failure> {
        match (self.command, self.legacy.mode) {
            (Some(Command::Completions { shell }), _) => Ok(Task::Completions(shell)),
            (Some(Command::Token(token)), _) => Ok(Task::Token(token)),
            (Some(Command::Cache(cache)), _) => Ok(Task::Cache(cache)),
            (Some(Command::Workspace(workspace)), _) => Ok(Task::Workspace(workspace)),
            (Some(Command::Run(run)), _) => Ok(Task::Run(run)),
            (Some(Command::SandboxedShell(shell)), _) => Ok(Task::SandboxedShell(shell)),
            (Some(Command::Doctor(doctor)), _) => Ok(Task::Doctor(doctor)),
            (Some(Command::Sessions(sessions)), _) => Ok(Task::Sessions(sessions)),
            (Some(Command::Config(config)), _) => Ok(Task::Config(config)),
            (Some(Command::Add(add)), _) => Ok(Task::Add(add)),
            (Some(Command::Import(import)), _) => Ok(Task::Import(import)),
            (Some(Command::Register(register)), _) => Ok(Task::Register(register)),
            (Some(Command::Audit(audit)), _) => Ok(Task::Audit(audit)),
            (Some(Command::Serve(serve)), _) => Ok(Task::Serve(Box::new(serve.into_task()))),
            (Some(Command::Stdio(server)), _) => Ok(Task::Stdio(server)),
            (Some(Command::Connect(connect)), _) => Ok(Task::Connect(connect)),
            (None, Some(Mode::Http)) => Ok(Task::Serve(Box::new(self.legacy.into_serve()))),
            (None, Some(Mode::Stdio)) => Ok(Task::Stdio(Box::new(self.legacy.server))),
            (None, None) => Err(Failure::ModeWithoutCommandLine),
        }
    }
}

impl Serve {
    fn into_task(self) -> ServeTask {
        let lifecycle = match self.lifecycle {
            Some(LifecycleChoice::Shared) => Lifecycle::Shared,
            Some(LifecycleChoice::Workspace) => Lifecycle::Workspace,
            Some(LifecycleChoice::Call) => Lifecycle::Call,
            None if self.shared => Lifecycle::Shared,
            Some(LifecycleChoice::Session) | None => Lifecycle::Session,
        };
        ServeTask { host: self.host, port: self.port, lifecycle, http: self.http, server: self.server }
    }
}

impl LegacyCommandLine {
    fn into_serve(self) -> ServeTask {
        let is_isolated = self.session_isolation || environment::is_set("ENABLE_SESSION_ISOLATION");
        let lifecycle = if is_isolated { Lifecycle::Session } else { Lifecycle::Shared };
        ServeTask {
            host: self.http_host,
            port: self.http_port,
            lifecycle,
            http: self.http,
            server: self.server,
        }
    }
}

impl ServerTask {
    pub(crate) fn settings(&self) -> Settings {
        let upstream = &self.upstream;
        Settings {
            timeout: upstream.timeout,
            max_timeout: upstream.max_timeout,
            start_timeout: upstream.start_timeout,
            grace: upstream.grace,
            max_message: upstream.max_message_bytes,
            scope_timeout: self.scope.scope_timeout,
            audit_arguments: upstream.audit_arguments,
            verbose_meta: upstream.verbose_meta || environment::is_set("MCP_VERBOSE"),
            isolate_instances: environment::is_set("ENABLE_SESSION_ISOLATION"),
            ..Settings::default()
        }
    }
}

impl ServerTask {
    /// The log that the operator wants, if one is wanted.
    pub(crate) fn audit_log(&self) -> Result<Option<Arc<AuditLog>>, Failure> {
        let open = |path: &PathBuf| AuditLog::open(path, AuditSettings::default()).map(Arc::new);
        self.upstream.audit_log.as_ref().map(open).transpose().map_err(Failure::Audit)
    }
}

impl ServeTask {
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            idle_timeout: self.http.idle_timeout,
            max_age: self.http.max_session_age,
            handshake_timeout: self.http.handshake_timeout,
            idle_stop: self.http.idle_stop,
            max_sessions: self.http.max_sessions,
            max_sessions_per_principal: self.http.max_sessions_per_principal,
            max_sessions_per_instance: self.http.max_sessions_per_instance,
            max_calls: self.http.max_calls,
            calls_per_second: self.http.calls_per_second,
            instance_calls_per_second: self.http.instance_calls_per_second,
            ..self.server.settings()
        }
    }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|duration| !duration.is_zero() && *duration <= Duration::from_secs(366 * 24 * 3600))
        .ok_or_else(|| "expected a number of seconds greater than 0, such as 60 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn task(line: &str) -> Task {
        Arguments::try_parse_from(line.split(' ')).unwrap().into_task().unwrap()
    }

    fn serve(line: &str) -> ServeTask {
        match task(line) {
            Task::Serve(serve) => *serve,
            _ => panic!("{line} does not serve"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn serve_isolates_unless_told_to_share() {
        assert_eq!(serve("ringfence serve -- server").lifecycle, Lifecycle::Session);
        assert_eq!(serve("ringfence serve --session-isolation -- server").lifecycle, Lifecycle::Session);
        assert_eq!(serve("ringfence serve --shared -- server").lifecycle, Lifecycle::Shared);
    }

    #[test]
    fn the_founding_command_line_shares_unless_told_to_isolate() {
        let shared = serve("ringfence --mode http --http-port 4000 -- server --flag");
        assert_eq!((shared.lifecycle, shared.port), (Lifecycle::Shared, 4000));
        assert_eq!(shared.server.upstream.command, ["server", "--flag"]);
        let isolated = serve("ringfence --mode http --session-isolation -- server");
        assert_eq!((isolated.lifecycle, isolated.port), (Lifecycle::Session, 3000));
        assert!(matches!(task("ringfence --mode stdio -- server"), Task::Stdio(_)));
    }

    #[test]
    fn a_time_must_be_a_time() {
        for bad in ["0", "-1", "x", "nan", "inf", "1e300"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert_eq!(seconds("0.25").unwrap(), Duration::from_millis(250));
    }
}
