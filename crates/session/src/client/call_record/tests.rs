//! Tests of what the audit log records about a call.

use std::sync::Arc;

use audit::{AuditLog, AuditSettings};
use testkit::WorkspaceDir;

use super::*;
use crate::settings::Settings;
use crate::testing::{call, client, context, message, notification, request, response, rules};

/// A context with an audit log, and the log's directory.
fn audited(audit_arguments: bool) -> (Arc<GatewayContext>, WorkspaceDir) {
    let directory = testkit::workspace_dir("call-record");
    let log = AuditLog::open(&directory.join("audit.jsonl"), AuditSettings::default(), None).unwrap();
    let settings = Settings { audit_arguments, ..Settings::default() };
    (GatewayContext::new(settings, rules(), Some(Arc::new(log)), None), directory)
}

#[test]
fn without_an_audit_log_no_record_is_made() {
    let request = request(1, "tools/call", r#"{"name":"x"}"#);
    assert!(CallRecord::of(&request, &context()).is_none());
}

#[test]
fn only_requests_that_reach_data_are_recorded() {
    let (context, _directory) = audited(false);
    for (method, params, name) in [
        ("tools/call", r#"{"name":"edit"}"#, Some("edit")),
        ("prompts/get", r#"{"name":"review"}"#, Some("review")),
        ("resources/read", r#"{"uri":"file:///a"}"#, Some("file:///a")),
        ("tools/call", "{}", None),
    ] {
        let record = CallRecord::of(&request(1, method, params), &context).unwrap();
        assert_eq!((record.method.as_str(), record.tool.as_deref()), (method, name));
    }
    for method in ["tools/list", "resources/list", "ping", "completion/complete"] {
        assert!(CallRecord::of(&request(1, method, "{}"), &context).is_none(), "{method}");
    }
}

#[test]
fn arguments_are_recorded_only_where_the_operator_wants_them() {
    let request = request(1, "tools/call", r#"{"name":"x","arguments":{"a":1}}"#);
    for wanted in [true, false] {
        let (context, _directory) = audited(wanted);
        assert_eq!(CallRecord::of(&request, &context).unwrap().arguments.is_some(), wanted);
    }
}

#[test]
fn an_answered_call_is_written_to_the_log_once() {
    let (context, directory) = audited(false);
    let client = client(&context);
    let (call, _reader) = call(&client, &request(1, "tools/call", r#"{"name":"edit"}"#));
    for outcome in [CallOutcome::ToolError, CallOutcome::Ok] {
        call.answer(bytes::Bytes::from_static(b"0123456789").into(), outcome);
    }
    context.audit.as_ref().unwrap().close();
    let written = std::fs::read_to_string(directory.join("audit.jsonl")).unwrap();
    let is_call = |entry: &serde_json::Value| entry["event"] == "tool_called";
    let entries: Vec<serde_json::Value> =
        written.lines().map(|line| serde_json::from_str(line).unwrap()).filter(is_call).collect();
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(entry["tool"], "edit");
    assert_eq!((&entry["outcome"], &entry["answer_bytes"]), (&"tool_error".into(), &10.into()));
    assert_eq!(entry["session"], client.handle().to_string());
}

#[test]
fn an_answer_counts_as_what_it_says() {
    for (result, outcome) in [
        ("{}", CallOutcome::Ok),
        (r#"{"isError":false}"#, CallOutcome::Ok),
        (r#"{"isError":true,"content":[]}"#, CallOutcome::ToolError),
        (r#"{"isError":"yes"}"#, CallOutcome::Ok),
        ("null", CallOutcome::Ok),
        ("[true]", CallOutcome::Ok),
    ] {
        assert_eq!(outcome_of(&response(1, result)), outcome, "{result}");
    }
    let error = message(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#);
    let wire::Message::Response(error) = error else { panic!("a response") };
    assert_eq!(outcome_of(&error), CallOutcome::Error);
}

#[test]
fn reports_about_files_are_read_whole_or_not_at_all() {
    let operation = r#"{"operation":"write","path":"/a","bytes":3,"outcome":"ok"}"#;
    let good = format!(r#"{{"requestId":7,"tool":"edit","operations":[{operation}]}}"#);
    let files = ReportedFiles::read(&notification("notifications/x", &good)).unwrap();
    assert_eq!((files.request_id, files.tool.as_str(), files.operations.len()), (7, "edit", 1));
    for bad in ["{}", r#"{"requestId":7,"tool":"edit"}"#, r#"{"requestId":-1,"tool":"edit","operations":[]}"#]
    {
        assert!(ReportedFiles::read(&notification("notifications/x", bad)).is_none(), "{bad}");
    }
}

#[test]
fn a_report_about_a_file_names_its_session_and_tool() {
    let operation = r#"{"operation":"write","path":"/a","bytes":3,"outcome":"ok"}"#;
    let file: ReportedFile = serde_json::from_str(operation).unwrap();
    let entry = file.entry(None, &crate::testing::upstream(upstream::Lifecycle::Session), "edit");
    let entry = serde_json::to_value(&entry).unwrap();
    assert_eq!((&entry["tool"], &entry["path"], &entry["bytes"]), (&"edit".into(), &"/a".into(), &3.into()));
}
