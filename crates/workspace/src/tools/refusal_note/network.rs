//! The note on a host that could not be reached: which one, and which option of the operator allows it.

use std::net::IpAddr;

use fence::{ProxyReach, proxy_reach};

use super::{FenceFacts, MAX_LINES};

/// What tools print when a name has no address. Behind the proxy of a fence they need none.
const UNRESOLVED: [&str; 10] = [
    "Could not resolve host",
    "Temporary failure in name resolution",
    "Name or service not known",
    "getaddrinfo",
    "EAI_AGAIN",
    "ENOTFOUND",
    "unable to look up",
    "unable to resolve host",
    "no such host",
    "dns error",
];

/// What tools print when an address cannot be reached.
const UNREACHABLE: [&str; 5] = [
    "Network is unreachable",
    "network is unreachable",
    "ENETUNREACH",
    "Couldn't connect to server",
    "Socket operation not permitted",
];

/// What tools print when a proxy, and only a proxy, refuses a host; and what the proxy of a fence itself says.
const REFUSED_BY_PROXY: [&str; 9] = [
    "CONNECT tunnel failed, response 403",
    "HTTP code 403 from proxy",
    "Tunnel connection failed: 403",
    "Proxy tunneling failed: Forbidden",
    "Proxy response (403)",
    "unsuccessful tunnel",
    "is not allowed: the allow-list",
    "is not allowed: its address",
    "is not allowed: a local name",
];

/// What tools print when a proxy or the host itself refuses a request.
const FORBIDDEN: [&str; 5] =
    ["403 Forbidden", "error: 403", "ERROR 403", "HTTP Error 403", "status code 403"];

/// What precedes the name of a host, besides the scheme of an address.
const BEFORE_HOST: [&str; 13] = [
    "http://",
    "https://",
    "ssh://",
    "git://",
    "host: ",
    "hostname: ",
    "hostname ",
    "EAI_AGAIN ",
    "ENOTFOUND ",
    "unable to look up ",
    "unable to connect to ",
    "host address ",
    "Failed to connect to ",
];

/// What a line says of the network.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Unresolved,
    Unreachable,
    RefusedByProxy,
    Forbidden,
}

pub(super) fn note_on_network(command: &str, output: &str, facts: &FenceFacts) -> Option<String> {
    if facts.network.starts_with("all") {
        return None;
    }
    let lines: Vec<&str> = output.lines().rev().take(MAX_LINES).collect();
    let found = lines.iter().enumerate().find_map(|(place, line)| {
        let sign = Sign::of(line, output)?;
        let around = || lines[place + 1..].iter().chain(lines[..place].iter().rev());
        let host =
            host_in(line).or_else(|| sole_host(command)).or_else(|| around().find_map(|line| host_in(line)));
        explain(sign, host, facts)
    })?;
    Some(format!("[ringfence: {found}]"))
}

impl Sign {
    fn of(line: &str, output: &str) -> Option<Self> {
        let has = |signs: &[&str]| signs.iter().any(|sign| line.contains(sign));
        // Python names neither the call nor the address, git not the call.
        let is_of_socket = || line.contains("errno=") || output.contains("socket.");
        let is_socket = || line.ends_with("Operation not permitted") && is_of_socket();
        match () {
            () if has(&REFUSED_BY_PROXY) => Some(Self::RefusedByProxy),
            () if has(&FORBIDDEN) => Some(Self::Forbidden),
            () if has(&UNREACHABLE) || is_socket() => Some(Self::Unreachable),
            () if has(&UNRESOLVED) => Some(Self::Unresolved),
            () => None,
        }
    }
}

