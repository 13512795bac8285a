//! Plans the servers of a configuration: each server's program, fence and templates. A server that cannot run here is
//! switched off with the reason, and the others run without it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use config::{
    Configuration, FencePolicy, LocalExecution, NetworkMode, Piece, Principals, Secrets, Storage, Template,
};
use fence::{FenceSettings, HostEnvironment, Limit, LimitOrigin, Network, ProtectionName, UnixSockets};
use parking_lot::Mutex;
use session::{Fill, ServerPlan, ServerSet, Terms};
use upstream::{Address, FenceHost, Lifecycle, Program, Timeouts, Transport, Upstream};

use super::server_program::{PackageChoice, built_in, fence_host, plain_program, preparation};
use crate::error::Error;
use crate::fenced;
use crate::guarded_host::GuardedHost;
use crate::presets;
use crate::server_options::ServerOptions;
use crate::workspace_options::{OfGateway, WorkspaceOptions};

/// Names the socket of ssh-agent.
const SSH_AGENT: &str = "SSH_AUTH_SOCK";

/// Where the clients are, which decides whether servers for their files run on this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClientPlace {
    /// The one client is on stdin, so always here.
    Stdin,
    ThisMachine,
    Anywhere,
}

impl ClientPlace {
    /// Whether servers for the clients' files run on this machine.
    fn local_is_here(self, configuration: &Configuration) -> bool {
        match (self, configuration.local_execution) {
            (Self::Stdin, _) | (_, LocalExecution::Here) | (Self::ThisMachine, LocalExecution::Automatic) => {
                true
            }
            (_, LocalExecution::Attachment) | (Self::Anywhere, LocalExecution::Automatic) => false,
        }
    }
}

/// Plans servers with the options of this process. It outlives a configuration, which may change.
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct ServerPlanner {
    host_environment: Arc<HostEnvironment>,
    settings: FenceSettings,
    unfenced: bool,
    read_only: bool,
    reports_files: bool,
    /// Clients may take the changes of their copies over.
    offers_apply: bool,
    has_package_cache: bool,
    allows_install_scripts: bool,
    storage: Option<PathBuf>,
    /// Servers with the same policy share what their fences have in common.
    hosts: Mutex<HashMap<String, Arc<FenceHost>>>,
}

impl ServerPlanner {
    pub(crate) fn new(options: &ServerOptions, host: &GuardedHost) -> Result<Self, Error> {
        if !options.upstream.env.is_empty() || !options.upstream.force_env.is_empty() {
            return Err(Error::NotWithConfiguration("--env"));
        }
        if options.upstream.storage {
            return Err(Error::NotWithConfiguration("--storage"));
        }
        if options.workspace.is_given() {
            return Err(Error::NotWithConfiguration("the options of the built-in server"));
        }
        let settings = options.fence_settings()?;
        let planner = Self {
            storage: host.storage(),
            host_environment: Arc::clone(host.environment()),
            settings,
            unfenced: options.scope.unfenced,
            read_only: options.fence.read_only,
            reports_files: options.upstream.audit.is_on(),
            offers_apply: options.scope.allow_apply,
            has_package_cache: !options.upstream.no_package_cache,
            allows_install_scripts: options.upstream.allow_install_scripts,
            hosts: Mutex::default(),
        };
        // If this host cannot enforce any fence, fail now.
        if !planner.unfenced {
            planner.host(planner.settings.clone())?;
        }
        Ok(planner)
    }

    pub(super) fn host_environment(&self) -> &HostEnvironment {
        &self.host_environment
    }

    /// Plans all servers of a configuration.
    pub(super) fn server_set(&self, configuration: &Configuration, clients: ClientPlace) -> ServerSet {
        let servers = configuration.servers.iter().map(|server| self.plan(server)).collect();
        ServerSet::Many { servers, terms: self.terms(configuration, clients) }
    }

    pub(crate) fn terms(&self, configuration: &Configuration, clients: ClientPlace) -> Terms {
        Terms {
            names: configuration.names,
            secrets: with_canonical_workspaces(configuration.secrets.clone()),
            local_is_here: clients.local_is_here(configuration),
            storage: self.storage.clone(),
        }
    }

    pub(crate) fn plan(&self, server: &config::Server) -> ServerPlan {
        let (transport, mut fill, disabled) = match self.transport(server) {
            Ok((transport, fill)) => (transport, fill, server.disabled.clone()),
            Err(error) => {
                let reason = server.disabled.clone().unwrap_or_else(|| error.message());
                tracing::warn!(upstream = server.name, "switched off: {reason}");
                (Transport::Attached, Fill::default(), Some(reason))
            }
        };
        fill.variables_file.clone_from(&server.variables_file);
        fill.working_directory.clone_from(&server.working_directory);
        fill.allowed_directories =
            server.allowed_directories.as_ref().map(|all| all.iter().map(canonical).collect());
        let upstream = Upstream {
            name: server.name.clone(),
            transport,
            lifecycle: lifecycle(server.lifecycle),
            reports_files: self.reports_files
                && matches!(server.transport, config::Transport::BuiltIn { .. }),
            timeouts: Timeouts {
                call: server.limits.timeout,
                longest_call: server.limits.max_timeout,
                start: server.limits.start_timeout,
            },
            is_guarded: true,
            redaction: upstream::Redaction::default(),
        };
        ServerPlan {
            upstream: Arc::new(upstream),
            fill,
            context: server.context,
            overridable: server.overridable,
            disabled,
            tools: server.tools.clone(),
            start: server.start,
            storage: server.storage,
            names: None,
            hides: Vec::new(),
        }
    }

