//! `ringfence connect`: beside the IDE, toward a gateway elsewhere. One client on stdin and stdout sees the servers of
//! both: those for its files run here, each in its fence, the others behind the gateway. While the gateway is away,
//! those here go on working.
//!
//! The gateway is an ordinary upstream at a URL. What it is told beside is which servers run here, so that other
//! clients of the same session reach them, too: see [`attach`].

mod attach;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use config::{Configuration, ExecutionContext, NameMode, Piece, Start, Storage, Template, ToolRules};
use parking_lot::Mutex;
use session::{
    Address, Fill, Lifecycle, ServerPlan, ServerSet, Sessions, Settings, Timeouts, Transport, Upstream,
};
use tokio::sync::mpsc;

use self::attach::Local;
use crate::arguments::ServerTask;
use crate::configuration_file::ConfigurationFile;
use crate::configured::Configured;
use crate::error::Failure;
use crate::stdio::{Client, OUTPUT_LINES, write_lines};
use crate::{logging, signals};

const EXAMPLES: &str = "\
Examples:
  ringfence connect https://gateway.example.org --token-file ~/.config/ringfence/token
      what an IDE starts: file tools for its project here, everything else on the gateway
  RINGFENCE_TOKEN=… ringfence connect http://127.0.0.1:3000 --config servers.yaml
      the local servers of a file of one's own; the gateway can start no others";

/// What the gateway is called among the servers.
const GATEWAY: &str = "gateway";

/// The gateway gives a call up first, so that the client hears its reason.
const LONGER_THAN_THE_GATEWAY: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConnectTask {
    /// Where the gateway is, such as `https://gateway.example.org`.
    url: String,
    /// A file that holds the token for the gateway. `RINGFENCE_TOKEN` may hold the token itself.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Write the URL and the id of the gateway's session to this file, for other clients of the same user.
    #[arg(long, value_name = "FILE")]
    session_file: Option<PathBuf>,
    #[command(flatten)]
    server: ServerTask,
}

pub(crate) fn run(task: ConnectTask) -> Result<(), Failure> {
    logging::start(task.server.upstream.log);
    if !task.server.upstream.command.is_empty() {
        return Err(Failure::ConfigurationAndCommand);
    }
    let base = base_url(&task.url)?;
    let token = token(task.token_file.as_deref())?;
    let configuration = match ConfigurationFile::of(&task.server)? {
        Some(file) => file.configuration,
        None => Configuration::of_built_in(),
    };
    let host_environment = Arc::new(fence::HostEnvironment::of_this_process().map_err(Failure::FenceSetup)?);
    let configured = Configured::new(&task.server, Arc::clone(&host_environment))?;
    let is_local = |server: &&config::Server| server.context == ExecutionContext::Local;
    let plans = configuration.servers.iter().filter(is_local).map(|server| configured.plan(server)).collect();
    let audit = task.server.audit_log()?;
    let local = Local {
        base,
        token,
        session_file: task.session_file,
        configuration,
        configured,
        plans,
        task: task.server,
        channel_sessions: Mutex::default(),
        audit,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(Arc::new(local)));
    // A read of stdin may still be under way on a thread of its own; it cannot be interrupted.
    runtime.shutdown_background();
    served
}

async fn serve(local: Arc<Local>) -> Result<(), Failure> {
    let audit = local.audit.clone();
    let stop = signals::stop_requested()?;
    session::adopt_orphans()?;
    let rules = local.rules()?;
    let settings = Settings { has_many_streams: false, ..local.task.settings() };
    let sessions = Sessions::new(offer(&local, &settings), settings, rules, audit.clone());
    tokio::spawn(Arc::clone(&sessions).watch());
    let (output, lines) = mpsc::channel(OUTPUT_LINES);
    let writer = tokio::spawn(write_lines(lines));
    let client = Client::new(&sessions, output, None);
    let attaching = tokio::spawn(attach::keep_attached(Arc::clone(&local), client.watch()));
    tokio::select! {
        () = client.read(local.task.upstream.max_message_bytes) => {}
        () = stop => {}
    }
    attaching.abort();
    local.end().await;
    sessions.shut_down(Duration::ZERO).await;
    let _ = writer.await;
    if let Some(audit) = audit {
        let _ = tokio::task::spawn_blocking(move || audit.close()).await;
    }
    Ok(())
}

/// The servers here, and the gateway as one more.
fn offer(local: &Local, settings: &Settings) -> ServerSet {
    let mut servers = local.plans.clone();
    servers.push(gateway(local, settings));
    ServerSet::Many { servers, terms: local.terms() }
}

fn gateway(local: &Local, settings: &Settings) -> ServerPlan {
    let mut headers = vec![
        (
            "Ringfence-Workspace".to_owned(),
            Template(vec![Piece::Text("client:".to_owned()), Piece::WorkingDirectory]),
        ),
        // Tells it from other clients of the same session.
        ("Ringfence-Instance".to_owned(), Template(vec![Piece::InstanceId])),
    ];
    if let Some(token) = &local.token {
        headers.push(("Authorization".to_owned(), Template::from(format!("Bearer {token}").as_str())));
    }
    let upstream = Upstream {
        name: GATEWAY.to_owned(),
        transport: Transport::Http(Address { url: format!("{}/mcp", local.base), headers: Vec::new() }),
        lifecycle: Lifecycle::Session,
        reports_files: false,
        timeouts: Timeouts {
            call: Some(settings.timeout + LONGER_THAN_THE_GATEWAY),
            longest_call: Some(settings.max_timeout + LONGER_THAN_THE_GATEWAY),
            start: None,
        },
        // It says itself which of its servers do not answer.
        is_guarded: false,
    };
    ServerPlan {
        upstream: Arc::new(upstream),
        fill: Fill { headers, ..Fill::default() },
        context: ExecutionContext::Remote,
        overridable: false,
        disabled: None,
        tools: ToolRules::default(),
        start: Start::Eager,
        storage: Storage::None,
        // Its names are unique already.
        names: Some(NameMode::None),
        hides: local.names(),
    }
}

fn base_url(url: &str) -> Result<String, Failure> {
    let is_http = url.starts_with("http://") || url.starts_with("https://");
    if !is_http {
        return Err(Failure::BadGatewayUrl(url.to_owned()));
    }
    let base = url.trim_end_matches('/');
    Ok(base.strip_suffix("/mcp").unwrap_or(base).to_owned())
}

fn token(file: Option<&std::path::Path>) -> Result<Option<String>, Failure> {
    let Some(file) = file else {
        return Ok(std::env::var("RINGFENCE_TOKEN").ok().filter(|token| !token.is_empty()));
    };
    let failed = |error| Failure::Directory { path: file.to_owned(), error };
    let text = std::fs::read_to_string(file).map_err(failed)?;
    Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty()))
}
