//! `ringfence session start` and `resume`: make a copy, and say or serve its endpoint.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use fence::{HostEnvironment, VettedDirectory, become_program, git_directories_beside};
use jiff::Timestamp;
use serde_json::json;
use staging::{Begun, Event, Method, NewCopy, NewTree, SetUp, StartCommit, WorkspaceCopy, WorkspaceName};

use super::commits::Repository;
use super::fenced_program::{FencedPrograms, Ground};
use super::listing::{printable, short};
use super::{AsJson, SessionCommandError, endpoint, open_workspaces};
use crate::clients::Client;
use crate::discovery;
use crate::error::Error;
use crate::output::print_line;
use crate::own_program::own_program;
use crate::register::{self, RegisterArguments};

/// The output of the set-up command, beside the record.
pub(super) const SET_UP_LOG: &str = "set-up.log";

#[derive(Debug, Args)]
pub(super) struct StartArguments {
    /// The name of the workspace. By default, one made from the project's.
    name: Option<WorkspaceName>,
    /// The project. By default, the working directory.
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Begin at this branch, tag or commit instead of the files as they are.
    #[arg(long, value_name = "REF", conflicts_with = "clean")]
    base: Option<String>,
    /// Begin at the commit that is checked out, without the project's uncommitted changes.
    #[arg(long)]
    clean: bool,
    /// Make the copy so: overlay, reflink or copy. By default, the first of them that works here.
    #[arg(long)]
    method: Option<Method>,
    /// Take this file along although it looks like a secret (repeatable). `.worktreeinclude` in the project lists such
    /// files, too.
    #[arg(long, value_name = "PATH")]
    include_secret: Vec<PathBuf>,
    /// Run this command in the copy, inside a fence, before anything else: npm ci.
    #[arg(long, value_name = "COMMAND")]
    set_up: Option<OsString>,
    #[command(flatten)]
    endpoint: EndpointOptions,
}

#[derive(Debug, Args)]
pub(super) struct ResumeArguments {
    /// The workspace.
    name: String,
    #[command(flatten)]
    endpoint: EndpointOptions,
}

/// How clients reach the workspace.
#[derive(Debug, Args)]
struct EndpointOptions {
    /// Print the endpoint of the workspace at the gateway that this user runs. Without one, become the gateway.
    #[arg(long)]
    mcp: bool,
    /// Serve at this address, whichever gateways run.
    #[arg(long, requires = "mcp")]
    host: Option<String>,
    /// Serve at this port, whichever gateways run; 0 takes any free one.
    #[arg(long, requires = "mcp")]
    port: Option<u16>,
    /// Serve over HTTP, or one client on stdin and stdout.
    #[arg(long, value_enum, requires = "mcp", default_value_t = Transport::Http)]
    transport: Transport,
    /// Add the endpoint to the configuration of this client (repeatable).
    #[arg(long, value_enum, value_name = "CLIENT", requires = "mcp")]
    register: Vec<Client>,
    #[command(flatten)]
    output: AsJson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    Http,
    Stdio,
}

pub(super) fn run(arguments: &StartArguments) -> Result<ExitCode, Error> {
    own_program()?;
    let began = Instant::now();
    let made = make(arguments)?;
    let details = Details { seconds: began.elapsed().as_secs_f64(), tried: made.tried };
    offer(&made.copy, &arguments.endpoint, Some(&details))?;
    match made.copy.record().set_up.as_ref().map(|set_up| set_up.exit_code) {
        Some(code) if code != Some(0) => {
            let how = code.map_or_else(
                || "no exit code: it took too long".to_owned(),
                |code| format!("exit code {code}"),
            );
            Err(SessionCommandError::SetUp(how).into())
        }
        _ => serve_if_asked(&made.copy, &arguments.endpoint),
    }
}

pub(super) fn resume(arguments: &ResumeArguments) -> Result<ExitCode, Error> {
    own_program()?;
    let copy = open_workspaces()?.find(&arguments.name).map_err(SessionCommandError::from)?;
    offer(&copy, &arguments.endpoint, None)?;
    serve_if_asked(&copy, &arguments.endpoint)
}

/// A new copy.
struct Made {
    copy: WorkspaceCopy,
    tried: Vec<String>,
}