    fn transport(&self, server: &config::Server) -> Result<(Transport, Fill), Error> {
        let mut variables: Vec<(String, Template)> =
            server.environment.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        if server.fence.ssh_agent {
            let socket = self.ssh_agent()?;
            variables.push((SSH_AGENT.to_owned(), Template::from(&*socket.to_string_lossy())));
        }
        Ok(match &server.transport {
            config::Transport::BuiltIn { arguments } => {
                let fence = self.fence(&server.fence, true)?;
                let read_only = server.fence.read_only.unwrap_or(self.read_only);
                let gateway =
                    OfGateway { read_only, report_files: self.reports_files, offer_apply: self.offers_apply };
                let own = WorkspaceOptions::default().to_arguments(gateway);
                let read_only_arguments = if read_only { Vec::new() } else { vec!["--read-only".into()] };
                let program = built_in(own, Vec::new(), fence)?;
                let arguments = arguments.clone();
                (
                    Transport::Process(program),
                    Fill { arguments, variables, read_only_arguments, ..Fill::default() },
                )
            }
            config::Transport::Command { program, arguments } => {
                let fence = self.fence(&server.fence, false)?;
                let settings = self.settings_for(&server.fence, false)?;
                let packages = PackageChoice {
                    has_cache: self.has_package_cache && !self.unfenced && !server.fence.unfenced,
                    allows_install_scripts: server
                        .allows_install_scripts
                        .unwrap_or(self.allows_install_scripts),
                };
                let has_package = packages.has_cache;
                let program = Program {
                    fence,
                    preparation: Some(preparation(settings, &self.host_environment, packages)),
                    ..plain_program(fixed(program)?, Vec::new())
                };
                let variables = with_known_variables(server, arguments, has_package, variables);
                (
                    Transport::Process(program),
                    Fill { arguments: arguments.clone(), variables, ..Fill::default() },
                )
            }
            config::Transport::Url { url, headers } => {
                let headers = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                let fill = Fill { url: Some(url.clone()), headers, ..Fill::default() };
                (Transport::Http(Address { url: String::new(), headers: Vec::new() }), fill)
            }
            config::Transport::Unnamed => (Transport::Attached, Fill { variables, ..Fill::default() }),
        })
    }

    fn fence(&self, policy: &FencePolicy, all_programs: bool) -> Result<Option<Arc<FenceHost>>, Error> {
        if self.unfenced || policy.unfenced {
            return Ok(None);
        }
        self.host(self.settings_for(policy, all_programs)?).map(Some)
    }

    fn host(&self, settings: FenceSettings) -> Result<Arc<FenceHost>, Error> {
        let mut hosts = self.hosts.lock();
        let key = format!("{settings:?}");
        if let Some(host) = hosts.get(&key) {
            return Ok(Arc::clone(host));
        }
        let host = fence_host(settings, &self.host_environment)?;
        hosts.insert(key, Arc::clone(&host));
        Ok(host)
    }

    /// The common settings, changed by the server's own policy.
    fn settings_for(&self, policy: &FencePolicy, all_programs: bool) -> Result<FenceSettings, Error> {
        let asked = |value| Limit { value, origin: LimitOrigin::Asked };
        let mut settings = self.settings.clone();
        settings.all_programs = all_programs;
        settings.read.extend(policy.read.iter().cloned());
        settings.write.extend(policy.write.iter().cloned());
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        settings.deny_read.extend(policy.deny_read.iter().map(real));
        settings.read_only = policy.read_only.unwrap_or(settings.read_only);
        settings.metadata = fenced::with_writable_metadata(settings.metadata, &policy.allow_metadata);
        settings.git = fenced::with_git_directories(settings.git, &policy.git_directories);
        settings.limits.memory = policy.memory_bytes.map(asked).or(settings.limits.memory);
        settings.limits.processes = policy.processes.map(asked).or(settings.limits.processes);
        settings.network = match policy.network {
            None => settings.network,
            Some(NetworkMode::All) => Network::All,
            Some(NetworkMode::None) => Network::None,
            Some(NetworkMode::Localhost) => Network::Localhost { ports: Vec::new() },
            Some(NetworkMode::Http) => {
                Network::Http { hosts: (!policy.allow_hosts.is_empty()).then(|| policy.allow_hosts.clone()) }
            }
        };
        fenced::check_hosts(&policy.allow_hosts)?;
        if policy.unix_sockets || policy.ssh_agent {
            settings.unix_sockets = UnixSockets::Allow;
        }
        if policy.ssh_agent {
            settings.read.push(self.ssh_agent()?);
            settings.allow_degraded.insert(ProtectionName::UnixPathname);
        }
        Ok(settings)
    }

