//! Whole exchanges over real sockets: a client as it would be inside a fence, the services, and servers of
//! the test in the place of the Internet. The rules for hosts and addresses are the real ones; only look-ups and
//! the last hop are scripted.

use std::net::SocketAddr;
use std::sync::Arc;

use simple_dns::{CLASS, Name, Packet, QCLASS, Question, RCODE, TYPE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{JoinHandle, JoinSet};

use super::egress::Egress;
use super::outside::scripted::Script;
use super::{AllowedHosts, Listeners, serve, serve_through};

/// A public address, for names of the tests.
const PUBLIC: &str = "93.184.216.34";

struct Fence {
    proxy: SocketAddr,
    dns: SocketAddr,
    script: Arc<Script>,
    /// Ends the services when it is dropped.
    _services: JoinSet<()>,
}

impl Fence {
    /// With the names `example.org` and `other.example.net`, both public.
    fn new(hosts: AllowedHosts) -> Self {
        let script = Arc::new(Script::default());
        script.name("example.org", &[&[PUBLIC]]);
        script.name("other.example.net", &[&["93.184.216.99"]]);
        let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let dns = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (proxy_address, dns_address) = (proxy.local_addr().unwrap(), dns.local_addr().unwrap());
        let listeners = Listeners { proxy: Some(proxy), dns: Some(dns), mirrored: Vec::new() };
        let egress = Egress::new(hosts, script.outside());
        let mut services = JoinSet::new();
        services.spawn(async move { serve_through(listeners, egress).await.unwrap() });
        Self { proxy: proxy_address, dns: dns_address, script, _services: services }
    }

    async fn send(&self, request: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.proxy).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        client
    }

    /// The whole answer to a request after which the proxy closes.
    async fn ask(&self, request: &str) -> String {
        let mut answer = String::new();
        self.send(request).await.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

/// A server for one connection: once it has received `until`, it answers and ends its side, and yields all
/// that it received until the other side ended too.
async fn server(until: &'static str, answer: &'static str) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = receive_until(&mut stream, until).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        stream.read_to_string(&mut received).await.unwrap();
        received
    });
    (address, serving)
}

