//! Tests of profiles by their text, their structure and a model of the kernel. They cannot show whether macOS accepts
//! a profile.

mod decisions;
mod golden;
mod hostile_paths;
mod structure;

use std::path::{Path, PathBuf};

use super::{
    SeatbeltNetwork, SeatbeltProfile, SeatbeltRead, SeatbeltRequest, profile, sandbox_exec_arguments,
};

const EVERY_NETWORK: [SeatbeltNetwork; 4] = [
    SeatbeltNetwork::None,
    SeatbeltNetwork::Localhost,
    SeatbeltNetwork::Proxy { port: 3128 },
    SeatbeltNetwork::All,
];

fn paths(paths: &[&str]) -> Vec<PathBuf> {
    paths.iter().map(PathBuf::from).collect()
}

fn strict(readable: &[&str]) -> SeatbeltRead {
    SeatbeltRead::Strict { readable: paths(readable) }
}

/// One workspace, open reads, no network.
fn plain_request() -> SeatbeltRequest {
    SeatbeltRequest {
        writable: paths(&["/Users/ada/work"]),
        protected: Vec::new(),
        read: SeatbeltRead::Open,
        deny_read: Vec::new(),
        network: SeatbeltNetwork::None,
        unix_sockets: Vec::new(),
        pty: false,
        tag: "ringfence-test".to_owned(),
    }
}

/// Every list has an entry, and some paths lie below symbolic links of the system.
fn full_request() -> SeatbeltRequest {
    SeatbeltRequest {
        writable: paths(&["/Users/ada/work", "/tmp/session"]),
        protected: paths(&["/Users/ada/work/.git/hooks", "/tmp/session/config.json"]),
        read: strict(&["/Users/ada/.local/share/node", "/private/var/tools"]),
        deny_read: paths(&["/Users/ada/.ssh", "/Users/ada/work/vault/keys", "/etc/ssl/private"]),
        network: SeatbeltNetwork::Proxy { port: 3128 },
        unix_sockets: paths(&["/Users/ada/work/run", "/private/tmp/agent.sock"]),
        pty: true,
        tag: "ringfence-test".to_owned(),
    }
}

fn made(request: &SeatbeltRequest) -> SeatbeltProfile {
    profile(request).expect("the request is sound")
}

#[test]
fn a_profile_reaches_sandbox_exec_without_paths_in_its_text() {
    let request = SeatbeltRequest {
        protected: paths(&["/Users/ada/work/.git/hooks"]),
        deny_read: paths(&["/Users/ada/.ssh"]),
        ..plain_request()
    };
    let profile = made(&request);
    assert!(!profile.text.contains("/Users/ada"));
    let arguments = sandbox_exec_arguments(&profile, Path::new("/usr/bin/true"), &[]);
    assert_eq!(arguments[0], "-p");
}
