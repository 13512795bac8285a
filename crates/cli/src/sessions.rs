//! `ringfence sessions`: lists, shows, labels, stops and prunes the sessions of running gateways.

mod context;
mod pruning;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use fence::HostEnvironment;
use reqwest::Method;
use serde_json::{Value, json};

use self::context::{context_lines, label_change, name_and_labels, query};
use self::pruning::{PruneArguments, Pruning};
use crate::discovery;
use crate::error::Error;
use crate::operator_client::{Answer, Asked, OperatorClient, text};
use crate::output::print_line;

const EXAMPLES: &str = "\
Examples:
  ringfence sessions list
  ringfence sessions list --json
  ringfence sessions list --search 'release shop' --label ticket=AB-1
  ringfence sessions show s-1a2b3c4d
  ringfence sessions label s-1a2b3c4d ticket=AB-1 urgent --remove old --name 'release 7'
  ringfence sessions note s-1a2b3c4d 'waits for the review'
  ringfence sessions stop s-1a2b3c4d
      ends the session and its processes; its client starts a new one when it needs one
  ringfence sessions prune --older-than 7d --dry-run
      shows which sessions of clients that have not come back would be forgotten
  ringfence sessions prune --all-stored --state-dir /srv/ringfence
      the same for good, where a gateway that does not run now has kept them

Exit codes: 0 done, 1 no such session, refused, or no gateway runs, 2 bad arguments";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SessionsArguments {
    #[command(subcommand)]
    command: SessionsCommand,
    /// Ask only the gateway at this URL, such as `http://127.0.0.1:3000`.
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// List all sessions of the gateways that this user runs.
    List {
        /// Only those with all these words in name, labels, notes, clients, directories, principal or handle.
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        /// Only those with this label, or this value of it. Repeatable.
        #[arg(long, value_name = "K[=V]")]
        label: Vec<String>,
    },
    /// Show one session with its notes, its processes and their fence.
    Show {
        /// The session's handle, as list shows it.
        session: String,
    },
    /// Give a session labels and a name, to find it by.
    Label {
        /// The session's handle, as list shows it.
        session: String,
        /// `key=value` or a word.
        labels: Vec<String>,
        /// Remove this label. Repeatable.
        #[arg(long, value_name = "KEY")]
        remove: Vec<String>,
        /// The session's name; an empty one removes it.
        #[arg(long)]
        name: Option<String>,
    },
    /// Add a note to a session, for those who go on with it.
    Note {
        /// The session's handle, as list shows it.
        session: String,
        #[arg(required_unless_present = "remove")]
        text: Option<String>,
        /// Remove the note with this id, as show tells it.
        #[arg(long, value_name = "ID")]
        remove: Option<u32>,
    },
    /// End a session and its processes.
    Stop {
        /// The session's handle, as list shows it.
        session: String,
    },
    /// Forget stored sessions: those of an earlier gateway whose clients have not come back.
    Prune(PruneArguments),
}