async fn receive_until(stream: &mut TcpStream, until: &str) -> String {
    let mut received = String::new();
    while !received.contains(until) {
        let mut buffer = [0; 1024];
        let length = stream.read(&mut buffer).await.unwrap();
        assert_ne!(length, 0, "ended after {received:?}");
        received.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    received
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";

#[tokio::test]
async fn connect_joins_client_and_server() {
    let fence = Fence::new(AllowedHosts::Any);
    let (address, serving) = server("hello", "welcome").await;
    fence.script.server("93.184.216.34:443", address);
    // The first bytes of the tunnel already come with the head.
    let mut client = fence.send("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\nhel").await;
    let established = receive_until(&mut client, "\r\n\r\n").await;
    assert!(established.starts_with("HTTP/1.1 200 "), "{established}");
    client.write_all(b"lo").await.unwrap();
    let mut answer = established.split_once("\r\n\r\n").unwrap().1.to_owned();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "welcome");
    drop(client);
    assert_eq!(serving.await.unwrap(), "hello");
}

#[tokio::test]
async fn other_ports_are_forbidden() {
    let fence = Fence::new(AllowedHosts::Any);
    for (request, reason) in [
        ("CONNECT example.org:25 HTTP/1.1\r\n\r\n", "CONNECT is only for port 443, not for port 25\n"),
        ("CONNECT example.org:80 HTTP/1.1\r\n\r\n", "CONNECT is only for port 443, not for port 80\n"),
        ("GET http://example.org:22/ HTTP/1.1\r\n\r\n", "plain HTTP is only for port 80, not for port 22\n"),
    ] {
        let answer = fence.ask(request).await;
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n") && answer.ends_with(reason), "{answer}");
    }
    assert!(fence.script.dialled().is_empty() && fence.script.looked_up().is_empty());
}

#[tokio::test]
async fn requests_that_no_proxy_serves_are_bad() {
    let fence = Fence::new(AllowedHosts::Any);
    for request in [
        "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
        "POST http://example.org/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "this is not HTTP\r\n\r\n",
    ] {
        let answer = fence.ask(request).await;
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    }
    let endless = format!("GET http://example.org/ HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(20_000));
    assert!(fence.ask(&endless).await.starts_with("HTTP/1.1 431 "));
    assert!(fence.script.dialled().is_empty());
}

#[tokio::test]
async fn addresses_of_the_host_are_forbidden_however_they_are_spelled() {
    let fence = Fence::new(AllowedHosts::Any);
    fence.script.name("rebound.example.org", &[&["127.0.0.1"]]);
    fence.script.name("metadata.google.internal", &[&["169.254.169.254"]]);
    for host in [
        "127.0.0.1",
        "0.0.0.0",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[fd00:ec2::254]",
        "localhost",
        "a.localhost",
        "router",
        "10.0.0.1",
        "rebound.example.org",
        "metadata.google.internal",
    ] {
        let connect = fence.ask(&format!("CONNECT {host}:443 HTTP/1.1\r\n\r\n")).await;
        assert!(connect.starts_with("HTTP/1.1 403 "), "{host}: {connect}");
        let get = fence.ask(&format!("GET http://{host}/ HTTP/1.1\r\n\r\n")).await;
        assert!(get.starts_with("HTTP/1.1 403 "), "{host}: {get}");
    }
    assert!(fence.script.dialled().is_empty());
}

#[tokio::test]
async fn hosts_that_are_not_listed_are_forbidden() {
    let fence = Fence::new(AllowedHosts::Only(vec!["example.org".parse().unwrap()]));
    for request in
        ["CONNECT other.example.net:443 HTTP/1.1\r\n\r\n", "GET http://93.184.216.34/ HTTP/1.1\r\n\r\n"]
    {
        let answer = fence.ask(request).await;
        assert!(answer.ends_with("is not allowed: the allow-list does not name it\n"), "{answer}");
    }
    assert!(fence.script.dialled().is_empty() && fence.script.looked_up().is_empty());
    let (address, _serving) = server("\r\n\r\n", OK).await;
    fence.script.server("93.184.216.34:80", address);
    assert_eq!(fence.ask("GET http://example.org/ HTTP/1.1\r\n\r\n").await, OK);
}

#[tokio::test]
async fn a_plain_request_reaches_the_server_rewritten_and_with_its_body() {
    let fence = Fence::new(AllowedHosts::Any);
    let (address, serving) = server("the body", OK).await;
    fence.script.server("93.184.216.34:80", address);
    let answer = fence
        .ask(
            "GET http://example.org/path HTTP/1.1\r\nHost: example.org\r\nProxy-Connection: keep-alive\r\n\
             Content-Length: 8\r\nAccept: text/plain\r\n\r\nthe body",
        )
        .await;
    assert_eq!(answer, OK);
    assert_eq!(
        serving.await.unwrap(),
        "GET /path HTTP/1.1\r\nHost: example.org\r\nAccept: text/plain\r\nContent-Length: 8\r\n\
         Connection: close\r\n\r\nthe body"
    );
}

#[tokio::test]
async fn the_server_sees_the_host_that_was_checked() {
    let fence = Fence::new(AllowedHosts::Only(vec!["example.org".parse().unwrap()]));
    let (address, serving) = server("\r\n\r\n", OK).await;
    fence.script.server("93.184.216.34:80", address);
    let request = "GET http://example.org/ HTTP/1.1\r\nHost: intranet.example.net\r\nHost: localhost\r\n\r\n";
    assert_eq!(fence.ask(request).await, OK);
    assert_eq!(serving.await.unwrap(), "GET / HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n");
}

#[tokio::test]
async fn a_second_request_on_a_connection_reaches_nobody() {
    let second = "GET http://other.example.net/ HTTP/1.1\r\nHost: other.example.net\r\n\r\n";
    for (first, expected_end) in [
        ("GET http://example.org/ HTTP/1.1\r\n\r\n", "Connection: close\r\n\r\n"),
        ("POST http://example.org/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nend", "\r\n\r\nend"),
        (
            "POST http://example.org/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nend\r\n0\r\n\r\n",
            "\r\n\r\n3\r\nend\r\n0\r\n\r\n",
        ),
    ] {
        let fence = Fence::new(AllowedHosts::Any);
        let (address, serving) = server(expected_end, OK).await;
        fence.script.server("93.184.216.34:80", address);
        assert_eq!(fence.ask(&format!("{first}{second}")).await, OK);
        let received = serving.await.unwrap();
        assert!(received.ends_with(expected_end) && !received.contains("other.example.net"), "{received}");
        assert_eq!(fence.script.dialled(), ["93.184.216.34:80"]);
        assert_eq!(fence.script.looked_up(), ["example.org"]);
    }
}

#[tokio::test]
async fn a_bad_chunk_ends_the_exchange() {
    let fence = Fence::new(AllowedHosts::Any);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    fence.script.server("93.184.216.34:80", listener.local_addr().unwrap());
    let request = "POST http://example.org/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n";
    let mut client = fence.send(request).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).await.unwrap();
    assert!(received.ends_with("\r\n\r\n"), "{received}");
    assert!(matches!(client.read(&mut [0; 16]).await, Ok(0) | Err(_)));
}

#[tokio::test]
async fn only_the_address_that_was_checked_is_dialled() {
    let fence = Fence::new(AllowedHosts::Any);
    // The attacker's server of names answers the second look-up with an address of the host.
    fence.script.name("example.org", &[&[PUBLIC], &["127.0.0.1"]]);
    let (address, _serving) = server("\r\n\r\n", OK).await;
    fence.script.server("93.184.216.34:80", address);
    assert_eq!(fence.ask("GET http://example.org/ HTTP/1.1\r\n\r\n").await, OK);
    assert_eq!(fence.script.looked_up().len(), 1);
    assert_eq!(fence.script.dialled(), ["93.184.216.34:80"]);
    let again = fence.ask("GET http://example.org/ HTTP/1.1\r\n\r\n").await;
    assert!(again.starts_with("HTTP/1.1 403 "), "{again}");
    assert_eq!(fence.script.dialled().len(), 1);
}

#[tokio::test]
async fn hosts_that_cannot_be_reached_are_bad_gateways() {
    let fence = Fence::new(AllowedHosts::Any);
    let unresolved = fence.ask("CONNECT missing.example.org:443 HTTP/1.1\r\n\r\n").await;
    assert!(unresolved.starts_with("HTTP/1.1 502 "), "{unresolved}");
    let unconnected = fence.ask("CONNECT example.org:443 HTTP/1.1\r\n\r\n").await;
    assert!(unconnected.starts_with("HTTP/1.1 502 "), "{unconnected}");
}

#[tokio::test]
async fn names_are_answered_over_udp_and_garbage_is_not() {
    let fence = Fence::new(AllowedHosts::Only(vec!["example.org".parse().unwrap()]));
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(fence.dns).await.unwrap();
    client.send(b"garbage").await.unwrap();
    for (id, name, code, count) in
        [(1, "example.org", RCODE::NoError, 1), (2, "other.example.net", RCODE::NameError, 0)]
    {
        let mut query = Packet::new_query(id);
        let class = QCLASS::CLASS(CLASS::IN);
        query.questions.push(Question::new(Name::new(name).unwrap(), TYPE::A.into(), class, false));
        client.send(&query.build_bytes_vec().unwrap()).await.unwrap();
        let mut buffer = [0; 512];
        let length = client.recv(&mut buffer).await.unwrap();
        let answer = Packet::parse(&buffer[..length]).unwrap();
        assert_eq!((answer.id(), answer.rcode(), answer.answers.len()), (id, code, count));
    }
    assert_eq!(fence.script.looked_up(), ["example.org"]);
}

/// Serves a mirrored port of the host by the public function, and asks it a question from inside.
async fn through_mirrored_port(host_address: &str) -> String {
    let host_server = TcpListener::bind(host_address).await.unwrap();
    let port = host_server.local_addr().unwrap().port();
    let inside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let inside_address = inside.local_addr().unwrap();
    let listeners = Listeners { mirrored: vec![(port, inside)], ..Listeners::default() };
    let mut services = JoinSet::new();
    services.spawn(serve(listeners, AllowedHosts::Only(Vec::new())));
    let mut client = TcpStream::connect(inside_address).await.unwrap();
    client.write_all(b"question").await.unwrap();
    let (mut stream, _) = host_server.accept().await.unwrap();
    assert_eq!(receive_until(&mut stream, "question").await, "question");
    stream.write_all(b"answer").await.unwrap();
    drop(stream);
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_mirrored_port_reaches_the_same_port_of_the_host() {
    assert_eq!(through_mirrored_port("127.0.0.1:0").await, "answer");
}

#[tokio::test]
async fn a_mirrored_port_falls_back_to_ipv6() {
    // Bound and not listening: the port refuses connections by IPv4, and no other process can take it.
    let reserved = tokio::net::TcpSocket::new_v4().unwrap();
    reserved.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = reserved.local_addr().unwrap().port();
    assert_eq!(through_mirrored_port(&format!("[::1]:{port}")).await, "answer");
}

#[tokio::test]
async fn dropping_the_services_closes_the_listeners() {
    let fence = Fence::new(AllowedHosts::Any);
    let mut client = fence.send("CONNECT exam").await;
    let proxy = fence.proxy;
    drop(fence);
    assert!(matches!(client.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    while TcpStream::connect(proxy).await.is_ok() {
        tokio::task::yield_now().await;
    }
}
