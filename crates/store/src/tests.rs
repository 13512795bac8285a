//! The store against a real file system: what is found again, what is refused, what is set aside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use identity::{Principal, RecordKey, SessionId, SessionKey};

use super::*;

fn directory(name: &str) -> PathBuf {
    let own = format!("ringfence-store-{name}-{}", uuid::Uuid::new_v4().simple());
    std::env::temp_dir().join(own).join("state")
}

fn key(number: u8) -> RecordKey {
    RecordKey::from_bytes([number; 32])
}

fn session(number: u8, body: &str) -> SessionRow {
    SessionRow { key: key(number), body: body.to_owned() }
}

fn call(number: u8, stream: u64) -> CallRow {
    CallRow { session: key(number), stream, body: format!("call {stream}") }
}

fn reopened(path: &Path) -> Loaded {
    Store::open(path).unwrap().1
}

#[tokio::test]
async fn what_was_saved_is_found_again() {
    let path = directory("again");
    let (store, loaded) = Store::open(&path).unwrap();
    assert!(loaded.sessions.is_empty() && loaded.calls.is_empty() && loaded.ends.is_empty());
    store.save(Change::Session(session(1, "one"))).await;
    store.save(Change::Session(session(2, "two"))).await;
    store.note(Change::Call(call(1, 5)));
    store.note(Change::Call(call(1, u64::MAX)));
    store.note(Change::Session(session(2, "two again")));
    store.close();
    drop(store);
    let loaded = reopened(&path);
    assert_eq!(loaded.sessions, [session(1, "one"), session(2, "two again")]);
    assert_eq!(loaded.calls.len(), 2);
    assert!(loaded.calls.contains(&call(1, 5)) && loaded.calls.contains(&call(1, u64::MAX)));
}

#[tokio::test]
async fn a_session_that_is_over_leaves_only_its_end() {
    let path = directory("ends");
    let (store, _) = Store::open(&path).unwrap();
    let end = |number, until| EndRow { key: key(number), until, body: "why".to_owned() };
    for number in 1..=3 {
        store.save(Change::Session(session(number, "x"))).await;
        store.save(Change::Call(call(number, 1))).await;
    }
    store.save(Change::Ended { key: key(1), end: Some(end(1, i64::MAX)) }).await;
    store.save(Change::Ended { key: key(2), end: Some(end(2, 1)) }).await;
    store.save(Change::CallOver { session: key(3), stream: 1 }).await;
    drop(store);
    let loaded = reopened(&path);
    assert_eq!((loaded.sessions, loaded.calls), (vec![session(3, "x")], vec![]));
    assert_eq!(loaded.ends, [end(1, i64::MAX)], "the other one is too old to matter");
}

#[test]
fn only_one_gateway_has_a_store_and_only_its_user_can_read_it() {
    let path = directory("lock");
    let (store, _) = Store::open(&path).unwrap();
    let refused = Store::open(&path).unwrap_err();
    assert!(matches!(refused, StoreError::InUse { .. }), "{refused}");
    assert!(refused.hint().contains("--state-dir"));
    for file in fs::read_dir(&path).unwrap().flatten() {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
    }
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    drop(store);
    assert!(Store::open(&path).is_ok());
}

#[test]
fn a_directory_that_others_may_use_is_refused_and_stays_as_it_is() {
    let path = directory("shared");
    fs::create_dir_all(&path).unwrap();
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    for shared in [0o755, 0o710, 0o777] {
        fs::set_permissions(&path, PermissionsExt::from_mode(shared)).unwrap();
        let refused = Store::open(&path).unwrap_err();
        assert!(matches!(refused, StoreError::NotPrivate { .. }), "{refused}");
        assert!(refused.hint().contains("chmod 700"), "{}", refused.hint());
        assert_eq!((mode(), fs::read_dir(&path).unwrap().count()), (shared, 0));
    }
    fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    assert!(Store::open(&path).is_ok(), "the control");
}

#[tokio::test]
async fn a_damaged_database_is_set_aside_and_a_new_one_begins() {
    let path = directory("damaged");
    let (store, _) = Store::open(&path).unwrap();
    for number in 0..200 {
        store.save(Change::Session(session(number, &"x".repeat(3000)))).await;
    }
    drop(store);
    let file = path.join("sessions.db");
    for (round, harm) in [damage_the_middle as fn(&Path), replace, shorten].into_iter().enumerate() {
        harm(&file);
        let (store, loaded) = Store::open(&path).unwrap();
        assert_eq!(loaded.sessions, [], "round {round}");
        store.save(Change::Session(session(1, "new"))).await;
        drop(store);
        assert_eq!(reopened(&path).sessions, [session(1, "new")]);
        let (store, _) = Store::open(&path).unwrap();
        for number in 0..200 {
            store.save(Change::Session(session(number, &"x".repeat(3000)))).await;
        }
    }
    let damaged = fs::read_dir(&path).unwrap().flatten().filter(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        name.contains(".damaged-") && !name.ends_with("-wal")
    });
    assert!((1..=2).contains(&damaged.count()), "they are kept for a look, but not all of them");
}

fn damage_the_middle(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let length = bytes.len();
    assert!(length > 100_000, "{length}");
    bytes[4096..length - 4096].fill(0xA5);
    fs::write(file, bytes).unwrap();
}

fn replace(file: &Path) {
    fs::write(
        file,
        "no database at all, but longer than the header of one is, which has a hundred bytes".repeat(9),
    )
    .unwrap();
}