fn make(arguments: &StartArguments) -> Result<Made, SessionCommandError> {
    let workspaces = open_workspaces()?;
    let programs = FencedPrograms::new()?;
    let base = project_of(arguments, programs.host())?;
    let start = start_commit(arguments, &programs, &base)?;
    let new = NewCopy {
        name: arguments.name.clone(),
        beside: git_directories(&base, programs.host()),
        include_secrets: arguments.include_secret.clone(),
        start: start.clone(),
        ..NewCopy::of(base.path(), Method::Overlay)
    };
    let methods = match arguments.method {
        Some(method) => vec![method],
        None => workspaces.methods(base.path()),
    };
    if std::io::stderr().is_terminal() {
        eprintln!("copying {} …", printable(base.path()));
    }
    let begun = workspaces.begin(&new, &methods)?;
    let tried = begun.tried.iter().map(|(method, error)| format!("{method}: {}", reason(error))).collect();
    let Some(start) = start.filter(|_| arguments.clean || arguments.base.is_some()) else {
        let copy = set_up(begun, arguments.set_up.as_deref(), &programs, &base)?;
        return Ok(Made { copy, tried });
    };
    match check_out(&begun, &programs, &base, &start) {
        Ok(()) => {
            let copy = set_up(begun, arguments.set_up.as_deref(), &programs, &base)?;
            Ok(Made { copy, tried })
        }
        Err(error) => {
            let Begun { copy, staged, .. } = begun;
            drop(staged);
            if let Err(error) = workspaces.remove(copy) {
                eprintln!("ringfence: {error}");
            }
            Err(error)
        }
    }
}

