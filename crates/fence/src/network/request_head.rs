//! The head of a request to the proxy: read with bounds, checked strictly, and for plain HTTP written anew for the
//! server. Headers that frame or route a message are never copied from the client.

use std::io::{self, Write};

use tokio::io::{AsyncRead, AsyncReadExt};

use super::hosts::{Host, HostError};
use super::request_body::BodyLength;

/// What common servers accept as well.
const LONGEST_HEAD: usize = 16 * 1024;

const MOST_HEADERS: usize = 128;

/// The one port for CONNECT.
pub(super) const TUNNEL_PORT: u16 = 443;

/// The one port for plain HTTP.
pub(super) const PLAIN_PORT: u16 = 80;

/// Headers that belong to one connection, and those that we write ourselves. Also `Proxy-…` and those that
/// `Connection` names.
const NOT_PASSED_ON: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What a client asks of the proxy. The ports are given: no other one passes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// CONNECT to port 443.
    Tunnel { host: Host },
    /// A plain HTTP request to port 80, and its head as the server shall see it.
    Forward { host: Host, head: Vec<u8>, body: BodyLength },
}

/// Why a head is not acted upon.
#[derive(Debug, thiserror::Error)]
pub(super) enum HeadError {
    #[error("the connection ended before the request did")]
    Ended(#[source] io::Error),
    #[error(
        "the head of the request is longer than {LONGEST_HEAD} bytes or has more than {MOST_HEADERS} headers"
    )]
    TooLong,
    #[error("the request is malformed: {0}")]
    Malformed(&'static str),
    #[error("this is a proxy: ask for http://host/path, or CONNECT host:443")]
    NotForAProxy,
    #[error("{reason}")]
    Refused { authority: String, reason: RefusedTarget },
}

/// Why a well-formed target is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum RefusedTarget {
    #[error("CONNECT is only for port {TUNNEL_PORT}, not for port {0}")]
    TunnelPort(u16),
    #[error("plain HTTP is only for port {PLAIN_PORT}, not for port {0}")]
    PlainPort(u16),
    #[error("only http:// can be asked for like this; https:// goes by CONNECT")]
    Scheme,
    #[error("the host is refused: {0}")]
    Host(HostError),
}

/// Reads until the empty line that ends a head. Returns the head, and what came behind it.
pub(super) async fn read_head(
    client: &mut (impl AsyncRead + Unpin),
) -> Result<(Vec<u8>, Vec<u8>), HeadError> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        let searched = bytes.len().saturating_sub(3);
        let space = (LONGEST_HEAD - bytes.len()) as u64;
        let read = client.take(space).read_buf(&mut bytes).await.map_err(HeadError::Ended)?;
        if let Some(position) = find_head_end(&bytes[searched..]) {
            let rest = bytes.split_off(searched + position);
            return Ok((bytes, rest));
        }
        if bytes.len() >= LONGEST_HEAD {
            return Err(HeadError::TooLong);
        }
        if read == 0 {
            return Err(HeadError::Ended(io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

/// Judges a head that [`read_head`] has read.
pub(super) fn parse_head(head: &[u8]) -> Result<Request, HeadError> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        // Elsewhere than at its first CR LF CR LF a head only ends for a reader that is laxer than we are.
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(HeadError::Malformed("its lines do not end with CR LF")),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLong),
        Err(_) => return Err(HeadError::Malformed("it is not HTTP/1")),
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(HeadError::Malformed("it is incomplete"));
    };
    let body = body_length(request.headers, version)?;
    if method == "CONNECT" {
        if !matches!(body, BodyLength::None | BodyLength::Bytes(0)) {
            return Err(HeadError::Malformed("CONNECT has no body"));
        }
        return Ok(Request::Tunnel { host: tunnel_host(target)? });
    }
    let (host, path) = plain_target(target)?;
    let head = rewritten_head(method, &path, version, &host, request.headers, body);
    Ok(Request::Forward { host, head, body })
}

fn find_head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|position| position + 4)
}

