//! Tests of following and sending a log that is written and rotated meanwhile.

use std::fs;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::cursor::Cursor;
use super::follower::Follower;
use super::{Sink, SinkAddress};
use crate::files;
use crate::tests::{place, refused};
use crate::{AuditLog, AuditSettings};

const SMALL: AuditSettings = AuditSettings { max_file_bytes: 1000, kept_files: 100 };

/// How often a condition is looked at.
const STEP: Duration = Duration::from_millis(5);

fn record(log: &AuditLog, names: std::ops::Range<u64>) {
    for name in names {
        log.record(refused(&name.to_string()));
        // One batch each, so that files end where they are expected to.
        log.flush();
    }
}

fn open(path: &Path, settings: AuditSettings) -> AuditLog {
    AuditLog::open(path, settings, None).unwrap()
}

fn number(line: &[u8]) -> u64 {
    serde_json::from_slice::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap()
}

/// The numbers of all records up to `last`, and how many are missing between them.
fn read(follower: &mut Follower, last: u64) -> (Vec<u64>, u64) {
    let (mut numbers, mut missed) = (Vec::new(), 0);
    loop {
        let batch = follower.read(last).unwrap();
        if batch.lines.is_empty() {
            return (numbers, missed);
        }
        numbers.extend(batch.lines.iter().map(|line| number(line)));
        missed += batch.missed;
    }
}

fn numbers(range: std::ops::RangeInclusive<u64>) -> Vec<u64> {
    range.collect()
}

#[test]
fn every_record_is_read_once_while_the_log_is_rotated() {
    let path = place("followed");
    let log = open(&path, SMALL);
    let mut follower = Follower::new(&path, Cursor::START, 0);
    assert_eq!(read(&mut follower, u64::MAX), (vec![], 0), "an empty log");
    for name in 0..40 {
        record(&log, name..name + 1);
        assert_eq!(read(&mut follower, u64::MAX), (vec![name + 1], 0));
    }
    record(&log, 40..80);
    assert!(files::numbers(&path).unwrap().len() > 10);
    let cursor = follower.cursor();
    assert_eq!(read(&mut follower, u64::MAX), (numbers(41..=80), 0), "through several files");
    let mut restarted = Follower::new(&path, cursor, 80);
    assert_eq!(read(&mut restarted, u64::MAX), (numbers(41..=80), 0), "after a restart, too");
    let mut from_the_start = Follower::new(&path, Cursor::START, 80);
    assert_eq!(read(&mut from_the_start, u64::MAX), (numbers(1..=80), 0));
}

#[test]
fn records_that_may_not_be_complete_are_left_for_later() {
    let path = place("followed-limit");
    let log = open(&path, SMALL);
    record(&log, 0..20);
    let mut follower = Follower::new(&path, Cursor::START, 20);
    assert_eq!(read(&mut follower, 7), (numbers(1..=7), 0));
    assert_eq!(read(&mut follower, 7), (vec![], 0));
    assert_eq!(read(&mut follower, 20), (numbers(8..=20), 0));
}

#[test]
fn what_rotation_deleted_is_counted() {
    let path = place("followed-deleted");
    let settings = AuditSettings { kept_files: 2, ..SMALL };
    let log = open(&path, settings);
    record(&log, 0..3);
    let mut follower = Follower::new(&path, Cursor::START, 3);
    assert_eq!(read(&mut follower, u64::MAX), (numbers(1..=3), 0));
    let mut restarted = Follower::new(&path, follower.cursor(), 3);
    record(&log, 3..60);
    for follower in [&mut follower, &mut restarted] {
        let (found, missed) = read(follower, u64::MAX);
        assert!(missed > 0 && found.last() == Some(&60), "{found:?}");
        assert_eq!(found.len() as u64 + missed, 57);
    }
}

#[test]
fn the_place_in_another_log_is_not_used() {
    let (path, other) = (place("followed-other"), place("followed-other-log"));
    record(&open(&other, SMALL), 100..110);
    let mut follower = Follower::new(&other, Cursor::START, 10);
    read(&mut follower, 5);
    let cursor = follower.cursor();
    let log = open(&path, SMALL);
    record(&log, 0..3);
    let mut shorter = Follower::new(&path, cursor, 3);
    assert_eq!(read(&mut shorter, u64::MAX), (numbers(1..=3), 0));
    record(&log, 3..20);
    let mut longer = Follower::new(&path, cursor, 20);
    assert_eq!(read(&mut longer, u64::MAX), (numbers(1..=20), 0));
    let mut same = Follower::new(&other, cursor, 10);
    assert_eq!(read(&mut same, u64::MAX), (numbers(6..=10), 0), "the control");
}

