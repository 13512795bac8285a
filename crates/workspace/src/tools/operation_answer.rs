//! Commands in answers: result fields, text and errors, and waiting for a command.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::{Answer, ToolError};
use super::call::Call;
use super::parameters::{Field, Kind};
use super::refusal_note::{FenceFacts, note};
use crate::context::ServerContext;
use crate::shell::{LookupError, LostReason, Operation, Report, State, Waited};

/// The result fields of every tool that reports on a command.
pub(super) const REPORT_FIELDS: &[Field] = &[
    Field::optional(
        "operation_id",
        Kind::Text,
        "For await_operation, operation_status and cancel_operation.",
    ),
    Field::optional(
        "status",
        Kind::Choice(&["running", "exited", "signalled", "timed_out", "cancelled", "lost"]),
        "The state of the command.",
    ),
    Field::optional("exit_code", Kind::COUNT, "The exit code, if it exited."),
    Field::optional("signal", Kind::Text, "The signal, if one ended it."),
    Field::optional("duration_ms", Kind::COUNT, "How long it ran, or has been running."),
    Field::optional("output", Kind::Text, "Standard output and error, in the order in which they came."),
    Field::optional("output_bytes", Kind::COUNT, "Size of the whole output."),
    Field::optional("omitted_bytes", Kind::COUNT, "Size of the middle part that is not shown."),
    Field::optional("left_running", Kind::COUNT, "Background processes that it left behind."),
    Field::optional("directory", Kind::Text, "Where it ran."),
    Field::optional("cancel_reason", Kind::Text, "Why it, or what it left running, was cancelled."),
    Field::optional("started", Kind::Text, "When it was started, if an earlier server process started it."),
    Field::optional("reason", Kind::Text, "Why its outcome is not known, if it is lost."),
    Field::optional("command", Kind::Text, "The command, if it is lost."),
];

/// How often the client of a quiet command hears that it still runs: gateways and clients give up on a call that shows
/// no progress, the soonest of them after half a minute.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Longest wait of a call that cannot show progress: the gateway in front gives up on it after a minute.
const LONGEST_SILENCE: Duration = Duration::from_secs(50);

/// Waits for a command, and sends its output to the client as progress.
pub(super) fn wait(call: &Call<'_>, operation: &Operation, time: Duration) -> Waited {
    let mut steps = 0;
    let mut tell = |output: &str| {
        if let Some(progress) = &call.progress {
            steps += 1;
            progress.output.progress(&progress.token, steps, output);
        }
    };
    let end = Instant::now() + if call.progress.is_some() { time } else { time.min(LONGEST_SILENCE) };
    loop {
        let pause = end.min(Instant::now() + SIGN_OF_LIFE);
        let waited = operation.wait(pause, &|| call.cancellation.is_cancelled(), &mut tell);
        if waited != Waited::TimeOver || pause == end {
            return waited;
        }
        tell("");
    }
}

pub(super) fn lookup_error(error: &LookupError) -> ToolError {
    let code = match error {
        LookupError::Unknown { .. } => "unknown_operation",
        LookupError::Forgotten { .. } => "forgotten_operation",
    };
    ToolError::new(code, error.to_string()).with_hint("operation_status without an id lists them")
}

pub(super) fn as_data(report: &Report) -> Value {
    let mut data = json!({
        "operation_id": report.id.to_string(),
        "status": status(report.state),
        "duration_ms": u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
        "output": report.output,
        "output_bytes": report.output_bytes,
        "omitted_bytes": report.omitted_bytes,
        "directory": report.directory_name,
    });
    match report.state {
        State::Exited { code } => data["exit_code"] = code.into(),
        State::Signalled { name, .. } => data["signal"] = name.into(),
        State::Lost(reason) => {
            data["reason"] = reason.as_str().into();
            data["command"] = report.script.as_str().into();
        }
        _ => {}
    }
    if report.left_running > 0 {
        data["left_running"] = report.left_running.into();
    }
    if let Some(started) = report.started_ms {
        data["started"] = moment(started).into();
    }
    if let Some(reason) = &report.cancel_reason {
        data["cancel_reason"] = reason.as_str().into();
    }
    data
}

pub(super) fn status(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Exited { .. } => "exited",
        State::Signalled { .. } => "signalled",
        State::TimedOut => "timed_out",
        State::Cancelled => "cancelled",
        State::Lost(_) => "lost",
    }
}

/// What is known of a command that was running when its server ended.
fn lost(report: &Report, reason: LostReason) -> String {
    let started = moment(report.started_ms.unwrap_or_default());
    format!(
        "[{} is lost, its outcome is unknown: {}; it does not run any more, and may have done all or a part of its \
         work; started {started}: {}]",
        report.id,
        reason.as_str(),
        report.script
    )
}

/// A time as text. One that is forged is the beginning of time.
pub(super) fn moment(milliseconds: u64) -> String {
    let time = i64::try_from(milliseconds).ok().and_then(|time| Timestamp::from_millisecond(time).ok());
    time.unwrap_or_default().to_string()
}

/// The answer about a command of an earlier server: it has ended, one way or another.
pub(super) fn answer_past(call: &Call<'_>, id: &str) -> Option<Answer> {
    let past = call.context.operations.past(id)?;
    Some(answer(&past.report(), call.context))
}

/// The output first, as in a terminal, then how the command ended and what can be done.
pub(super) fn answer(report: &Report, context: &ServerContext) -> Answer {
    let mut text = report.output.trim_end().to_owned();
    if !text.is_empty() {
        text.push('\n');
    }
    let seconds = report.duration.as_secs_f64();
    let id = report.id;
    let ending = match report.state {
        State::Exited { code: 0 } => format!("[exit code 0, {seconds:.1} s]"),
        State::Running => format!(
            "[still running after {seconds:.1} s as {id}: await_operation waits for it, operation_status shows it, cancel_operation ends it]"
        ),
        State::TimedOut => {
            format!(
                "[ended after {seconds:.1} s, with everything it started: its time was over; set a longer `timeout`, or `is_background`]"
            )
        }
        State::Lost(reason) => lost(report, reason),
        state => format!("[{state}, {seconds:.1} s]"),
    };
    text.push_str(&ending);
    if report.left_running > 0 {
        let left = report.left_running;
        let _ =
            write!(text, "\n[{left} processes run on in the background; cancel_operation {id} ends them]");
    }
    let is_error = !report.state.is_running() && !report.state.is_success();
    let facts = if is_error { FenceFacts::of(context) } else { None };
    if let Some(note) = facts.and_then(|facts| note(&report.script, &report.output, &facts)) {
        text.push('\n');
        text.push_str(&note);
    }
    Answer { is_error, ..Answer::new(text, &as_data(report)) }
}
