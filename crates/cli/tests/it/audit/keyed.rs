//! Logs with a key: what can be forged without it, and what cannot.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use audit::{AuditEntry, AuditKey, AuditLog, AuditSettings};
use serde_json::{Value, json};
use testkit::{Gateway, NEWEST};

use super::{Site, audit, call, lines, verify};
use crate::authentication::{set_mode, write_private};

/// Makes a key with the command.
fn make_key(site: &Site, name: &str) -> String {
    let path = site.directory.join(name).to_str().unwrap().to_owned();
    let made = audit(&["key", &path]);
    assert!(made.status.success(), "{made:?}");
    path
}

/// Runs a gateway that writes the log, with some calls.
async fn run(site: &Site, flags: &[&str]) {
    let mut gateway = site.gateway().flags(flags).start().await;
    call(&gateway.open().await, 3).await;
    gateway.terminate().await;
}

/// Replaces a log by another one, which is consistent in itself.
fn forge(path: &Path, key: Option<AuditKey>) {
    fs::remove_file(path).unwrap();
    let log = AuditLog::open(path, AuditSettings::default(), key).unwrap();
    for _ in 0..3 {
        log.record(AuditEntry::RequestRefused {
            session: None,
            reason: "nothing happened".into(),
            peer: None,
        });
    }
    log.close();
}

#[tokio::test]
async fn a_log_that_was_written_anew_without_the_key_is_found() {
    let (plain, keyed) = (Site::new("audit-plain"), Site::new("audit-keyed"));
    let key = make_key(&keyed, "key");
    run(&plain, &[]).await;
    run(&keyed, &["--audit-key", &key]).await;
    assert_eq!(verify(&plain.log(), &[]).0, 0);
    let (code, told) = verify(&keyed.log(), &["--key", &key]);
    assert_eq!(code, 0, "{told}");

    forge(&plain.log(), None);
    assert_eq!(verify(&plain.log(), &[]).0, 0, "the control: without a key the forgery is not found");
    let honest = lines(&keyed.log());
    forge(&keyed.log(), None);
    let (code, told) = verify(&keyed.log(), &["--key", &key]);
    assert!(code == 1 && told.contains("not hashed with a key"), "{told}");
    // Also with the line that says that the log has this key, or with another key.
    let forged = lines(&keyed.log());
    fs::write(keyed.log(), format!("{}\n{}\n", honest[0], forged[1..].join("\n"))).unwrap();
    let (code, told) = verify(&keyed.log(), &["--key", &key]);
    assert!(code == 1 && told.contains("line 2"), "{told}");
    forge(&keyed.log(), Some(AuditKey::new(&[7; 32]).unwrap()));
    let (code, told) = verify(&keyed.log(), &["--key", &key]);
    assert!(code == 1 && told.contains("not with"), "{told}");
    fs::write(keyed.log(), honest.join("\n") + "\n").unwrap();
    assert_eq!(verify(&keyed.log(), &["--key", &key]).0, 0, "the control: as it was, it is intact");
}

#[tokio::test]
async fn a_log_keeps_its_key_or_its_lack_of_one() {
    let site = Site::new("audit-key-kept");
    let (key, other) = (make_key(&site, "key"), make_key(&site, "other"));
    let refused = async |flags: &[&str], expected: &str| {
        let before = fs::read(site.log()).unwrap();
        let failed = site.gateway().flags(flags).try_start().await.unwrap_err();
        assert!(failed.stderr.contains(expected) && failed.stderr.contains("hint: "), "{}", failed.stderr);
        assert_eq!(fs::read(site.log()).unwrap(), before, "the log was left alone");
    };
    run(&site, &["--audit-key", &key]).await;
    let first: Value = serde_json::from_str(&site.lines()[0]).unwrap();
    assert_eq!((&first["event"], &first["keyed"]), (&json!("chain_keyed"), &json!(true)));
    let id = first["key_id"].as_str().unwrap();
    refused(&[], &format!("hashed with a key (id {id})")).await;
    refused(&["--audit-key", &other], &format!("hashed with the key {id}")).await;
    run(&site, &["--audit-key", &key]).await;
    assert_eq!(verify(&site.log(), &["--key", &key]).0, 0);
    let (code, told) = verify(&site.log(), &[]);
    assert!(code == 2 && told.contains("hint: give the file with the key"), "{told}");

    fs::remove_file(site.log()).unwrap();
    run(&site, &[]).await;
    refused(&["--audit-key", &key], "not hashed with a key").await;
    run(&site, &[]).await;
    let (code, told) = verify(&site.log(), &["--key", &key]);
    assert!(code == 1 && told.contains("not hashed with a key"), "{told}");
}

#[tokio::test]
async fn a_key_is_private_long_enough_and_never_replaced() {
    let site = Site::new("audit-key-file");
    let key = make_key(&site, "key");
    let text = fs::read_to_string(&key).unwrap();
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let again = audit(&["key", &key]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    assert_eq!(fs::read_to_string(&key).unwrap(), text);
    let refused = async |expected: &str| {
        let failed = site.gateway().flags(["--audit-key", &key]).try_start().await.unwrap_err();
        assert_eq!(failed.status.code(), Some(2), "{}", failed.stderr);
        assert!(failed.stderr.contains(expected) && failed.stderr.contains("hint: "), "{}", failed.stderr);
        assert!(!failed.stderr.contains(text.trim()), "{}", failed.stderr);
        assert!(!site.log().exists());
        let (code, told) = verify(&site.log(), &["--key", &key]);
        assert!(code == 2 && told.contains(expected), "{told}");
    };
    set_mode(Path::new(&key), 0o640);
    refused("mode 640").await;
    write_private(Path::new(&key), &format!("{}\n", "x".repeat(31)));
    refused("31 bytes").await;
    write_private(Path::new(&key), &"x".repeat(32));
    run(&site, &["--audit-key", &key]).await;
}

#[tokio::test]
async fn no_server_can_read_the_key_of_the_log() {
    let site = Site::new("audit-key-hidden");
    let private = site.directory.join("private");
    fs::create_dir(&private).unwrap();
    let key = make_key(&site, "private/key");
    let secret = fs::read_to_string(&key).unwrap();
    fs::write(private.join("other"), &secret).unwrap();
    let gateway = Gateway::built_in()
        .flag("--no-config")
        .flag("--audit-log")
        .flag(site.log())
        .flags(["--audit-key", &key, "--read", private.to_str().unwrap()])
        .env("XDG_CACHE_HOME", site.directory.join("caches"))
        .current_dir(site.directory.join("project"))
        .start()
        .await;
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    let shown =
        client.call_tool("run_terminal_cmd", json!({"command": "cat ../private/other"})).await.to_string();
    assert!(shown.contains(secret.trim()), "the control: {shown}");
    let hidden =
        client.call_tool("run_terminal_cmd", json!({"command": "cat ../private/key"})).await.to_string();
    assert!(!hidden.contains(secret.trim()), "{hidden}");
}
