//! The operator's configuration file: which one it is, and what happens when it changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::Configuration;
use session::Sessions;

use crate::arguments::ServerTask;
use crate::config_failure::ConfigFailure;
use crate::config_path;
use crate::configured::{Configured, local_is_here};
use crate::error::Failure;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A configuration, and where it is from.
pub(crate) struct ConfigurationFile {
    pub(crate) configuration: Configuration,
    path: PathBuf,
    seen: Option<Seen>,
}

/// What tells one state of a file from another. Editors replace files, so the file itself counts, too.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    inode: u64,
    size: u64,
    changed: Option<SystemTime>,
}

impl Seen {
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self { inode: metadata.ino(), size: metadata.size(), changed: metadata.modified().ok() })
    }
}

impl ConfigurationFile {
    /// The file that a task names, or the usual one if it exists and nothing else is to be served.
    pub(crate) fn of(task: &ServerTask) -> Result<Option<Self>, Failure> {
        let has_command = !task.upstream.command.is_empty();
        let path = match &task.config {
            Some(_) if has_command => return Err(Failure::ConfigurationAndCommand),
            Some(path) => std::path::absolute(path)?,
            None if has_command || task.no_config || task.workspace.is_given() => return Ok(None),
            None => match config_path::default_path().filter(|path| path.exists()) {
                Some(path) => path,
                None => return Ok(None),
            },
        };
        Self::read(path).map(Some)
    }

    fn read(path: PathBuf) -> Result<Self, Failure> {
        let seen = Seen::of(&path);
        let read = Configuration::read(&path).map_err(ConfigFailure::Read)?;
        for warning in read.warnings {
            tracing::warn!("{warning}");
        }
        tracing::info!(file = %path.display(), servers = read.configuration.servers.len(), "configuration read");
        Ok(Self { configuration: read.configuration, path, seen })
    }

    /// Gives new sessions what the file says now, whenever it changes. A file with errors changes nothing.
    pub(crate) async fn follow(self, sessions: Arc<Sessions>, configured: Arc<Configured>, only_here: bool) {
        let Self { path, mut seen, .. } = self;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = Seen::of(&path);
            if now == seen || now.is_none() {
                continue;
            }
            seen = now;
            let (path, configured) = (path.clone(), Arc::clone(&configured));
            // Fences of new policies are tried, which blocks.
            let read = tokio::task::spawn_blocking(move || {
                let configuration = Self::read(path)?.configuration;
                let is_here = local_is_here(&configuration, only_here);
                Ok::<_, Failure>(configured.offer(&configuration, is_here))
            });
            match read.await {
                Ok(Ok(offer)) => sessions.replace(offer),
                Ok(Err(failure)) => tracing::error!("the configuration stays as it was: {failure}"),
                Err(_) => {}
            }
        }
    }
}
