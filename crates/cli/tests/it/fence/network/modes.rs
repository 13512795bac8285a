//! The modes without a proxy: all, none, localhost and ports.

use testkit::{PipedProcess, within_deadline};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Outcomes, PROBE};
use crate::fence::programs::fenced_run::FencedRun;

/// A server on the host's loopback that answers every request with `host`.
struct HostServer {
    port: u16,
    /// Whether it also listens on `::1`, on the same port.
    has_ipv6: bool,
}

impl HostServer {
    async fn start() -> Self {
        loop {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let has_ipv6 = match TcpListener::bind(("::1", port)).await {
                Ok(listener) => {
                    tokio::spawn(answer_all(listener));
                    true
                }
                // Another program uses that port on ::1.
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => continue,
                Err(_) => false,
            };
            tokio::spawn(answer_all(listener));
            return Self { port, has_ipv6 };
        }
    }
}

async fn answer_all(listener: TcpListener) {
    while let Ok((connection, _)) = listener.accept().await {
        tokio::spawn(answer(connection));
    }
}

async fn answer(mut connection: TcpStream) -> std::io::Result<()> {
    // The request is short enough for one read.
    let _length = connection.read(&mut [0; 4096]).await?;
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhost").await
}

async fn body_from(port: u16) -> String {
    let asking = async {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).await?;
        connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = within_deadline("the host's server answers", asking).await.unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Runs the probes in a fence that prints its report.
async fn probe(run: &FencedRun, options: &[&str], probes: &[&str]) -> Outcomes {
    run.write_in_scope("probe.py", PROBE);
    let command = [&["python3", "probe.py"], probes].concat();
    Outcomes::read(run.run(&[options, &["--report", "--json"]].concat(), command).await.succeeded())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_reaches_the_hosts_loopback_and_says_so() {
    let server = HostServer::start().await;
    let [v4, v6] = [format!("tcp:127.0.0.1:{}", server.port), format!("tcp:::1:{}", server.port)];
    for run in FencedRun::in_each_tier().await {
        for options in [&[][..], &["--net", "all"], &["--profile", "development"]] {
            let outcomes = probe(&run, options, &[&v4, &v6, "pair", "unix"]).await;
            outcomes.assert(&v4, "host");
            if server.has_ipv6 {
                outcomes.assert(&v6, "host");
            }
            outcomes.assert("pair", "through the pair");
            outcomes.assert("unix", "EPERM");
            outcomes.assert_network(
                "all: not restricted; host loopback, local network and cloud metadata are reachable",
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unix_sockets_are_there_on_request_where_they_lead_to_no_one_outside() {
    let [tier_a, tier_b] = FencedRun::in_each_tier().await;
    let options = ["--net", "none", "--unix-sockets"];
    let refused = tier_a.run(&options, ["true"]).await;
    refused.assert_code(125);
    assert!(refused.stderr.contains("unix_pathname"), "{refused:?}");
    for run in [&tier_a, &tier_b] {
        let accepted = [&options[..], &["--allow-degraded", "unix_pathname"]].concat();
        probe(run, &accepted, &["unix"]).await.assert("unix", "made");
    }
    probe(&tier_b, &options, &["unix"]).await.assert("unix", "made");
}

#[tokio::test(flavor = "multi_thread")]
async fn none_refuses_everything_but_socket_pairs() {
    let server = HostServer::start().await;
    let [v4, v6] = [format!("tcp:127.0.0.1:{}", server.port), format!("tcp:::1:{}", server.port)];
    let udp = format!("udp:127.0.0.1:{}", server.port);
    for run in FencedRun::in_each_tier().await {
        for options in [&["--net", "none"], &["--restrict-network", "none"], &["--profile", "offline"]] {
            let probes = [&v4, &v6, &udp, "unix", "serve:0", "dns:host.example", "pair"];
            let outcomes = probe(&run, options, &probes).await;
            for refused in &probes[..6] {
                outcomes.assert(refused, "EPERM");
            }
            outcomes.assert("pair", "through the pair");
            outcomes.assert_network("none: no network");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_allows_tcp_to_these_ports_alone() {
    let (allowed, other) = (HostServer::start().await, HostServer::start().await);
    let allowed_port = allowed.port.to_string();
    let [v4, v6] = [format!("tcp:127.0.0.1:{}", allowed.port), format!("tcp:::1:{}", allowed.port)];
    let [other_v4, other_v6] = [format!("tcp:127.0.0.1:{}", other.port), format!("tcp:::1:{}", other.port)];
    let udp = format!("udp:127.0.0.1:{}", allowed.port);
    for run in FencedRun::in_each_tier().await {
        let probes = [&v4, &v6, &other_v4, &other_v6, &udp, "dns:host.example", "pair"];
        let outcomes = probe(&run, &["--net", "ports", "--tcp-port", &allowed_port], &probes).await;
        outcomes.assert(&v4, "host");
        if allowed.has_ipv6 {
            outcomes.assert(&v6, "host");
        }
        outcomes.assert(&other_v4, "EACCES");
        outcomes.assert(&other_v6, "EACCES");
        outcomes.assert(&udp, "EPERM");
        outcomes.assert("dns:host.example", "EPERM");
        outcomes.assert("pair", "through the pair");
        outcomes.assert_network(&format!(
            "ports: TCP to port {allowed_port} of any address including loopback; no UDP, so no DNS but over TCP"
        ));
        let usual = probe(&run, &["--net", "ports"], &[&v4]).await;
        usual.assert(&v4, "EACCES");
        usual.assert_network(
            "ports: TCP to port 80, 443 of any address including loopback; no UDP, so no DNS but over TCP",
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn localhost_has_the_mirrored_ports_of_the_host_and_no_others() {
    let (mirrored, other) = (HostServer::start().await, HostServer::start().await);
    let mirrored_port = mirrored.port.to_string();
    let [v4, v6] = [format!("tcp:127.0.0.1:{}", mirrored.port), format!("tcp:::1:{}", mirrored.port)];
    let [by_name, other_v4] =
        [format!("tcp:localhost:{}", mirrored.port), format!("tcp:127.0.0.1:{}", other.port)];
    let [_, run] = FencedRun::in_each_tier().await;
    let probes = [&v4, &v6, &by_name, &other_v4, "tcp:192.0.2.1:80", "udp:192.0.2.1:53", "pair"];
    let outcomes = probe(&run, &["--net", "localhost", "--host-port", &mirrored_port], &probes).await;
    outcomes.assert(&v4, "host");
    outcomes.assert(&by_name, "host");
    if mirrored.has_ipv6 {
        outcomes.assert(&v6, "host");
    }
    outcomes.assert(&other_v4, "ECONNREFUSED");
    outcomes.assert("tcp:192.0.2.1:80", "ENETUNREACH");
    outcomes.assert("udp:192.0.2.1:53", "ENETUNREACH");
    outcomes.assert("pair", "through the pair");
    outcomes.assert_network(&format!(
        "localhost: a private loopback plus these ports of the host: {mirrored_port}"
    ));
    let bare = probe(&run, &["--net", "localhost"], &[&v4]).await;
    bare.assert(&v4, "ECONNREFUSED");
    bare.assert_network("localhost: a private loopback");
}

#[tokio::test(flavor = "multi_thread")]
async fn localhost_keeps_servers_inside_to_the_inside() {
    // The server inside will listen on the same port, but on a loopback of its own.
    let server = HostServer::start().await;
    let [_, run] = FencedRun::in_each_tier().await;
    run.write_in_scope("probe.py", PROBE);
    let [serve, ask] = [format!("serve:{}", server.port), format!("tcp:127.0.0.1:{}", server.port)];
    let command = ["python3", "probe.py", &serve, &ask, "hold"];
    let mut inside = PipedProcess::start(&mut run.command(&["--net", "localhost"], command));
    assert_eq!(inside.read_line().await, Some(format!("{serve} -> started")));
    assert_eq!(inside.read_line().await, Some(format!("{ask} -> inside")));
    assert_eq!(inside.read_line().await.as_deref(), Some("hold"));
    assert_eq!(body_from(server.port).await, "host");
    inside.close_stdin();
    assert_eq!(inside.exit_status().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_that_need_a_network_of_their_own_are_refused_without() {
    let [run, _] = FencedRun::in_each_tier().await;
    for mode in ["localhost", "http"] {
        let ended = run.run(&["--net", mode], ["true"]).await;
        ended.assert_code(125);
        assert!(ended.stderr.contains("network namespace") && ended.stderr.contains("hint: "), "{ended:?}");
    }
}
