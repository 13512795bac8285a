//! A gateway that speaks TLS: requests and the attachment trust only the machine's certificates.

use serde_json::{Value, json};
use testkit::{Gateway, wait_until};
use tokio::process::Command;

use super::{Site, error_of, shows};
use crate::authentication::write_certificate;

async fn start(site: &Site) -> Gateway {
    let (certificate, key) = write_certificate(&site.directory);
    site.gateway().flag("--tls-cert").flag(certificate).flag("--tls-key").flag(key).start().await
}

/// The gateway's report on the session whose id `connect` stored in its session file.
async fn report(site: &Site, gateway: &Gateway) -> Option<Value> {
    let session = std::fs::read_to_string(site.directory.join("session.json")).ok()?;
    let session: Value = serde_json::from_str(&session).ok()?;
    let url = gateway.url().trim_end_matches("/mcp");
    let url = format!("{url}/session/{}", session["sessionId"].as_str()?);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--max-time", "120", "--cacert"]).arg(site.directory.join("cert.pem")).arg(url);
    serde_json::from_slice(&curl.output().await.expect("curl is installed").stdout).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_tls_is_used_and_attached_to() {
    let site = Site::new("connect-tls");
    let gateway = start(&site).await;
    assert!(gateway.url().starts_with("https://"), "{}", gateway.url());
    let ide = site.ide(gateway.url()).env("SSL_CERT_FILE", site.directory.join("cert.pem"));
    let mut ide = ide.flag("--session-file").flag(site.directory.join("session.json")).open().await;
    ide.echoes("remote").await;
    ide.echoes("local").await;
    wait_until("the client's machine is attached through TLS", async || {
        let report = report(&site, &gateway).await.unwrap_or_default();
        report["attached"] == true && shows(&report, "local_echo")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let site = Site::new("connect-untrusted-tls");
    let gateway = start(&site).await;
    let mut ide = site.ide(gateway.url()).open().await;
    let refused = ide.call("remote_echo", json!({"text": "x"})).await;
    assert!(error_of(&refused).contains("gateway"), "{refused}");
    wait_until("the reason is told in words", async || {
        site.connect_log()
            .contains("an authority that this machine does not trust; `ringfence connect --ca FILE`")
    })
    .await;
    ide.echoes("local").await;
    wait_until("the reason is told", async || site.connect_log().to_lowercase().contains("certificate"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificates_of_a_file_are_trusted_too() {
    let site = Site::new("connect-ca");
    let gateway = start(&site).await;
    let mut ide = site.ide(gateway.url()).flag("--ca").flag(site.directory.join("cert.pem")).open().await;
    ide.echoes("remote").await;
    for (file, text, reason) in
        [("missing.pem", None, "--ca"), ("empty.pem", Some("nothing"), "there is no certificate in it")]
    {
        let file = site.directory.join(file);
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let mut command = Command::new(testkit::ringfence_binary());
        let ended = command.args(["connect", gateway.url(), "--ca"]).arg(&file).output().await.unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(reason) && stderr.contains("hint: name a PEM file"), "{stderr}");
    }
}
