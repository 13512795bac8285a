//! HTTP sinks: what they are sent, and what happens when they refuse, redirect or cannot be trusted.

use testkit::{Gateway, GatewayBuilder, wait_until};

use super::receivers::{HttpReceiver, tls};
use super::{Site, assert_complete, call, unsent};
use crate::authentication::{set_mode, write_private};

const TOKEN: &str = "a-token-for-the-sink";

fn with_token(site: &Site, builder: GatewayBuilder) -> GatewayBuilder {
    write_private(&site.directory.join("sink.token"), &format!("{TOKEN}\n"));
    builder.flag("--audit-sink-token").flag(site.directory.join("sink.token"))
}

/// A gateway that trusts the certificate of the test.
async fn start(site: &Site, receiver: &HttpReceiver) -> Gateway {
    let builder = site.gateway_with_sink(&format!("https://{}", receiver.place()));
    let builder = builder.env("SSL_CERT_FILE", site.directory.join("cert.pem"));
    with_token(site, builder).start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_https_sink_gets_json_lines_and_the_token() {
    let site = Site::new("sink-https");
    let receiver = HttpReceiver::start(Some(tls(&site))).await;
    let mut gateway = start(&site, &receiver).await;
    call(&gateway.open().await, 20).await;
    gateway.terminate().await;
    assert_complete(&receiver.lines(), &site.lines());
    for posted in receiver.posted() {
        assert!(posted.head.starts_with("post /in http/1.1\r\n"), "{}", posted.head);
        assert!(posted.head.contains("\r\ncontent-type: application/x-ndjson\r\n"), "{}", posted.head);
        assert!(posted.head.contains(&format!("\r\nauthorization: bearer {TOKEN}\r\n")), "{}", posted.head);
    }
    assert!(!gateway.log().contains(TOKEN), "{}", gateway.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sink_refuses_is_sent_again() {
    let site = Site::new("sink-https-refuses");
    let receiver = HttpReceiver::start(Some(tls(&site))).await;
    receiver.answer("503 Service Unavailable");
    let mut gateway = start(&site, &receiver).await;
    call(&gateway.open().await, 5).await;
    gateway.wait_for_log("HTTP status 503").await;
    wait_until("it is sent again", async || receiver.posted().len() > 2).await;
    assert!(unsent(&gateway).await >= 5);
    receiver.answer("200 OK");
    wait_until("everything is sent", async || unsent(&gateway).await == 0).await;
    gateway.terminate().await;
    assert_complete(&receiver.lines(), &site.lines());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed_with_the_records_and_the_token() {
    let site = Site::new("sink-redirect");
    let (receiver, elsewhere) =
        (HttpReceiver::start(Some(tls(&site))).await, HttpReceiver::start(None).await);
    receiver.answer(&format!("307 Temporary Redirect\r\nLocation: http://{}", elsewhere.place()));
    let mut gateway = start(&site, &receiver).await;
    call(&gateway.open().await, 3).await;
    gateway.wait_for_log("HTTP status 307").await;
    gateway.terminate().await;
    assert!(!receiver.posted().is_empty(), "the control: the sink itself is reached");
    assert_eq!(elsewhere.posted().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_https_sink_without_a_trusted_certificate_gets_nothing() {
    let site = Site::new("sink-https-untrusted");
    let receiver = HttpReceiver::start(Some(tls(&site))).await;
    let builder = site.gateway_with_sink(&format!("https://{}", receiver.place()));
    let mut gateway = with_token(&site, builder).start().await;
    call(&gateway.open().await, 3).await;
    gateway.wait_for_log("certificate").await;
    gateway.terminate().await;
    assert_eq!(receiver.posted().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_of_the_environment_does_not_see_what_goes_to_this_machine() {
    let site = Site::new("sink-proxy");
    let (receiver, proxy) = (HttpReceiver::start(None).await, HttpReceiver::start(None).await);
    let mut builder = site.gateway_with_sink(&format!("http://{}", receiver.place()));
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        builder = builder.env(name, format!("http://{}", proxy.place()));
    }
    let mut gateway = builder.env("no_proxy", "").env("NO_PROXY", "").start().await;
    call(&gateway.open().await, 3).await;
    gateway.terminate().await;
    assert_complete(&receiver.lines(), &site.lines());
    assert_eq!(proxy.posted().len(), 0);
}

#[tokio::test]
async fn a_token_file_of_a_sink_is_private_and_not_for_syslog() {
    let site = Site::new("sink-token");
    let refused = async |url: &str, expected: &str| {
        let builder = site.gateway_with_sink(url).flag("--audit-sink-token");
        let failed = builder.flag(site.directory.join("sink.token")).try_start().await.unwrap_err();
        assert_eq!(failed.status.code(), Some(2), "{}", failed.stderr);
        assert!(failed.stderr.contains(expected) && failed.stderr.contains("hint: "), "{}", failed.stderr);
        assert!(!failed.stderr.contains(TOKEN), "{}", failed.stderr);
    };
    write_private(&site.directory.join("sink.token"), TOKEN);
    refused("syslog+tls://localhost:9", "HTTP sink only").await;
    set_mode(&site.directory.join("sink.token"), 0o644);
    refused("https://localhost:9/in", "mode 644").await;
}