#[test]
fn what_is_no_record_holds_up_none_that_is() {
    let path = place("followed-garbage");
    record(&open(&path, AuditSettings::default()), 0..4);
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[1] = "garbage";
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    let mut follower = Follower::new(&path, Cursor::START, 4);
    assert_eq!(read(&mut follower, u64::MAX), (vec![1, 3, 4], 1));
}

#[test]
fn long_records_are_sent_in_several_batches() {
    let path = place("followed-long");
    let log = open(&path, AuditSettings::default());
    for _ in 0..300 {
        log.record(refused(&"x".repeat(4000)));
    }
    log.flush();
    let mut follower = Follower::new(&path, Cursor::START, 300);
    let first = follower.read(300).unwrap();
    assert!(first.is_full() && first.lines.len() < 300, "{}", first.lines.len());
    let (rest, missed) = read(&mut follower, 300);
    assert_eq!((first.lines.len() + rest.len(), missed), (300, 0));
}

#[test]
fn a_cursor_is_read_as_it_was_saved_and_a_damaged_one_starts_over() {
    let path = place("cursor");
    assert_eq!(Cursor::load(&path), Cursor::START);
    record(&open(&path, SMALL), 0..3);
    let mut follower = Follower::new(&path, Cursor::START, 3);
    read(&mut follower, 2);
    follower.cursor().save(&path).unwrap();
    assert_eq!(Cursor::load(&path), follower.cursor());
    fs::write(files::beside(&path, ".sink"), "{\"seq\":2").unwrap();
    assert_eq!(Cursor::load(&path), Cursor::START);
}

fn sink(receiver: SocketAddr) -> Sink {
    let address: SinkAddress = format!("syslog+tcp://{receiver}").parse().unwrap();
    Sink::new(address, None, no_certificates()).unwrap()
}

fn no_certificates() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    tls.unwrap().with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}

/// Takes batches in a thread that ends with the test.
fn receive(listener: TcpListener) -> Arc<Mutex<Vec<u64>>> {
    let received = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Closed only after the records are taken.
            let mut stream = stream.unwrap();
            let mut frames = String::new();
            stream.read_to_string(&mut frames).unwrap();
            let messages = frames.split(" - {\"seq\":").skip(1);
            let numbers = messages.map(|message| message.split(',').next().unwrap().parse().unwrap());
            taken.lock().extend(numbers.collect::<Vec<u64>>());
        }
    });
    received
}

#[test]
fn what_a_sink_has_missed_is_recorded_and_the_rest_arrives() {
    let path = place("shipped-missed");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let settings = AuditSettings { kept_files: 2, ..SMALL };
    let log = open(&path, settings);
    record(&log, 0..3);
    Cursor { seq: 3, hash: last_hash(&path) }.save(&path).unwrap();
    record(&log, 3..60);
    let numbers_received = receive(listener);
    log.ship_to(sink(address)).unwrap();
    assert!(log.unsent().is_some());
    while log.unsent() != Some(0) || numbers_received.lock().last() != Some(&61) {
        std::thread::sleep(STEP);
    }
    log.close();
    let text = fs::read_to_string(&path).unwrap();
    let told: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&told["seq"], &told["event"]), (&61.into(), &"sink_missed".into()));
    let numbers_received = numbers_received.lock().clone();
    assert_eq!(numbers_received, numbers(numbers_received[0]..=61));
    assert_eq!(told["count"].as_u64().unwrap() + numbers_received.len() as u64, 61 - 3);
    assert_eq!(Cursor::load(&path).seq, 61);
}

fn last_hash(path: &Path) -> crate::AuditHash {
    crate::verify(path, None, None).unwrap().last_hash
}

#[test]
fn what_is_recorded_last_is_sent_before_the_log_is_closed() {
    let path = place("shipped-last");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let log = open(&path, SMALL);
    log.ship_to(sink(listener.local_addr().unwrap())).unwrap();
    let received = receive(listener);
    record(&log, 0..20);
    log.close();
    assert_eq!(*received.lock(), numbers(1..=20));
}

#[test]
fn a_token_is_not_for_syslog() {
    let address: SinkAddress = "syslog+tls://log.example:6514".parse().unwrap();
    assert!(Sink::new(address.clone(), None, no_certificates()).is_ok());
    assert!(Sink::new(address, Some("token"), no_certificates()).is_err());
}
