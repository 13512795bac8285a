//! What a gateway serves: one server that is passed through, or several as one, and the templates that each session
//! fills in.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{
    ExecutionContext, MissingValueError, NameMode, Piece, Secrets, Start, Storage, Template, ToolRules,
    Values,
};
use identity::{Instance, SessionKey};
use sha2::{Digest, Sha256};
use upstream::{Address, Lifecycle, Program, Redaction, Restriction, Transport, Upstream};
use wire::hex;

use crate::rights::Rights;
use crate::scope::Scope;

/// The servers behind the endpoint.
#[derive(Debug)]
pub enum ServerSet {
    /// One server, whose messages pass as they are. Its storage is below this directory, if it has one.
    One { server: Box<ServerPlan>, storage: Option<PathBuf> },
    /// Several servers that look like one.
    Many { servers: Vec<ServerPlan>, terms: Terms },
}

impl ServerSet {
    /// One server without templates and storage.
    pub fn one(upstream: Upstream) -> Self {
        Self::One { server: Box::new(ServerPlan::fixed(upstream)), storage: None }
    }
}

/// Settings of all servers of one configuration.
#[derive(Clone, Debug)]
pub struct Terms {
    pub names: NameMode,
    pub secrets: Secrets,
    /// Whether servers whose context is `local` run on this machine.
    pub local_is_here: bool,
    /// Where servers keep data across sessions.
    pub storage: Option<PathBuf>,
}

/// One configured server.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// The upstream before a session fills in its templates.
    pub upstream: Arc<Upstream>,
    pub fill: Fill,
    pub context: ExecutionContext,
    /// Whether a client may choose the other context.
    pub overridable: bool,
    /// Why it does not run at all.
    pub disabled: Option<String>,
    pub tools: ToolRules,
    pub start: Start,
    pub storage: Storage,
    /// How its tools are named, if not like those of the others.
    pub names: Option<NameMode>,
    /// Servers behind it (it is a gateway itself) whose items are not shown, because they are configured here, too.
    pub hides: Vec<String>,
}

/// The templates that each session fills in.
#[derive(Clone, Debug, Default)]
pub struct Fill {
    /// All arguments of the program.
    pub arguments: Vec<Template>,
    pub variables: Vec<(String, Template)>,
    /// A file with more variables.
    pub variables_file: Option<PathBuf>,
    pub url: Option<Template>,
    pub headers: Vec<(String, Template)>,
    pub working_directory: Option<Template>,
    pub allowed_directories: Option<Vec<Template>>,
    /// Arguments of the program for a principal that may only read.
    pub read_only_arguments: Vec<OsString>,
}

/// The session that a server is prepared for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beneficiary<'a> {
    pub(crate) key: &'a SessionKey,
    pub(crate) instance: &'a Instance,
    pub(crate) rights: &'a Rights,
    /// `None` for a probe, which runs in an empty directory.
    pub(crate) scope: Option<&'a Scope>,
}

/// The working directory in a probe.
const IN_PROBE: &str = ".";

/// Stands for session and instance in a probe.
const PROBE: &str = "probe";

/// Stands for session and instance in a process that serves several sessions.
const SHARED: &str = "shared";

impl ServerPlan {
    /// A server without templates.
    pub fn fixed(upstream: Upstream) -> Self {
        Self {
            upstream: Arc::new(upstream),
            fill: Fill::default(),
            context: ExecutionContext::Remote,
            overridable: false,
            disabled: None,
            tools: ToolRules::default(),
            start: Start::Lazy,
            storage: Storage::None,
            names: None,
            hides: Vec::new(),
        }
    }

    /// Whether it runs on a client's machine that is not this one.
    pub(crate) fn is_away(&self, terms: &Terms) -> bool {
        self.context == ExecutionContext::Local && !terms.local_is_here
    }

