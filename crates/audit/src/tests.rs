//! Tests of the whole log: a written log verifies, and a changed one does not.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::*;
use identity::{Handle, SessionId};

const SMALL: AuditSettings = AuditSettings { max_file_bytes: 1000, kept_files: 3 };

/// The path of a log in an empty directory beside the test program.
pub(super) fn place(name: &str) -> PathBuf {
    let directory = std::env::current_exe().unwrap().with_file_name("audit-unit-tests").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory.join("audit.jsonl")
}

fn handle() -> Handle {
    SessionId::random().handle()
}

pub(super) fn refused(reason: &str) -> AuditEntry {
    AuditEntry::RequestRefused { session: None, reason: reason.into(), peer: None }
}

/// Writes entries named from `names` and closes the log.
fn write(path: &Path, settings: AuditSettings, names: std::ops::Range<u32>) {
    let log = AuditLog::open(path, settings, None).unwrap();
    for name in names {
        log.record(refused(&name.to_string()));
        // One batch each, so that files end where they are expected to.
        log.flush();
    }
    log.close();
}

fn records(path: &Path) -> Vec<Value> {
    read(path).unwrap().map(|line| serde_json::from_slice(&line.unwrap().text).unwrap()).collect()
}

pub(super) fn reasons(path: &Path) -> Vec<String> {
    records(path).iter().filter_map(|record| record["reason"].as_str().map(str::to_owned)).collect()
}

