//! The address on the command line is the only one that `ringfence connect` uses: redirects, proxies and impostors get
//! neither the token nor a request.

use serde_json::json;
use testkit::{Gateway, wait_until};
use tokio::process::Command;

use super::recorder::Recorder;
use super::tokens::{ALICE, write_tokens};
use super::{Proxy, Site, error_of};
use crate::authentication::{write_certificate, write_private};

async fn start(site: &Site) -> Gateway {
    write_tokens(site);
    site.gateway().flag("--auth-token-file").flag(site.directory.join("tokens")).start().await
}

/// The control: a client that follows redirects, and uses the proxy that the environment names.
async fn trusting_client(url: &str, proxy: &str) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--location-trusted", "--max-time", "120", "--header"]);
    curl.arg(format!("Authorization: Bearer {ALICE}")).arg(url).env("http_proxy", proxy);
    curl.env_remove("no_proxy").env_remove("NO_PROXY");
    assert!(curl.output().await.expect("curl is installed").status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_to_another_address_does_not_get_the_token() {
    let site = Site::new("connect-redirect");
    let elsewhere = Recorder::start().await;
    let gateway = Recorder::redirecting_to(&elsewhere.url()).await;
    let mut ide = site.ide(&gateway.url()).env("RINGFENCE_TOKEN", ALICE).open().await;
    wait_until("the redirect is told", async || {
        let refused = ide.call("remote_echo", json!({"text": "x"})).await;
        error_of(&refused).contains("redirect")
    })
    .await;
    ide.echoes("local").await;
    assert!(gateway.has_received(ALICE), "the control: the address of the command line gets the token");
    assert_eq!(elsewhere.received().len(), 0);
    trusting_client(&gateway.url(), "").await;
    assert!(elsewhere.has_received(ALICE), "the control: a client that follows sends the token there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirected_attachment_does_not_get_the_token() {
    let site = Site::new("connect-redirected-attachment");
    let elsewhere = Recorder::start().await;
    let gateway = start(&site).await;
    let proxy = Proxy::start(gateway.url()).await;
    proxy.redirect_attachments(&format!("{}/session/x/attach", elsewhere.url()));
    let mut ide = site.ide(&proxy.url()).env("RINGFENCE_TOKEN", ALICE).open().await;
    ide.echoes("remote").await;
    wait_until("the attachment was tried again", async || proxy.attached() > 1).await;
    assert!(site.connect_log().contains("307"), "{}", site.connect_log());
    assert_eq!(elsewhere.received().len(), 0);
    trusting_client(&elsewhere.url(), "").await;
    assert_eq!(elsewhere.received().len(), 1, "the control: it can be reached");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_of_the_environment_sees_nothing_that_goes_to_this_machine() {
    let site = Site::new("connect-environment-proxy");
    let recorder = Recorder::start().await;
    let gateway = start(&site).await;
    let mut ide =
        site.ide(gateway.url()).env("RINGFENCE_TOKEN", ALICE).env("NO_PROXY", "").env("no_proxy", "");
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"] {
        ide = ide.env(name, recorder.url());
    }
    let mut ide = ide.open().await;
    ide.echoes("remote").await;
    assert_eq!(recorder.received().len(), 0);
    trusting_client(gateway.url(), &recorder.url()).await;
    assert!(
        recorder.has_received(ALICE),
        "the control: a client that heeds the variable sends the token there"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_changes_its_identity_gets_nothing_more() {
    let site = Site::new("connect-impostor");
    write_tokens(&site);
    let with_tls = |certificate, key| {
        let tokens = site.directory.join("tokens");
        let builder = site.gateway().flag("--auth-token-file").flag(tokens);
        builder.flag("--tls-cert").flag(certificate).flag("--tls-key").flag(key).start()
    };
    let (certificate, key) = write_certificate(&site.directory);
    let trusted = site.directory.join("trusted.pem");
    write_private(&trusted, &std::fs::read_to_string(&certificate).unwrap());
    let gateway = with_tls(certificate, key).await;
    let proxy = Proxy::start(gateway.url()).await;
    let url = proxy.url().replace("http://", "https://");
    let ide = site.ide(&url).env("SSL_CERT_FILE", &trusted).env("RINGFENCE_TOKEN", ALICE);
    let mut ide = ide.open().await;
    ide.echoes("remote").await;

    // Another certificate of the same name, which the machine does not trust.
    let other = testkit::workspace_dir("connect-impostor-certificate");
    let (certificate, key) = write_certificate(&other);
    let impostor = with_tls(certificate, key).await;
    proxy.cut();
    proxy.lead_to(impostor.url());
    wait_until("the reason is told", async || {
        let refused = ide.call("remote_echo", json!({"text": "x"})).await;
        error_of(&refused).contains("certificate")
    })
    .await;
    // A listener that speaks no TLS: plain HTTP is not tried in its place.
    let plain = Recorder::start().await;
    proxy.cut();
    proxy.lead_to(&plain.url());
    wait_until("it is tried again", async || plain.received().iter().any(|bytes| !bytes.is_empty())).await;
    let refused = ide.call("remote_echo", json!({"text": "x"})).await;
    assert!(error_of(&refused).contains("could not be reached"), "{refused}");
    ide.echoes("local").await;
    let is_handshake = |bytes: &Vec<u8>| bytes.is_empty() || bytes[0] == 0x16;
    assert!(plain.received().iter().all(is_handshake) && !plain.has_received(ALICE));

    proxy.cut();
    proxy.lead_to(gateway.url());
    ide.call_until_it_works("remote_echo", &json!({"text": "x"})).await;
}
