//! The whole text of one profile per mode, for a reader to check. After an intended change, `UPDATE_GOLDEN=1 cargo
//! test` rewrites the files.

use std::fmt::Write as _;
use std::path::Path;

use super::*;

/// The text, and the parameters as comments below it.
fn rendered(request: &SeatbeltRequest) -> String {
    let profile = made(request);
    let mut out = profile.text;
    out.push_str("\n; Parameters\n");
    for (key, value) in profile.parameters {
        writeln!(out, "; -D {key}={value}").unwrap();
    }
    out
}

fn check(name: &str, request: &SeatbeltRequest) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/seatbelt/golden");
    let file = directory.join(format!("{name}.sb"));
    let actual = rendered(request);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &actual).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(actual, expected, "{name}.sb is not what is generated");
}

fn network_name(network: SeatbeltNetwork) -> &'static str {
    match network {
        SeatbeltNetwork::All => "all",
        SeatbeltNetwork::None => "none",
        SeatbeltNetwork::Localhost => "localhost",
        SeatbeltNetwork::Proxy { .. } => "proxy",
    }
}

#[test]
fn open_reads_with_each_network() {
    for network in EVERY_NETWORK {
        let request = SeatbeltRequest { network, ..plain_request() };
        check(&format!("open-{}", network_name(network)), &request);
    }
}

#[test]
fn strict_reads_with_each_network() {
    for network in EVERY_NETWORK {
        let read = strict(&["/Users/ada/.local/share/node"]);
        let request = SeatbeltRequest { read, network, ..plain_request() };
        check(&format!("strict-{}", network_name(network)), &request);
    }
}

#[test]
fn pseudo_terminals() {
    check("pty", &SeatbeltRequest { pty: true, ..plain_request() });
}

#[test]
fn unix_sockets() {
    let unix_sockets = paths(&["/Users/ada/work/run", "/tmp/agent.sock"]);
    check("unix-sockets", &SeatbeltRequest { unix_sockets, ..plain_request() });
}

#[test]
fn protected_paths() {
    let protected = paths(&["/Users/ada/work/.git/hooks", "/Users/ada/work/.envrc"]);
    check("protected", &SeatbeltRequest { protected, ..plain_request() });
}

#[test]
fn deny_read_paths() {
    let deny_read = paths(&["/Users/ada/.ssh", "/Users/ada/work/vault/keys", "/etc/ssl/private"]);
    check("deny-read", &SeatbeltRequest { deny_read, ..plain_request() });
}

#[test]
fn everything_at_once() {
    check("full", &full_request());
}
