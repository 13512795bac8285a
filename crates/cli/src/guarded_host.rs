//! The host with the list of everything that this process trusts: no scope that is vetted with it reaches one of them.
//! The rules for scopes and the planner of servers are made with a guarded host alone, so no command serves clients
//! without the list.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use fence::HostEnvironment;

use crate::clients::Client;
use crate::error::Error;
use crate::own_program::own_program;

/// Where ringfence runs, with what it trusts kept out of every scope.
pub(crate) struct GuardedHost(Arc<HostEnvironment>);

/// Files that a command trusts.
pub(crate) struct TrustedFiles {
    /// What they are, as an error calls them.
    pub(crate) what: &'static str,
    pub(crate) files: Vec<PathBuf>,
}

impl TrustedFiles {
    /// For a command that trusts no file of its own.
    pub(crate) fn none() -> Self {
        Self { what: "", files: Vec::new() }
    }
}

impl GuardedHost {
    /// Guards these files, the data of servers and the settings of clients.
    pub(crate) fn new(
        trusted: impl IntoIterator<Item = TrustedFiles>,
        has_users: bool,
    ) -> Result<Self, Error> {
        let host = HostEnvironment::of_this_process()?;
        let host = Self(Arc::new(if has_users { host.with_users() } else { host }));
        let of_clients = TrustedFiles {
            what: "the settings of a client",
            files: Client::value_variants().iter().flat_map(|client| client.files()).collect(),
        };
        let data = TrustedFiles { what: "the data of servers", files: host.storage().into_iter().collect() };
        for TrustedFiles { what, files } in trusted.into_iter().chain([data, of_clients]) {
            for file in &files {
                host.0.reserve(what, file);
            }
        }
        // What is there later takes over when the gateway is upgraded.
        host.0.reserve_program(&own_program()?.started_as);
        Ok(host)
    }

    pub(crate) fn environment(&self) -> &Arc<HostEnvironment> {
        &self.0
    }

    /// Where servers keep data that stays.
    pub(crate) fn storage(&self) -> Option<PathBuf> {
        let variable = |name: &str| self.0.environment.get(OsStr::new(name)).map(PathBuf::from);
        let data = variable("XDG_DATA_HOME").filter(|path| path.is_absolute());
        let data = data.or_else(|| Some(self.0.home.as_ref()?.join(".local/share")))?;
        Some(data.join("ringfence-storage"))
    }
}