fn shorten(file: &Path) {
    let length = fs::metadata(file).unwrap().len();
    fs::File::options().write(true).open(file).unwrap().set_len(length / 2 + 100).unwrap();
}

#[test]
fn what_a_newer_program_wrote_is_left_alone() {
    let path = directory("newer");
    drop(Store::open(&path).unwrap());
    let file = path.join("sessions.db");
    rusqlite::Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let before = fs::read(&file).unwrap();
    let refused = Store::open(&path).unwrap_err();
    assert!(matches!(refused, StoreError::Newer { found: 99, .. }), "{refused}");
    assert!(refused.hint().contains("--ephemeral"));
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[tokio::test]
async fn a_full_disk_degrades_the_store_and_nothing_is_forgotten() {
    let path = directory("full");
    let held = StoreDirectory::lock(&path).unwrap();
    let (database, _) = Database::open(&held).unwrap();
    database.allow_pages(60);
    let shared = Arc::<Shared>::default();
    let writer = Writer::start(Arc::clone(&shared), database).unwrap();
    let store = Store { shared, writer, directory: held };
    let large = |number| Change::Session(session(number, &"x".repeat(100_000)));
    store.save(large(1)).await;
    assert_eq!(store.condition(), Condition::Healthy, "the control: it fits once");
    store.save(large(2)).await;
    store.save(large(3)).await;
    let Condition::Degraded(reason) = store.condition() else { panic!("it was written") };
    assert!(reason.contains("full"), "{reason}");
    store.note(Change::Ended { key: key(1), end: None });
    store.note(Change::Ended { key: key(2), end: None });
    while store.condition() != Condition::Healthy {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    drop(store);
    let kept: Vec<RecordKey> = reopened(&path).sessions.into_iter().map(|row| row.key).collect();
    assert_eq!(kept, [key(3)]);
}

#[tokio::test]
async fn the_id_of_a_session_is_in_no_file() {
    let path = directory("ids");
    let id = SessionId::random();
    let key = SessionKey { principal: Principal::anonymous(), id }.record_key();
    let (store, _) = Store::open(&path).unwrap();
    store.save(Change::Session(SessionRow { key, body: "marker-7".to_owned() })).await;
    let all = || -> Vec<u8> {
        fs::read_dir(&path).unwrap().flatten().flat_map(|file| fs::read(file.path()).unwrap()).collect()
    };
    let holds = |needle: &[u8]| all().windows(needle.len()).any(|window| window == needle);
    assert!(holds(b"marker-7"), "the control: what is written is found");
    assert!(!holds(id.expose().as_bytes()));
    assert!(!holds(&hex(&id.expose())), "nor its bytes");
}

fn hex(id: &str) -> Vec<u8> {
    let digits: Vec<u8> = id.bytes().filter(|byte| *byte != b'-').collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[tokio::test]
async fn a_database_gives_back_the_space_of_what_was_removed() {
    let path = directory("shrinks");
    let (store, _) = Store::open(&path).unwrap();
    for number in 0..100 {
        store.note(Change::Session(session(number, &"x".repeat(100_000))));
    }
    store.save(Change::Session(session(100, "the last"))).await;
    let file = || fs::metadata(path.join("sessions.db")).unwrap().len();
    let full = store.usage();
    assert!(full.bytes > 10_000_000, "{full:?}");
    for number in 0..100 {
        store.note(Change::Ended { key: key(number), end: None });
    }
    store.save(Change::Session(session(100, "the last again"))).await;
    let empty = store.usage();
    assert!(empty.bytes < 200_000 && empty.writes > full.writes, "{full:?}, then {empty:?}");
    // It is made smaller after those who wait were told.
    store.close();
    assert!(file() < 1_500_000, "{}", file());
    drop(store);
    assert_eq!(reopened(&path).sessions, [session(100, "the last again")]);
}

#[test]
fn a_database_of_before_can_be_made_smaller_too() {
    let path = directory("conversion");
    drop(Store::open(&path).unwrap());
    let file = path.join("sessions.db");
    let mode = |connection: &rusqlite::Connection| -> i64 {
        connection.query_row("PRAGMA auto_vacuum", [], |row| row.get(0)).unwrap()
    };
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.execute_batch("PRAGMA auto_vacuum = NONE; VACUUM").unwrap();
    connection.execute("INSERT INTO sessions VALUES (?1, 'kept')", [key(1).as_bytes().as_slice()]).unwrap();
    assert_eq!(mode(&connection), 0, "the control");
    drop(connection);
    assert_eq!(reopened(&path).sessions, [session(1, "kept")]);
    assert_eq!(mode(&rusqlite::Connection::open(&file).unwrap()), 2);
}

#[tokio::test]
async fn ends_are_bounded_while_the_gateway_runs() {
    let path = directory("many-ends");
    let (store, _) = Store::open(&path).unwrap();
    let end = |number: u16, until| {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        let key = RecordKey::from_bytes(bytes);
        Change::Ended { key, end: Some(EndRow { key, until, body: String::new() }) }
    };
    for number in 0..1500 {
        store.note(end(number, i64::from(number) + 10_000_000_000));
    }
    store.save(end(2000, 1)).await;
    let count = || -> i64 {
        let connection = rusqlite::Connection::open(path.join("sessions.db")).unwrap();
        connection.query_row("SELECT count(*) FROM ends", [], |row| row.get(0)).unwrap()
    };
    drop(store);
    assert_eq!(count(), 1024, "the oldest are gone, and the one whose time is over");
}
