//! What `ringfence config check` finds out about each server beside its entry: whether its program exists here, and with
//! `--start`, whether it starts and what it offers.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use clap::Parser;
use config::{Piece, Server, Template, Transport};
use session::Sessions;
use upstream::Lifecycle;

use crate::error::Error;
use crate::guarded_host::TrustedFiles;
use crate::logging;
use crate::server_options::ServerOptions;
use crate::servers::{ClientPlace, Servers};

/// The number of tools of each server by its name, or why it does not start.
pub(super) type Trials = BTreeMap<String, Result<usize, String>>;

/// Why the program of a server cannot be run here. `None` for a server that is no command.
pub(super) fn missing_program(server: &Server) -> Option<String> {
    let Transport::Command { program, .. } = &server.transport else { return None };
    let own = server.environment.iter().find(|(name, _)| *name == "PATH").map(|(_, value)| fixed(value));
    let search_path = match own {
        // It depends on the session.
        Some(None) => return None,
        Some(Some(path)) => OsString::from(path),
        None => std::env::var_os("PATH").unwrap_or_default(),
    };
    let found = packages::find_program(OsStr::new(fixed(program)?), &search_path);
    found.err().map(|error| error.to_string())
}

fn fixed(template: &Template) -> Option<&str> {
    match &template.0[..] {
        [Piece::Text(text)] => Some(text),
        _ => None,
    }
}

/// The options of a gateway without any.
#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    options: ServerOptions,
}

/// Starts each server of a file once, in a fence around nothing, as a gateway does before its first client.
pub(super) fn start_all(file: &Path) -> Result<Trials, Error> {
    let words =
        [OsStr::new("check"), OsStr::new("--no-default-scope"), OsStr::new("--config"), file.as_os_str()];
    let options = Defaults::parse_from(words).options;
    // Installing packages may take long, and the log says what goes on.
    logging::start(options.upstream.log);
    let servers = Servers::of(&options, Lifecycle::Session, ClientPlace::ThisMachine, TrustedFiles::none())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        upstream::adopt_orphans()?;
        let sessions = Sessions::new(servers.set, options.settings(), servers.rules, None, None);
        let found = sessions.try_servers().await;
        sessions.shut_down(Duration::ZERO, session::ShutDownCause::End).await;
        Ok(found.into_iter().collect())
    })
}
