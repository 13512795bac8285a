//! A real syslog receiver: rsyslog takes the log over TCP and TLS, and what it has stored verifies.

use std::fs;

use testkit::{PipedProcess, rsyslog, wait_until};

use super::receivers::tls;
use super::{Site, assert_complete, call, lines, unsent, verify};

/// A running rsyslog.
struct Rsyslog {
    tcp: u16,
    tls: u16,
    _process: PipedProcess,
}

impl Rsyslog {
    /// Starts it on free ports. It stores the messages, without their headers, in `received.jsonl`.
    async fn start(site: &Site) -> Self {
        let place = |name: &str| site.directory.join(name).to_str().unwrap().to_owned();
        let configuration = format!(
            r#"global(workDirectory="{directory}" maxMessageSize="8m"
    defaultNetstreamDriverCAFile="{certificate}"
    defaultNetstreamDriverCertFile="{certificate}"
    defaultNetstreamDriverKeyFile="{key}")
module(load="imtcp" maxSessions="10")
template(name="message" type="string" string="%msg%\n")
input(type="imtcp" address="127.0.0.1" port="0" listenPortFileName="{tcp}")
input(type="imtcp" address="127.0.0.1" port="0" listenPortFileName="{tls}"
    streamDriver.Name="gtls" streamDriver.Mode="1" streamDriver.AuthMode="anon")
if $programname == "ringfence" and $syslogfacility == 13 then
    action(type="omfile" file="{received}" template="message")
"#,
            directory = site.directory.path().display(),
            certificate = place("cert.pem"),
            key = place("key.pem"),
            tcp = place("tcp.port"),
            tls = place("tls.port"),
            received = place("received.jsonl"),
        );
        fs::write(place("rsyslog.conf"), configuration).unwrap();
        let mut command = rsyslog();
        command.args(["-n", "-f", &place("rsyslog.conf"), "-i", &place("rsyslog.pid")]);
        let process = PipedProcess::start(&mut command);
        let port = |name: &str| fs::read_to_string(place(name)).ok()?.trim().parse::<u16>().ok();
        wait_until("rsyslog listens", async || port("tcp.port").is_some() && port("tls.port").is_some())
            .await;
        Self { tcp: port("tcp.port").unwrap(), tls: port("tls.port").unwrap(), _process: process }
    }
}

#[tokio::test]
async fn rsyslog_stores_the_log_as_it_is_and_its_copy_verifies() {
    let site = Site::new("sink-rsyslog");
    tls(&site);
    let rsyslog = Rsyslog::start(&site).await;
    let key = site.directory.join("audit.key");
    crate::authentication::write_private(&key, &"k".repeat(32));
    let received = site.directory.join("received.jsonl");
    let sinks = [
        format!("syslog+tcp://127.0.0.1:{}", rsyslog.tcp),
        format!("syslog+tls://localhost:{}", rsyslog.tls),
    ];
    for sink in sinks {
        let builder = site.gateway_with_sink(&sink).flag("--audit-key").flag(&key);
        let mut gateway = builder.env("SSL_CERT_FILE", site.directory.join("cert.pem")).start().await;
        call(&gateway.open().await, 10).await;
        wait_until("rsyslog has everything", async || unsent(&gateway).await == 0).await;
        gateway.terminate().await;
        wait_until("rsyslog has stored everything", async || lines(&received).len() >= site.lines().len())
            .await;
    }
    assert_complete(&lines(&received), &site.lines());
    let (code, told) = verify(&received, &["--key", key.to_str().unwrap()]);
    assert_eq!(code, 0, "what the other machine has can be checked there: {told}");
}
