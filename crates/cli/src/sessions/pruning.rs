//! `ringfence sessions prune`: forgets stored sessions, at running gateways or in a state directory that none uses.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use store::Store;

use super::scope;
use crate::error::Error;
use crate::operator_client::{Answer, Asked, OperatorClient, text};
use crate::output::print_line;
use crate::seconds::age;

#[derive(Debug, Args)]
pub(super) struct PruneArguments {
    /// Those that have not been used for this long, such as 30m, 12h or 7d.
    #[arg(long, value_name = "AGE", value_parser = age, required_unless_present = "all_stored")]
    older_than: Option<Duration>,
    /// All of them.
    #[arg(long, conflicts_with = "older_than")]
    all_stored: bool,
    /// Only show which.
    #[arg(long)]
    dry_run: bool,
    /// Look in this state directory instead of asking gateways. No gateway may be using it.
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(super) state_dir: Option<PathBuf>,
}

/// What is to be forgotten, and how it is told.
pub(super) struct Pruning<'a> {
    pub(super) arguments: &'a PruneArguments,
    pub(super) json: bool,
}

impl Pruning<'_> {
    fn unused_for(&self) -> Duration {
        self.arguments.older_than.unwrap_or_default()
    }

    /// Asks each gateway.
    pub(super) fn at(&self, gateways: &[OperatorClient<'_>]) {
        let wish =
            json!({ "unusedForSeconds": self.unused_for().as_secs(), "dryRun": self.arguments.dry_run });
        let mut pruned = Vec::new();
        for gateway in gateways {
            let asked = Asked { method: Method::POST, path: "prune".to_owned(), body: Some(wish.clone()) };
            let Some(Answer::Found(mut answer)) = gateway.ask(&asked) else { continue };
            let Value::Array(found) = answer["pruned"].take() else { continue };
            pruned.extend(found.into_iter().map(|mut session| {
                session["gateway"] = gateway.discovered.url.clone().into();
                session
            }));
        }
        self.print(&pruned);
    }

    pub(super) fn in_directory(&self, directory: &Path) -> Result<(), Error> {
        // Opening a store would make one.
        if !Store::is_in(directory) {
            return Err(Error::NoStore(directory.to_owned()));
        }
        let (store, loaded) = Store::open(directory)?;
        let pruned = session::prune_store(&store, loaded, self.unused_for(), self.arguments.dry_run);
        let pruned: Vec<Value> = pruned.iter().map(|session| json!(session)).collect();
        self.print(&pruned);
        Ok(())
    }

    fn print(&self, pruned: &[Value]) {
        let is_trial = self.arguments.dry_run;
        if self.json {
            return print_line(&format!("{:#}", json!({ "pruned": pruned, "dryRun": is_trial })));
        }
        for session in pruned {
            print_line(&format!(
                "{:<12} {:<12} {:<24} {:>10}  {}",
                text(&session["session"]),
                text(&session["principal"]),
                text(&session["client"]),
                format!("{:.0} s", session["idle_seconds"].as_f64().unwrap_or_default()),
                scope(session)
            ));
        }
        let sessions = match pruned.len() {
            1 => "1 stored session".to_owned(),
            many => format!("{many} stored sessions"),
        };
        let verb = if is_trial { "would be forgotten" } else { "forgotten" };
        print_line(&format!("{sessions} {verb}"));
    }
}
