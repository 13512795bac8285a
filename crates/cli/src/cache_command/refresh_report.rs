//! What `ringfence cache refresh` says about one package.

use packages::{Changes, InstalledPackage, PackageError, RefreshOutcome, Refreshed, VersionChange};
use serde_json::{Value, json};

/// A package before the refresh, and what came of it.
pub(super) struct RefreshReport<'a> {
    pub(super) old: &'a InstalledPackage,
    pub(super) result: Result<Refreshed, PackageError>,
}

impl RefreshReport<'_> {
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.result, Err(_) | Ok(Refreshed { outcome: RefreshOutcome::Refused, .. }))
    }

    pub(super) fn in_words(&self) -> String {
        let package = self.old.package();
        let title = format!("{}  {}", package.tool().as_str(), package.specification());
        let Ok(refreshed) = &self.result else { return format!("{title}  {}", self.outcome()) };
        let from = self.old_version().unwrap_or("not pinned");
        let to = &refreshed.version;
        let versions = if from == to { to.clone() } else { format!("{from} → {to}") };
        let mut lines = vec![format!("{title}  {versions}  {}", self.outcome())];
        if let Some(changes) = &refreshed.changes {
            lines.extend(changes_in_words(changes));
        }
        lines.join("\n     ")
    }

    /// What the user has to know even if the rest is for a program.
    pub(super) fn warnings(&self) -> Vec<String> {
        let refreshed = match &self.result {
            Ok(refreshed) => refreshed,
            Err(error) => {
                let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                return vec![format!("{error}{hint}")];
            }
        };
        let altered = refreshed.changes.iter().flat_map(|changes| &changes.altered);
        let mut warnings: Vec<String> = altered
            .map(|altered| {
                format!(
                    "THE REGISTRY REPLACED {} {}: the version is the same, the files are not\n  before: {}\n  now:    {}",
                    altered.name,
                    altered.version,
                    altered.from.join(" "),
                    altered.to.join(" ")
                )
            })
            .collect();
        if matches!(refreshed.outcome, RefreshOutcome::Refused) {
            warnings.push(format!(
                "{} stays as it is; a registry should never do that, so find out why\nhint: --accept-changed installs it",
                self.old.package().specification()
            ));
        }
        warnings
    }

    pub(super) fn as_json(&self) -> Value {
        let package = self.old.package();
        let mut report = json!({
            "name": package.name(),
            "package": package.specification(),
            "tool": package.tool().as_str(),
            "outcome": self.outcome(),
            "from": self.old_version(),
        });
        let more = match &self.result {
            Err(error) => json!({"error": error.to_string(), "hint": error.hint()}),
            Ok(refreshed) => {
                let directory = match &refreshed.outcome {
                    RefreshOutcome::Installed(new) => Some(new.tree().to_owned()),
                    _ => None,
                };
                let changes = refreshed.changes.as_ref().map(changes_as_json);
                json!({"to": refreshed.version, "changes": changes, "directory": directory})
            }
        };
        if let (Value::Object(report), Value::Object(more)) = (&mut report, more) {
            report.extend(more);
        }
        report
    }

    fn outcome(&self) -> &'static str {
        match &self.result {
            Err(_) => "failed",
            Ok(refreshed) => match refreshed.outcome {
                RefreshOutcome::Unchanged => "unchanged",
                RefreshOutcome::Outdated => "outdated",
                RefreshOutcome::Refused => "refused",
                RefreshOutcome::Installed(_) => "installed",
            },
        }
    }

    fn old_version(&self) -> Option<&str> {
        self.old.pinned().map(|pinned| pinned.version.as_str())
    }
}

fn changes_in_words(changes: &Changes) -> Vec<String> {
    let lists = [("changed", &changes.changed), ("added", &changes.added), ("removed", &changes.removed)];
    let mut lines: Vec<String> = lists
        .into_iter()
        .flat_map(|(what, list)| {
            list.iter().map(move |change| format!("{what:<7}  {}", version_in_words(change)))
        })
        .collect();
    if !changes.new_install_scripts.is_empty() {
        lines.push(format!("install scripts appeared: {}", changes.new_install_scripts.join(", ")));
    }
    lines
}

fn version_in_words(change: &VersionChange) -> String {
    let versions = [change.from.join(", "), change.to.join(", ")].into_iter().filter(|text| !text.is_empty());
    format!("{} {}", change.name, versions.collect::<Vec<_>>().join(" → "))
}

fn changes_as_json(changes: &Changes) -> Value {
    let versions = |list: &[VersionChange]| {
        let one = |change: &VersionChange| json!({"name": change.name, "from": change.from, "to": change.to});
        list.iter().map(one).collect::<Value>()
    };
    let altered = changes.altered.iter().map(|altered| {
        json!({"name": altered.name, "version": altered.version, "from": altered.from, "to": altered.to})
    });
    json!({
        "changed": versions(&changes.changed),
        "added": versions(&changes.added),
        "removed": versions(&changes.removed),
        "new_install_scripts": changes.new_install_scripts,
        "altered": altered.collect::<Value>(),
    })
}