/// What the note says, or `None` if something else than the fence may be the reason.
fn explain(sign: Sign, host: Option<&str>, facts: &FenceFacts) -> Option<String> {
    let mode = facts.network.split([' ', ':']).next().unwrap_or_default();
    if mode != "http" {
        let is_fences = !matches!(sign, Sign::RefusedByProxy | Sign::Forbidden);
        return is_fences.then(|| without_proxy(mode, host));
    }
    let Some(host) = host else {
        return match sign {
            Sign::Forbidden => None,
            Sign::RefusedByProxy => Some(
                "the proxy of this fence refused a host; the operator can allow hosts with --allow-host HOST"
                    .to_owned(),
            ),
            Sign::Unresolved | Sign::Unreachable => Some(only_by_proxy("hosts")),
        };
    };
    match (proxy_reach(&facts.network, host)?, sign) {
        (ProxyReach::NotListed, _) => Some(format!(
            "the fence refused {host}, which is not among the hosts that this session can reach; the operator can \
             allow it with --allow-host {host}"
        )),
        (ProxyReach::NotPublic, _) => Some(format!(
            "the fence refused {host}, which is no public host; the operator can allow it with --allow-host {host}, \
             beside the other hosts that are needed"
        )),
        (ProxyReach::Never, _) => Some(format!(
            "the fence refused {host}: with the network `http` nothing of this machine can be reached; the operator \
             can show ports of it with --net localhost --host-port PORT"
        )),
        (ProxyReach::Dials, Sign::RefusedByProxy) => Some(format!(
            "the proxy of this fence refused {host}: it reaches only ports 80 and 443, and addresses that are not \
             public only for a host that is named with --allow-host {host}"
        )),
        (ProxyReach::Dials, Sign::Unreachable) => Some(only_by_proxy(host)),
        // The proxy gives names that exist their addresses, and a host may refuse a request itself.
        (ProxyReach::Dials, Sign::Unresolved | Sign::Forbidden) => None,
    }
}

fn only_by_proxy(host: &str) -> String {
    format!(
        "this fence has the network `http`: {host} can be reached only by HTTP and HTTPS through the proxy that \
         HTTPS_PROXY names; the operator can allow more with --net"
    )
}

fn without_proxy(mode: &str, host: Option<&str>) -> String {
    match host {
        None => format!(
            "this fence has the network `{mode}`; the operator can allow more with --net, and hosts with --net http \
             --allow-host HOST"
        ),
        Some(host) if is_of_this_machine(host) => format!(
            "this fence has the network `{mode}`, in which {host} is not that of the machine; the operator can show \
             ports of the machine with --net localhost --host-port PORT"
        ),
        Some(host) => format!(
            "the fence refused {host}: its network is `{mode}`; the operator can allow this host with --net http \
             --allow-host {host}, and more with --net"
        ),
    }
}

fn is_of_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The host that a line names.
fn host_in(line: &str) -> Option<&str> {
    // The words of the fence's proxy begin with the host.
    let refused = || line.split_once(" is not allowed: ")?.0.rsplit(char::is_whitespace).next();
    let named = BEFORE_HOST.iter().find_map(|before| line.split_once(before).map(|(_, after)| after));
    named.or_else(refused).and_then(host_at)
}

/// The host at the beginning of a text: without a user before it, a port or a path after it.
fn host_at(text: &str) -> Option<&str> {
    let text = text.trim_start_matches(['\'', '"', '`', '\u{2018}', '\u{201c}']);
    let end = text.find(|c: char| !is_of_host(c) && c != '@').unwrap_or(text.len());
    let host = text[..end].rsplit('@').next()?;
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let host = match bracketed {
        Some((address, _)) => &text[..address.len() + 2],
        None => host.trim_end_matches('.'),
    };
    let is_host = host.contains(|c: char| c.is_ascii_alphanumeric()) && host.len() <= 253;
    is_host.then_some(host)
}

fn is_of_host(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
}

