//! Every error that ends ringfence: one message, a hint where the user can act, and an exit code.
//!
//! Modules own their errors and do not know this one. It collects them with `From`, so dependencies go one way.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use audit::{KeyTooShort, OpenError, SinkError};
use config::PrivateFileError;
use connect::GatewayUrlError;
use fence::{FenceSetupError, ScopeError};
use packages::{PackageError, ProgramError};
use session::Refusal;
use staging::StagingError;
use store::StoreError;
use upstream::StartError;
use upstream::http::CertificateFileError;
use workspace::ServeError;

use crate::access_options::AccessError;
use crate::config_file_error::ConfigFileError;
use crate::environment::MissingVariableError;
use crate::fenced::FencedCommandError;
use crate::listening::PassedSocketError;
use crate::session_command::SessionCommandError;

/// Bad arguments; the same code that the argument parser uses.
const USAGE: u8 = 2;
/// Everything else.
const FAILED: u8 = 1;

#[derive(Debug)]
pub(crate) enum Error {
    /// Neither a subcommand nor `--mode`.
    NothingToDo,
    /// Options of the built-in server beside another one.
    NotTheBuiltIn,
    /// An option that does not apply to the servers of a configuration file.
    NotWithConfiguration(&'static str),
    /// `--storage` without the command of a server.
    StorageOfBuiltIn,
    /// `--storage` for a process of all sessions.
    SharedStorage,
    /// A server wants the ssh-agent, and there is none.
    NoSshAgent,
    /// A changed file would weaken a fence of the running gateway.
    Weakening(config::Weakening),
    /// Both a file and a command line name servers.
    ConfigurationAndCommand,
    /// A program whose name depends on the session.
    ProgramNotFixed,
    /// A command that `cache add` cannot install.
    NotAPackage(String),
    /// Packages that `cache refresh` could not install.
    NotRefreshed(Vec<String>),
    BadWorkspace(String),
    Directory {
        path: PathBuf,
        error: std::io::Error,
    },
    UnknownHost {
        host: String,
        reason: std::io::Error,
    },
    Bind {
        address: SocketAddr,
        reason: std::io::Error,
    },
    OwnPortMirrored(u16),
    /// A socket of a service manager cannot be used.
    PassedSocket(PassedSocketError),
    /// Sessions cannot be kept.
    Store(StoreError),
    /// Session workspaces cannot be used.
    Staging(StagingError),
    /// A command on session workspaces failed.
    Session(Box<SessionCommandError>),
    /// An option that takes copies apart.
    NotWithStage(&'static str),
    /// Nothing says where the user's state is.
    NoStateDirectory,
    NoGateway,
    /// More than one gateway could be meant.
    SeveralGateways(Vec<u32>),
    /// `sessions prune --state-dir` names no state directory.
    NoStore(PathBuf),
    NoSuchSession,
    /// A gateway refuses a change of what is said about a session, in its words.
    SessionRefused(String),
    /// The first server could not be started.
    NotServing(Refusal),
    /// This host cannot enforce any fence.
    NoFence {
        reason: String,
        hint: Option<String>,
    },
    GatewayUrl(GatewayUrlError),
    /// The file of `--ca`.
    Certificates {
        path: PathBuf,
        error: CertificateFileError,
    },
    /// A file with a token or key.
    PrivateFile(PrivateFileError),
    AuditKey {
        path: PathBuf,
        error: KeyTooShort,
    },
    /// `audit key` cannot make a key.
    NewKey {
        path: PathBuf,
        error: std::io::Error,
    },
    Sink(SinkError),
    Program(ProgramError),
    Variable(MissingVariableError),
    Access(Box<AccessError>),
    Upstream(StartError),
    Fence(FencedCommandError),
    FenceSetup(FenceSetupError),
    Scope(ScopeError),
    Audit(OpenError),
    Package(Box<PackageError>),
    Config(Box<ConfigFileError>),
    Workspace(ServeError),
    Io(std::io::Error),
}

impl Error {
    pub(crate) fn exit_code(&self) -> ExitCode {
        let is_usage = match self {
            Self::NothingToDo
            | Self::NotTheBuiltIn
            | Self::StorageOfBuiltIn
            | Self::SharedStorage
            | Self::NoSshAgent
            | Self::NotWithConfiguration(_)
            | Self::NotWithStage(_)
            | Self::Weakening(_)
            | Self::ConfigurationAndCommand
            | Self::ProgramNotFixed
            | Self::NotAPackage(_)
            | Self::BadWorkspace(_)
            | Self::Directory { .. }
            | Self::UnknownHost { .. }
            | Self::OwnPortMirrored(_)
            | Self::PassedSocket(_)
            | Self::SeveralGateways(_)
            | Self::GatewayUrl(_)
            | Self::Certificates { .. }
            | Self::PrivateFile(_)
            | Self::AuditKey { .. }
            | Self::NewKey { .. }
            | Self::Sink(_)
            | Self::Program(_)
            | Self::Variable(_)
            | Self::Access(_)
            | Self::Fence(_)
            | Self::Scope(_)
            | Self::Workspace(ServeError::Rules(_)) => true,
            Self::NotRefreshed(_)
            | Self::Bind { .. }
            | Self::Store(_)
            | Self::Staging(_)
            | Self::Session(_)
            | Self::NoStateDirectory
            | Self::NoGateway
            | Self::NoStore(_)
            | Self::NoSuchSession
            | Self::SessionRefused(_)
            | Self::NotServing(_)
            | Self::NoFence { .. }
            | Self::Upstream(_)
            | Self::FenceSetup(_)
            | Self::Audit(_)
            | Self::Workspace(_)
            | Self::Io(_) => false,
            Self::Package(error) => matches!(**error, PackageError::Program(_)),
            Self::Config(error) => error.is_usage(),
        };
        ExitCode::from(if is_usage { USAGE } else { FAILED })
    }

    /// The message without the hint.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::NothingToDo => "nothing to do".to_owned(),
            Self::NotTheBuiltIn => {
                "options of the built-in server were given together with another server".to_owned()
            }
            Self::StorageOfBuiltIn => "--storage is for a server that is named after `--`".to_owned(),
            Self::SharedStorage => "--storage belongs to a workspace, and a shared server to none".to_owned(),
            Self::NoSshAgent => "it wants your ssh-agent (sshAgent), but SSH_AUTH_SOCK names none".to_owned(),
            Self::NotWithConfiguration(option) => {
                format!("{option} cannot be used with a configuration file")
            }
            Self::NotWithStage(option) => format!("{option} cannot be used with session workspaces"),
            Self::Weakening(weakening) => weakening.to_string(),
            Self::ConfigurationAndCommand => "both a configuration file and a command were given".to_owned(),
            Self::ProgramNotFixed => "the program of a server cannot depend on the session".to_owned(),
            Self::NotAPackage(command) => {
                format!("`{command}` does not launch a package in a form that ringfence understands")
            }
            Self::NotRefreshed(packages) => format!("{} could not be installed anew", packages.join(", ")),
            Self::BadWorkspace(text) => format!("--workspace {text}: expected NAME=DIR"),
            Self::Directory { path, error } | Self::NewKey { path, error } => {
                format!("{}: {error}", path.display())
            }
            Self::UnknownHost { host, reason } => format!("--host {host}: {reason}"),
            Self::Bind { address, reason } => format!("cannot listen on {address}: {reason}"),
            Self::OwnPortMirrored(port) => format!("--host-port {port} is the port of this gateway"),
            Self::PassedSocket(error) => error.to_string(),
            Self::SeveralGateways(pids) => {
                let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
                format!("several gateways of this user are running: {}", pids.join(", "))
            }
            Self::Store(error) => error.to_string(),
            Self::Staging(error) => error.to_string(),
            Self::Session(error) => error.to_string(),
            Self::NoStateDirectory => "nothing says where this user keeps state".to_owned(),
            Self::NoGateway => "no gateway of this user is running".to_owned(),
            Self::NoStore(directory) => format!("no gateway has kept sessions in {}", directory.display()),
            Self::NoSuchSession => "no gateway of this user has such a session".to_owned(),
            Self::SessionRefused(reason) => {
                split_hint(reason).0.trim_start_matches("Bad Request: ").to_owned()
            }
            Self::NotServing(Refusal::Scope { refusal }) => {
                format!("the default scope cannot be used: {refusal}")
            }
            Self::NoFence { reason, .. } => format!("no fence can be put around the server here: {reason}"),
            Self::Audit(error) => format!("no audit log: {error}"),
            Self::Upstream(error) | Self::NotServing(Refusal::Start(error)) => error.to_string(),
            Self::NotServing(refusal) => refusal.to_string(),
            Self::Fence(error) => error.message(),
            Self::GatewayUrl(error) => error.to_string(),
            Self::Certificates { path, error } => format!("--ca {}: {error}", path.display()),
            Self::PrivateFile(error) => error.to_string(),
            Self::AuditKey { path, error } => format!("{}: {error}", path.display()),
            Self::Sink(error) => error.to_string(),
            Self::Program(error) => error.to_string(),
            Self::Variable(error) => error.to_string(),
            Self::Access(error) => error.to_string(),
            Self::FenceSetup(error) => error.to_string(),
            Self::Scope(error) => error.to_string(),
            Self::Package(error) => error.to_string(),
            Self::Config(error) => error.to_string(),
            Self::Workspace(error) => error.to_string(),
            Self::Io(error) => error.to_string(),
        }
    }

