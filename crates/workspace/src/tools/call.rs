//! One call of a tool: what it can use, its cancellation, and the file operations that it reports.

use std::cell::RefCell;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::ToolError;

use crate::context::ServerContext;
use crate::files::{PathError, SessionPath};
use crate::journal::Original;
use crate::output::Output;
use crate::search::Patience;

/// Time limit for a search.
const SEARCH_TIME: Duration = Duration::from_secs(55);
/// Originals of longer files are not kept.
const MAX_ORIGINAL: u64 = 4 * 1024 * 1024;
/// Further file operations of one call are only counted.
const MAX_REPORTS: usize = 4096;

/// Whether the client has cancelled the call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Where to send progress, if the client asked for it.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) token: Box<RawValue>,
    pub(crate) output: Arc<Output>,
}

/// One file operation, for the gateway's audit log.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct FileReport {
    pub(crate) operation: &'static str,
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// `ok`, or the code of the error.
    pub(crate) outcome: &'static str,
}

pub(crate) struct Call<'a> {
    pub(crate) context: &'a ServerContext,
    pub(crate) cancellation: &'a Cancellation,
    pub(crate) progress: Option<Progress>,
    reports: RefCell<Vec<FileReport>>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        context: &'a ServerContext,
        cancellation: &'a Cancellation,
        progress: Option<Progress>,
    ) -> Self {
        Self { context, cancellation, progress, reports: RefCell::default() }
    }

    /// Asks the gateway about the session, with a method of ours.
    pub(super) fn ask_gateway(&self, method: &'static str, params: &Value) -> Result<Value, ToolError> {
        self.context.gateway.ask(method, params).map_err(|error| {
            let message = error.to_string();
            match message.split_once("; hint: ") {
                Some((message, hint)) => ToolError::new("refused", message).with_hint(hint),
                None => ToolError::new("refused", message),
            }
        })
    }

    /// Reports a file operation that succeeded.
    pub(crate) fn did(&self, operation: &'static str, path: &SessionPath, bytes: u64) {
        self.report(operation, || self.context.workspace.show(path), bytes, "ok");
    }

    /// Reports a file operation, if the gateway wants reports.
    pub(crate) fn report(
        &self,
        operation: &'static str,
        path: impl FnOnce() -> String,
        bytes: u64,
        outcome: &'static str,
    ) {
        if !self.context.reports {
            return;
        }
        let mut reports = self.reports.borrow_mut();
        match reports.len() {
            0..MAX_REPORTS => reports.push(FileReport { operation, path: path(), bytes, outcome }),
            MAX_REPORTS => reports.push(FileReport {
                operation: "more",
                path: "1 further operations".to_owned(),
                bytes: 1,
                outcome: "ok",
            }),
            _ => {
                if let Some(more) = reports.last_mut() {
                    more.bytes += 1;
                    more.path = format!("{} further operations", more.bytes);
                }
            }
        }
    }

    pub(crate) fn take_reports(&self) -> Vec<FileReport> {
        self.reports.take()
    }

    /// Reads the original of a file before a change, unless the journal already has it.
    pub(crate) fn original(&self, path: &SessionPath) -> Original {
        let workspace = &self.context.workspace;
        if self.context.journal.knows(&workspace.absolute(path)) {
            return Original::Unkept;
        }
        let mut found = match workspace.open_file(path) {
            Ok(found) => found,
            Err(PathError::NotFound { .. }) => return Original::Nothing,
            Err(_) => return Original::Unkept,
        };
        let is_short = u64::try_from(found.stat.st_size).is_ok_and(|size| size <= MAX_ORIGINAL);
        let mut contents = Vec::new();
        if is_short && found.file.read_to_end(&mut contents).is_ok() {
            Original::Contents(contents)
        } else {
            Original::Unkept
        }
    }

    /// Records the original of a file that was changed.
    pub(crate) fn note_change(&self, path: &SessionPath, before: Original) {
        self.context.journal.note(self.context.workspace.absolute(path), before);
    }

    /// Runs a search within its time limit, until the call is cancelled.
    pub(crate) fn with_patience<T>(&self, search: impl FnOnce(Patience<'_>) -> T) -> T {
        let is_cancelled = || self.cancellation.is_cancelled();
        search(Patience { until: Instant::now() + SEARCH_TIME, is_cancelled: &is_cancelled })
    }
}