/// The length is stated once and in one way, or the request is refused: two readers could differ on it.
fn body_length(headers: &[httparse::Header<'_>], version: u8) -> Result<BodyLength, HeadError> {
    let mut lengths = values(headers, "content-length");
    let mut encodings = values(headers, "transfer-encoding");
    match (lengths.next(), encodings.next()) {
        (None, None) => Ok(BodyLength::None),
        (Some(_), Some(_)) => Err(HeadError::Malformed("it has both Content-Length and Transfer-Encoding")),
        (Some(_), None) if lengths.next().is_some() => {
            Err(HeadError::Malformed("it has more than one Content-Length"))
        }
        (Some(length), None) => match decimal(length) {
            Some(length) => Ok(BodyLength::Bytes(length)),
            None => Err(HeadError::Malformed("its Content-Length is not a number")),
        },
        (None, Some(encoding)) => {
            let chunked = encoding.eq_ignore_ascii_case(b"chunked") && encodings.next().is_none();
            if chunked && version == 1 {
                Ok(BodyLength::Chunked)
            } else {
                Err(HeadError::Malformed("its Transfer-Encoding is not `chunked` alone"))
            }
        }
    }
}

fn values<'a>(headers: &'a [httparse::Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

fn decimal<Number: std::str::FromStr>(digits: &[u8]) -> Option<Number> {
    // The standard parsers would take a sign as well.
    let digits =
        std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

fn tunnel_host(target: &str) -> Result<Host, HeadError> {
    let (host, port) = split_authority(target)?;
    let port = port.ok_or(HeadError::Malformed("CONNECT needs a host and a port"))?;
    if port != TUNNEL_PORT {
        return Err(refused(target, RefusedTarget::TunnelPort(port)));
    }
    parse_host(target, host)
}

/// The host of an absolute target, and the rest of the target in the form for an origin server.
fn plain_target(target: &str) -> Result<(Host, String), HeadError> {
    let Some((scheme, rest)) = target.split_once("://") else { return Err(HeadError::NotForAProxy) };
    if target.starts_with('/') {
        return Err(HeadError::NotForAProxy);
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(refused(authority, RefusedTarget::Scheme));
    }
    if path.contains('#') {
        return Err(HeadError::Malformed("its target has a fragment"));
    }
    let (host, port) = split_authority(authority)?;
    match port {
        None | Some(PLAIN_PORT) => {}
        Some(port) => return Err(refused(authority, RefusedTarget::PlainPort(port))),
    }
    let host = parse_host(authority, host)?;
    Ok((host, if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }))
}

fn split_authority(authority: &str) -> Result<(&str, Option<u16>), HeadError> {
    if authority.contains('@') {
        return Err(HeadError::Malformed("its target names a user"));
    }
    // The colons of an IPv6 address stand in brackets.
    let host_end = authority.find(']').map_or(0, |bracket| bracket + 1);
    let Some(colon) = authority[host_end..].find(':') else { return Ok((authority, None)) };
    let (host, port) = authority.split_at(host_end + colon);
    match decimal(&port.as_bytes()[1..]) {
        Some(port) => Ok((host, Some(port))),
        None => Err(HeadError::Malformed("the port of its target is not a number")),
    }
}

fn parse_host(authority: &str, host: &str) -> Result<Host, HeadError> {
    host.parse().map_err(|error| refused(authority, RefusedTarget::Host(error)))
}

fn refused(authority: &str, reason: RefusedTarget) -> HeadError {
    // For the log: a name has at most 253 characters, anything longer is noise.
    HeadError::Refused { authority: authority.chars().take(300).collect(), reason }
}

fn rewritten_head(
    method: &str,
    path: &str,
    version: u8,
    host: &Host,
    headers: &[httparse::Header<'_>],
    body: BodyLength,
) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.{version}\r\nHost: {host}\r\n").into_bytes();
    for header in headers.iter().filter(|header| is_passed_on(header.name, headers)) {
        head.extend_from_slice(header.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(header.value);
        head.extend_from_slice(b"\r\n");
    }
    match body {
        BodyLength::None => {}
        BodyLength::Bytes(length) => write!(head, "Content-Length: {length}\r\n").unwrap_or_default(),
        BodyLength::Chunked => head.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    head
}

fn is_passed_on(name: &str, headers: &[httparse::Header<'_>]) -> bool {
    let name_is = |other: &[u8]| other.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
    let named_by_connection =
        || values(headers, "connection").any(|value| value.split(|byte| *byte == b',').any(name_is));
    let for_proxies = name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("proxy-"));
    !for_proxies && !NOT_PASSED_ON.iter().any(|other| name_is(other.as_bytes())) && !named_by_connection()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(head: &str) -> Result<Request, HeadError> {
        parse_head(head.as_bytes())
    }

    fn forwarded(head: &str) -> (String, String, BodyLength) {
        match parse(head).unwrap() {
            Request::Forward { host, head, body } => {
                (host.to_string(), String::from_utf8(head).unwrap(), body)
            }
            Request::Tunnel { host } => panic!("a tunnel to {host}"),
        }
    }

    fn refusal(head: &str) -> RefusedTarget {
        match parse(head) {
            Err(HeadError::Refused { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn connect_is_for_port_443() {
        let host = "example.org".parse().unwrap();
        assert_eq!(parse("CONNECT example.org:443 HTTP/1.1\r\n\r\n").unwrap(), Request::Tunnel { host });
        for port in [25, 22, 80, 8443] {
            let head = format!("CONNECT example.org:{port} HTTP/1.1\r\n\r\n");
            assert_eq!(refusal(&head), RefusedTarget::TunnelPort(port));
        }
        let host = "[2606:2800::1]".parse().unwrap();
        assert_eq!(parse("CONNECT [2606:2800::1]:443 HTTP/1.1\r\n\r\n").unwrap(), Request::Tunnel { host });
    }

    #[test]
    fn odd_hosts_are_refused() {
        for host in ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::1%25lo]", "exa%6dple.org", "a..b", ""]
        {
            let connect = format!("CONNECT {host}:443 HTTP/1.1\r\n\r\n");
            assert!(matches!(refusal(&connect), RefusedTarget::Host(_)), "{host}");
            let get = format!("GET http://{host}/ HTTP/1.1\r\n\r\n");
            assert!(matches!(refusal(&get), RefusedTarget::Host(_)), "{host}");
        }
    }

    #[test]
    fn a_plain_request_is_rewritten_for_the_server() {
        let (host, head, body) = forwarded(
            "POST http://Example.org:80/path?query HTTP/1.1\r\nHost: other.example\r\nAccept: */*\r\n\
             Proxy-Authorization: secret\r\nproxy-connection: keep-alive\r\nConnection: X-Private, keep-alive\r\n\
             X-Private: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\n",
        );
        assert_eq!(host, "example.org");
        assert_eq!(body, BodyLength::Bytes(5));
        assert_eq!(
            head,
            "POST /path?query HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\nContent-Length: 5\r\n\
             Connection: close\r\n\r\n"
        );
    }

    #[test]
    fn targets_without_a_path_ask_for_the_root() {
        assert!(forwarded("GET HTTP://example.org HTTP/1.0\r\n\r\n").1.starts_with("GET / HTTP/1.0\r\n"));
        assert!(forwarded("GET http://example.org?a HTTP/1.1\r\n\r\n").1.starts_with("GET /?a HTTP/1.1\r\n"));
    }

    #[test]
    fn connection_cannot_name_away_what_frames_the_request() {
        let (_, head, _) = forwarded(
            "POST http://example.org/ HTTP/1.1\r\nConnection: Host, Content-Length\r\nContent-Length: 3\r\n\r\n",
        );
        assert!(head.contains("Host: example.org\r\n") && head.contains("Content-Length: 3\r\n"), "{head}");
    }

    #[test]
    fn other_ports_and_schemes_are_refused() {
        assert_eq!(refusal("GET http://example.org:8080/ HTTP/1.1\r\n\r\n"), RefusedTarget::PlainPort(8080));
        assert_eq!(refusal("GET http://[::1]:443/ HTTP/1.1\r\n\r\n"), RefusedTarget::PlainPort(443));
        for scheme in ["https", "ftp", "file"] {
            assert_eq!(
                refusal(&format!("GET {scheme}://example.org/ HTTP/1.1\r\n\r\n")),
                RefusedTarget::Scheme
            );
        }
    }

    #[test]
    fn requests_that_are_not_for_a_proxy_are_told_so() {
        for target in ["/", "/http://example.org/", "*", "example.org"] {
            let problem = parse(&format!("GET {target} HTTP/1.1\r\nHost: example.org\r\n\r\n")).unwrap_err();
            assert!(matches!(problem, HeadError::NotForAProxy), "{target}: {problem:?}");
        }
    }

    #[test]
    fn ambiguous_heads_are_malformed() {
        let heads = [
            "POST http://a.org/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST http://a.org/ HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\n",
            "POST http://a.org/ HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n",
            "POST http://a.org/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
            "POST http://a.org/ HTTP/1.1\r\nContent-Length: \r\n\r\n",
            "POST http://a.org/ HTTP/1.1\r\nContent-Length : 1\r\n\r\n",
            "POST http://a.org/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "POST http://a.org/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST http://a.org/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "CONNECT a.org:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
            "CONNECT a.org HTTP/1.1\r\n\r\n",
            "CONNECT a.org: HTTP/1.1\r\n\r\n",
            "CONNECT a.org:+443 HTTP/1.1\r\n\r\n",
            "CONNECT a.org:99999 HTTP/1.1\r\n\r\n",
            "CONNECT user@a.org:443 HTTP/1.1\r\n\r\n",
            "GET http://127.0.0.1@a.org/ HTTP/1.1\r\n\r\n",
            "GET http://a.org/#b HTTP/1.1\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\n\nGET http://b.org/ HTTP/1.1\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "\u{16}\u{3}\u{1}\r\n\r\n",
        ];
        for head in heads {
            assert!(matches!(parse(head), Err(HeadError::Malformed(_))), "{head:?}: {:?}", parse(head));
        }
    }

    #[test]
    fn too_many_headers_are_too_long() {
        let head = format!("GET http://a.org/ HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MOST_HEADERS + 1));
        assert!(matches!(parse(&head), Err(HeadError::TooLong)));
    }

    #[tokio::test]
    async fn a_head_is_read_to_its_end_and_no_further() {
        let (mut client, mut proxy) = tokio::io::duplex(7);
        let writing =
            async { tokio::io::AsyncWriteExt::write_all(&mut client, b"GET / HTTP/1.1\r\n\r\nbody").await };
        let (read, written) = tokio::join!(read_head(&mut proxy), writing);
        written.unwrap();
        let (head, mut rest) = read.unwrap();
        assert_eq!(head, b"GET / HTTP/1.1\r\n\r\n");
        drop(client);
        proxy.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"body");
    }

    #[tokio::test]
    async fn reading_is_bounded_and_notices_the_end() {
        let endless = vec![b'a'; 2 * LONGEST_HEAD];
        assert!(matches!(read_head(&mut &endless[..]).await, Err(HeadError::TooLong)));
        assert!(matches!(read_head(&mut &b"GET /"[..]).await, Err(HeadError::Ended(_))));
    }

    proptest! {
        #[test]
        fn what_is_forwarded_has_one_host_and_one_end(
            path in "[ -~]{0,20}",
            name in "[A-Za-z-]{1,12}",
            value in "[ -~\r\n]{0,40}",
        ) {
            let head = format!("GET http://a.org/{path} HTTP/1.1\r\n{name}: {value}\r\n\r\n");
            if let Ok(Request::Forward { host, head, .. }) = parse(&head) {
                let text = String::from_utf8(head).unwrap().to_ascii_lowercase();
                prop_assert_eq!(host.to_string(), "a.org");
                prop_assert_eq!(text.matches("\r\nhost: ").count(), 1);
                prop_assert_eq!(text.find("\r\n\r\n"), Some(text.len() - 4));
            }
        }
    }
}