    /// The socket of the agent that holds the keys of the user who runs ringfence.
    fn ssh_agent(&self) -> Result<PathBuf, Error> {
        let named = self.host_environment.environment.get(OsStr::new(SSH_AGENT)).map(PathBuf::from);
        named.filter(|path| path.exists()).ok_or(Error::NoSshAgent)
    }
}

/// Rejects a program that depends on the session: the operator chooses one for all.
fn fixed(program: &Template) -> Result<OsString, Error> {
    match &program.0[..] {
        [Piece::Text(text)] => Ok(text.into()),
        _ => Err(Error::ProgramNotFixed),
    }
}

fn lifecycle(lifecycle: config::Lifecycle) -> Lifecycle {
    match lifecycle {
        config::Lifecycle::Session => Lifecycle::Session,
        config::Lifecycle::Workspace => Lifecycle::Workspace,
        config::Lifecycle::Shared => Lifecycle::Shared,
        config::Lifecycle::Call => Lifecycle::Call,
    }
}

/// Points servers that keep their data beside their own code at their storage, and keeps those that would install more
/// there from doing so.
fn with_known_variables(
    server: &config::Server,
    arguments: &[Template],
    has_package: bool,
    mut variables: Vec<(String, Template)>,
) -> Vec<(String, Template)> {
    let words = || {
        arguments.iter().filter_map(|argument| match &argument.0[..] {
            [Piece::Text(text)] => Some(text.as_str()),
            _ => None,
        })
    };
    let storage = (server.storage != Storage::None).then(|| presets::storage_variables(words()));
    let package = has_package.then(|| presets::package_variables(words()));
    for (name, value) in storage.into_iter().chain(package).flatten() {
        if !variables.iter().any(|(known, _)| *known == name) {
            variables.push((name, storage_template(&value)));
        }
    }
    variables
}

/// A text in which `{storage}`, and nothing else, stands for the storage of the server.
pub(super) fn storage_template(text: &str) -> Template {
    let mut pieces = Vec::new();
    for (place, part) in text.split("{storage}").enumerate() {
        if place > 0 {
            pieces.push(Piece::Storage);
        }
        if !part.is_empty() {
            pieces.push(Piece::Text(part.to_owned()));
        }
    }
    Template(pieces)
}

/// Resolves links in a fixed path. A path that a session completes is resolved in the session.
fn canonical(directory: &Template) -> Template {
    let fixed = match &directory.0[..] {
        [Piece::Text(text)] => std::fs::canonicalize(text).ok(),
        _ => None,
    };
    fixed.and_then(|path| Some(Template::from(path.to_str()?))).unwrap_or_else(|| directory.clone())
}

/// Resolves links in the directories of principals, because sessions know theirs by real path.
pub(super) fn with_canonical_scopes(mut principals: Principals) -> Principals {
    for scope in principals.scopes_mut() {
        if let Ok(canonical) = scope.canonicalize() {
            *scope = canonical;
        }
    }
    principals
}

/// Resolves links in the workspaces of secrets, because sessions know their directories by real path.
fn with_canonical_workspaces(mut secrets: Secrets) -> Secrets {
    let workspaces = std::mem::take(&mut secrets.workspaces);
    let canonical = |path: PathBuf| path.canonicalize().unwrap_or(path);
    secrets.workspaces = workspaces.into_iter().map(|(path, own)| (canonical(path), own)).collect();
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_storage_is_filled_in_on_a_command_line() {
        let text = |text: &str| Piece::Text(text.to_owned());
        for (written, pieces) in [
            ("", vec![]),
            ("{workingDirectory} ${HOME}", vec![text("{workingDirectory} ${HOME}")]),
            ("--db={storage}/a.db", vec![text("--db="), Piece::Storage, text("/a.db")]),
            ("{storage}", vec![Piece::Storage]),
        ] {
            assert_eq!(storage_template(written), Template(pieces), "{written}");
        }
    }

    #[test]
    fn servers_for_the_clients_files_run_where_the_files_are() {
        use ClientPlace::{Anywhere, Stdin, ThisMachine};
        let cases = [
            (Stdin, LocalExecution::Attachment, true),
            (Stdin, LocalExecution::Automatic, true),
            (ThisMachine, LocalExecution::Automatic, true),
            (ThisMachine, LocalExecution::Attachment, false),
            (Anywhere, LocalExecution::Automatic, false),
            (Anywhere, LocalExecution::Here, true),
        ];
        for (clients, local_execution, expected) in cases {
            let configuration = Configuration { local_execution, ..Configuration::of_built_in() };
            assert_eq!(clients.local_is_here(&configuration), expected, "{clients:?} {local_execution:?}");
        }
    }
}