pub(crate) fn run(arguments: &SessionsArguments) -> Result<ExitCode, Error> {
    if let SessionsCommand::Prune(prune) = &arguments.command
        && let Some(directory) = &prune.state_dir
    {
        Pruning { arguments: prune, json: arguments.json }.in_directory(directory)?;
        return Ok(ExitCode::SUCCESS);
    }
    let host_environment = HostEnvironment::of_this_process()?;
    let mut gateways = discovery::running(host_environment.outside());
    if let Some(url) = &arguments.url {
        // Only ports are compared: an address has many spellings, and each gateway of a host has its own port.
        let port = |url: &str| {
            url.trim_end_matches('/').trim_end_matches("/mcp").rsplit(':').next().map(str::to_owned)
        };
        gateways.retain(|gateway| port(&gateway.url) == port(url));
    }
    if gateways.is_empty() {
        return Err(Error::NoGateway);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let gateways: Vec<OperatorClient<'_>> = gateways
        .into_iter()
        .map(|gateway| OperatorClient::new(gateway, host_environment.outside(), &runtime))
        .collect::<Result<_, Error>>()?;
    match &arguments.command {
        SessionsCommand::List { search, label } => {
            list(&gateways, &query(search.as_deref(), label), arguments.json);
        }
        SessionsCommand::Show { session } => {
            let mut found = find(&gateways, &Asked::get(session))?;
            let said = find(&gateways, &Asked::get(&format!("{session}/context")))?;
            found["context"] = said;
            print_line(&if arguments.json { format!("{found:#}") } else { described(&found) });
        }
        SessionsCommand::Label { session, labels, remove, name } => {
            let change = label_change(labels, remove, name.as_deref());
            change_context(&gateways, session, change, arguments.json)?;
        }
        SessionsCommand::Note { session, text, remove } => {
            let mut change = json!({});
            if let Some(text) = text {
                change["note"] = text.as_str().into();
            }
            if let Some(id) = remove {
                change["removeNote"] = (*id).into();
            }
            change_context(&gateways, session, change, arguments.json)?;
        }
        SessionsCommand::Stop { session } => {
            let stopped = find(&gateways, &Asked { method: Method::DELETE, ..Asked::get(session) })?;
            print_line(&if arguments.json { stopped.to_string() } else { format!("{session} was stopped") });
        }
        SessionsCommand::Prune(prune) => Pruning { arguments: prune, json: arguments.json }.at(&gateways),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the answer of the first gateway that has the session.
fn find(gateways: &[OperatorClient<'_>], asked: &Asked) -> Result<Value, Error> {
    for gateway in gateways {
        match gateway.ask(asked) {
            Some(Answer::Found(found)) => return Ok(found),
            Some(Answer::Refused(reason)) => return Err(Error::SessionRefused(reason)),
            Some(Answer::Unknown) | None => {}
        }
    }
    Err(Error::NoSuchSession)
}

/// Changes what is said about a session, and prints what is said now.
fn change_context(
    gateways: &[OperatorClient<'_>],
    session: &str,
    change: Value,
    as_json: bool,
) -> Result<(), Error> {
    let path = format!("{session}/context");
    let said = find(gateways, &Asked { method: Method::PATCH, path, body: Some(change) })?;
    print_line(&if as_json { format!("{said:#}") } else { context_lines(&said).join("\n") });
    Ok(())
}

fn list(gateways: &[OperatorClient<'_>], query: &str, as_json: bool) {
    let mut sessions = Vec::new();
    for gateway in gateways {
        let Some(Answer::Found(mut answer)) = gateway.ask(&Asked::get(query)) else { continue };
        let Value::Array(found) = answer["sessions"].take() else { continue };
        sessions.extend(found.into_iter().map(|mut session| {
            session["gateway"] = gateway.discovered.url.clone().into();
            session
        }));
    }
    if as_json {
        return print_line(&format!("{:#}", json!({ "sessions": sessions })));
    }
    if sessions.is_empty() {
        return print_line("no sessions");
    }
    let bold =
        |text: String| if std::io::stdout().is_terminal() { format!("\x1b[1m{text}\x1b[0m") } else { text };
    print_line(&bold(row([
        "SESSION",
        "STATE",
        "PRINCIPAL",
        "CLIENT",
        "FENCE",
        "CALLS",
        "MEMORY",
        "IDLE",
        "SCOPE",
        "NAME",
    ]
    .map(str::to_owned))));
    for session in &sessions {
        print_line(&row([
            text(&session["session"]),
            text(&session["state"]),
            text(&session["principal"]),
            text(&session["client"]),
            fence(session).to_owned(),
            session["calls"].to_string(),
            memory(session),
            format!("{:.0} s", session["idle_seconds"].as_f64().unwrap_or_default()),
            format!("{}{}", scope(session), if is_default(session) { " (default)" } else { "" }),
            name_and_labels(session),
        ]));
    }
}

fn row([session, state, principal, client, fence, calls, memory, idle, scope, name]: [String; 10]) -> String {
    let row = format!(
        "{session:<12} {state:<15} {principal:<12} {client:<24} {fence:<9} {calls:>7} {memory:>9} {idle:>8}  {scope}  {name}"
    );
    row.trim_end().to_owned()
}

/// What holds around the session's processes, as one word: the weakest of them.
fn fence(session: &Value) -> &'static str {
    let workers: Vec<&Value> = session["workers"].as_array().into_iter().flatten().collect();
    let any = |kind: &str| workers.iter().any(|worker| worker["fence"] == kind);
    if any("unfenced") {
        "none"
    } else if workers.iter().any(|worker| worker["confinement"].is_string()) {
        "holds"
    } else if any("fenced") {
        // Its server does not run now.
        "idle"
    } else {
        "-"
    }
}

/// Whether the client named no directory.
fn is_default(session: &Value) -> bool {
    session["scope_source"] == "default"
}

fn described(session: &Value) -> String {
    let mut lines = vec![
        format!("session     {} ({})", text(&session["session"]), text(&session["state"])),
        format!("principal   {}", text(&session["principal"])),
        format!("client      {} (instance {})", text(&session["client"]), text(&session["instance"])),
        format!("scope       {} ({})", scope(session), scope_origin(session)),
        format!("since       {}, {} restarts of the gateway", text(&session["created"]), session["restarts"]),
        format!(
            "calls       {} ({} failed, {} running)",
            session["calls"], session["errors"], session["in_flight"]
        ),
        format!(
            "age         {:.0} s, idle for {:.0} s",
            session["age_seconds"].as_f64().unwrap_or_default(),
            session["idle_seconds"].as_f64().unwrap_or_default()
        ),
    ];
    let said = &session["context"];
    let agents: Vec<String> =
        said["agents"].as_array().into_iter().flatten().map(|agent| text(&agent["name"])).collect();
    lines.push(format!("used by     {}", agents.join(", ")));
    lines.extend(context_lines(said));
    let unavailable: Vec<&Value> = session["unavailable"].as_array().into_iter().flatten().collect();
    for worker in session["workers"].as_array().into_iter().flatten() {
        lines.push(format!(
            "worker      {} {}, pid {}, generation {}, {} processes, {}, {:.2} s of processor time",
            text(&worker["upstream"]),
            text(&worker["state"]),
            worker["pid"],
            worker["generation"],
            worker["processes"],
            format_args!("{} MiB", worker["pss_bytes"].as_u64().unwrap_or_default() >> 20),
            worker["cpu_seconds"].as_f64().unwrap_or_default(),
        ));
        let is_told_below = unavailable.iter().any(|server| server["server"] == worker["upstream"]);
        if worker["reason"].is_string() && !is_told_below {
            lines.push(format!("reason      {}", text(&worker["reason"])));
        }
        lines.push(format!("fence       {}", fence_of_worker(worker)));
    }
    for server in unavailable {
        lines.push(format!("unavailable {}: {}", text(&server["server"]), text(&server["reason"])));
    }
    lines.join("\n")
}

fn fence_of_worker(worker: &Value) -> &str {
    match (worker["confinement"].as_str(), worker["fence"].as_str()) {
        (Some(confinement), _) => confinement,
        (None, Some("unfenced")) => "none: it runs without a fence",
        (None, Some("elsewhere")) => "none here: it is no process of this machine",
        (None, _) => "stands by: its process does not run now",
    }
}

fn scope_origin(session: &Value) -> String {
    match session["scope_source"].as_str() {
        Some("default") => "the default: the client named no directory".to_owned(),
        Some("roots") => "from the client's roots".to_owned(),
        Some("workspace") => "named by the header or the URL".to_owned(),
        Some("elsewhere") => "on the client's machine".to_owned(),
        Some(other) => format!("from {other}"),
        None => "not known yet".to_owned(),
    }
}

fn scope(session: &Value) -> String {
    let paths: Vec<String> = session["scope"].as_array().into_iter().flatten().map(text).collect();
    if paths.is_empty() { "-".to_owned() } else { paths.join(", ") }
}

fn memory(session: &Value) -> String {
    let workers = session["workers"].as_array().into_iter().flatten();
    let bytes: u64 = workers.filter_map(|worker| worker["pss_bytes"].as_u64()).sum();
    format!("{} MiB", bytes >> 20)
}