/// The host of the addresses in a command, if they have only one.
fn sole_host(command: &str) -> Option<&str> {
    let mut hosts = command.split("://").skip(1).filter_map(host_at);
    let first = hosts.next()?;
    hosts.all(|host| host == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "http: HTTP and HTTPS through the proxy to registry.example; programs that ignore the proxy \
                          reach nothing";
    const ANY: &str = "http: HTTP and HTTPS through the proxy to any public host; programs that ignore the proxy \
                       reach nothing";

    fn note_in(network: &str, command: &str, output: &str) -> String {
        let facts = FenceFacts { network: network.to_owned(), ..FenceFacts::for_tests() };
        note_on_network(command, output, &facts).unwrap_or_default()
    }

    #[test]
    fn tools_without_a_network_are_told_the_host_that_was_refused() {
        for output in [
            "curl: (6) Could not resolve host: far.example",
            "fatal: unable to access 'https://far.example/x.git/': Could not resolve host: far.example",
            "fatal: unable to look up far.example (port 9418) (Temporary failure in name resolution)",
            "wget: unable to resolve host address \u{2018}far.example\u{2019}",
            "npm error request to https://far.example/left-pad failed, reason: getaddrinfo EAI_AGAIN far.example\n\
             npm error A complete log of this run can be found in: /x/0.log",
            "  [cause]: Error: getaddrinfo ENOTFOUND far.example\n      at X {\n    errno: -3008\n  }\n}",
            "  errno: -3001,\n  syscall: 'getaddrinfo',\n  hostname: 'far.example'\n}",
            "ssh: Could not resolve hostname far.example: Name or service not known",
            "fatal: unable to connect to far.example:\nfar.example[0: 192.0.2.1]: errno=Operation not permitted",
            "curl: (7) Failed to connect to far.example port 80 after 0 ms: Couldn't connect to server",
        ] {
            let said = note_in("none: no network", "make", output);
            for words in ["refused far.example:", "`none`", "--allow-host far.example"] {
                assert!(said.contains(words), "{output}: {said}");
            }
        }
    }

    #[test]
    fn an_address_of_the_command_helps_where_the_tool_names_none() {
        let python = "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>";
        let one = "python3 -c 'urlopen(\"https://ada@far.example:8443/x\")'";
        assert!(note_in("none: no network", one, python).contains("refused far.example:"));
        let two = format!("{one}; curl http://other.example");
        assert!(note_in("none: no network", &two, python).contains("the network `none`"));
        let socket = "    socket.socket(2)\nPermissionError: [Errno 1] Operation not permitted";
        assert!(note_in("none: no network", "python3 x.py", socket).contains("--net"));
    }

    #[test]
    fn a_host_that_the_proxy_refuses_is_named_with_its_option() {
        let get = "curl -sSf https://far.example/x";
        for output in [
            "curl: (56) CONNECT tunnel failed, response 403",
            "fatal: unable to access 'https://far.example/x.git/': CONNECT tunnel failed, response 403",
            "npm error code E403\nnpm error 403 403 Forbidden - GET https://far.example/left-pad",
            "WARNING: Retrying after connection broken by 'ProxyError('Cannot connect to proxy.', OSError('Tunnel \
             connection failed: 403 Forbidden'))': /simple/zzz/",
            "urllib.error.HTTPError: HTTP Error 403: Forbidden",
            "  failed to download from `https://far.example/config.json`\n\nCaused by:\n  [56] Failure when \
             receiving data from the peer (CONNECT tunnel failed, response 403)",
            "far.example is not allowed: the allow-list does not name it",
            "Error: getaddrinfo ENOTFOUND far.example",
        ] {
            let said = note_in(LISTED, get, output);
            assert!(
                said.contains("refused far.example,") && said.contains("--allow-host far.example"),
                "{said}"
            );
        }
        let own =
            note_in(ANY, "curl -sSf http://127.0.0.1/", "curl: (22) The requested URL returned error: 403");
        assert!(own.contains("refused 127.0.0.1:") && own.contains("--host-port"), "{own}");
        let private = note_in(
            ANY,
            "",
            "fatal: unable to access 'http://10.0.0.5/': The requested URL returned error: 403",
        );
        assert!(private.contains("--allow-host 10.0.0.5"), "{private}");
    }

    #[test]
    fn what_a_host_refuses_itself_is_not_blamed_on_the_fence() {
        for (network, output) in [
            (LISTED, "npm error 403 403 Forbidden - GET https://registry.example/private"),
            (LISTED, "curl: (22) The requested URL returned error: 404"),
            (LISTED, "curl: (56) CONNECT tunnel failed, response 502"),
            (ANY, "npm error 403 403 Forbidden - GET https://registry.example/private"),
            (ANY, "curl: (6) Could not resolve host: typo.example"),
            ("none: no network", "HTTP Error 403: Forbidden"),
            ("all: not restricted", "curl: (6) Could not resolve host: far.example"),
        ] {
            assert_eq!(note_in(network, "make", output), "", "{output}");
        }
    }
}
