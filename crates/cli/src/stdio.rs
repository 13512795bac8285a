//! `ringfence stdio`: one client on stdin and stdout instead of HTTP.

use std::sync::Arc;

use session::{Sessions, Settings};
use upstream::Lifecycle;

use crate::audit_options::close_audit_log;
use crate::error::Error;
use crate::guarded_host::TrustedFiles;
use crate::server_options::ServerOptions;
use crate::servers::{ClientPlace, Servers};
use crate::{environment, logging, signals};

pub(crate) const EXAMPLES: &str = "\
Examples:
  ringfence stdio
      file, search, edit and shell tools for the client's workspace
  ringfence stdio -- npx -y @modelcontextprotocol/server-filesystem .
      an IDE starts this instead of the server: the same server, confined to the window's project
  ringfence stdio --scope . --net none -- ./my-server
      the same for a client without roots";

pub(crate) fn run(options: &ServerOptions) -> Result<(), Error> {
    logging::start(options.upstream.log);
    let servers = Servers::of(options, Lifecycle::Session, ClientPlace::Stdin, TrustedFiles::none())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(options, servers));
    // A read of stdin may still block a thread, and cannot be interrupted.
    runtime.shutdown_background();
    served
}

async fn serve(options: &ServerOptions, servers: Servers) -> Result<(), Error> {
    let audit = options.upstream.audit.open()?;
    let stop = signals::stop_requested()?;
    upstream::adopt_orphans()?;
    let settings = Settings { has_many_streams: false, ..options.settings() };
    let max_message = settings.max_message;
    let sessions = Sessions::new(servers.set, settings, servers.rules, audit.clone(), None);
    tokio::spawn(Arc::clone(&sessions).watch());
    connect::serve_stdio(sessions, environment::instance(), max_message, stop).await;
    drop(servers.package);
    close_audit_log(audit).await;
    Ok(())
}