    /// What the user can do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Upstream(error) | Self::NotServing(Refusal::Start(error)) => start_hint(error),
            Self::Store(error) => Some(error.hint().to_owned()),
            Self::PassedSocket(error) => Some(error.hint().to_owned()),
            Self::SessionRefused(reason) => split_hint(reason).1.map(str::to_owned),
            Self::NotWithStage(_) => {
                Some("a copy belongs to one session, and to the user that runs ringfence".to_owned())
            }
            Self::Staging(error) => error.hint().map(str::to_owned),
            Self::Session(error) => error.hint(),
            Self::NoStateDirectory => Some("set HOME or XDG_STATE_HOME".to_owned()),
            Self::NoFence { hint, .. } => Some(or_unfenced(hint.as_deref())),
            Self::NotServing(Refusal::Scope { refusal }) => Some(refusal.hint()),
            Self::Bind { address, reason } if reason.kind() == std::io::ErrorKind::AddrInUse => {
                Some(format!(
                    "port {} is taken; choose another with --port, or 0 for any free one",
                    address.port()
                ))
            }
            Self::GatewayUrl(error) => Some(error.hint().to_owned()),
            Self::PrivateFile(error) => Some(error.hint()),
            Self::Sink(error) => error.hint().map(str::to_owned),
            Self::Program(error) => Some(error.hint()),
            Self::Variable(error) => Some(error.hint()),
            Self::Access(error) => Some(error.hint()),
            Self::Scope(error) => Some(error.hint().to_owned()),
            Self::Audit(error) => Some(error.hint().to_owned()),
            Self::Fence(error) => error.hint(),
            Self::FenceSetup(error) => error.hint(),
            Self::Package(error) => error.hint(),
            Self::Config(error) => error.hint(),
            _ => self.fixed_hint().map(str::to_owned),
        }
    }

    /// The hint of errors that always have the same one.
    fn fixed_hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NothingToDo => "ringfence --help shows the subcommands",
            Self::NotTheBuiltIn => {
                "leave out the command after `--`, or --durable-writes and the rules about tools, paths and commands"
            }
            Self::StorageOfBuiltIn => {
                "the built-in server keeps nothing: write ringfence serve --storage -- COMMAND"
            }
            Self::SharedStorage => {
                "--lifecycle workspace shares one process among the sessions of a workspace"
            }
            Self::NoSshAgent => "start ringfence where an ssh-agent runs: eval \"$(ssh-agent)\"; ssh-add",
            Self::NotWithConfiguration(_) => "set it in the file, for each server: docs/configuration.md",
            Self::Weakening(_) => "restart the gateway to take the change",
            Self::ConfigurationAndCommand => "leave out --config, or the command after `--`",
            Self::ProgramNotFixed => "only arguments and variables can hold {workingDirectory} and the like",
            Self::NotAPackage(_) => "write npx -y PACKAGE, or uvx PACKAGE, with a package of a registry",
            Self::NotRefreshed(_) => "the versions that were installed before are still there",
            Self::BadWorkspace(_) => {
                "names are letters, digits, `-`, `_` and `.`, each defined once: --workspace docs=/srv/docs"
            }
            Self::Directory { .. } => "name a directory that exists",
            Self::Certificates { .. } => "name a PEM file with at least one certificate",
            Self::AuditKey { .. } => "`ringfence audit key FILE` makes a key",
            Self::NewKey { error, .. } if error.kind() == std::io::ErrorKind::AlreadyExists => {
                "name another file: logs that were written with the key of this one can be checked only with it"
            }
            Self::NewKey { .. } => "name a file in a directory that exists and that you may write to",
            Self::UnknownHost { .. } => "give an address such as 127.0.0.1, or localhost",
            Self::OwnPortMirrored(_) => {
                "servers inside a fence may not use the gateway; leave it out, or choose another --port"
            }
            Self::NoGateway => "start one: ringfence serve",
            Self::SeveralGateways(_) => "name one of them by its process id, or all with --all",
            Self::NoStore(_) => {
                "name the directory of --state-dir, or one such as ~/.local/state/ringfence/gateways/127.0.0.1_3000"
            }
            Self::NoSuchSession => "`ringfence sessions list` shows them",
            Self::Workspace(ServeError::Rules(_)) => {
                "`ringfence workspace --describe` lists the tools; paths are globs such as `secrets/**` or `*.pem`"
            }
            _ => return None,
        })
    }
}