    /// Where the server of a session keeps data: one place for each principal and workspace.
    pub(crate) fn storage_directory(&self, terms: &Terms, whom: Beneficiary<'_>) -> Option<PathBuf> {
        let (base, scope) = (terms.storage.as_ref()?, whom.scope?);
        if self.storage == Storage::None {
            return None;
        }
        if self.upstream.lifecycle == Lifecycle::Shared {
            return Some(base.join("of everybody").join(&self.upstream.name));
        }
        let mut hash = Sha256::new();
        for path in scope.paths() {
            hash.update(path.as_os_str().as_encoded_bytes());
            hash.update([0]);
        }
        hash.update(scope.label.as_deref().unwrap_or_default());
        let workspace = hex(&hash.finalize()[..8]);
        // A principal may be called `..`.
        let principal = format!("of-{}", whom.key.principal);
        Some(base.join(principal).join(workspace).join(&self.upstream.name))
    }

    /// The upstream of one session.
    pub(crate) fn for_session(
        &self,
        terms: &Terms,
        whom: Beneficiary<'_>,
    ) -> Result<Arc<Upstream>, MissingValueError> {
        let fill = &self.fill;
        let storage = self.storage_directory(terms, whom);
        let secrets = RefCell::new(Vec::new());
        self.with_values(terms, whom, &secrets, storage.as_deref().map(Path::as_os_str), |values| {
            let texts =
                |templates: &[(String, Template)]| -> Result<Vec<(String, OsString)>, MissingValueError> {
                    templates.iter().map(|(name, value)| Ok((name.clone(), value.expand(values)?))).collect()
                };
            let mut upstream = (*self.upstream).clone();
            match &mut upstream.transport {
                Transport::Process(program) => {
                    let mut variables = fill.of_file(whom.scope)?;
                    let of_file = variables.iter().map(|(_, value)| value.to_string_lossy().into_owned());
                    secrets.borrow_mut().extend(of_file);
                    variables.extend(texts(&fill.variables)?);
                    // All sessions share one fence.
                    if self.upstream.lifecycle != Lifecycle::Shared {
                        fill.restrict(program, whom.rights.restriction);
                    }
                    fill.program(program, values, &variables)?;
                }
                Transport::Http(Address { url, headers }) => {
                    if let Some(template) = &fill.url {
                        *url = template.expand(values)?.to_string_lossy().into_owned();
                    }
                    let filled = texts(&fill.headers)?;
                    headers.extend(
                        filled.into_iter().map(|(name, value)| (name, value.to_string_lossy().into_owned())),
                    );
                }
                // Nothing to run is named; a missing variable is the better reason to report.
                Transport::Attached => drop(texts(&fill.variables)?),
            }
            upstream.redaction = Redaction::of(secrets.borrow().iter().map(String::as_str));
            Ok(Arc::new(upstream))
        })
    }

    /// The upstream of a session that it is passed through to. Only its storage can be a template.
    pub(crate) fn passed_through(&self, terms: &Terms, whom: Beneficiary<'_>) -> Arc<Upstream> {
        if self.storage == Storage::Persistent
            && let Ok(upstream) = self.for_session(terms, whom)
        {
            return upstream;
        }
        let (mut upstream, rights) = (Arc::clone(&self.upstream), whom.rights);
        if rights.restriction != Restriction::default() && upstream.lifecycle != Lifecycle::Shared {
            let own = Arc::make_mut(&mut upstream);
            if let Transport::Process(program) = &mut own.transport {
                self.fill.restrict(program, rights.restriction);
            }
        }
        upstream
    }

