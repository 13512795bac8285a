//! TLS, with curl as the client: the gateway presents the configured certificate and reloads it when it changes.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, ringfence_binary, wait_until};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::process::Command;

use super::{ALICE, Site, write_private};

/// Writes a self-signed certificate for this host, and its key.
pub(crate) fn write_certificate(directory: impl AsRef<Path>) -> (PathBuf, PathBuf) {
    let directory = directory.as_ref();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    write_private(&key, &made.signing_key.serialize_pem());
    write_private(&certificate, &made.cert.pem());
    (certificate, key)
}

fn with_tls(site: &Site, host: &str, certificate: &Path, key: &Path) -> testkit::GatewayBuilder {
    let builder = site.gateway(Gateway::unfenced()).host(host);
    builder.flag("--tls-cert").flag(certificate).flag("--tls-key").flag(key)
}

async fn curl(certificate: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--include", "--max-time", "120", "--cacert"]).arg(certificate);
    command.args(arguments).output().await.expect("curl is installed")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs `ringfence sessions list --json` and returns its output.
pub(super) async fn sessions_list(site: &Site) -> String {
    let mut command = Command::new(ringfence_binary());
    command.args(["sessions", "list", "--json"]).env("XDG_CACHE_HOME", site.directory.join("caches"));
    text(&command.output().await.unwrap())
}

async fn post(url: &str, certificate: &Path, session: &str, message: Value) -> String {
    let authorization = format!("Authorization: Bearer {ALICE}");
    let message = message.to_string();
    let mut arguments = vec!["-H", &authorization, "-H", "Content-Type: application/json"];
    arguments.extend(["-H", "Accept: application/json, text/event-stream", "-d", &message, url]);
    let session = format!("Mcp-Session-Id: {session}");
    if session.len() > "Mcp-Session-Id: ".len() {
        arguments.extend(["-H", &session]);
    }
    text(&curl(certificate, &arguments).await)
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {"name": "curl", "version": "1"}}})
}

#[tokio::test]
async fn a_client_that_trusts_the_certificate_is_served_over_tls() {
    let site = Site::new("tls");
    let (certificate, key) = write_certificate(&site.directory);
    for host in ["127.0.0.1", "0.0.0.0"] {
        let gateway = with_tls(&site, host, &certificate, &key).start().await;
        assert!(gateway.url().starts_with("https://"), "{}", gateway.url());
        let url = gateway.url().replace("0.0.0.0", "127.0.0.1");
        // A client that connects and sends nothing does not delay others.
        let address = url.trim_start_matches("https://").trim_end_matches("/mcp").to_owned();
        let _silent = TcpStream::connect(&address).await.unwrap();
        let mut plain = TcpStream::connect(&address).await.unwrap();
        plain.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();

        let opened = post(&url, &certificate, "", initialize()).await;
        assert!(opened.starts_with("HTTP/1.1 200"), "{opened}");
        let mut lines = opened.lines().map(str::to_lowercase);
        let session = lines.find_map(|line| line.strip_prefix("mcp-session-id: ").map(str::to_owned));
        let session = session.unwrap();
        let echo = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": "echo", "arguments": {"text": "through TLS"}}});
        let answer = post(&url, &certificate, &session, echo).await;
        assert!(answer.contains("through TLS"), "{answer}");
        let refused = text(&curl(&certificate, &["-X", "DELETE", &url]).await);
        assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");

        let mut untrusting = Command::new("curl");
        let untrusted = untrusting.args(["--silent", "--show-error", &url]).output().await.unwrap();
        assert_eq!(untrusted.status.code(), Some(60), "the control: {}", text(&untrusted));
        let listed = sessions_list(&site).await;
        assert!(listed.contains("alice") && listed.contains("https://"), "{listed}");
    }
}

#[tokio::test]
async fn a_changed_certificate_is_taken_up_and_a_bad_one_is_not() {
    let site = Site::new("tls-change");
    let (certificate, key) = write_certificate(&site.directory);
    let old = site.directory.join("old.pem");
    std::fs::copy(&certificate, &old).unwrap();
    let gateway = with_tls(&site, "127.0.0.1", &certificate, &key).start().await;
    let health = gateway.url().replace("/mcp", "/health");
    let is_trusted = async |by: &Path| curl(by, &[&health]).await.status.success();
    assert!(is_trusted(&old).await);

    let good_key = std::fs::read_to_string(&key).unwrap();
    write_private(&key, "no key");
    wait_until("a bad key is told", async || {
        assert!(is_trusted(&old).await);
        gateway.log().contains("cannot be used")
    })
    .await;
    write_private(&key, &good_key);
    write_certificate(&site.directory);
    wait_until("the new certificate is shown", async || is_trusted(&certificate).await).await;
    assert!(!is_trusted(&old).await);
}

#[tokio::test]
async fn a_pair_that_does_not_fit_is_refused_with_a_hint() {
    let site = Site::new("tls-bad");
    let (certificate, key) = write_certificate(&site.directory);
    let refused = async || {
        let failed = with_tls(&site, "127.0.0.1", &certificate, &key).try_start().await.unwrap_err();
        assert_eq!(failed.status.code(), Some(2), "{}", failed.stderr);
        assert!(failed.stderr.contains("hint: "), "{}", failed.stderr);
        failed.stderr
    };
    let other_key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let good_key = std::fs::read_to_string(&key).unwrap();
    write_private(&key, &other_key);
    assert!(refused().await.contains("must belong to"));
    write_private(&key, "");
    assert!(refused().await.contains("key.pem"));
    write_private(&key, &good_key);
    write_private(&certificate, "");
    assert!(refused().await.contains("it holds no certificate"));
    std::fs::remove_file(&certificate).unwrap();
    assert!(refused().await.contains("cert.pem"));
}