/// The message of a gateway, and the hint that it ends with.
fn split_hint(message: &str) -> (&str, Option<&str>) {
    message.split_once("; hint: ").map_or((message, None), |(message, hint)| (message, Some(hint)))
}

fn start_hint(error: &StartError) -> Option<String> {
    if let StartError::Fence { hint, .. } = error {
        return Some(or_unfenced(hint.as_deref()));
    }
    let stderr = error.stderr().filter(|stderr| !stderr.is_empty())?;
    let indented: Vec<String> = stderr.lines().map(|line| format!("  {line}")).collect();
    Some(format!("the server's last lines on stderr were:\n{}", indented.join("\n")))
}

fn or_unfenced(hint: Option<&str>) -> String {
    let way_out = "--unfenced runs the server without any confinement";
    hint.map_or_else(|| way_out.to_owned(), |hint| format!("{hint}; {way_out}"))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message())?;
        match self.hint() {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Writes `From` for the errors that other modules own.
macro_rules! from {
    ($($error:ty => $variant:expr),+ $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                $variant(error)
            }
        })+
    };
}

from! {
    GatewayUrlError => Self::GatewayUrl,
    PrivateFileError => Self::PrivateFile,
    SinkError => Self::Sink,
    StoreError => Self::Store,
    PassedSocketError => Self::PassedSocket,
    StagingError => Self::Staging,
    SessionCommandError => |error| Self::Session(Box::new(error)),
    ProgramError => Self::Program,
    MissingVariableError => Self::Variable,
    AccessError => |error| Self::Access(Box::new(error)),
    FencedCommandError => Self::Fence,
    FenceSetupError => Self::FenceSetup,
    ScopeError => Self::Scope,
    OpenError => Self::Audit,
    PackageError => |error| Self::Package(Box::new(error)),
    ConfigFileError => |error| Self::Config(Box::new(error)),
    ServeError => Self::Workspace,
    std::io::Error => Self::Io,
}
