//! `ringfence connect`: one client on stdin and stdout, with servers for its files here and the rest on a gateway.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use config::{Configuration, ExecutionContext};
use connect::{Connection, GatewayAddress, GatewaySession};
use fence::HostEnvironment;

use crate::error::Error;
use crate::server_options::{ServerOptions, close_audit_log};
use crate::servers::{ClientPlace, ConfigurationFile, ServerPlanner};
use crate::{environment, logging, signals, text_file};

const EXAMPLES: &str = "\
Examples:
  ringfence connect https://gateway.example.org --token-file ~/.config/ringfence/token
      an IDE starts this: file tools for its project here, everything else on the gateway
  RINGFENCE_TOKEN=… ringfence connect http://127.0.0.1:3000 --config servers.yaml
      runs the local servers of this file; the gateway can start no others";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConnectArguments {
    /// The gateway's URL, such as `https://gateway.example.org`.
    url: String,
    /// Read the token for the gateway from this file. Without it, the token is taken from `RINGFENCE_TOKEN`.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Write the URL and id of the gateway's session to this file, for other clients of the same user.
    #[arg(long, value_name = "FILE")]
    session_file: Option<PathBuf>,
    #[command(flatten)]
    server: ServerOptions,
}

pub(crate) fn run(arguments: ConnectArguments) -> Result<(), Error> {
    logging::start(arguments.server.upstream.log);
    let connection = connection(arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(connection));
    // A read of stdin may still block a thread, and cannot be interrupted.
    runtime.shutdown_background();
    served
}

async fn serve(connection: Connection) -> Result<(), Error> {
    let audit = connection.audit.clone();
    let stop = signals::stop_requested()?;
    upstream::adopt_orphans()?;
    connect::serve_connected(connection, stop).await;
    close_audit_log(audit).await;
    Ok(())
}

fn connection(arguments: ConnectArguments) -> Result<Connection, Error> {
    let options = &arguments.server;
    if !options.upstream.command.is_empty() {
        return Err(Error::ConfigurationAndCommand);
    }
    let token = token(arguments.token_file.as_deref())?;
    let gateway = GatewayAddress::new(&arguments.url, token)?;
    let configuration = match ConfigurationFile::of(options)? {
        Some(file) => file.configuration,
        None => Configuration::of_built_in(),
    };
    let host_environment = Arc::new(HostEnvironment::of_this_process()?);
    let planner = ServerPlanner::new(options, Arc::clone(&host_environment))?;
    let is_local = |server: &&config::Server| server.context == ExecutionContext::Local;
    Ok(Connection {
        gateway,
        servers: configuration.servers.iter().filter(is_local).map(|server| planner.plan(server)).collect(),
        terms: planner.terms(&configuration, ClientPlace::Stdin),
        settings: options.settings(),
        audit: options.audit_log()?,
        rules: options.scope.rules(&options.fence.scope, &host_environment)?,
        instance: environment::instance(),
        on_gateway_session: Box::new(move |session| {
            if let Some(file) = &arguments.session_file {
                publish(file, session);
            }
        }),
    })
}

/// Lets other clients of this user find the session. The id is a credential, so only this user may read the file.
fn publish(file: &Path, session: &GatewaySession) {
    let text = serde_json::json!({ "url": session.url, "sessionId": session.id }).to_string();
    if let Err(error) = text_file::write_private(file, &text) {
        tracing::error!("cannot write {}: {error}", file.display());
    }
}

fn token(file: Option<&Path>) -> Result<Option<String>, Error> {
    let Some(file) = file else {
        return Ok(std::env::var("RINGFENCE_TOKEN").ok().filter(|token| !token.is_empty()));
    };
    let failed = |error| Error::TokenFile { path: file.to_owned(), error };
    let text = std::fs::read_to_string(file).map_err(failed)?;
    Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty()))
}
