//! The configuration as types: the servers and their settings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::{Piece, Principals, Secrets, Template};

/// One configuration file.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// In the order of the file, which is the order of all lists that clients see.
    pub servers: Vec<Server>,
    /// How the names of tools and prompts are made unique.
    pub names: NameMode,
    /// Where servers run whose execution context is `local`.
    pub local_execution: LocalExecution,
    pub secrets: Secrets,
    /// Who may do what, where callers need tokens.
    pub principals: Principals,
}

/// How the tools of several servers are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameMode {
    /// `server_tool`, always.
    #[default]
    Prefix,
    /// The tool's own name, and `server_tool` for names that several servers have.
    Conflict,
    /// The tool's own name; of several tools with one name, the one of the first server.
    None,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalExecution {
    /// On this machine if only this machine can connect, else on the client's.
    #[default]
    Automatic,
    Here,
    /// Through the `ringfence connect` of the client.
    Attachment,
}

/// Where a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionContext {
    /// On the client's machine.
    Local,
    /// On the gateway's.
    Remote,
}

impl ExecutionContext {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
        }
    }
}

/// File and line of an item, for errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
}

#[derive(Clone)]
pub struct Server {
    /// Letters, digits, `-` and `_`, at most 32.
    pub name: String,
    pub origin: Origin,
    pub transport: Transport,
    pub context: ExecutionContext,
    /// Whether a client may choose the other context for its session.
    pub overridable: bool,
    /// Why the server does not run, if so: switched off, or without a command and URL.
    pub disabled: Option<String>,
    /// Variables besides those that every server gets.
    pub environment: BTreeMap<String, Template>,
    /// A file with more variables; `environment` takes precedence.
    pub variables_file: Option<PathBuf>,
    /// Where the server starts; by default in its session's workspace.
    pub working_directory: Option<Template>,
    /// Where the server may write; by default in the session's workspace.
    pub allowed_directories: Option<Vec<Template>>,
    pub lifecycle: Lifecycle,
    pub storage: Storage,
    pub start: Start,
    /// Whether its packages may run code when they are installed; by default as the command line says.
    pub allows_install_scripts: Option<bool>,
    pub fence: FencePolicy,
    pub limits: ServerLimits,
    pub tools: ToolRules,
}

#[derive(Clone)]
pub enum Transport {
    /// The server that is part of ringfence: `command: [ringfence, workspace, …]`, or a server called
    /// `filesystem` that names nothing to run. Arguments follow `workspace`.
    BuiltIn {
        arguments: Vec<Template>,
    },
    Command {
        program: Template,
        arguments: Vec<Template>,
    },
    /// An MCP endpoint elsewhere. `Authorization` is among the headers if there is a bearer token.
    Url {
        url: Template,
        headers: BTreeMap<String, Template>,
    },
    /// Neither a command nor a URL; a client's machine may have the server.
    Unnamed,
}

/// Who shares a running server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifecycle {
    #[default]
    Session,
    Workspace,
    Shared,
    Call,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    #[default]
    None,
    /// `{storage}` names a directory that stays, one for each principal and workspace.
    Persistent,
}

/// When the process of a session starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the first call that needs it.
    #[default]
    Lazy,
    /// With the session.
    Eager,
}

/// Leaves every git directory outside the workspace where it is, except those that are named beside this word.
pub const NO_GIT_DIRECTORY: &str = "none";

/// Overrides of the gateway's own fence options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FencePolicy {
    pub network: Option<NetworkMode>,
    pub allow_hosts: Vec<String>,
    /// Paths that may be read or written in addition.
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    pub deny_read: Vec<PathBuf>,
    pub read_only: Option<bool>,
    /// Names of files that programs outside obey, and that the server may change all the same.
    pub allow_metadata: Vec<String>,
    /// It may make unix sockets of its own, as browsers do.
    pub unix_sockets: bool,
    /// It may use the ssh-agent of the user who runs ringfence.
    pub ssh_agent: bool,
    /// Git directories outside the workspace that git may use, and [`NO_GIT_DIRECTORY`] to leave out those that are found
    /// by themselves.
    pub git_directories: Vec<PathBuf>,
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
    /// No fence at all. Only an operator's file can set it.
    pub unfenced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkMode {
    All,
    None,
    Localhost,
    Http,
}

/// Overrides of the gateway's own limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerLimits {
    pub timeout: Option<Duration>,
    pub max_timeout: Option<Duration>,
    pub start_timeout: Option<Duration>,
}