/// The error that verification finds, with its line.
fn broken_line(path: &Path) -> (u64, LineError) {
    match verify(path, None, None) {
        Err(VerifyError::Broken { line, error, file }) if file == path => (line, error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_recorded_is_in_the_log_and_verifies() {
    let path = place("recorded");
    let log = AuditLog::open(&path, AuditSettings::default(), None).unwrap();
    let session = handle();
    log.record(AuditEntry::ToolCalled {
        session,
        upstream: "files".into(),
        tool: Some("read".into()),
        method: "tools/call".into(),
        outcome: CallOutcome::ToolError,
        milliseconds: 1.234_567,
        request_bytes: 10,
        answer_bytes: 20,
        command: None,
        arguments: AuditArguments::from_json("{\n  \"path\": \"a\\nb\"\n}"),
    });
    log.record(refused("host"));
    log.flush();
    assert_eq!(records(&path).len(), 2, "flushed while the log is open");
    log.close();
    let called = &records(&path)[0];
    assert_eq!((&called["seq"], &called["event"]), (&1.into(), &"tool_called".into()));
    assert_eq!((&called["session"], &called["outcome"]), (&session.to_string().into(), &"tool_error".into()));
    assert_eq!((&called["milliseconds"], &called["arguments"]["path"]), (&1.235.into(), &"a\nb".into()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let verified = verify(&path, None, None).unwrap();
    assert_eq!((verified.files, verified.records, verified.lost), (1, 2, 0));
    assert_eq!((verified.first_seq, verified.last_seq), (Some(1), Some(2)));
    assert!(verified.starts_at_beginning);
    log.record(refused("too late"));
    assert_eq!(log.lost(), 1);
}

#[test]
fn every_kind_of_change_is_found_where_it_is() {
    let path = place("tampered");
    write(&path, AuditSettings::default(), 0..6);
    let original = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = original.lines().collect();
    verify(&path, None, None).expect("the control: untouched, it verifies");
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        change(&mut lines);
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        broken_line(&path)
    };
    let changed = with(&|lines| lines[2] = lines[2].replace("\"reason\":\"2\"", "\"reason\":\"9\""));
    assert_eq!(changed, (3, LineError::Changed));
    let added_field = with(&|lines| lines[2] = lines[2].replace(",\"previous\"", ",\"x\":1,\"previous\""));
    assert_eq!(added_field, (3, LineError::Changed));
    assert_eq!(with(&|lines| lines[5].push(' ')), (6, LineError::NotARecord));
    assert_eq!(with(&|lines| lines[5].insert(0, ' ')), (6, LineError::Changed));
    let removed = with(&|lines| drop(lines.remove(3)));
    assert_eq!(removed, (4, LineError::Missing { expected: 4, found: 5 }));
    let repeated = with(&|lines| lines.insert(3, lines[2].clone()));
    assert_eq!(repeated, (4, LineError::Misplaced { expected: 4, found: 3 }));
    let swapped = with(&|lines| lines.swap(2, 3));
    assert_eq!(swapped, (3, LineError::Missing { expected: 3, found: 4 }));
    assert_eq!(with(&|lines| lines.insert(3, String::new())), (4, LineError::NotARecord));
    assert_eq!(with(&|lines| lines.insert(3, "{\"seq\":4}".to_owned())), (4, LineError::NotARecord));
}

#[test]
fn a_line_with_a_right_hash_of_its_own_is_found_by_the_next_one() {
    let (path, other) = (place("forged"), place("forged-from"));
    write(&path, AuditSettings::default(), 0..4);
    write(&other, AuditSettings::default(), 10..14);
    let forged = fs::read_to_string(&other).unwrap();
    let mut lines: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
    lines[0] = forged.lines().next().unwrap().to_owned();
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    assert_eq!(broken_line(&path), (2, LineError::Replaced));
}

#[test]
fn a_tail_that_was_cut_off_is_found_by_the_hash_kept_elsewhere() {
    let path = place("cut");
    write(&path, AuditSettings::default(), 0..4);
    let kept = verify(&path, None, None).unwrap().last_hash;
    verify(&path, None, Some(kept)).unwrap();
    let original = fs::read_to_string(&path).unwrap();
    let cut: String = original.split_inclusive('\n').take(3).collect();
    fs::write(&path, cut).unwrap();
    verify(&path, None, None).expect("the chain alone does not tell");
    assert!(matches!(verify(&path, None, Some(kept)), Err(VerifyError::OtherEnd { seen: None, .. })));
    // A log that has grown since is told apart.
    fs::write(&path, original).unwrap();
    write(&path, AuditSettings::default(), 4..5);
    match verify(&path, None, Some(kept)) {
        Err(VerifyError::OtherEnd { seen: Some((file, 4)), .. }) => assert_eq!(file, path),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_chain_goes_on_over_files_and_restarts() {
    let path = place("rotated");
    write(&path, SMALL, 0..8);
    write(&path, SMALL, 8..13);
    let verified = verify(&path, None, None).unwrap();
    assert!(verified.files > 2 && verified.starts_at_beginning, "{verified:?}");
    assert_eq!((verified.records, verified.last_seq), (13, Some(13)));
    let expected: Vec<String> = (0..13).map(|name| name.to_string()).collect();
    assert_eq!(reasons(&path), expected);
    for number in 1..u32::try_from(verified.files).unwrap() {
        let mode = fs::metadata(files::numbered(&path, number)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    // A gap between the files is found.
    fs::remove_file(files::numbered(&path, 1)).unwrap();
    assert!(matches!(verify(&path, None, None), Err(VerifyError::MissingFile { .. })));
}

#[test]
fn old_files_go_and_verification_says_that_it_begins_later() {
    let path = place("pruned");
    write(&path, SMALL, 0..40);
    let verified = verify(&path, None, None).unwrap();
    assert_eq!((verified.files, verified.last_seq), (4, Some(40)));
    assert!(!verified.starts_at_beginning && verified.first_seq > Some(1), "{verified:?}");
    assert_eq!(verified.first_seq.unwrap() + verified.records, 41);
    // Fewer are kept from now on.
    write(&path, AuditSettings { kept_files: 1, ..SMALL }, 40..50);
    assert_eq!(verify(&path, None, None).unwrap().files, 2);
}

#[test]
fn a_log_whose_newest_file_is_empty_goes_on_from_the_one_before() {
    let path = place("rotated-then-killed");
    write(&path, AuditSettings::default(), 0..3);
    fs::rename(&path, files::numbered(&path, 1)).unwrap();
    write(&path, AuditSettings::default(), 3..4);
    assert_eq!(verify(&path, None, None).unwrap().last_seq, Some(4));
}

#[test]
fn a_torn_last_line_is_cut_off_kept_and_told_of() {
    let path = place("torn");
    write(&path, AuditSettings::default(), 0..3);
    let whole = fs::read(&path).unwrap();
    let torn = &whole[..whole.len() - 20];
    fs::write(&path, torn).unwrap();
    assert!(matches!(broken_line(&path), (3, LineError::Torn { .. })));
    write(&path, AuditSettings::default(), 3..4);
    let told = &records(&path)[2];
    let lost = told["lost_bytes"].as_u64().unwrap();
    assert_eq!(told["event"], "recovered");
    assert_eq!(reasons(&path), ["0", "1", "3"]);
    verify(&path, None, None).unwrap();
    let kept = fs::read(files::beside(&path, ".torn")).unwrap();
    assert_eq!((kept.len() as u64, torn.ends_with(&kept)), (lost, true));
}

#[test]
fn the_very_first_line_may_be_torn_too() {
    let path = place("torn-first");
    fs::write(&path, b"{\"se").unwrap();
    write(&path, AuditSettings::default(), 0..1);
    assert_eq!(records(&path)[0]["lost_bytes"], 4);
    assert!(verify(&path, None, None).unwrap().starts_at_beginning);
}

#[test]
fn a_file_that_is_no_log_is_left_alone() {
    let path = place("foreign");
    for content in ["my notes", "my notes\n", "{\"seq\":1}\n", "\n"] {
        fs::write(&path, content).unwrap();
        let error = AuditLog::open(&path, AuditSettings::default(), None).unwrap_err();
        assert!(matches!(error, OpenError::NotALog { .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
}

#[test]
fn links_and_other_things_than_files_are_refused() {
    let path = place("linked");
    let target = path.with_file_name("target");
    fs::write(&target, "").unwrap();
    symlink(&target, &path).unwrap();
    let error = AuditLog::open(&path, AuditSettings::default(), None).unwrap_err();
    assert!(matches!(error, OpenError::Symlink { .. }), "{error}");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(AuditLog::open(&path, AuditSettings::default(), None), Err(OpenError::Io { .. })));
}

#[test]
fn two_gateways_do_not_write_one_log() {
    let path = place("locked");
    let first = AuditLog::open(&path, SMALL, None).unwrap();
    // Also after a rotation.
    for name in 0..10 {
        let error = AuditLog::open(&path, SMALL, None).unwrap_err();
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        assert!(error.hint().contains("its own"));
        first.record(refused(&name.to_string()));
        first.flush();
    }
    first.close();
    write(&path, SMALL, 10..11);
    assert_eq!(verify(&path, None, None).unwrap().last_seq, Some(11));
}

#[test]
fn what_there_is_no_room_for_is_counted_in_the_log() {
    let path = place("overflow");
    let queue = Arc::new(Queue::bounded(3, usize::MAX));
    for name in 0..10 {
        queue.push(refused(&name.to_string()));
    }
    let log = AuditLog::start(queue, &path, AuditSettings::default(), None).unwrap();
    log.flush();
    log.record(refused("later"));
    log.close();
    assert_eq!(reasons(&path), ["0", "1", "2", "later"]);
    assert_eq!((&records(&path)[3]["event"], &records(&path)[3]["count"]), (&"lost".into(), &7.into()));
    assert_eq!((verify(&path, None, None).unwrap().lost, log.lost()), (7, 7));
}

#[test]
fn the_queue_is_bounded_in_bytes_too() {
    let path = place("heavy");
    let queue = Arc::new(Queue::bounded(usize::MAX, 10_000));
    for _ in 0..10 {
        queue.push(refused(&"x".repeat(4000)));
    }
    assert_eq!(queue.lost(), 8);
    let log = AuditLog::start(queue, &path, AuditSettings::default(), None).unwrap();
    log.close();
    assert_eq!(verify(&path, None, None).unwrap().lost, 8);
}

#[test]
fn many_threads_record_and_nothing_is_missing() {
    let path = place("threads");
    let log =
        AuditLog::open(&path, AuditSettings { max_file_bytes: 100_000, kept_files: 100 }, None).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..2000).for_each(|name| log.record(refused(&name.to_string()))));
        }
        // Verifying while the log is being written finds no error.
        for _ in 0..5 {
            verify(&path, None, None).unwrap();
        }
    });
    log.close();
    let verified = verify(&path, None, None).unwrap();
    assert_eq!(reasons(&path).len() as u64 + verified.lost, 8000);
}