    /// Why a principal that may only read cannot have it. Its fence is made read-only if it is not shared.
    pub(crate) fn obstacle_for_reader(&self) -> Option<&'static str> {
        let Transport::Process(program) = &self.upstream.transport else { return None };
        let is_read_only = program.fence.as_ref().map(|fence| fence.is_read_only());
        let is_shared = self.upstream.lifecycle == Lifecycle::Shared;
        match is_read_only {
            None => Some("it has no fence, and this principal may only read"),
            Some(false) if is_shared && self.fill.allowed_directories.is_some() => {
                Some("it writes for all principals, and this one may only read")
            }
            Some(_) => None,
        }
    }

    /// The directories that the operator lets it write in, instead of those of the session.
    pub(crate) fn allowed_directories(
        &self,
        terms: &Terms,
        whom: Beneficiary<'_>,
    ) -> Option<Result<Vec<PathBuf>, MissingValueError>> {
        let templates = self.fill.allowed_directories.as_ref()?;
        let is_elsewhere = whom.scope.is_some_and(|scope| scope.roots().is_empty() && scope.label.is_some());
        let is_meant = |template: &&Template| {
            // The storage is allowed anyhow, and there is no directory here for what lies on the client's machine.
            template.0 != [Piece::Storage] && !(is_elsewhere && template.0.contains(&Piece::WorkingDirectory))
        };
        Some(self.with_values(terms, whom, &RefCell::default(), None, |values| {
            let meant = templates.iter().filter(is_meant);
            meant.map(|template| template.expand(values).map(PathBuf::from)).collect()
        }))
    }

    /// Calls `fill` with the values of a session. `secrets` receives those that it uses.
    fn with_values<T>(
        &self,
        terms: &Terms,
        whom: Beneficiary<'_>,
        secrets: &RefCell<Vec<String>>,
        storage: Option<&OsStr>,
        fill: impl FnOnce(&Values<'_>) -> Result<T, MissingValueError>,
    ) -> Result<T, MissingValueError> {
        let lifecycle = self.upstream.lifecycle;
        // A process that all sessions share gets nothing of a single one.
        let is_everybodys = lifecycle == Lifecycle::Shared;
        let workspace = whom.scope.and_then(Scope::primary).filter(|_| !is_everybodys);
        let working_directory = match (whom.scope, workspace) {
            _ if is_everybodys => None,
            (None, _) => Some(OsStr::new(IN_PROBE)),
            (Some(scope), None) if scope.label.is_some() => Some(OsStr::new(IN_PROBE)),
            (Some(_), workspace) => workspace.map(Path::as_os_str),
        };
        let probe_worker =
            (whom.scope.is_none() && self.storage == Storage::Persistent).then_some(OsStr::new(IN_PROBE));
        let principal = if is_everybodys { String::new() } else { whom.key.principal.to_string() };
        let handle = whom.key.id.handle().to_string();
        let (session_id, instance_id) = match whom.scope {
            // A probe is the same for all sessions.
            None => (PROBE, PROBE),
            Some(_) if lifecycle.serves_many() => (SHARED, SHARED),
            Some(_) => (handle.as_str(), whom.instance.as_str()),
        };
        fill(&Values {
            working_directory,
            session_id,
            instance_id,
            storage: storage.or(probe_worker),
            variable: &|name| {
                let may_know = |directory: &Path| whom.rights.knows_secrets_of(directory);
                let value = terms.secrets.find(name, &principal, workspace, may_know)?;
                secrets.borrow_mut().push(value.clone());
                Some(value)
            },
        })
    }
}

impl Fill {
    /// The variables of the file, if one is named. It must lie where the session cannot write.
    fn of_file(&self, scope: Option<&Scope>) -> Result<Vec<(String, OsString)>, MissingValueError> {
        let Some(file) = &self.variables_file else { return Ok(Vec::new()) };
        let real = file.canonicalize().unwrap_or_else(|_| file.clone());
        if scope.is_some_and(|scope| scope.paths().iter().any(|root| real.starts_with(root))) {
            return Err(MissingValueError(format!("{} outside of the workspace", file.display())));
        }
        let variables = config::read_variables(file).map_err(|error| {
            tracing::warn!(file = %file.display(), "a file of variables cannot be read: {error}");
            MissingValueError(file.display().to_string())
        })?;
        Ok(variables.into_iter().map(|(name, value)| (name, value.into())).collect())
    }

    /// Takes away what the principal may not do. A program without a fence keeps it.
    fn restrict(&self, program: &mut Program, restriction: Restriction) {
        program.fence = program.fence.take().map(|fence| fence.restricted(restriction));
        if restriction.read_only {
            program.arguments.extend(self.read_only_arguments.iter().cloned());
        }
    }