/// Which tools clients see, and under which names. Globs match the server's own names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRules {
    /// Empty allows all.
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    /// The server's own name → the whole name that clients see.
    pub aliases: BTreeMap<String, String>,
}

impl Configuration {
    /// Only the built-in file server.
    pub fn of_built_in() -> Self {
        let server = Server {
            name: "filesystem".to_owned(),
            origin: Origin { file: PathBuf::new(), line: 1 },
            transport: Transport::BuiltIn { arguments: Vec::new() },
            context: ExecutionContext::Local,
            overridable: true,
            disabled: None,
            environment: BTreeMap::new(),
            variables_file: None,
            working_directory: None,
            allowed_directories: None,
            lifecycle: Lifecycle::default(),
            storage: Storage::default(),
            start: Start::default(),
            allows_install_scripts: None,
            fence: FencePolicy::default(),
            limits: ServerLimits::default(),
            tools: ToolRules::default(),
        };
        Self { servers: vec![server], ..Self::default() }
    }
}

impl Configuration {
    /// The files that hold variables of servers, and secrets.
    pub fn secret_files(&self) -> Vec<PathBuf> {
        let files = self.servers.iter().filter_map(|server| server.variables_file.clone());
        files.chain(self.secrets.files()).collect()
    }

    /// Denies every server to read the files that hold secrets.
    pub(crate) fn hide_secret_files(&mut self) {
        let files = self.secret_files();
        for server in &mut self.servers {
            server.fence.deny_read.extend(files.iter().cloned());
        }
    }
}

impl Server {
    /// The variables that must be set for the server to run.
    pub fn needed_variables(&self) -> impl Iterator<Item = &str> {
        self.templates().flat_map(Template::variables)
    }

    /// Returns true if the server gets a secret, which must not leave this machine.
    pub fn has_secrets(&self) -> bool {
        let named = match &self.transport {
            Transport::Url { headers, .. } => headers.keys().any(|name| names_a_secret(name)),
            _ => false,
        };
        let mentioned = self.templates().any(|template| template.mentioned_variables().next().is_some());
        named
            || mentioned
            || self.variables_file.is_some()
            || self.environment.keys().any(|name| names_a_secret(name))
    }

    pub(crate) fn mentions_storage(&self) -> bool {
        self.templates().any(|template| template.0.contains(&Piece::Storage))
    }

    fn templates(&self) -> impl Iterator<Item = &Template> {
        let transport: Vec<&Template> = match &self.transport {
            Transport::BuiltIn { arguments } => arguments.iter().collect(),
            Transport::Command { program, arguments } => std::iter::once(program).chain(arguments).collect(),
            Transport::Url { url, headers } => std::iter::once(url).chain(headers.values()).collect(),
            Transport::Unnamed => Vec::new(),
        };
        let directories = self.working_directory.iter().chain(self.allowed_directories.iter().flatten());
        transport.into_iter().chain(self.environment.values()).chain(directories)
    }
}

impl fmt::Debug for Server {
    /// Without the values of variables, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name)
            .field("origin", &self.origin)
            .field("transport", &self.transport)
            .field("context", &self.context)
            .field("overridable", &self.overridable)
            .field("disabled", &self.disabled)
            .field("environment", &self.environment.keys())
            .field("variables_file", &self.variables_file)
            .field("working_directory", &self.working_directory)
            .field("allowed_directories", &self.allowed_directories)
            .field("lifecycle", &self.lifecycle)
            .field("storage", &self.storage)
            .field("start", &self.start)
            .field("allows_install_scripts", &self.allows_install_scripts)
            .field("fence", &self.fence)
            .field("limits", &self.limits)
            .field("tools", &self.tools)
            .finish()
    }
}

impl fmt::Debug for Transport {
    /// Without the values of headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn { arguments } => f.debug_struct("BuiltIn").field("arguments", arguments).finish(),
            Self::Command { program, arguments } => {
                f.debug_struct("Command").field("program", program).field("arguments", arguments).finish()
            }
            Self::Url { url, headers } => {
                f.debug_struct("Url").field("url", url).field("headers", &headers.keys()).finish()
            }
            Self::Unnamed => f.write_str("Unnamed"),
        }
    }
}

/// Guesses from the name of a variable or header whether it holds a secret.
pub(crate) fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    // `PUBLIC_KEY` and `KEYBOARD` match wrongly; a needless warning does no harm.
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "AUTHORIZATION"].iter().any(|word| name.contains(word))
}
