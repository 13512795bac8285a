//! `ringfence connect`: one client on stdin and stdout, with servers for its files here and the rest on a gateway.

use std::path::{Path, PathBuf};

use clap::Args;
use config::{Configuration, ExecutionContext};
use connect::{Connection, GatewayAddress, GatewaySession};

use crate::audit_options::close_audit_log;
use crate::error::Error;
use crate::guarded_host::TrustedFiles;
use crate::server_options::ServerOptions;
use crate::servers::{ClientPlace, ConfigurationFile, ServerPlanner, guarded_host, scope_rules};
use crate::{environment, logging, signals, text_file};

const EXAMPLES: &str = "\
Examples:
  ringfence connect https://gateway.example.org --token-file ~/.config/ringfence/token
      an IDE starts this: file tools for its project here, everything else on the gateway
  ringfence connect https://gateway.internal:8443 --ca company-ca.pem --token-file token
      trusts the company's own authority
  RINGFENCE_TOKEN=… ringfence connect http://127.0.0.1:3000 --config servers.yaml
      runs the local servers of this file; the gateway can start no others
  ssh -N -L 3000:127.0.0.1:3000 gateway.example.org & ringfence connect http://127.0.0.1:3000
      reaches a gateway without TLS through a tunnel; plain HTTP to another machine is refused";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConnectArguments {
    /// The gateway's URL, such as `https://gateway.example.org`. `http://` is accepted only for this machine itself
    /// (127.0.0.0/8, `::1`, localhost).
    url: String,
    /// Read the token for the gateway from this file, which no other user may read (mode 600). Without it, the token
    /// is taken from `RINGFENCE_TOKEN`.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Trust the certificates of this PEM file, too: those of a gateway with its own authority, or its own certificate.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Write the URL and id of the gateway's session to this file, for other clients of the same user.
    #[arg(long, value_name = "FILE")]
    session_file: Option<PathBuf>,
    #[command(flatten)]
    server: ServerOptions,
}

impl ConnectArguments {
    /// The files by which this end knows its gateway, and the gateway and other clients know this end.
    fn trusted_files(&self) -> TrustedFiles {
        let named = [&self.token_file, &self.ca, &self.session_file];
        TrustedFiles {
            what: "a file that decides which gateway is trusted, and by whom",
            files: named.into_iter().flatten().cloned().collect(),
        }
    }
}

pub(crate) fn run(mut arguments: ConnectArguments) -> Result<(), Error> {
    logging::start(arguments.server.upstream.log);
    // No fenced server may read the token. A link must not lead around the rule.
    let token_file = arguments.token_file.as_ref().and_then(|path| path.canonicalize().ok());
    arguments.server.fence.deny_read.extend(token_file);
    if let Some(file) = &arguments.ca {
        upstream::http::trust(file).map_err(|error| Error::Certificates { path: file.clone(), error })?;
    }
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
    let gateway = GatewayAddress::new(&arguments.url, token(arguments.token_file.as_deref())?)?;
    let file = ConfigurationFile::of(options)?;
    let host = guarded_host(options, file.as_ref(), arguments.trusted_files())?;
    let configuration = file.map_or_else(Configuration::of_built_in, |file| file.configuration);
    let planner = ServerPlanner::new(options, &host)?;
    let is_local = |server: &&config::Server| server.context == ExecutionContext::Local;
    Ok(Connection {
        gateway,
        servers: configuration.servers.iter().filter(is_local).map(|server| planner.plan(server)).collect(),
        terms: planner.terms(&configuration, ClientPlace::Stdin),
        settings: options.settings(),
        audit: options.upstream.audit.open()?,
        rules: scope_rules(options, &host)?,
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
    match file {
        Some(file) => Ok(Some(config::read_token(file)?)),
        None => Ok(std::env::var("RINGFENCE_TOKEN").ok().filter(|token| !token.is_empty())),
    }
}
