//! `ringfence session list`, `show` and `log`.

use std::io::IsTerminal;
use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};
use staging::{
    BaseDrift, ChangeOptions, Event, HistoryLine, Record, StagingError, WorkspaceCopy, Workspaces,
};

use workspace::size_in_words;

use super::SessionCommandError;
use super::endpoint;
use crate::output::print_line;

/// The most paths of the project's own changes that `show` names.
const MAX_NAMED: usize = 10;

pub(super) fn list(workspaces: &Workspaces, as_json: bool) -> Result<(), SessionCommandError> {
    let (copies, broken): (Vec<_>, Vec<_>) = workspaces.list()?.into_iter().partition(Result::is_ok);
    for error in broken.into_iter().filter_map(Result::err) {
        eprintln!("ringfence: {error}");
    }
    let copies: Vec<WorkspaceCopy> = copies.into_iter().flatten().collect();
    let trash = workspaces.trash()?;
    if as_json {
        let rows = copies.iter().map(overview).collect::<Result<Vec<Value>, _>>()?;
        let trash = trash.iter().map(|trashed| {
            json!({
                "name": trashed.record.name,
                "base": printable(trashed.record.base_path()),
                "deadline": trashed.deadline,
            })
        });
        let trash: Vec<Value> = trash.collect();
        print_line(&format!("{:#}", json!({ "workspaces": rows, "trash": trash })));
        return Ok(());
    }
    if copies.is_empty() && trash.is_empty() {
        print_line("no session workspaces; make one: ringfence session start NAME");
        return Ok(());
    }
    let heading =
        row(["WORKSPACE", "METHOD", "STATE", "CHANGES", "DISK", "USED", "PROJECT"].map(str::to_owned));
    print_line(&if std::io::stdout().is_terminal() { format!("\x1b[1m{heading}\x1b[0m") } else { heading });
    for copy in &copies {
        print_line(&table_row(copy));
    }
    for trashed in &trash {
        let name = &trashed.record.name;
        print_line(&format!(
            "{name} is in the trash until {}: ringfence session restore {name}",
            trashed.deadline
        ));
    }
    Ok(())
}

fn row([name, method, state, changes, disk, used, base]: [String; 7]) -> String {
    format!("{name:<24} {method:<8} {state:<12} {changes:>8} {disk:>9} {used:>8}  {base}")
}

fn table_row(copy: &WorkspaceCopy) -> String {
    let record = copy.record();
    row([
        record.name.to_string(),
        record.method.to_string(),
        state(copy),
        changes(copy).map_or_else(|_| "?".to_owned(), |count| count.to_string()),
        copy.disk_use().map_or_else(|_| "?".to_owned(), size_in_words),
        age_in_words(record.used),
        printable(record.base_path()),
    ])
}

fn changes(copy: &WorkspaceCopy) -> Result<usize, StagingError> {
    Ok(copy.changes(&ChangeOptions::default())?.entries.len())
}

fn state(copy: &WorkspaceCopy) -> String {
    match copy.user() {
        None => "rests".to_owned(),
        Some(None) => "in use".to_owned(),
        Some(Some(pid)) => format!("used by {pid}"),
    }
}

/// What programs get of a copy.
fn overview(copy: &WorkspaceCopy) -> Result<Value, SessionCommandError> {
    let record = copy.record();
    let (changes, error) = match changes(copy) {
        Ok(changes) => (Some(changes), None),
        Err(error) => (None, Some(error.to_string())),
    };
    Ok(json!({
        "name": record.name,
        "method": record.method,
        "base": printable(record.base_path()),
        "start": record.start,
        "created": record.created,
        "used": record.used,
        "in_use_by": copy.user().flatten(),
        "is_in_use": copy.user().is_some(),
        "changes": changes,
        "error": error,
        "disk_bytes": copy.disk_use()?,
        "staged_for": record.staged_for,
        "set_up": record.set_up,
        "can_undo": copy.can_undo(),
        "left_out": record.left_out.iter().map(|path| printable(path)).collect::<Vec<_>>(),
        "not_copied": record.not_copied.iter().map(|path| printable(path)).collect::<Vec<_>>(),
    }))
}

