//! The options of `serve` about what outlives it: where sessions are kept, or that they are not.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use clap::Args;
use store::{Loaded, Store, StoreError};

use crate::config_path::state_directory;
use crate::error::Error;
use crate::fenced::size;

#[derive(Clone, Debug, Args)]
pub(crate) struct StateOptions {
    /// Keep sessions in this directory, so that they outlive the gateway. By default it is
    /// `~/.local/state/ringfence/gateways/ADDRESS_PORT`, or that below `XDG_STATE_HOME`; with --port 0 there is none,
    /// because no client would find the gateway again.
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Keep nothing: sessions end with the gateway.
    #[arg(long)]
    pub(crate) ephemeral: bool,
    /// The most that the database of sessions may take, answers that clients have not read included. Then sessions whose
    /// clients have not come back are forgotten, the least recently used first.
    #[arg(long, value_name = "SIZE", value_parser = state_size, default_value = "256M")]
    pub(crate) state_size: u64,
}

/// A smaller database has no room for the sessions of one busy client.
const LEAST_SIZE: u64 = 1024 * 1024;

fn state_size(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes < LEAST_SIZE { Err("expected at least 1M".to_owned()) } else { Ok(bytes) }
}

impl StateOptions {
    /// What scopes must keep away from, and no server may read.
    pub(crate) fn trusted(&self) -> Option<PathBuf> {
        if self.ephemeral {
            return None;
        }
        match &self.state_dir {
            Some(directory) => std::path::absolute(directory).ok(),
            None => gateways(),
        }
    }

    /// Makes the directory that [`Self::trusted`] names, if something will be kept there: a list of what no server may
    /// read takes only what exists. `is_any_port`: the operator left the port open.
    pub(crate) fn make_trusted(&self, is_any_port: bool) -> Result<(), Error> {
        if self.ephemeral || (self.state_dir.is_none() && is_any_port) {
            return Ok(());
        }
        let Some(path) = self.trusted() else { return Ok(()) };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|source| StoreError::Directory { path, source }.into())
    }

    /// Opens the store of a gateway that listens at this address. `is_any_port`: the operator left the port open.
    pub(crate) fn open(
        &self,
        address: SocketAddr,
        is_any_port: bool,
    ) -> Result<Option<(Store, Loaded)>, Error> {
        let Some(directory) = self.directory(address, is_any_port) else {
            tracing::info!("sessions end with this gateway");
            return Ok(None);
        };
        let (store, loaded) = Store::open(&directory)?;
        let (sessions, directory) = (loaded.sessions.len(), directory.display());
        tracing::info!(%directory, sessions, "sessions outlive this gateway");
        Ok(Some((store, loaded)))
    }

    fn directory(&self, address: SocketAddr, is_any_port: bool) -> Option<PathBuf> {
        if self.ephemeral {
            return None;
        }
        let own = || Some(gateways()?.join(directory_name(address)));
        self.state_dir.clone().or_else(|| if is_any_port { None } else { own() })
    }
}

/// Where the gateways of this user keep their sessions, each under its address.
fn gateways() -> Option<PathBuf> {
    Some(state_directory()?.join("gateways"))
}

fn directory_name(address: SocketAddr) -> String {
    format!("{}_{}", address.ip(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_has_a_least_size() {
        assert_eq!(state_size("1M"), Ok(LEAST_SIZE));
        for bad in ["1023K", "0", "1X"] {
            assert!(state_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_address_has_a_directory_of_its_own() {
        let options = StateOptions { state_dir: None, ephemeral: false, state_size: LEAST_SIZE };
        let name = |address: &str| {
            let directory = options.directory(address.parse().unwrap(), false)?;
            Some(directory.file_name()?.to_string_lossy().into_owned())
        };
        assert_eq!(name("127.0.0.1:3000").as_deref(), Some("127.0.0.1_3000"));
        assert_eq!(name("[::1]:3001").as_deref(), Some("::1_3001"));
    }

    #[test]
    fn nothing_is_kept_if_the_operator_says_so_or_the_port_is_any() {
        let address: SocketAddr = "127.0.0.1:40000".parse().unwrap();
        let ephemeral = StateOptions { state_dir: None, ephemeral: true, state_size: LEAST_SIZE };
        assert_eq!(ephemeral.directory(address, false), None);
        assert_eq!(ephemeral.trusted(), None);
        let usual = StateOptions { state_dir: None, ephemeral: false, state_size: LEAST_SIZE };
        assert_eq!(usual.directory(address, true), None);
        let named =
            StateOptions { state_dir: Some("/srv/state".into()), ephemeral: false, state_size: LEAST_SIZE };
        assert_eq!(named.directory(address, true), Some("/srv/state".into()));
        assert_eq!(named.trusted(), Some("/srv/state".into()));
    }
}