/// The error and what is behind it.
fn reason(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn project_of(
    arguments: &StartArguments,
    host: &HostEnvironment,
) -> Result<VettedDirectory, SessionCommandError> {
    let path = match &arguments.project {
        Some(path) => path.clone(),
        None => std::env::current_dir()?,
    };
    let path = path.canonicalize().unwrap_or(path);
    Ok(host.vet_named(&path)?)
}

fn git_directories(base: &VettedDirectory, host: &HostEnvironment) -> Vec<NewTree> {
    let beside = git_directories_beside(base, host).into_iter();
    beside.map(|git| NewTree { base: git.directory.path().to_owned(), worktree: git.worktree }).collect()
}

/// The commit that the copy begins at. None for a project without commits.
fn start_commit(
    arguments: &StartArguments,
    programs: &FencedPrograms,
    base: &VettedDirectory,
) -> Result<Option<StartCommit>, SessionCommandError> {
    let repository = Repository { programs, base };
    let Some(name) = &arguments.base else {
        let head = repository.head();
        return if head.is_none() && arguments.clean {
            Err(SessionCommandError::NoRepository(base.path().to_owned()))
        } else {
            Ok(head)
        };
    };
    let id = repository.commit(name).ok_or_else(|| SessionCommandError::NoCommit(name.clone()))?;
    let branch = format!("refs/heads/{name}");
    let reference = repository.commit(&branch).map(|_| branch);
    Ok(Some(StartCommit { id, reference }))
}

/// Sets the files of a new copy to its commit, and lets the copy begin there. Everything of git that runs for it runs in
/// the fence of the copy.
fn check_out(
    begun: &Begun,
    programs: &FencedPrograms,
    base: &VettedDirectory,
    start: &StartCommit,
) -> Result<(), SessionCommandError> {
    let ground = Ground::Copy(base, &begun.staged);
    let branch = start.reference.as_deref().and_then(|name| name.strip_prefix("refs/heads/"));
    let mut switch = vec!["switch", "--quiet", "--discard-changes", "--ignore-other-worktrees"];
    match branch {
        Some(branch) => switch.push(branch),
        None => switch.extend(["--detach", &start.id]),
    }
    let reset = ["reset", "--quiet", "--hard"];
    let clean = ["clean", "--quiet", "--force", "-d"];
    for words in [&switch[..], &reset, &clean] {
        let finished = programs.git(ground, words.iter().copied())?.ok_or(SessionCommandError::NoGit)?;
        finished.success("set the files of the copy to the commit")?;
    }
    Ok(begun.copy.begin_here()?)
}

/// Runs the set-up command, and gives the copy free.
fn set_up(
    begun: Begun,
    script: Option<&OsStr>,
    programs: &FencedPrograms,
    base: &VettedDirectory,
) -> Result<WorkspaceCopy, SessionCommandError> {
    let Begun { mut copy, staged, .. } = begun;
    let Some(script) = script else { return Ok(copy) };
    let log = copy.directory().join(SET_UP_LOG);
    let log = OpenOptions::new().write(true).create_new(true).mode(0o600).open(log)?;
    let code = programs.script((base, &staged), script, log)?;
    let command = script.to_string_lossy().into_owned();
    copy.update(|record| {
        let finished = Some(Timestamp::now());
        record.set_up = Some(SetUp { command: command.clone(), exit_code: code, finished });
    })?;
    copy.note(Event::SetUp { command, exit_code: code })?;
    Ok(copy)
}

/// What is told of a new copy alone.
struct Details {
    seconds: f64,
    /// Methods that did not work, each with the reason.
    tried: Vec<String>,
}

/// Prints the workspace and how clients reach it. With stdio, stdout belongs to the client.
fn offer(copy: &WorkspaceCopy, options: &EndpointOptions, details: Option<&Details>) -> Result<(), Error> {
    let say = |line: &str| match options.transport {
        Transport::Http => print_line(line),
        Transport::Stdio => eprintln!("{line}"),
    };
    let endpoint = endpoint_of(copy, options);
    if options.output.json {
        say(&as_json(copy, endpoint.as_deref(), details).to_string());
    } else {
        describe(copy, details, &say);
        if let Some(endpoint) = &endpoint {
            say(&format!("endpoint   {endpoint}"));
            for (client, text) in endpoint::snippets(copy.name(), endpoint) {
                say(&format!("{client:<12}{text}"));
            }
        } else if !options.mcp {
            let name = copy.name();
            say(&format!(
                "next       ringfence session resume {name} --mcp, or connect to /mcp/w/{name} of a gateway"
            ));
        }
    }
    for client in &options.register {
        let url = endpoint.clone().ok_or(SessionCommandError::NoEndpoint)?;
        register::run(&RegisterArguments::for_url(*client, copy.name(), url))?;
    }
    Ok(())
}

fn describe(copy: &WorkspaceCopy, details: Option<&Details>, say: &dyn Fn(&str)) {
    let record = copy.record();
    let time = details.map(|details| format!(", made in {:.2} s", details.seconds)).unwrap_or_default();
    say(&format!("{}: a copy of {} by {}{time}", record.name, printable(record.base_path()), record.method));
    for tried in details.iter().flat_map(|details| &details.tried) {
        say(&format!("not by     {tried}"));
    }
    if let Some(start) = &record.start {
        let reference = start.reference.as_deref().unwrap_or("a detached head");
        say(&format!("commit     {} ({reference})", short(&start.id)));
    }
    for path in &record.left_out {
        say(&format!(
            "left out   {} (looks like a secret; --include-secret takes it along)",
            printable(path)
        ));
    }
    for path in &record.not_copied {
        say(&format!("left out   {} (no file, link or directory)", printable(path)));
    }
}

fn as_json(copy: &WorkspaceCopy, endpoint: Option<&str>, details: Option<&Details>) -> serde_json::Value {
    let record = copy.record();
    let printed = |paths: &[PathBuf]| paths.iter().map(|path| printable(path)).collect::<Vec<_>>();
    json!({
        "event": "workspace",
        "name": record.name,
        "path": printable(record.base_path()),
        "method": record.method,
        "tried": details.map(|details| &details.tried),
        "seconds": details.map(|details| details.seconds),
        "start": record.start,
        "left_out": printed(&record.left_out),
        "not_copied": printed(&record.not_copied),
        "set_up": record.set_up,
        "endpoint": endpoint,
        "snippets": endpoint.map(|endpoint| {
            let snippets = endpoint::snippets(copy.name(), endpoint).into_iter();
            snippets.map(|(client, text)| json!({ "client": client, "text": text })).collect::<Vec<_>>()
        }),
    })
}

/// The endpoint, as far as it is known before a gateway serves it.
fn endpoint_of(copy: &WorkspaceCopy, options: &EndpointOptions) -> Option<String> {
    if options.transport == Transport::Stdio {
        return None;
    }
    if !options.must_serve()
        && let Some(running) = endpoint::of_running(copy.name()).into_iter().next()
    {
        return Some(running);
    }
    let host = options.host.as_deref().unwrap_or("127.0.0.1");
    let host =
        if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    let port = options.port.unwrap_or(3000);
    let is_known = options.mcp && port != 0;
    is_known.then(|| endpoint::at(&format!("http://{host}:{port}"), copy.name()))
}

impl EndpointOptions {
    /// Whether the user asks for a gateway of the workspace's own.
    fn must_serve(&self) -> bool {
        self.host.is_some() || self.port.is_some() || self.transport == Transport::Stdio
    }
}

/// Becomes the gateway of the workspace, if the user wants an endpoint and no gateway has it.
fn serve_if_asked(copy: &WorkspaceCopy, options: &EndpointOptions) -> Result<ExitCode, Error> {
    let host = HostEnvironment::of_this_process()?;
    let has_gateway = !discovery::running(host.outside()).is_empty();
    if !options.mcp || (has_gateway && !options.must_serve()) {
        return Ok(ExitCode::SUCCESS);
    }
    // The program that serves has a command line of its own, so that it can be upgraded.
    let words = words_of_server(copy.name(), options);
    let arguments: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    // In the project: its name is what errors and logs of a gateway without clients tell of.
    std::env::set_current_dir(copy.record().base_path())?;
    Err(become_program(&own_program()?.started_as, &arguments, std::env::vars_os(), &[]).into())
}

/// The command line that serves a workspace.
fn words_of_server(name: &str, options: &EndpointOptions) -> Vec<String> {
    let mut words = match options.transport {
        Transport::Stdio => vec!["stdio".to_owned()],
        Transport::Http => {
            let host = options.host.as_deref().unwrap_or("127.0.0.1");
            let port = options.port.unwrap_or(3000).to_string();
            let mut words = ["serve", "--host", host, "--port", &port].map(str::to_owned).to_vec();
            words.extend(options.output.json.then(|| "--json".to_owned()));
            words
        }
    };
    words.extend(["--session-workspace".to_owned(), name.to_owned()]);
    words
}