    fn program(
        &self,
        program: &mut Program,
        values: &Values<'_>,
        variables: &[(String, OsString)],
    ) -> Result<(), MissingValueError> {
        for argument in &self.arguments {
            program.arguments.push(argument.expand(values)?);
        }
        for (name, value) in variables {
            program.variables.retain(|(known, _)| known != OsStr::new(name));
            program.variables.push((name.into(), value.clone()));
        }
        if let Some(directory) = &self.working_directory {
            let directory = PathBuf::from(directory.expand(values)?);
            program.directory = directory.is_absolute().then_some(directory);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use config::SecretSource;

    use super::*;
    use identity::{Principal, SessionId};

    fn plan(lifecycle: Lifecycle, storage: Storage) -> ServerPlan {
        let program = Program {
            program: "server".into(),
            arguments: Vec::new(),
            variables: vec![("KEY".into(), "overwritten".into())],
            readable: Vec::new(),
            directory: None,
            fence: None,
            explains_refusals: false,
            keeps_state: false,
            preparation: None,
        };
        let parse = |text: &str| Template::parse(text).unwrap();
        ServerPlan {
            fill: Fill {
                arguments: vec![parse("--session={sessionId}")],
                variables: vec![("KEY".to_owned(), parse("${RINGFENCE_TEST_SECRET}"))],
                ..Fill::default()
            },
            storage,
            ..ServerPlan::fixed(Upstream::process("memory".to_owned(), program, lifecycle))
        }
    }

    fn terms(directory: &Path) -> Terms {
        let file = |name: &str| {
            let path = directory.join(name);
            std::fs::write(&path, format!("secret of {name}\n")).unwrap();
            BTreeMap::from([("RINGFENCE_TEST_SECRET".to_owned(), SecretSource::File(path))])
        };
        let principals =
            BTreeMap::from([("alice".to_owned(), file("alice")), ("..".to_owned(), file("dots"))]);
        Terms {
            names: NameMode::Prefix,
            secrets: Secrets { principals, ..Secrets::default() },
            local_is_here: true,
            storage: Some("/storage".into()),
        }
    }

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::current_exe().unwrap().with_file_name(format!("plan-unit-tests-{name}"));
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    /// The variable and the argument that a principal's server gets.
    fn filled(
        plan: &ServerPlan,
        principal: &str,
        terms: &Terms,
    ) -> Result<(OsString, OsString), MissingValueError> {
        let key = SessionKey { principal: Principal::named(principal).unwrap(), id: SessionId::random() };
        let (instance, scope) = (Instance::random(), Scope::nothing());
        let rights = Rights::default();
        let whom = Beneficiary { key: &key, instance: &instance, rights: &rights, scope: Some(&scope) };
        let upstream = plan.for_session(terms, whom)?;
        let program = upstream.program().unwrap().clone();
        assert_eq!(program.variables.len(), 1, "the configuration's value takes the place of any other");
        Ok((program.variables[0].1.clone(), program.arguments[0].clone()))
    }

    #[test]
    fn a_secret_is_its_principals_alone() {
        let terms = terms(&directory("secrets"));
        let own = plan(Lifecycle::Session, Storage::None);
        assert_eq!(filled(&own, "alice", &terms).unwrap().0, "secret of alice");
        let missing = filled(&own, "bob", &terms).unwrap_err();
        assert_eq!(missing.to_string(), "Missing RINGFENCE_TEST_SECRET");
    }

    #[test]
    fn what_everybody_shares_holds_nothing_of_anybody() {
        let terms = terms(&directory("shared"));
        filled(&plan(Lifecycle::Shared, Storage::None), "alice", &terms).unwrap_err();
        let (_, argument) = filled(&plan(Lifecycle::Workspace, Storage::None), "alice", &terms).unwrap();
        assert_eq!(argument, "--session=shared");
    }

    #[test]
    fn storage_is_apart_for_principals_and_workspaces() {
        let terms = terms(&directory("storage"));
        let plan = plan(Lifecycle::Workspace, Storage::Persistent);
        let at = |principal: &str, label: &str| {
            let key = SessionKey { principal: Principal::named(principal).unwrap(), id: SessionId::random() };
            let scope = Scope { label: Some(label.to_owned()), ..Scope::nothing() };
            let instance = Instance::random();
            plan.storage_directory(
                &terms,
                Beneficiary {
                    key: &key,
                    instance: &instance,
                    rights: &Rights::default(),
                    scope: Some(&scope),
                },
            )
            .unwrap()
        };
        assert_eq!(at("alice", "/a"), at("alice", "/a"));
        assert_ne!(at("alice", "/a"), at("alice", "/b"));
        assert_ne!(at("alice", "/a"), at("bob", "/a"));
        let outside = at("..", "/a");
        assert!(outside.starts_with("/storage/of-.."), "{outside:?}");
    }
}
