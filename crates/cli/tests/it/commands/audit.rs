//! `ringfence audit`: its verdict on intact and on damaged logs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use audit::{AuditEntry, AuditLog, AuditSettings};
use identity::SessionId;
use serde_json::Value;
use testkit::{WorkspaceDir, ringfence_binary, workspace_dir};

fn audit(arguments: &[&dyn AsRef<OsStr>]) -> Output {
    let mut command = Command::new(ringfence_binary());
    command.arg("audit");
    for argument in arguments {
        command.arg(argument);
    }
    command.output().unwrap()
}

fn verify(log: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut all: Vec<&dyn AsRef<OsStr>> = vec![&"verify", &log];
    all.extend(arguments.iter().map(|argument| argument as &dyn AsRef<OsStr>));
    let output = audit(&all);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Writes a log of two sessions that spans several files.
fn written() -> (WorkspaceDir, PathBuf, [String; 2]) {
    let directory = workspace_dir("audit");
    let path = directory.join("audit.jsonl");
    let log = AuditLog::open(&path, AuditSettings { max_file_bytes: 2000, kept_files: 9 }, None).unwrap();
    let sessions = [SessionId::random().handle(), SessionId::random().handle()];
    for number in 0..20 {
        log.record(AuditEntry::ScopeRefused {
            session: sessions[number % 2],
            reason: format!("refusal {number}").into(),
        });
    }
    log.close();
    (directory, path, sessions.map(|session| session.to_string()))
}

#[test]
fn a_whole_log_is_intact_and_its_last_hash_holds_it() {
    let (_directory, log, _) = written();
    let (code, stdout, stderr) = verify(&log, &[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("intact\n  20 records in ") && stdout.contains("numbers 1 to 20"), "{stdout}");
    let (code, stdout, _) = verify(&log, &["--json"]);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &report["intact"], &report["starts_at_beginning"]), (0, &true.into(), &true.into()));
    assert!(report["files"].as_u64() > Some(1), "{report}");
    let hash = report["last_hash"].as_str().unwrap();
    assert_eq!(verify(&log, &["--expect-last", hash]).0, 0);
    let (code, _, stderr) = verify(&log, &["--expect-last", &"0".repeat(64)]);
    assert!(code == 1 && stderr.contains("no line has that hash"), "{stderr}");
    assert_eq!(verify(&log, &["--expect-last", "0"]).0, 2, "not a hash");
}

#[test]
fn a_changed_log_is_broken_where_it_was_changed() {
    let (directory, log, _) = written();
    let oldest = directory.join("audit.jsonl.1");
    let text = fs::read_to_string(&oldest).unwrap();
    fs::write(&oldest, text.replacen("refusal", "Refusal", 1)).unwrap();
    let (code, stdout, stderr) = verify(&log, &[]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("audit.jsonl.1, line 1: the line was changed"), "{stderr}");
    let (code, stdout, _) = verify(&log, &["--json"]);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &report["intact"], &report["line"]), (1, &false.into(), &1.into()));
    fs::write(&oldest, text).unwrap();
    assert_eq!(verify(&log, &[]).0, 0, "the control: as it was, it is intact");
}

#[test]
fn a_log_that_is_not_there_is_not_called_broken() {
    let directory = workspace_dir("audit-none");
    let (code, _, stderr) = verify(&directory.join("none"), &[]);
    assert!(code == 2 && stderr.contains("No such file"), "{stderr}");
    assert_eq!(verify(&directory.join("none"), &["--unknown"]).0, 2);
}

#[test]
fn records_are_shown_by_session_and_event() {
    let (_directory, log, sessions) = written();
    let shown = |arguments: &[&str]| {
        let mut all: Vec<&dyn AsRef<OsStr>> = vec![&"show", &log];
        all.extend(arguments.iter().map(|argument| argument as &dyn AsRef<OsStr>));
        let output = audit(&all);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(shown(&[]).lines().count(), 20);
    let of_one = shown(&["--session", &sessions[1], "--last", "3"]);
    let reasons: Vec<_> = of_one.lines().map(|line| line.split("reason=").nth(1).unwrap()).collect();
    assert_eq!(reasons, ["\"refusal 15\"", "\"refusal 17\"", "\"refusal 19\""]);
    assert!(of_one.lines().all(|line| line.contains(&sessions[1]) && line.contains(" scope_refused ")));
    assert_eq!(shown(&["--event", "tool_called"]), "");
    let raw = shown(&["--event", "scope_refused", "--last", "1", "--json"]);
    let record: Value = serde_json::from_str(&raw).unwrap();
    assert_eq!((&record["seq"], &record["reason"]), (&20.into(), &"refusal 19".into()));
}
