//! Syslog sinks that are away, break, hang, or cannot be trusted: nothing is lost, the order is kept, and the gateway
//! goes on.

use testkit::wait_until;

use super::receivers::{Manner, SyslogReceiver, tls};
use super::{Site, assert_complete, call, unsent};

#[tokio::test]
async fn a_sink_that_was_away_gets_everything_in_order() {
    let site = Site::new("sink-away");
    let mut receiver = SyslogReceiver::away();
    let mut gateway = site.gateway_with_sink(&receiver.url()).start().await;
    let client = gateway.open().await;
    call(&client, 20).await;
    gateway.wait_for_log("takes no records").await;
    assert!(unsent(&gateway).await >= 20);
    receiver.listen(Manner::Proper, None).await;
    wait_until("everything is sent", async || unsent(&gateway).await == 0).await;
    assert!(receiver.lines().len() >= 20);
    gateway.wait_for_log("takes records again").await;

    receiver.leave().await;
    call(&client, 20).await;
    receiver.listen(Manner::Proper, None).await;
    wait_until("the rest is sent", async || unsent(&gateway).await == 0).await;
    // The last records are written, and sent, when the gateway ends.
    gateway.terminate().await;
    let lines = site.lines();
    for (event, times) in [("session_ended", 1), ("worker_started", 2), ("worker_exited", 2), ("lost", 0)] {
        let event = format!("\"event\":\"{event}\"");
        assert_eq!(lines.iter().filter(|line| line.contains(&event)).count(), times, "{event}: {lines:#?}");
    }
    assert_eq!(receiver.spoiled(), 0);
    assert_complete(&receiver.lines(), &site.lines());
}

#[tokio::test]
async fn a_sink_that_breaks_while_it_reads_gets_everything_afterwards() {
    let site = Site::new("sink-breaks");
    let mut receiver = SyslogReceiver::away();
    receiver.listen(Manner::Breaks, None).await;
    let mut gateway = site.gateway_with_sink(&receiver.url()).start().await;
    let client = gateway.open().await;
    call(&client, 20).await;
    // Everything was written into these connections without an error.
    wait_until("the same is sent again", async || receiver.spoiled() > 2).await;
    assert!(unsent(&gateway).await >= 20);
    receiver.listen(Manner::Proper, None).await;
    wait_until("everything is sent", async || unsent(&gateway).await == 0).await;
    gateway.terminate().await;
    assert_complete(&receiver.lines(), &site.lines());
}

#[tokio::test]
async fn a_gateway_that_was_killed_sends_the_rest_after_its_restart() {
    let site = Site::new("sink-killed");
    let mut receiver = SyslogReceiver::away();
    receiver.listen(Manner::Proper, None).await;
    let mut gateway = site.gateway_with_sink(&receiver.url()).start().await;
    let client = gateway.open().await;
    call(&client, 5).await;
    wait_until("the first are sent", async || unsent(&gateway).await == 0).await;
    receiver.leave().await;
    call(&client, 20).await;
    let before = receiver.lines().len();
    wait_until("all is in the log", async || site.lines().len() >= before + 20).await;
    gateway.kill().await;

    receiver.listen(Manner::Proper, None).await;
    let mut gateway = site.gateway_with_sink(&receiver.url()).start().await;
    call(&gateway.open().await, 5).await;
    gateway.terminate().await;
    let lines = receiver.lines();
    assert_complete(&lines, &site.lines());
    assert!(lines.len() < site.lines().len() + before, "what was acknowledged is not sent again");
}

#[tokio::test]
async fn gateways_that_are_killed_at_any_moment_lose_nothing() {
    let site = Site::new("sink-killed-often");
    let mut receiver = SyslogReceiver::away();
    receiver.listen(Manner::Proper, None).await;
    for calls in [0, 1, 7, 15, 30] {
        let mut gateway = site.gateway_with_sink(&receiver.url()).start().await;
        call(&gateway.open().await, calls).await;
        gateway.kill().await;
    }
    let mut gateway = site.gateway_with_sink(&receiver.url()).start().await;
    wait_until("everything is sent", async || unsent(&gateway).await == 0).await;
    gateway.terminate().await;
    assert_complete(&receiver.lines(), &site.lines());
}

#[tokio::test]
async fn a_sink_that_hangs_delays_no_call_and_no_end() {
    let site = Site::new("sink-hangs");
    let mut receiver = SyslogReceiver::away();
    receiver.listen(Manner::Hangs, None).await;
    let mut gateway = site.gateway_with_sink(&receiver.url()).start().await;
    let client = gateway.open().await;
    call(&client, 1).await;
    wait_until("the sink hangs", async || receiver.spoiled() > 0).await;
    call(&client, 200).await;
    assert!(unsent(&gateway).await > 200);
    assert!(gateway.terminate().await.success());
    assert!(gateway.log().contains("are not sent yet"), "{}", gateway.log());
    assert_eq!(receiver.lines().len(), 0);
}

#[tokio::test]
async fn a_sink_with_tls_is_trusted_only_with_its_certificate() {
    let site = Site::new("sink-tls");
    let mut receiver = SyslogReceiver::away();
    receiver.listen(Manner::Proper, Some(tls(&site))).await;
    let url = format!("syslog+tls://localhost:{}", receiver.address.port());
    let mut gateway = site.gateway_with_sink(&url).start().await;
    call(&gateway.open().await, 3).await;
    gateway.wait_for_log("certificate").await;
    gateway.terminate().await;
    assert_eq!(receiver.lines().len(), 0);
    assert!(receiver.spoiled() > 0);

    let trusting = site.gateway_with_sink(&url).env("SSL_CERT_FILE", site.directory.join("cert.pem"));
    let mut gateway = trusting.start().await;
    call(&gateway.open().await, 3).await;
    gateway.terminate().await;
    assert_complete(&receiver.lines(), &site.lines());
}

#[tokio::test]
async fn records_do_not_leave_this_machine_in_clear() {
    let site = Site::new("sink-clear");
    let started = async |flags: &[&str]| site.gateway().flags(flags).try_start().await.map(drop);
    for url in
        ["syslog+tcp://10.0.0.1:514", "http://log.example/in", "syslog+udp://127.0.0.1:514", "log.example"]
    {
        let failed = started(&["--audit-sink", url]).await.unwrap_err();
        assert_eq!(failed.status.code(), Some(2), "{url}: {}", failed.stderr);
        assert!(failed.stderr.contains("syslog+tls://"), "{url}: {}", failed.stderr);
    }
    started(&["--audit-sink", "syslog+tcp://127.0.0.1:9"]).await.expect("the control");
}