pub(super) fn show(copy: &WorkspaceCopy, as_json: bool) -> Result<(), SessionCommandError> {
    let changes = copy.changes(&ChangeOptions::default());
    let paths = changes.as_ref().map(|changes| changes.entries.iter().map(|it| it.path.clone()).collect());
    let drift = copy.base_drift(&paths.unwrap_or_else(|_| Vec::new()));
    if as_json {
        let mut overview = overview(copy)?;
        overview["base_drift"] = drift.as_ref().map_or(Value::Null, |drift| json!(drift));
        overview["endpoints"] = json!(endpoint::of_running(copy.name()));
        print_line(&format!("{overview:#}"));
        return Ok(());
    }
    let record = copy.record();
    print_line(&format!("workspace   {} ({}, {})", record.name, record.method, state(copy)));
    print_line(&format!("project     {}{}", printable(record.base_path()), at_commit(record)));
    print_line(&format!("made        {}, last used {}", record.created, record.used));
    print_line(&format!("disk        {}", size_in_words(copy.disk_use()?)));
    if let Some(set_up) = &record.set_up {
        let code =
            set_up.exit_code.map_or_else(|| "unfinished".to_owned(), |code| format!("exit code {code}"));
        print_line(&format!("set up by   {} ({code})", without_controls(&set_up.command)));
    }
    match changes {
        Ok(changes) => print_line(&format!("changes     {}", changes.entries.len())),
        Err(error) => print_line(&format!("changes     unknown: {error}")),
    }
    if let Ok(drift) = drift {
        print_drift(&drift);
    }
    for path in &record.left_out {
        print_line(&format!("left out    {} (looks like a secret)", printable(path)));
    }
    for endpoint in endpoint::of_running(copy.name()) {
        print_line(&format!("endpoint    {endpoint}"));
    }
    Ok(())
}

/// Says what the project itself changed since the copy was made.
fn print_drift(drift: &BaseDrift) {
    let changed = drift.changed.len();
    if changed == 0 && drift.entries_gone == 0 {
        return;
    }
    let more = if drift.is_cut { "more than " } else { "" };
    print_line(&format!(
        "meanwhile   the project changed {more}{changed} paths and lost {}",
        drift.entries_gone
    ));
    for path in drift.changed.iter().chain(&drift.deleted).take(MAX_NAMED) {
        print_line(&format!("            {}", printable(path)));
    }
}

fn at_commit(record: &Record) -> String {
    let Some(start) = &record.start else { return String::new() };
    let name =
        start.reference.as_deref().map_or("a detached head", |name| name.trim_start_matches("refs/heads/"));
    format!(" at {} ({})", without_controls(name), short(&start.id))
}

/// The beginning of a commit's name.
pub(super) fn short(id: &str) -> &str {
    id.get(..10).unwrap_or(id)
}

pub(super) fn log(copy: &WorkspaceCopy, as_json: bool) -> Result<(), SessionCommandError> {
    let lines = copy.history()?;
    if as_json {
        print_line(&format!("{:#}", json!({ "workspace": copy.name(), "history": lines })));
        return Ok(());
    }
    for line in &lines {
        print_line(&format!("{}  {}", line.at, in_words(line)));
    }
    let output = std::fs::read_to_string(copy.directory().join(super::start::SET_UP_LOG));
    if let Ok(output) = output.map(|text| without_controls(&text)) {
        print_line("output of the set-up command:");
        print_line(output.trim_end());
    }
    Ok(())
}

fn in_words(line: &HistoryLine) -> String {
    let of = |session: &Option<String>| session.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
    let text = match &line.event {
        Event::Created { method } => format!("made by {method}"),
        Event::SetUp { command, exit_code } => {
            let code = exit_code.map_or_else(|| "killed".to_owned(), |code| format!("exit code {code}"));
            format!("set up by {command} ({code})")
        }
        Event::Attached { client, session } => format!("{client}{} works in it", of(session)),
        Event::Detached { client, session } => format!("{client}{} left", of(session)),
        Event::Applied { paths } => format!("{paths} paths were taken over"),
        Event::Merged { commits, into } => format!("{commits} commits went to {into}"),
        Event::Undone { paths } => format!("the apply of {paths} paths was undone"),
        Event::Recovered { outcome } => format!("an interrupted apply was ended: {outcome}"),
        Event::Discarded => "discarded".to_owned(),
        Event::Restored => "taken out of the trash".to_owned(),
        Event::Note { text } => format!("note: {text}"),
    };
    without_controls(&text)
}

/// A path for people and for JSON. Agents choose names, which must not control the terminal.
pub(super) fn printable(path: &Path) -> String {
    without_controls(&path.to_string_lossy())
}

pub(super) fn without_controls(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

fn age_in_words(then: Timestamp) -> String {
    let seconds = Timestamp::now().duration_since(then).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}
