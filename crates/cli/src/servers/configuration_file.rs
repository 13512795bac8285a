//! The operator's configuration file: finds it, reads it, and follows its changes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::{Configuration, FileStamp};
use fence::HostEnvironment;
use session::{Grants, RightsBook, Sessions};

use super::planner::{ClientPlace, ServerPlanner, with_canonical_scopes};
use crate::config_file_error::ConfigFileError;
use crate::config_path;
use crate::error::Error;
use crate::guarded_host::TrustedFiles;
use crate::server_options::ServerOptions;

/// How often the file is checked for changes.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// What the files are that hold variables and secrets.
const SECRETS: &str = "a file with secrets";

/// A configuration and its file.
pub(crate) struct ConfigurationFile {
    pub(crate) configuration: Configuration,
    path: PathBuf,
    stamp: Option<FileStamp>,
}

impl ConfigurationFile {
    /// Reads the file that the options name, or the default one if it exists and the options name no other server.
    pub(crate) fn of(options: &ServerOptions) -> Result<Option<Self>, Error> {
        let has_command = !options.upstream.command.is_empty();
        let path = match &options.config {
            Some(_) if has_command => return Err(Error::ConfigurationAndCommand),
            Some(path) => std::path::absolute(path)?,
            None if has_command || options.no_config || options.workspace.is_given() => return Ok(None),
            None => match config_path::default_path().filter(|path| path.exists()) {
                Some(path) => path,
                None => return Ok(None),
            },
        };
        Self::read(path).map(Some)
    }

    /// The file, and the files that it names.
    pub(super) fn trusted_files(&self) -> [TrustedFiles; 2] {
        [
            TrustedFiles { what: "the configuration", files: vec![self.path.clone()] },
            TrustedFiles { what: SECRETS, files: self.configuration.secret_files() },
        ]
    }

    fn read(path: PathBuf) -> Result<Self, Error> {
        let stamp = FileStamp::of(&path);
        let read = Configuration::read(&path).map_err(ConfigFileError::Read)?;
        for warning in read.warnings {
            tracing::warn!("{warning}");
        }
        tracing::info!(file = %path.display(), servers = read.configuration.servers.len(), "configuration read");
        Ok(Self { configuration: read.configuration, path, stamp })
    }
}

fn reserve_secret_files(configuration: &Configuration, host_environment: &HostEnvironment) {
    for file in configuration.secret_files() {
        host_environment.reserve(SECRETS, &file);
    }
}

/// Applies changes of the file to a running gateway.
pub(crate) struct Reload {
    pub(super) file: ConfigurationFile,
    pub(super) planner: Arc<ServerPlanner>,
    pub(super) clients: ClientPlace,
    /// Where callers need tokens: what the command line grants to principals, beside the file.
    pub(crate) grants: Option<Grants>,
}

impl Reload {
    /// Gives new sessions the servers of the changed file, and takes away at once the rights that it takes away. A file
    /// with errors changes nothing, and neither does one that weakens a fence or widens rights.
    pub(crate) async fn follow(self, sessions: Arc<Sessions>) {
        let Self { file: ConfigurationFile { path, mut stamp, configuration }, planner, clients, grants } =
            self;
        let started_with = Arc::new(configuration);
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            let now = FileStamp::of(&path);
            if now == stamp || now.is_none() {
                continue;
            }
            stamp = now;
            let (path, planner, started_with) =
                (path.clone(), Arc::clone(&planner), Arc::clone(&started_with));
            // Planning tries the fences of new policies, which blocks.
            let reading = tokio::task::spawn_blocking(move || {
                let configuration = ConfigurationFile::read(path)?.configuration;
                if let Some(weakening) = started_with.weakened_by(&configuration) {
                    return Err(Error::Weakening(weakening));
                }
                reserve_secret_files(&configuration, planner.host_environment());
                let servers = planner.server_set(&configuration, clients);
                Ok::<_, Error>((servers, with_canonical_scopes(configuration.principals)))
            });
            match reading.await {
                Ok(Ok((servers, principals))) => {
                    sessions.replace(servers);
                    if let Some(grants) = &grants {
                        let grants = Grants { principals, ..grants.clone() };
                        sessions.set_rights(RightsBook::of_grants(grants));
                    }
                }
                Ok(Err(error)) => tracing::error!("the configuration stays as it was: {error}"),
                Err(_) => {}
            }
        }
    }
}
