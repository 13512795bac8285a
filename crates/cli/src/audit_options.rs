//! The options of the audit log, common to `serve`, `stdio` and `connect`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use audit::{AuditKey, AuditLog, AuditSettings, Sink, SinkAddress};
use clap::Args;

use crate::error::Error;

#[derive(Clone, Debug, Args)]
#[allow(clippy::struct_field_names, reason = "the fields are named like the options")]
pub(crate) struct AuditOptions {
    /// Write an audit log to this file: sessions, processes and calls, chained by hash; `ringfence audit
    /// verify` checks it.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// Write the arguments of calls to the audit log, too. They may hold secrets.
    #[arg(long, requires = "audit_log")]
    pub(crate) audit_arguments: bool,
    /// Hash the lines of the audit log with the key of this file, so that the log cannot be written anew without it.
    /// `ringfence audit key FILE` makes one. A log has the same key from its beginning to its end.
    #[arg(long, value_name = "FILE", requires = "audit_log")]
    audit_key: Option<PathBuf>,
    /// Send the audit log to another machine while it is written: `syslog+tls://HOST:PORT`, `https://HOST/PATH`, or
    /// `syslog+tcp://` and `http://` to this machine. What could not be sent is sent later, also after a restart.
    #[arg(long, value_name = "URL", requires = "audit_log")]
    audit_sink: Option<SinkAddress>,
    /// Send the token of this file to the https sink (`Authorization: Bearer TOKEN`).
    #[arg(long, value_name = "FILE", requires = "audit_sink")]
    audit_sink_token: Option<PathBuf>,
}

impl AuditOptions {
    pub(crate) fn is_on(&self) -> bool {
        self.audit_log.is_some()
    }

    /// Opens the audit log, if there is to be one, and starts to send it, if it is to be sent.
    pub(crate) fn open(&self) -> Result<Option<Arc<AuditLog>>, Error> {
        let Some(path) = &self.audit_log else { return Ok(None) };
        let key = self.audit_key.as_deref().map(read_key).transpose()?;
        let sink = self.sink()?;
        let log = AuditLog::open(path, AuditSettings::default(), key)?;
        if let Some(sink) = sink {
            log.ship_to(sink)?;
        }
        Ok(Some(Arc::new(log)))
    }

    fn sink(&self) -> Result<Option<Sink>, Error> {
        let Some(address) = &self.audit_sink else { return Ok(None) };
        let token = self.audit_sink_token.as_deref().map(config::read_token).transpose()?;
        let tls = upstream::http::tls().map_err(std::io::Error::other)?;
        Ok(Some(Sink::new(address.clone(), token.as_deref(), tls)?))
    }

    /// The log and its secrets, which no scope may contain.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.audit_log, &self.audit_key, &self.audit_sink_token].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Files that no fenced server may read.
    pub(crate) fn secret_files(&self) -> impl Iterator<Item = PathBuf> {
        let files = [&self.audit_key, &self.audit_sink_token];
        // A link must not lead around the rule.
        files.into_iter().flatten().filter_map(|path| path.canonicalize().ok())
    }
}

/// Reads the key of a log.
pub(crate) fn read_key(path: &Path) -> Result<AuditKey, Error> {
    let secret = config::read_secret(path)?;
    AuditKey::new(&secret).map_err(|error| Error::AuditKey { path: path.to_owned(), error })
}

/// Writes the rest of an audit log, after the last session.
pub(crate) async fn close_audit_log(log: Option<Arc<AuditLog>>) {
    if let Some(log) = log {
        let _ = tokio::task::spawn_blocking(move || log.close()).await;
    }
}
