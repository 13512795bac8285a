//! The options about the MCP servers, common to `serve`, `stdio` and `connect`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fence::FenceSettings;
use session::Settings;

use crate::audit_options::AuditOptions;
use crate::environment::{self, Variable};
use crate::fenced::{self, FenceOptions, FencedCommandError};
use crate::logging::LogOptions;
use crate::scope_options::ScopeOptions;
use crate::seconds::seconds;
use crate::workspace_options::WorkspaceOptions;

#[derive(Clone, Debug, Args)]
pub(crate) struct ServerOptions {
    /// Serve the servers of this file as one. Without this option and a command, the file that `ringfence config path`
    /// prints is used if it exists.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Ignore the file that `ringfence config path` prints.
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

#[derive(Clone, Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "switches of the command line")]
pub(crate) struct UpstreamOptions {
    /// Pass an environment variable to the server, or set one (repeatable). By default, only PATH, USER, LANG, LC_*,
    /// TERM, TZ and the variables that name CA certificates and toolchains are passed; HOME and TMPDIR are the
    /// session's own.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<Variable>,
    /// Pass or set a variable that makes programs load code (`LD_*`, `NODE_OPTIONS`, …), which --env leaves out.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) force_env: Vec<Variable>,
    /// Let packages of `npx` and `uvx` run code when they are installed, inside the fence of the installation: install
    /// scripts of npm, and builds of Python packages that have no wheel.
    #[arg(long)]
    pub(crate) allow_install_scripts: bool,
    /// Give the server a directory that outlives sessions, one for each principal and workspace: `{storage}` in its
    /// arguments and in --env. Servers that `ringfence add` knows are pointed there without that. `storage: persistent`
    /// is the same in a configuration file.
    #[arg(long)]
    pub(crate) storage: bool,
    /// Run `npx` and `uvx` as written in every session, instead of the package installed once.
    #[arg(long)]
    pub(crate) no_package_cache: bool,
    /// Give up a call after this long without an answer or progress.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    timeout: Duration,
    /// Give up a call after this long, even if there is progress.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "3600")]
    max_timeout: Duration,
    /// Give up a server that does not start and answer initialize within this time.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    start_timeout: Duration,
    /// Wait this long for the server to end after its input closed, and again after SIGTERM.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "2")]
    grace: Duration,
    /// Refuse longer messages, in both directions.
    #[arg(long, value_name = "BYTES", default_value_t = wire::MAX_MESSAGE_BYTES)]
    pub(crate) max_message_bytes: usize,
    #[command(flatten)]
    pub(crate) audit: AuditOptions,
    /// Put the client window and project of each session into `_meta` of its results. `MCP_VERBOSE=true` means
    /// the same.
    #[arg(long)]
    verbose_meta: bool,
    #[command(flatten)]
    pub(crate) log: LogOptions,
    /// The MCP server to run, with its arguments. By default, the built-in server.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl ServerOptions {
    pub(crate) fn settings(&self) -> Settings {
        let upstream = &self.upstream;
        Settings {
            timeout: upstream.timeout,
            max_timeout: upstream.max_timeout,
            start_timeout: upstream.start_timeout,
            grace: upstream.grace,
            max_message: upstream.max_message_bytes,
            scope_timeout: self.scope.scope_timeout,
            audit_arguments: upstream.audit.audit_arguments,
            verbose_meta: upstream.verbose_meta || environment::is_set("MCP_VERBOSE"),
            isolate_instances: environment::is_set("ENABLE_SESSION_ISOLATION"),
            ..Settings::default()
        }
    }

    /// The fence of servers, which hides the secrets of the audit log from them.
    pub(crate) fn fence_settings(&self) -> Result<FenceSettings, FencedCommandError> {
        let mut settings = fenced::settings(&self.fence, fenced::MetadataDefault::Kept)?;
        settings.deny_read.extend(self.upstream.audit.secret_files());
        Ok(settings)
    }
}
