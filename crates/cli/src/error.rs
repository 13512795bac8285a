//! What ends ringfence with an error: one message, a hint where the user can act, and an exit code.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use audit::OpenError;
use fence::{FenceSetupError, ScopeError};
use session::{Refusal, StartError};
use workspace::ServeError;

use crate::access_options::AccessFailure;
use crate::config_failure::ConfigFailure;
use crate::fenced::FenceFailure;
use crate::packages::PackageFailure;

/// Bad arguments; the same code that the argument parser uses.
const USAGE: u8 = 2;
/// Everything else.
const FAILED: u8 = 1;

#[derive(Debug)]
pub(crate) enum Failure {
    /// Options of the built-in server beside another one.
    NotTheBuiltIn,
    Workspace(ServeError),
    ModeWithoutCommandLine,
    /// An option that means nothing beside a configuration file.
    NotWithConfiguration(&'static str),
    /// Both a file and a command line name what to serve.
    ConfigurationAndCommand,
    BadGatewayUrl(String),
    /// A program whose name depends on the session.
    ProgramNotFixed,
    ProgramNotFound(String),
    ProgramNotExecutable(String),
    MissingVariable(String),
    UnknownHost {
        host: String,
        reason: std::io::Error,
    },
    Access(Box<AccessFailure>),
    Bind {
        address: SocketAddr,
        reason: std::io::Error,
    },
    Upstream(StartError),
    /// The first thing that was to be served could not be.
    NotServing(Refusal),
    /// No fence can be put up on this host.
    NoFence {
        reason: String,
        hint: Option<String>,
    },
    Fence(FenceFailure),
    FenceSetup(FenceSetupError),
    Scope(ScopeError),
    Directory {
        path: PathBuf,
        error: std::io::Error,
    },
    BadWorkspace(String),
    OwnPortMirrored(u16),
    NoGateway,
    NoSuchSession,
    Audit(OpenError),
    Package(Box<PackageFailure>),
    Config(Box<ConfigFailure>),
    Io(std::io::Error),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::NotTheBuiltIn
            | Self::NotWithConfiguration(_)
            | Self::ProgramNotFixed
            | Self::ConfigurationAndCommand
            | Self::BadGatewayUrl(_)
            | Self::Workspace(ServeError::Rules(_))
            | Self::ModeWithoutCommandLine
            | Self::ProgramNotFound(_)
            | Self::ProgramNotExecutable(_)
            | Self::MissingVariable(_)
            | Self::UnknownHost { .. }
            | Self::Fence(_)
            | Self::Scope(_)
            | Self::Directory { .. }
            | Self::BadWorkspace(_)
            | Self::OwnPortMirrored(_)
            | Self::Access(_) => ExitCode::from(USAGE),
            Self::Bind { .. }
            | Self::Upstream(_)
            | Self::NotServing(_)
            | Self::NoFence { .. }
            | Self::FenceSetup(_)
            | Self::NoGateway
            | Self::NoSuchSession
            | Self::Audit(_)
            | Self::Workspace(_)
            | Self::Io(_) => ExitCode::from(FAILED),
            Self::Config(failure) => ExitCode::from(if failure.is_usage() { USAGE } else { FAILED }),
            Self::Package(failure) => match &**failure {
                PackageFailure::Program(failure) => failure.exit_code(),
                PackageFailure::NotAPackage(_) => ExitCode::from(USAGE),
                _ => ExitCode::from(FAILED),
            },
        }
    }

    /// The message alone.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::NotWithConfiguration(option) => {
                format!("{option} cannot be used with a configuration file")
            }
            Self::ProgramNotFixed => "the program of a server cannot depend on the session".to_owned(),
            Self::BadGatewayUrl(url) => format!("{url:?} is no address of a gateway"),
            Self::ConfigurationAndCommand => "both a configuration file and a command were given".to_owned(),
            Self::NotTheBuiltIn => {
                "options of the built-in server were given together with another server".to_owned()
            }
            Self::Workspace(error) => error.to_string(),
            Self::ModeWithoutCommandLine => "nothing to do".to_owned(),
            Self::ProgramNotFound(program) => format!("cannot start `{program}`: no such program"),
            Self::ProgramNotExecutable(program) => {
                format!("cannot start `{program}`: the file is not executable")
            }
            Self::MissingVariable(name) => format!("--env {name}: there is no such environment variable"),
            Self::UnknownHost { host, reason } => format!("--host {host}: {reason}"),
            Self::Access(failure) => failure.to_string(),
            Self::Bind { address, reason } => format!("cannot listen on {address}: {reason}"),
            Self::Upstream(failure) | Self::NotServing(Refusal::Start(failure)) => failure.to_string(),
            Self::NotServing(Refusal::Scope { refusal }) => {
                format!("the default scope cannot be used: {refusal}")
            }
            Self::NotServing(refusal) => refusal.to_string(),
            Self::NoFence { reason, .. } => format!("no fence can be put around the server here: {reason}"),
            Self::Fence(failure) => failure.message(),
            Self::FenceSetup(error) => error.to_string(),
            Self::Scope(error) => error.to_string(),
            Self::Directory { path, error } => format!("{}: {error}", path.display()),
            Self::BadWorkspace(text) => format!("--workspace {text}: expected NAME=DIR"),
            Self::Audit(error) => format!("no audit log: {error}"),
            Self::OwnPortMirrored(port) => format!("--host-port {port} is the port of this gateway"),
            Self::NoGateway => "no gateway of this user is running".to_owned(),
            Self::NoSuchSession => "no gateway of this user has such a session".to_owned(),
            Self::Package(failure) => failure.to_string(),
            Self::Config(failure) => failure.to_string(),
            Self::Io(error) => error.to_string(),
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotWithConfiguration(_) => "say it in the file, server by server: docs/configuration.md".to_owned(),
            Self::BadGatewayUrl(_) => "write it as https://host or http://127.0.0.1:3000".to_owned(),
            Self::ConfigurationAndCommand => "leave --config or the command after `--` out".to_owned(),
            Self::ProgramNotFixed => "only arguments and variables can hold {workingDirectory} and the like".to_owned(),
            Self::NotTheBuiltIn => "leave the command after `--` out, or --durable-writes and the rules about tools, \
                paths and commands"
                .to_owned(),
            Self::Workspace(ServeError::Rules(_)) => {
                "`ringfence workspace --describe` lists the tools; paths are globs such as `secrets/**` or `*.pem`"
                    .to_owned()
            }
            Self::ModeWithoutCommandLine => "ringfence --help shows the subcommands".to_owned(),
            Self::ProgramNotFound(program) => {
                format!("install `{program}`, give its full path, or pass another PATH with --env PATH=…")
            }
            Self::ProgramNotExecutable(program) => format!("make it executable: chmod +x {program}"),
            Self::MissingVariable(name) => {
                format!("set it where ringfence is started, or give a value: --env {name}=…")
            }
            Self::UnknownHost { .. } => "give an address such as 127.0.0.1, or localhost".to_owned(),
            Self::Access(failure) => failure.hint(),
            Self::Bind { address, reason } if reason.kind() == std::io::ErrorKind::AddrInUse => {
                format!("port {} is taken; choose another with --port, or 0 for any free one", address.port())
            }
            Self::Upstream(StartError::Fence { hint, .. })
            | Self::NotServing(Refusal::Start(StartError::Fence { hint, .. }))
            | Self::NoFence { hint, .. } => {
                let way_out = "--unfenced runs the server without any confinement";
                hint.as_ref().map_or_else(|| way_out.to_owned(), |hint| format!("{hint}; {way_out}"))
            }
            Self::NotServing(Refusal::Scope { refusal }) => refusal.hint(),
            Self::Fence(failure) => failure.hint()?,
            Self::FenceSetup(error) => error.hint()?,
            Self::Scope(error) => error.hint().to_owned(),
            Self::Directory { .. } => "name a directory that exists".to_owned(),
            Self::Audit(error) => error.hint().to_owned(),
            Self::OwnPortMirrored(_) => {
                "servers inside a fence may not use the gateway; leave it out, or choose another --port"
                    .to_owned()
            }
            Self::NoGateway => "start one: ringfence serve".to_owned(),
            Self::NoSuchSession => "`ringfence sessions list` shows them".to_owned(),
            Self::BadWorkspace(_) => {
                "names are letters, digits, `-`, `_` and `.`, each defined once: --workspace docs=/srv/docs"
                    .to_owned()
            }
            Self::Upstream(failure) | Self::NotServing(Refusal::Start(failure)) => {
                let stderr = failure.stderr().filter(|stderr| !stderr.is_empty())?;
                format!("the server's last words on stderr were:\n{}", indented(stderr))
            }
            Self::Package(failure) => return failure.hint(),
            Self::Config(failure) => return failure.hint(),
            Self::Bind { .. } | Self::Io(_) | Self::NotServing(_) | Self::Workspace(_) => return None,
        })
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message())?;
        match self.hint() {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<PackageFailure> for Failure {
    fn from(failure: PackageFailure) -> Self {
        Self::Package(Box::new(failure))
    }
}

impl From<ConfigFailure> for Failure {
    fn from(failure: ConfigFailure) -> Self {
        Self::Config(Box::new(failure))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}
